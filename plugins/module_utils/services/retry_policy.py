# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a failed request says of the next: whether to ask again, how soon, which of several errors says most. Pure."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from ..errors import DependencyError, SystemFault, TpmError
from ..reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..errors import AttestedError

_QUICK_SECONDS = 1.0
_SLOW_SECONDS = 16.0
_OTHERS = 6
_STORY = 90


class Outlook(Enum):
    """The kinds of failures, from what says least about this machine to what says most."""

    ABSENT = "nobody is there"
    UNABLE = "the service, or the TPM, cannot serve now"
    STRANGER = "what answers is not a service of this cluster, or nobody can tell"
    CLOCK = "the clocks of this machine and of the service differ"
    REFUSED = "the cluster refused, and an admin may change that"
    NEVER = "the same question gets the same answer"


_WINDOWS = {
    Outlook.ABSENT: _QUICK_SECONDS,
    Outlook.UNABLE: _QUICK_SECONDS,
    Outlook.STRANGER: _SLOW_SECONDS,
    Outlook.CLOCK: _SLOW_SECONDS,
    Outlook.REFUSED: _SLOW_SECONDS,
}
"""Within how many seconds the second try falls; a kind that is not here has none."""

OUTLOOKS = {
    # no service of the cluster has said it: whoever can answer at an address must not be able to end the asking
    Reason.CONNECTION_CLOSED: Outlook.ABSENT,
    Reason.CONNECTION_TIMEOUT: Outlook.ABSENT,
    Reason.JOIN_CA_MISMATCH: Outlook.STRANGER,
    Reason.JOIN_CLUSTER_MISMATCH: Outlook.STRANGER,
    Reason.JOIN_SERVICES_UNKNOWN: Outlook.STRANGER,
    Reason.NONCE_MALFORMED: Outlook.STRANGER,
    Reason.PEER_CERTIFICATE_MALFORMED: Outlook.STRANGER,
    Reason.PEER_UNREACHABLE: Outlook.ABSENT,
    Reason.TLS_BROKEN: Outlook.ABSENT,
    Reason.TLS_HANDSHAKE_FAILED: Outlook.STRANGER,
    # time helps, or an admin; the machine cannot see which
    Reason.CLOCK_SKEW: Outlook.CLOCK,
    Reason.EVIDENCE_REFUSED: Outlook.REFUSED,
    Reason.JOIN_CERTIFICATE_EXPIRED: Outlook.CLOCK,
    Reason.JOIN_SERVICE_BUSY: Outlook.UNABLE,
    Reason.JOIN_SERVICE_UNAVAILABLE: Outlook.UNABLE,
    Reason.TICKET_EXPIRED: Outlook.CLOCK,
    Reason.TICKET_REFUSED: Outlook.REFUSED,
    Reason.TPM_BUSY: Outlook.UNABLE,
    # a service of the cluster has answered what cannot be used: another release, another node's ticket, a forgery
    Reason.BINDING_MALFORMED: Outlook.NEVER,
    Reason.EVIDENCE_MALFORMED: Outlook.NEVER,
    Reason.JOIN_REQUEST_NOT_UNDERSTOOD: Outlook.NEVER,
    Reason.MESSAGE_MALFORMED: Outlook.NEVER,
    Reason.MESSAGE_TOO_LARGE: Outlook.NEVER,
    Reason.SEAL_UNOPENABLE: Outlook.NEVER,
    Reason.TICKET_MALFORMED: Outlook.NEVER,
    Reason.TICKET_NOT_OURS: Outlook.NEVER,
    Reason.TICKET_SIGNATURE: Outlook.NEVER,
    Reason.PROTOCOL_VERSION: Outlook.NEVER,
    Reason.TPM_CREDENTIAL_REFUSED: Outlook.NEVER,
    Reason.TPM_MALFORMED: Outlook.NEVER,
    # this machine itself
    Reason.ENDPOINT_INVALID: Outlook.NEVER,
    Reason.EVENT_LOG_TOO_LARGE: Outlook.NEVER,
    Reason.EVIDENCE_TOO_LARGE: Outlook.NEVER,
    Reason.TICKET_HANDLE_UNKNOWN: Outlook.NEVER,
}
"""Each reason that asking for a ticket can raise; what is not here never passes."""

_BY_THE_PEER = {Reason.TPM_CREDENTIAL_REFUSED, Reason.TPM_MALFORMED}
"""Errors of the TPM that bytes of the other side can cause."""


def outlook(error: AttestedError) -> Outlook:
    """Return the kind of ``error``."""
    return OUTLOOKS.get(error.reason, Outlook.NEVER)


def is_of_this_machine(error: AttestedError) -> bool:
    """Whether the machine itself is at fault, so that no other endpoint changes anything."""
    return isinstance(error, DependencyError | SystemFault | TpmError) and error.reason not in _BY_THE_PEER


def first_window(error: AttestedError) -> float | None:
    """Return within how many seconds to ask again at first, None where asking again never helps."""
    return _WINDOWS.get(outlook(error))


def pause_before_retry(error: AttestedError) -> float | None:
    """Return after how many seconds asking again makes sense, or None where it never does.

    For who asks once more; who asks on and on lets `Backoff` draw from `first_window`.
    """
    window = first_window(error)
    return None if window is None else error.retry_after_seconds or window


def passes_by_itself(error: AttestedError) -> bool:
    """Whether time alone may help: nobody refused anything, no clock is to be set, and this machine is in order."""
    return outlook(error) in (Outlook.ABSENT, Outlook.UNABLE, Outlook.STRANGER)


def most_telling(failures: Sequence[tuple[str, AttestedError]]) -> AttestedError:
    """Return the error that a person should see of those of each endpoint, with the story of every other one.

    What passes goes before what never does: one endpoint with the wrong answer must not end the asking of the others.
    Among those, the later kind of `Outlook`: a refusal says more than an absence. The longest time that a service
    asked for stays.
    """
    passing = [one for one in failures if outlook(one[1]) is not Outlook.NEVER] or failures
    kinds = list(Outlook)
    winner = max(passing, key=lambda one: kinds.index(outlook(one[1])))
    where, error = winner
    error.retry_after_seconds = max(one.retry_after_seconds for _where, one in failures)
    error.message = "; ".join([f"{where}: {error.message}", *_stories([one for one in failures if one is not winner])])
    return error


def _stories(failures: Sequence[tuple[str, AttestedError]]) -> list[str]:
    told = [f"{where} {error.code}: {_short(error)}" for where, error in failures[:_OTHERS]]
    left = len(failures) - _OTHERS
    return told + ([f"and {left} more"] if left > 0 else [])


def _short(error: AttestedError) -> str:
    """Return what came, not what was expected."""
    _expected, _got, came = error.message.partition(", got")
    text = came.lstrip(": ") or error.message
    return text if len(text) <= _STORY else f"{text[: _STORY - 1]}…"
