# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What may be asked again, and which error a person sees where endpoints disagree."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import (
    AttestedError,
    SystemFault,
    TpmError,
    TransportError,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.services.retry_policy import (
    OUTLOOKS,
    Outlook,
    first_window,
    is_of_this_machine,
    most_relevant,
    outlook,
    pause_before_retry,
)

UTILS = Path(__file__).parents[5] / "plugins" / "module_utils"
ASKING = (
    "transport/client.py",
    "transport/certificate.py",
    "transport/pins.py",
    "transport/session.py",
    "services/join_client.py",
    "services/join_endpoints.py",
    "services/ticket_store.py",
    "services/received_ticket.py",
    "keyservice/ticket.py",
    "proto/messages.py",
    "transport/sealed_box.py",
)
"""The code of a node that raises between the first dial and the opened ticket, the TPM and files left out."""
OF_THE_SERVER = {
    "CLIENT_HELLO_MALFORMED",
    "EVIDENCE_MISSING",
    "PEER_CERTIFICATE_EXPIRED",
}
"""What the service's side raises in the same files."""
LOCAL = {"FILE_UNUSABLE", "JOIN_CA_PIN_INVALID", "INTERNAL", "SERVER_CREDENTIALS_UNUSABLE"}


def error_of(reason: Reason, message: str = "expected A, got B") -> AttestedError:
    return AttestedError(message, reason=reason)


def test_somebody_has_decided_about_every_reason_that_asking_can_raise() -> None:
    found = {
        name for path in ASKING for name in re.findall(r"Reason\.([A-Z][A-Z_]+)", (UTILS / path).read_text("utf-8"))
    }
    assert len(found) > 20
    assert found - LOCAL - OF_THE_SERVER - {reason.name for reason in OUTLOOKS} == set()


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        pytest.param(Reason.PEER_UNREACHABLE, Outlook.ABSENT, id="nobody there yet"),
        pytest.param(Reason.JOIN_SERVICE_UNAVAILABLE, Outlook.UNABLE, id="not ready"),
        pytest.param(Reason.JOIN_SERVICE_BUSY, Outlook.UNABLE, id="too many"),
        pytest.param(Reason.TPM_BUSY, Outlook.UNABLE, id="the TPM is in use"),
        pytest.param(Reason.JOIN_CA_MISMATCH, Outlook.STRANGER, id="a foreign service"),
        pytest.param(Reason.JOIN_CLUSTER_MISMATCH, Outlook.STRANGER, id="a service of another cluster"),
        pytest.param(Reason.PEER_CERTIFICATE_MALFORMED, Outlook.STRANGER, id="a stranger's certificate"),
        pytest.param(Reason.TLS_HANDSHAKE_FAILED, Outlook.STRANGER, id="a proxy that answers HTML"),
        pytest.param(Reason.CLOCK_SKEW, Outlook.CLOCK, id="a clock that is behind"),
        pytest.param(Reason.JOIN_CERTIFICATE_EXPIRED, Outlook.CLOCK, id="a clock that is ahead"),
        pytest.param(Reason.TICKET_EXPIRED, Outlook.CLOCK, id="a clock that is an hour ahead"),
        pytest.param(Reason.TICKET_REFUSED, Outlook.REFUSED, id="refused: an admin may still enrol it"),
        pytest.param(Reason.EVIDENCE_REFUSED, Outlook.REFUSED, id="refused: its boot may still be admitted"),
        pytest.param(Reason.TICKET_SIGNATURE, Outlook.NEVER, id="a forged ticket"),
        pytest.param(Reason.TICKET_NOT_OURS, Outlook.NEVER, id="another node's ticket"),
        pytest.param(Reason.SEAL_UNOPENABLE, Outlook.NEVER, id="a box that does not open"),
        pytest.param(Reason.JOIN_REQUEST_NOT_UNDERSTOOD, Outlook.NEVER, id="another release"),
        pytest.param(Reason.NODELOCK_FOREIGN, Outlook.NEVER, id="a register that nobody explains"),
        pytest.param(Reason.NODELOCK_OTHER_CLUSTER, Outlook.NEVER, id="a machine of another cluster"),
        pytest.param(Reason.RACE_LOST, Outlook.NEVER, id="init has won"),
    ],
)
def test_what_may_be_tried_again(reason: Reason, kind: Outlook) -> None:
    error = error_of(reason)
    assert outlook(error) is kind
    assert (first_window(error) is None) is (kind is Outlook.NEVER)
    assert (pause_before_retry(error) is None) is (kind is Outlook.NEVER)


def test_what_needs_a_person_is_asked_for_more_slowly() -> None:
    quick, slow = first_window(error_of(Reason.PEER_UNREACHABLE)), first_window(error_of(Reason.TICKET_REFUSED))
    assert (quick, slow) == (1.0, 16.0)


@pytest.mark.parametrize(
    ("reasons", "expected"),
    [
        pytest.param(
            [Reason.PEER_UNREACHABLE, Reason.TICKET_REFUSED], Reason.TICKET_REFUSED, id="a refusal over an absence"
        ),
        pytest.param(
            [Reason.JOIN_CA_MISMATCH, Reason.TICKET_REFUSED, Reason.CLOCK_SKEW],
            Reason.TICKET_REFUSED,
            id="a refusal over what a stranger or a clock says",
        ),
        pytest.param(
            [Reason.PEER_UNREACHABLE, Reason.JOIN_CA_MISMATCH, Reason.JOIN_SERVICE_BUSY],
            Reason.JOIN_CA_MISMATCH,
            id="a stranger over a service that is away",
        ),
        pytest.param(
            [Reason.PEER_UNREACHABLE, Reason.JOIN_SERVICE_BUSY], Reason.JOIN_SERVICE_BUSY, id="busy over away"
        ),
        pytest.param(
            [Reason.TICKET_SIGNATURE, Reason.PEER_UNREACHABLE],
            Reason.PEER_UNREACHABLE,
            id="one service that forges ends nothing while another may come back",
        ),
        pytest.param(
            [Reason.JOIN_REQUEST_NOT_UNDERSTOOD, Reason.PROTOCOL_VERSION],
            Reason.JOIN_REQUEST_NOT_UNDERSTOOD,
            id="where nothing passes, the first",
        ),
        pytest.param([Reason.PEER_UNREACHABLE], Reason.PEER_UNREACHABLE, id="the only one"),
    ],
)
def test_which_error_a_person_sees(reasons: list[Reason], expected: Reason) -> None:
    """In whatever order the endpoints were asked, but for equals."""
    failures = [(f"host-{number}:9090", error_of(reason)) for number, reason in enumerate(reasons)]
    assert most_relevant(failures).reason is expected
    if outlook(error_of(expected)) is not Outlook.NEVER:
        again = [(f"host-{number}:9090", error_of(reason)) for number, reason in enumerate(reversed(reasons))]
        assert most_relevant(again).reason is expected


def test_every_endpoint_has_its_story_in_one_line() -> None:
    said = most_relevant(
        [
            ("cp-2:9090", error_of(Reason.PEER_UNREACHABLE, "expected a service at 10.0.0.12:9090, got: refused")),
            ("cp-1:9090", error_of(Reason.TICKET_REFUSED, "expected a ticket, got 'no' (correlation id abc)")),
            ("cp-3:9090", error_of(Reason.CONNECTION_TIMEOUT, "expected a connection within 20 s")),
        ]
    )
    assert said.message == (
        "cp-1:9090: expected a ticket, got 'no' (correlation id abc); cp-2:9090 PEER_UNREACHABLE: refused; "
        "cp-3:9090 CONNECTION_TIMEOUT: expected a connection within 20 s"
    )


def test_many_stories_are_cut() -> None:
    long = "expected A, got " + "x" * 500
    said = most_relevant([(f"cp-{number}:9090", error_of(Reason.PEER_UNREACHABLE, long)) for number in range(64)])
    assert said.message.endswith("and 57 more")
    assert len(said.message) < 1500


def test_the_longest_time_that_a_service_asked_for_stays() -> None:
    """Also where its own error is not the one that is shown: the next round asks it again."""
    busy = error_of(Reason.JOIN_SERVICE_BUSY)
    busy.retry_after_seconds = 9.0
    said = most_relevant([("cp-1:9090", busy), ("cp-2:9090", error_of(Reason.TICKET_REFUSED))])
    assert (said.code, said.retry_after_seconds) == ("TICKET_REFUSED", 9.0)


@pytest.mark.parametrize(
    ("error", "own"),
    [
        pytest.param(TpmError("?", reason=Reason.TPM_UNREACHABLE), True, id="no TPM"),
        pytest.param(TpmError("?", reason=Reason.TPM_BUSY), True, id="a TPM in use"),
        pytest.param(SystemFault("?", reason=Reason.NOT_TMPFS), True, id="no place for secrets"),
        pytest.param(TpmError("?", reason=Reason.TPM_CREDENTIAL_REFUSED), False, id="a credential for another TPM"),
        pytest.param(TransportError("?", reason=Reason.PEER_UNREACHABLE), False, id="an absent service"),
    ],
)
def test_whose_fault_it_is(error: AttestedError, own: bool) -> None:
    assert is_of_this_machine(error) is own
