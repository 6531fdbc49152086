# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What surprised those who recorded the boots: one test a surprise, on the recordings, and what we make of it."""

from __future__ import annotations

import hashlib
import re
import subprocess
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.ek_certificate import verify_ek_certificate
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog import kinds
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.replay import (
    extend,
    replay,
    verify_replay,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.tcg import (
    parse_firmware_log,
    parse_records,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.learning import DEFAULT_REGISTERS
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.constants import ALG_SHA256
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.structures import Attest, Public
from ansible_collections.attested.kubernetes.tests.support import boots
from ansible_collections.attested.kubernetes.tests.support.tpm import VECTOR, public_area, vector
from ansible_collections.attested.kubernetes.tests.support.tpm2_tools import require_tool
from cryptography import x509
from cryptography.hazmat.primitives import serialization

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.tcg import FirmwareEvent

IMA_REGISTER = 10
RECORDED_AFTER = datetime(2026, 11, 22, tzinfo=UTC)


def events(name: str) -> tuple[FirmwareEvent, ...]:
    return parse_firmware_log(boots.load(name).firmware).events


def digests(found: Iterable[FirmwareEvent]) -> list[bytes]:
    return [one.digests[ALG_SHA256] for one in found]


def of_kind(name: str, kind: int, *, pcr: int) -> list[FirmwareEvent]:
    return [one for one in events(name) if one.kind == kind and one.pcr == pcr]


def programs(name: str) -> list[bytes]:
    return digests(of_kind(name, kinds.EV_EFI_BOOT_SERVICES_APPLICATION, pcr=4))


def differing(first: str, second: str) -> set[int]:
    one, other = boots.load(first).pcrs, boots.load(second).pcrs
    return {pcr for pcr in one if one[pcr] != other[pcr]}


def written_down(name: str, pattern: str) -> str:
    found = re.search(pattern, boots.facts(name))
    assert found is not None, pattern
    return found[1]


def section(name: str, which: str) -> bytes:
    return bytes.fromhex(written_down(name, rf"{re.escape(which)}: size \d+, sha256 ([0-9a-f]{{64}})"))


def ima_values(templates: Sequence[bytes]) -> list[bytes]:
    """The values that register 10 takes while the entries are extended, one after the other."""
    value, taken = bytes(32), []
    for template in templates:
        value = extend(value, hashlib.sha256(template).digest())
        taken.append(value)
    return taken


@pytest.mark.parametrize(
    ("name", "log_ends_there"),
    [
        pytest.param("deb13-secureboot", True, id="the log ends where the quote was made"),
        pytest.param("deb13-grub-secureboot", False, id="the log went on after the quote"),
    ],
)
def test_surprise_1_register_10_moves_under_secure_boot(name: str, log_ends_there: bool) -> None:
    """Registers, quote and log each show another state, all prefixes of one: no profile may hold a value of it."""
    taken = ima_values(boots.ima_templates(name))
    quoted = Attest.parse(next(one for one in boots.documents() if one.boot == name).file("tpms_attest").read_bytes())
    recorded = boots.load(name).pcrs
    values = [{**recorded, IMA_REGISTER: value} for value in taken]
    pcr_digests = [hashlib.sha256(b"".join(one[pcr] for pcr in range(24))).digest() for one in values]
    read, signed = taken.index(recorded[IMA_REGISTER]), pcr_digests.index(quoted.pcr_digest)
    assert read < signed
    assert (signed == len(taken) - 1) is log_ends_there
    assert IMA_REGISTER not in DEFAULT_REGISTERS
    verify_replay(recorded, parse_firmware_log(boots.load(name).firmware), ())  # unlogged: judged by value alone


def test_surprise_1_register_10_stands_still_without_secure_boot() -> None:
    assert ima_values(boots.ima_templates("deb13-base")) == [boots.load("deb13-base").pcrs[IMA_REGISTER]]


def test_surprise_2_one_firmware_build_has_several_values_of_register_0() -> None:
    """The same file and version, another variable store: the first volume is measured otherwise, nothing else."""
    one, other = "deb13-secbootfw-off", "deb13-grub-secureboot"
    firmware = r"firmware: .*sha256 ([0-9a-f]{64})"
    assert written_down(one, firmware) == written_down(other, firmware)
    pairs = zip((e for e in events(one) if e.pcr == 0), (e for e in events(other) if e.pcr == 0), strict=True)
    changed = [(a.kind, a.data == b.data) for a, b in pairs if a.digests != b.digests]
    assert changed == [(kinds.EV_EFI_PLATFORM_FIRMWARE_BLOB, True)]
    assert boots.load(one).pcrs[0] != boots.load(other).pcrs[0]


def test_surprise_3_the_digest_of_a_program_leaves_out_its_signature() -> None:
    """Another file on disk, the same first program in register 4; yet the register differs, by one event fewer."""
    plain, signed = "deb13-secbootfw-off", "deb13-secureboot"
    as_file = r"UKI \(\S+\) as file: ([0-9a-f]{64})"
    assert written_down(plain, as_file) != written_down(signed, as_file)
    assert programs(plain)[0] == programs(signed)[0]
    assert (len(programs(plain)), len(programs(signed))) == (2, 1)
    assert boots.load(plain).pcrs[4] != boots.load(signed).pcrs[4]


def test_surprise_4_a_firmware_update_moves_register_7_without_a_change_of_keys() -> None:
    """2025.02 has no SecureBoot variable (measured empty), 2022.11 has one that says off."""
    assert {0, 1, 7} == differing("deb13-base", "deb13-firmware") - {IMA_REGISTER}
    values = [
        [kinds.efi_variable(one.data) for one in of_kind(name, kinds.EV_EFI_VARIABLE_DRIVER_CONFIG, pcr=7)]
        for name in ("deb13-base", "deb13-firmware")
    ]
    old, new = ({one.name: one.value for one in listed if one} for listed in values)
    assert {name for name in old if old[name] != new[name]} == {"SecureBoot"}
    assert (old["SecureBoot"], new["SecureBoot"]) == (b"", b"\x00")
    assert boots.load("deb13-firmware").pcrs[7] == boots.load("deb13-secbootfw-off").pcrs[7]


def test_surprise_5_grub_measures_the_kernel_elsewhere() -> None:
    """Command line in 8, files in 9, its first configuration twice; the kernel in 4 only where shim checks it."""
    commands = [one.data.rstrip(b"\x00") for one in events("deb13-grub") if one.pcr == 8]
    files = [one.data.rstrip(b"\x00").decode() for one in of_kind("deb13-grub", kinds.EV_IPL, pcr=9)]
    assert sum(one.startswith(b"kernel_cmdline: ") for one in commands) == 1
    assert files.count("(hd0,gpt1)/EFI/debian/grub.cfg") == 2
    assert {"/boot/vmlinuz-6.12.117+deb13-cloud-amd64"} <= set(files)
    assert (len(programs("deb13-grub")), len(programs("deb13-grub-secureboot"))) == (2, 3)
    assert [one.data.rstrip(b"\x00") for one in events("deb13-grub") if one.pcr == 14] == [
        b"MokList",
        b"MokListX",
        b"MokListTrusted",
    ]
    assert boots.load("deb13-grub").userspace == b""
    assert {boots.load("deb13-grub").pcrs[pcr] for pcr in (11, 15)} == {bytes(32)}


@pytest.mark.parametrize(
    ("name", "equal"),
    [
        pytest.param("deb13-base", False, id="stub 257 adds to the initrd of the image"),
        pytest.param("deb13-initrd", False, id="also to another initrd"),
        pytest.param("deb12-base", True, id="stub 252 hands it over as it is"),
    ],
)
def test_surprise_6_the_initrd_of_register_9_is_not_always_the_section(name: str, equal: bool) -> None:
    tagged = of_kind(name, kinds.EV_EVENT_TAG, pcr=9)
    initrd = [one.digests[ALG_SHA256] for one in tagged if kinds.tag(one.data) == kinds.TAG_INITRD]
    assert (initrd == [section(name, ".initrd")]) is equal


def test_surprise_6_with_grub_the_initrd_is_the_file() -> None:
    tagged = of_kind("deb13-grub", kinds.EV_EVENT_TAG, pcr=9)
    as_file = bytes.fromhex(written_down("deb13-grub", r"initrd \(initrd\): ([0-9a-f]{64})"))
    assert [one.digests[ALG_SHA256] for one in tagged if kinds.tag(one.data) == kinds.TAG_INITRD] == [as_file]


def test_surprise_7_debian_12_extends_two_phases_that_no_log_tells() -> None:
    """They are known by rule, and only as a whole: another word there is refused by `verify_replay`'s own tests."""
    boot = boots.load("deb12-base")
    told = replay(parse_firmware_log(boot.firmware), ())[11]
    for phase in (b"sysinit", b"ready"):
        told = extend(told, hashlib.sha256(phase).digest())
    assert (told, boot.pcrs[15], boot.userspace) == (boot.pcrs[11], bytes(32), b"")
    verify_replay(boot.pcrs, parse_firmware_log(boot.firmware), ())


def test_surprise_8_the_first_boot_of_a_machine_is_as_the_second() -> None:
    """OVMF has written its boot options by the time they are measured; only ids and times of the log differ."""
    assert "empty" in written_down("deb13-base", r"variable store at start: (.*)")
    assert differing("deb13-base", "deb13-base-again") == set()
    assert boots.load("deb13-base").userspace != boots.load("deb13-base-again").userspace
    records = [parse_records(boots.load(name).userspace, "log") for name in ("deb13-base", "deb13-base-again")]
    assert records[0] == records[1]


def test_surprise_9_the_certificates_alternative_name_is_critical() -> None:
    """A parser that refuses unknown critical names would refuse every such TPM; openssl does not, and we do not."""
    leaf = x509.load_der_x509_certificate(vector("ek.crt.der"))
    assert leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).critical
    issuer = x509.load_pem_x509_certificate(vector("ek-issuer.pem"))
    chain = (vector("ek.crt.der"), issuer.public_bytes(serialization.Encoding.DER))
    root = x509.load_pem_x509_certificate(vector("ek-root.pem"))
    verify_ek_certificate(Public.parse(public_area("ek")), chain, roots=(root,), now=RECORDED_AFTER)
    files = ("-CAfile", "ek-root.pem", "-untrusted", "ek-issuer.pem", "ek.crt.der")
    command = [require_tool("openssl", "openssl"), "verify", "-attime", str(int(RECORDED_AFTER.timestamp())), *files]
    assert (
        subprocess.run(command, cwd=VECTOR, capture_output=True, timeout=900, check=True).stdout == b"ek.crt.der: OK\n"
    )
