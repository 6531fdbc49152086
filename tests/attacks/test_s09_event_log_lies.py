# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S9: type and data of an event are under no digest: a log may say anything, and gains nothing by it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.kinds import EV_SEPARATOR
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.tcg import parse_firmware_log
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.evidence import EventLogs
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.assertions import Assertions
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.in_force import SitePolicy
from ansible_collections.attested.kubernetes.tests.support import boots
from ansible_collections.attested.kubernetes.tests.support.exchange import SELECTION, Exchange, identity_of, learned
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of
from ansible_collections.attested.kubernetes.tests.support.threats import Threat

if TYPE_CHECKING:
    from collections.abc import Callable

    from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.verify import VerifiedNode

THREAT = Threat(
    id="S9",
    title="Event log that lies",
    case="go-attestation's disclosure of event-log handling",
    bed="bytes",
    stops=(
        ("evidence/verify.py step 8", "EVENT_LOG_MISMATCH"),
        ("evidence/verify.py step 8", "EVENT_LOG_CHANGED"),
        ("evidence/verify.py step 8", "EVENT_LOG_MALFORMED"),
        ("evidence/verify.py step 10", "FIRMWARE_TOO_OLD"),
    ),
)

EV_NO_ACTION, EV_UNUSED = 3, 1
EV_EFI_BOOT_SERVICES_APPLICATION, EV_EFI_PLATFORM_FIRMWARE_BLOB = 0x80000003, 0x80000008
SHA256 = b"\x0b\x00"


def records(log: bytes) -> tuple[bytes, list[bytes]]:
    """Return the header and every event of a crypto-agile log, as its bytes; banks as in the recorded logs."""
    banks = dict(_banks(log))
    at = 32 + int.from_bytes(log[28:32], "little")
    head, found = log[:at], []
    while at < len(log):
        start, count = at, int.from_bytes(log[at + 8 : at + 12], "little")
        at += 12
        for _unused in range(count):
            at += 2 + banks[log[at : at + 2]]
        at += 4 + int.from_bytes(log[at : at + 4], "little")
        found.append(log[start:at])
    return head, found


def _banks(log: bytes) -> list[tuple[bytes, int]]:
    """Return the algorithms of the log with the sizes of their digests (TCG PC client profile 10.4.5.1)."""
    entries = [log[at : at + 4] for at in range(60, 60 + 4 * int.from_bytes(log[56:60], "little"), 4)]
    return [(entry[:2], int.from_bytes(entry[2:], "little")) for entry in entries]


def kind_of(event: bytes) -> int:
    return int.from_bytes(event[4:8], "little")


def retyped(event: bytes, kind: int) -> bytes:
    return event[:4] + kind.to_bytes(4, "little") + event[8:]


def sent(exchange: Exchange, firmware: bytes) -> VerifiedNode:
    """Let the machine send, and bind, another firmware log."""
    exchange.logs = replace(exchange.logs, firmware=firmware)
    exchange.context = replace(exchange.context, request=b"request with " + exchange.logs.to_bytes())
    return exchange.run()


def edited(exchange: Exchange, change: Callable[[list[bytes]], list[bytes]]) -> bytes:
    head, events = records(exchange.logs.firmware)
    assert head + b"".join(events) == exchange.logs.firmware
    assert len(events) == len(parse_firmware_log(exchange.logs.firmware).events)
    return head + b"".join(change(events))


def quoted(events: list[bytes]) -> list[bytes]:
    """Return the events that were extended into a register that is quoted."""
    return [one for one in events if kind_of(one) != EV_NO_ACTION and int.from_bytes(one[:4], "little") in SELECTION]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda events: [*events, quoted(events)[-1]], id="an event appended"),
        pytest.param(lambda events: [one for one in events if kind_of(one) != EV_SEPARATOR], id="no separator"),
        pytest.param(lambda events: [one for one in events if one != quoted(events)[-1]], id="an event left out"),
        pytest.param(lambda events: [retyped(one, EV_NO_ACTION) for one in events], id="events that say no action"),
        pytest.param(lambda events: events[:1] + events[:0:-1], id="the order turned"),
    ],
)
def test_a_log_that_does_not_lead_to_the_registers(
    exchange: Exchange, change: Callable[[list[bytes]], list[bytes]]
) -> None:
    assert exchange.run()
    assert code_of(lambda: sent(exchange, edited(exchange, change))) == "EVENT_LOG_MISMATCH"


def test_a_digest_that_was_changed(exchange: Exchange) -> None:
    assert exchange.run()

    def change(events: list[bytes]) -> list[bytes]:
        at = events[5].index(SHA256, 12) + 2
        return [*events[:5], events[5][:at] + bytes(32) + events[5][at + 32 :], *events[6:]]

    assert code_of(lambda: sent(exchange, edited(exchange, change))) == "EVENT_LOG_MISMATCH"


def test_a_log_cut_in_an_event(exchange: Exchange) -> None:
    assert exchange.run()
    assert code_of(lambda: sent(exchange, exchange.logs.firmware[:-3])) == "EVENT_LOG_MALFORMED"


def test_another_log_than_the_one_bound(exchange: Exchange) -> None:
    challenge, record = exchange.challenged()
    given = exchange.answered(challenge)
    assert exchange.verified(given, record)
    other = EventLogs(firmware=boots.load("deb13-cmdline").firmware)
    assert code_of(lambda: exchange.verified(given, record, logs=other)) == "EVENT_LOG_CHANGED"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param(EV_SEPARATOR, EV_UNUSED, id="separators that say unused"),
        pytest.param(
            EV_EFI_BOOT_SERVICES_APPLICATION, EV_EFI_PLATFORM_FIRMWARE_BLOB, id="a boot loader that says firmware"
        ),
    ],
)
def test_a_type_alone_changes_no_verdict(exchange: Exchange, old: int, new: int) -> None:
    """What decides are values; the words of such an event are logged, not proven."""
    good = exchange.run()

    def change(events: list[bytes]) -> list[bytes]:
        assert old in map(kind_of, events)
        return [retyped(one, new) if kind_of(one) == old else one for one in events]

    lied = sent(exchange, edited(exchange, change))
    assert (lied.verdict.profile, lied.machine.quote.pcrs) == (good.verdict.profile, good.machine.quote.pcrs)


def test_data_alone_is_told_and_not_proven(exchange: Exchange) -> None:
    """A good boot loader's path over a digest that it has nothing to do with."""

    def change(events: list[bytes]) -> list[bytes]:
        at = next(n for n, one in enumerate(events) if kind_of(one) == EV_SEPARATOR)
        return [*events[:at], events[at][:-4] + b"good", *events[at + 1 :]]

    proven = [event for event in exchange.run().machine.events if event.proven]
    lied = [event for event in sent(exchange, edited(exchange, change)).machine.events if event.proven]
    assert len(lied) == len(proven) - 1


def test_a_newer_firmware_over_the_digest_of_an_old_one(exchange: Exchange) -> None:
    """The version is the data of an event, and the profile demands at least one."""

    def demand(least: str) -> None:
        profile = replace(learned(exchange.boot), assertions=Assertions(firmware_minimum=least))
        exchange.policy = SitePolicy(profiles=[profile], identities=[identity_of(exchange.tpm.ek)])

    def change(events: list[bytes]) -> list[bytes]:
        old, new = (text.encode("utf-16-le") for text in ("2025.02-8", "2026.02-8"))
        assert any(old in one for one in events)
        return [one.replace(old, new) for one in events]

    demand("2025.02-8")
    assert exchange.run()
    demand("2026.01")
    assert code_of(exchange.run) == "FIRMWARE_TOO_OLD"
    assert code_of(lambda: sent(exchange, edited(exchange, change))) == "FIRMWARE_TOO_OLD"
