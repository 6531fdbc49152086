# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Other people's tools on the same images: pesign for the digest of a program, systemd-measure for PCR 11."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.image.pe import parse_program, read_image
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.image.prediction import predict
from ansible_collections.attested.kubernetes.tests.support import pe
from ansible_collections.attested.kubernetes.tests.support.tpm2_tools import require_tool

SECTIONS = {"osrel": b"ID=debian\n", "cmdline": b"root=LABEL=root rw quiet", "initrd": b"i" * 5000}
PHASES = ("enter-initrd", "leave-initrd", "sysinit", "ready")
_STUBS = sorted(Path("/usr/lib/systemd/boot/efi").glob("*.efi*")) if Path("/usr/lib/systemd").is_dir() else []


@pytest.mark.parametrize("count", range(1, len(PHASES) + 1))
def test_systemd_measure_predicts_our_register_11(count: int, tmp_path: Path) -> None:
    measure = require_tool("systemd-measure", "systemd", beside=("/usr/lib/systemd", "/lib/systemd"))
    files = {**SECTIONS, "linux": pe.kernel()}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    phases = PHASES[:count]
    command = [measure, "calculate", "--bank=sha256", f"--phase={':'.join(phases)}"]
    done = subprocess.run(
        [*command, *(f"--{name}={tmp_path / name}" for name in files)], capture_output=True, timeout=900, check=True
    )
    ours = predict(read_image(pe.image(stub=252, **files)), secure_boot=False, phases=phases).registers[11]
    assert done.stdout.decode().split()[-1] == f"11:sha256={ours.hex()}"


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(pe.kernel(), id="a small program"),
        pytest.param(pe.image(), id="a unified kernel image"),
        *(pytest.param(path.read_bytes(), id=path.name) for path in _STUBS),
    ],
)
def test_pesign_hashes_a_program_as_we_do(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "program").write_bytes(data)
    command = [require_tool("pesign", "pesign"), "--hash", "--digest_type=sha256", f"--in={tmp_path / 'program'}"]
    done = subprocess.run(command, capture_output=True, timeout=900, check=True)
    assert parse_program(data).digest.hex() in done.stdout.decode().split()


def test_the_kernel_of_the_recorded_debian_12_boot_hashes_to_its_event() -> None:
    """PCR 4 of deb12-base, if the very file is at hand: linux-image-6.1.0-56-cloud-amd64, 6.1.192-2."""
    path = Path("/boot/vmlinuz-6.1.0-56-cloud-amd64")
    if not path.exists():
        pytest.skip(f"no recorded program here: {path} not installed (package linux-image-6.1.0-56-cloud-amd64)")
    data = path.read_bytes()
    assert hashlib.sha256(data).hexdigest().startswith("51349501a3d1ff83")
    assert parse_program(data).digest.hex().startswith("5f21ff2c0d5d8998")
