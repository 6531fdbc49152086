# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every recorded boot replays to the registers that its TPM held, and an edited log does not."""

from __future__ import annotations

import dataclasses
import hashlib

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import Refusal
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.replay import (
    extend,
    initial_value,
    replay,
    verify_replay,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.tcg import (
    FirmwareEvent,
    FirmwareLog,
    UserspaceRecord,
    parse_firmware_log,
    parse_records,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.constants import (
    ALG_SHA1,
    ALG_SHA256,
    ALG_SHA384,
    ALG_SHA512,
)
from ansible_collections.attested.kubernetes.tests.support import boots

IMA_REGISTER = 10
SYSTEMD_WITHOUT_LOG = "deb12-base"


def logs_of(name: str) -> tuple[FirmwareLog, tuple[UserspaceRecord, ...]]:
    boot = boots.load(name)
    return parse_firmware_log(boot.firmware), parse_records(boot.userspace, "userspace log")


def event(pcr: int, digest: bytes, kind: int = 1) -> FirmwareEvent:
    return FirmwareEvent(pcr=pcr, kind=kind, digests={ALG_SHA256: digest}, data=b"")


def refused(quoted: dict[int, bytes], firmware: FirmwareLog, userspace: tuple[UserspaceRecord, ...]) -> Refusal:
    with pytest.raises(Refusal) as caught:
        verify_replay(quoted, firmware, userspace)
    return caught.value


@pytest.mark.parametrize("name", boots.names())
def test_a_recorded_boot_replays_to_its_registers(name: str) -> None:
    """PCR 10 is IMA's, whose log is not sent; every other register follows from the two logs or was never extended."""
    firmware, userspace = logs_of(name)
    values = replay(firmware, userspace)
    quoted = boots.load(name).pcrs
    unlogged = {IMA_REGISTER, 11} if name == SYSTEMD_WITHOUT_LOG else {IMA_REGISTER}
    expected = {pcr: quoted[pcr] for pcr in quoted if pcr not in unlogged}
    assert {pcr: values.get(pcr, initial_value(pcr)) for pcr in expected} == expected


@pytest.mark.parametrize("name", boots.names())
def test_a_recorded_boot_is_explained_by_its_logs(name: str) -> None:
    verify_replay(boots.load(name).pcrs, *logs_of(name))


def test_all_eleven_boots_and_the_synthetic_one_are_there() -> None:
    assert len(boots.names()) == 12


def test_startup_locality_sets_where_register_0_begins() -> None:
    synthetic, base = logs_of("synthetic-locality3")[0], logs_of("deb13-base")[0]
    assert (synthetic.startup_locality, base.startup_locality) == (3, 0)
    assert synthetic.events == base.events


def test_a_register_that_was_extended_without_a_log_is_named() -> None:
    """S10: somebody extends a register after the boot."""
    boot = boots.load("deb13-base")
    quoted = {**boot.pcrs, 7: extend(boot.pcrs[7], b"x" * 32), 4: extend(boot.pcrs[4], b"x" * 32)}
    error = refused(quoted, *logs_of("deb13-base"))
    assert error.code == "EVENT_LOG_MISMATCH"
    assert "PCR 4: logs give 66897e8a" in error.message
    assert "PCR 7: logs give b5710bf5" in error.message
    assert "PCR 9" not in error.message


@pytest.mark.parametrize(
    "mutate",
    [
        pytest.param(lambda events: events[1:], id="the first event dropped"),
        pytest.param(lambda events: events[:-1], id="the last event dropped"),
        pytest.param(lambda events: (events[1], events[0], *events[2:]), id="two events of one register swapped"),
        pytest.param(lambda events: (*events, event(7, b"f" * 32)), id="a fake event appended"),
        pytest.param(
            lambda events: tuple(one for one in events if not (one.kind == 4 and one.pcr == 4)),
            id="the separator of register 4 dropped",
        ),
        pytest.param(
            lambda events: (dataclasses.replace(events[0], digests={ALG_SHA256: b"d" * 32}), *events[1:]),
            id="a digest changed",
        ),
    ],
)
def test_an_edited_log_is_refused(mutate: object) -> None:
    """S9: the log lies."""
    firmware, userspace = logs_of("deb13-base")
    edited = dataclasses.replace(firmware, events=mutate(firmware.events))  # type: ignore[operator]
    assert refused(boots.load("deb13-base").pcrs, edited, userspace).code == "EVENT_LOG_MISMATCH"


def test_a_retyped_event_changes_no_value() -> None:
    """S9: types are not covered by digests, so they decide nothing."""
    firmware, userspace = logs_of("deb13-base")
    retyped = tuple(dataclasses.replace(one, kind=2) for one in firmware.events)
    edited = dataclasses.replace(firmware, events=retyped)
    assert replay(edited, userspace) == replay(firmware, userspace)


def test_a_register_without_a_log_is_not_judged_here() -> None:
    verify_replay({12: b"x" * 32}, *logs_of("deb13-base"))


def test_a_register_that_is_not_quoted_is_not_judged_here() -> None:
    verify_replay({}, *logs_of("deb13-base"))


def test_the_register_of_the_node_lock_is_left_to_its_own_reading() -> None:
    firmware, userspace = logs_of("deb13-base")
    verify_replay({15: b"x" * 32}, firmware, userspace, except_for=[15])
    assert refused({15: b"x" * 32}, firmware, userspace).code == "EVENT_LOG_MISMATCH"


def test_phases_of_a_systemd_without_log_are_known() -> None:
    """Debian 12: sysinit and ready are in PCR 11 and in no log."""
    firmware, userspace = logs_of(SYSTEMD_WITHOUT_LOG)
    quoted = boots.load(SYSTEMD_WITHOUT_LOG).pcrs[11]
    assert userspace == ()
    assert replay(firmware, ())[11] != quoted
    verify_replay({11: quoted}, firmware, ())
    assert refused({11: extend(quoted, hashlib.sha256(b"ready").digest())}, firmware, ()).code == "EVENT_LOG_MISMATCH"


def after(value: bytes, *phases: str) -> bytes:
    """Return a register after systemd has measured these phases."""
    for phase in phases:
        value = extend(value, hashlib.sha256(phase.encode()).digest())
    return value


@pytest.mark.parametrize(
    "phases",
    [
        pytest.param((), id="none"),
        pytest.param(("sysinit",), id="sysinit"),
        pytest.param(("sysinit", "ready"), id="sysinit and ready"),
        pytest.param(("enter-initrd", "leave-initrd", "sysinit"), id="an initrd, then sysinit"),
        pytest.param(("enter-initrd", "leave-initrd", "sysinit", "ready"), id="an initrd, then all"),
    ],
)
def test_each_course_that_systemd_does_not_log_is_known_in_its_own_register(phases: tuple[str, ...]) -> None:
    firmware, _userspace = logs_of(SYSTEMD_WITHOUT_LOG)
    values = replay(firmware, ())
    verify_replay({11: after(values[11], *phases)}, firmware, ())
    assert not phases or refused({4: after(values[4], *phases)}, firmware, ()).code == "EVENT_LOG_MISMATCH"


@pytest.mark.parametrize("phases", [("ready",), ("sysinit", "sysinit"), ("enter-initrd",), ("enter-initrd", "sysinit")])
def test_no_other_course_is(phases: tuple[str, ...]) -> None:
    firmware, _userspace = logs_of(SYSTEMD_WITHOUT_LOG)
    quoted = after(replay(firmware, ())[11], *phases)
    assert refused({11: quoted}, firmware, ()).code == "EVENT_LOG_MISMATCH"


def test_registers_are_named_in_their_order() -> None:
    quoted = {9: b"x" * 32, 4: b"x" * 32}
    message = refused(quoted, *logs_of("deb13-base")).message
    assert 0 < message.index("PCR 4") < message.index("PCR 9")


def test_phases_are_not_guessed_where_a_log_was_sent() -> None:
    """With a userspace log nothing may be missing from it."""
    firmware, userspace = logs_of("deb13-base")
    quoted = boots.load("deb13-base").pcrs[11]
    without_phases = tuple(record for record in userspace if record.pcr != 11)
    assert refused({11: quoted}, firmware, without_phases).code == "EVENT_LOG_MISMATCH"
    verify_replay({11: quoted}, firmware, ())


def test_a_log_without_the_bank_is_refused() -> None:
    sha1_only = FirmwareEvent(pcr=4, kind=1, digests={ALG_SHA1: b"d" * 20}, data=b"")
    error = refused({4: b"x" * 32}, FirmwareLog(events=(sha1_only,), startup_locality=0), ())
    assert (error.code, error.message) == (
        "EVENT_LOG_MALFORMED",
        "expected a sha256 digest for PCR 4 in the event log, got none",
    )


@pytest.mark.parametrize(
    ("bank", "name", "size"),
    [(ALG_SHA1, "sha1", 20), (ALG_SHA256, "sha256", 32), (ALG_SHA384, "sha384", 48), (ALG_SHA512, "sha512", 64)],
)
def test_each_bank_is_replayed_with_its_own_hash(bank: int, name: str, size: int) -> None:
    one = FirmwareEvent(pcr=4, kind=1, digests={bank: b"d" * size}, data=b"")
    values = replay(FirmwareLog(events=(one,), startup_locality=0), (), bank=bank)
    assert values == {4: hashlib.new(name, bytes(size) + b"d" * size).digest()}


@pytest.mark.parametrize(
    ("pcr", "expected"),
    [
        pytest.param(0, bytes(31) + b"\x03", id="register 0 begins at the locality"),
        pytest.param(1, bytes(32), id="other registers begin at zero"),
        pytest.param(16, bytes(32), id="the debug register begins at zero"),
        pytest.param(17, b"\xff" * 32, id="the first D-RTM register begins at ones"),
        pytest.param(22, b"\xff" * 32, id="the last D-RTM register begins at ones"),
        pytest.param(23, bytes(32), id="the application register begins at zero"),
    ],
)
def test_initial_values(pcr: int, expected: bytes) -> None:
    assert initial_value(pcr, startup_locality=3) == expected
