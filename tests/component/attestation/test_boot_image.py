# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Images by the real tools: objcopy with systemd's stub, sbsign and sbverify."""

from __future__ import annotations

import struct
import time
from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.command import SystemRunner
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.kinds import SHA256, X509
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.image.pe import parse_program, read_image
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.image.prediction import predict
from ansible_collections.attested.kubernetes.plugins.module_utils.node.boot_entry import require_trusted
from ansible_collections.attested.kubernetes.plugins.module_utils.node.boot_image import (
    STUBS,
    Parts,
    assemble,
    run_signed,
)
from ansible_collections.attested.kubernetes.tests.support import pe
from ansible_collections.attested.kubernetes.tests.support.tpm2_tools import require_tool

STUB = Path("/usr/lib/systemd/boot/efi") / STUBS[0]
SECOND = 1.1
"""The time in a program counts seconds."""


@pytest.fixture(scope="module")
def parts() -> Parts:
    """The parts of an image; the kernel is a small program, which nothing here starts."""
    if not STUB.exists():
        pytest.skip(f"needs {STUB} of the package systemd-boot-efi")
    require_tool("objcopy", "binutils")
    return Parts(
        stub=STUB.read_bytes(),
        os_release=b"ID=debian\n",
        command_line="root=LABEL=root rw quiet",
        release="6.1.0-1-amd64",
        initrd=b"initrd" * 9000,
        kernel=pe.kernel(),
    )


@pytest.fixture(scope="module")
def image(parts: Parts) -> bytes:
    return assemble(parts, runner=SystemRunner())


def test_equal_parts_make_equal_bytes_at_another_time(parts: Parts, image: bytes) -> None:
    time.sleep(SECOND)
    assert assemble(parts, runner=SystemRunner()) == image


def test_another_part_makes_another_image(parts: Parts, image: bytes) -> None:
    other = assemble(replace(parts, command_line="root=LABEL=root ro quiet"), runner=SystemRunner())
    assert parse_program(other).digest != parse_program(image).digest


def test_the_stub_is_what_it_was_and_everything_is_computed(parts: Parts, image: bytes) -> None:
    made, stub = parse_program(image).sections, parse_program(parts.stub).sections
    assert made[".text"] == stub[".text"]
    found = read_image(image)
    assert found.stub > 0
    assert 11 in predict(found, secure_boot=False).registers


def lists(kind: bytes, content: bytes) -> bytes:
    """Return the signature database of a firmware that knows this one entry."""
    entry = bytes(16) + content
    return kind + struct.pack("<III", 28 + len(entry), 0, len(entry)) + entry


def test_signing_changes_no_digest_and_is_done_once(image: bytes, tmp_path: Path) -> None:
    require_tool("sbsign", "sbsigntool")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    words = ("req", "-new", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=site", "-days", "2")
    SystemRunner().run(("openssl", *words, "-keyout", str(key), "-out", str(certificate)))
    (tmp_path / "unsigned.efi").write_bytes(image)
    order = {
        "image": str(tmp_path / "unsigned.efi"),
        "path": str(tmp_path / "signed.efi"),
        "key": str(key),
        "certificate": str(certificate),
    }
    assert run_signed(order, False).changed
    signed = (tmp_path / "signed.efi").read_bytes()
    (certificate_only, hash_only) = (
        lists(X509, (tmp_path / "certificate.cer").read_bytes()),
        lists(SHA256, parse_program(image).digest),
    )
    require_trusted(signed, certificate_only)
    require_trusted(image, hash_only)
    with pytest.raises(AttestedError, match="without a signature"):
        require_trusted(image, certificate_only)
    assert parse_program(signed).digest == parse_program(image).digest
    time.sleep(SECOND)
    assert not run_signed(order, False).changed
    assert (tmp_path / "signed.efi").read_bytes() == signed
