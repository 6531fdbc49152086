# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is true of every log that its own machine binds: one bit of a digest refuses, one bit of a proven text proves
nothing any more, one bit of whatever else it tells changes nothing."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.facts import boot_facts
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.tcg import parse_firmware_log
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.assertions import (
    Assertions,
    BootFacts,
    boot_options,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.in_force import SitePolicy
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.constants import ALG_SHA256
from ansible_collections.attested.kubernetes.tests.support import boots
from ansible_collections.attested.kubernetes.tests.support.exchange import SELECTION, Exchange, identity_of, learned
from hypothesis import given, settings
from hypothesis import strategies as st

if TYPE_CHECKING:
    from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.evidence import EventLogs
    from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.verify import VerifiedNode

OLD_HEADER_BYTES = 32  # of the first event: register, type, SHA-1 digest, size
DIGEST_BYTES = {4: 20, 11: 32, 12: 48, 13: 64}
NO_ACTION = 3
LOCK_REGISTER = 15
REPLAYED = frozenset(SELECTION) - {LOCK_REGISTER}

few = settings(max_examples=40)  # each is a whole exchange


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Where one event of a firmware log lies: its register's lowest byte, its SHA-256 digest, its data."""

    pcr: int
    register_at: int
    digest: range
    data: range


def measured(log: bytes) -> list[Measured]:
    """Return where the measured events lie, read by the specification and by nothing of the code."""
    at, found = OLD_HEADER_BYTES + int.from_bytes(log[28:32], "little"), []
    while at < len(log):
        began, kind = at, int.from_bytes(log[at + 4 : at + 8], "little")
        banks, at, digest = int.from_bytes(log[at + 8 : at + 12], "little"), at + 12, range(0)
        for _unused in range(banks):
            alg = int.from_bytes(log[at : at + 2], "little")
            if alg == ALG_SHA256:
                digest = range(at + 2, at + 2 + DIGEST_BYTES[alg])
            at += 2 + DIGEST_BYTES[alg]
        size, at = int.from_bytes(log[at : at + 4], "little"), at + 4
        if kind != NO_ACTION:
            pcr = int.from_bytes(log[began : began + 4], "little")
            found.append(Measured(pcr=pcr, register_at=began, digest=digest, data=range(at, at + size)))
        at += size
    return found


def flipped(data: bytes, place: int, bit: int) -> bytes:
    """Return ``data`` with one bit changed."""
    changed = bytearray(data)
    changed[place] ^= 1 << bit
    return bytes(changed)


class Bound:
    """A machine with one recorded boot that binds whatever logs it sends, and a profile that asserts all it proves."""

    def __init__(self, name: str) -> None:
        """Boot it."""
        self.exchange = Exchange(boot=boots.load(name))
        self.logs = self.exchange.logs
        self.facts = self.facts_of(self.logs)
        profile = replace(learned(self.exchange.boot), assertions=asserted(self.facts), loader=self.facts.loader)
        self.policy = SitePolicy(profiles=[profile], identities=[identity_of(self.exchange.tpm.ek)])
        self.events = measured(self.logs.firmware)

    @staticmethod
    def facts_of(logs: EventLogs) -> BootFacts:
        """Return what the logs prove."""
        return boot_facts(parse_firmware_log(logs.firmware), quoted=SELECTION, command_line=logs.command_line)

    def judged(self, **changes: bytes) -> VerifiedNode:
        """Return the verdict on logs with ``changes``."""
        logs = replace(self.logs, **changes)
        context = replace(self.exchange.context, request=b"request with " + logs.to_bytes())
        challenge, record = self.exchange.challenged()
        given = self.exchange.answered(challenge, context=context, logs=logs)
        return self.exchange.verified(given, record, context=context, logs=logs, policy=self.policy)

    def refused(self, **changes: bytes) -> str:
        """Return the code that refuses logs with ``changes``."""
        with pytest.raises(AttestedError) as caught:
            self.judged(**changes)
        return caught.value.code


def asserted(facts: BootFacts) -> Assertions:
    """Return the assertions that demand each of these facts."""
    words = {word for line in facts.lines_by(facts.loader) for word in boot_options(line)}
    return Assertions(
        secure_boot=facts.secure_boot is True,
        boot_options=tuple(sorted(words)) if words else None,
        firmware_minimum=facts.firmware_version,
        sbat_minimum=facts.sbat_level,
    )


MACHINES = [Bound("deb13-base"), Bound("deb13-grub-secureboot")]
machines = pytest.mark.parametrize("machine", MACHINES, ids=["a unified kernel image", "shim and GRUB, Secure Boot"])

LOST = {
    "secure_boot": "SECURE_BOOT_OFF",
    "command_lines": "BOOT_OPTION_UNKNOWN",
    "firmware_version": "FIRMWARE_TOO_OLD",
    "sbat_level": "SBAT_TOO_OLD",
}


def test_both_machines_prove_what_the_properties_are_about() -> None:
    """Else they would say nothing."""
    assert [{name for name in LOST if getattr(machine.facts, name)} for machine in MACHINES] == [
        {"command_lines", "firmware_version"},
        {"secure_boot", "firmware_version", "sbat_level"},
    ]
    assert all(machine.judged().verdict.profile.startswith("deb13") for machine in MACHINES)


@machines
@few
@given(data=st.data(), bit=st.integers(0, 7))
def test_one_bit_of_a_digest_refuses_where_the_register_is_quoted(machine, data, bit):
    event = data.draw(st.sampled_from(machine.events))
    firmware = flipped(machine.logs.firmware, data.draw(st.sampled_from(event.digest)), bit)
    if event.pcr in REPLAYED:
        assert machine.refused(firmware=firmware) == "EVENT_LOG_MISMATCH"
    else:
        assert verdict(machine.judged(firmware=firmware)) == verdict(machine.judged())


@machines
@few
@given(data=st.data(), bit=st.integers(0, 4))
def test_an_event_that_moves_to_another_register_is_refused(machine, data, bit):
    event = data.draw(st.sampled_from(machine.events))
    firmware = flipped(machine.logs.firmware, event.register_at, bit)
    other = event.pcr ^ (1 << bit)
    codes = {"EVENT_LOG_MALFORMED", "EVENT_LOG_MISMATCH", "NODELOCK_FOREIGN"}
    if {event.pcr, other} & set(SELECTION) or other > max(range(24)):
        assert machine.refused(firmware=firmware) in codes
    else:
        assert verdict(machine.judged(firmware=firmware)) == verdict(machine.judged())


@machines
@few
@given(data=st.data(), bit=st.integers(0, 7))
def test_one_bit_of_what_an_event_tells_refuses_where_an_assertion_rests_on_it_and_only_there(machine, data, bit):
    told = [event for event in machine.events if event.data]
    place = data.draw(st.sampled_from(data.draw(st.sampled_from(told)).data))
    firmware = flipped(machine.logs.firmware, place, bit)
    left = machine.facts_of(replace(machine.logs, firmware=firmware))
    changed = [name for name in LOST if getattr(left, name) != getattr(machine.facts, name)]
    assert all(not getattr(left, name) for name in changed)  # a changed text proves nothing, and never something else
    lost = [name for name in changed if getattr(machine.facts, name)]
    if lost:
        assert machine.refused(firmware=firmware) in {LOST[name] for name in lost}
    else:
        assert verdict(machine.judged(firmware=firmware)) == verdict(machine.judged())


@few
@given(data=st.data(), bit=st.integers(0, 7))
def test_one_bit_of_the_secure_boot_event_proves_nothing(data, bit):
    """Aimed at the one event, which a bit drawn from the whole log seldom meets."""
    machine = MACHINES[1]
    event = next(event for event in machine.events if event.pcr == 7)
    firmware = flipped(machine.logs.firmware, data.draw(st.sampled_from(event.data)), bit)
    assert machine.refused(firmware=firmware) == "SECURE_BOOT_OFF"


@few
@given(data=st.data(), bit=st.integers(0, 7))
def test_one_bit_of_the_event_that_says_secure_boot_is_off_changes_nothing(data, bit):
    """That it is off is proven no longer, which no profile asserts."""
    machine = MACHINES[0]
    event = next(event for event in machine.events if event.pcr == 7)
    firmware = flipped(machine.logs.firmware, data.draw(st.sampled_from(event.data)), bit)
    assert machine.facts_of(replace(machine.logs, firmware=firmware)).secure_boot is None
    assert verdict(machine.judged(firmware=firmware)) == verdict(machine.judged())


@few
@given(data=st.data())
def test_one_digit_of_a_userspace_digest_refuses_where_the_register_is_quoted(data):
    machine = MACHINES[0]
    records = [json.loads(part) for part in machine.logs.userspace.split(b"\x1e")[1:]]
    record = data.draw(st.sampled_from([one for one in records if one.get("pcr") in REPLAYED]))
    entry = next(one for one in record["digests"] if one["hashAlg"] == "sha256")
    place, digit = data.draw(st.integers(0, 63)), data.draw(st.sampled_from("0123456789abcdef"))
    same = entry["digest"][place] == digit
    entry["digest"] = entry["digest"][:place] + digit + entry["digest"][place + 1 :]
    userspace = b"".join(b"\x1e" + json.dumps(one).encode() + b"\n" for one in records)
    if same:
        assert verdict(machine.judged(userspace=userspace)) == verdict(machine.judged())
    else:
        assert machine.refused(userspace=userspace) == "EVENT_LOG_MISMATCH"


@few
@given(words=st.text(max_size=40), kind=st.text(max_size=20))
def test_what_userspace_records_tell_changes_nothing(words, kind):
    """But for those of the node lock's register, whose texts are hashed and compared (step 9)."""
    machine = MACHINES[0]
    records = [json.loads(part) for part in machine.logs.userspace.split(b"\x1e")[1:]]
    for record in (one for one in records if one.get("pcr") != LOCK_REGISTER):
        record["content"] = {"string": words, "eventType": kind}
    userspace = b"".join(b"\x1e" + json.dumps(one).encode() + b"\n" for one in records)
    assert verdict(machine.judged(userspace=userspace)) == verdict(machine.judged())


@few
@given(hint=st.binary(max_size=200))
def test_a_false_hint_never_proves_a_command_line(hint):
    """The command line that a machine names is believed by its hash: another one loses the fact, and gains none."""
    machine = MACHINES[0]
    left = machine.facts_of(replace(machine.logs, command_line=hint))
    assert left.command_lines in ({}, machine.facts.command_lines)
    assert machine.refused(command_line=hint) == "BOOT_OPTION_UNKNOWN" or left == machine.facts


def verdict(node: VerifiedNode) -> object:
    """Return what a decision consists of."""
    return (
        node.identity.name,
        node.identity.node_name,
        node.verdict.profile,
        node.verdict.posture,
        node.verdict.labels,
        node.machine.quote.pcrs,
    )
