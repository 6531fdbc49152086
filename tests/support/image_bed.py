# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Images on a single virtual machine: build and install them there, read what was booted, sign lists of keys."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ansible_collections.attested.kubernetes.plugins.module_utils.errors import PolicyError
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.facts import boot_facts
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.kinds import describe
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.tcg import parse_firmware_log
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.decision import decide
from ansible_collections.attested.kubernetes.tests.support.vm_bed import ADDRESS, COMMAND_LINE, NAMESPACES, VM

if TYPE_CHECKING:
    from ansible_collections.attested.kubernetes.plugins.module_utils.policy.profile import MeasurementProfile
    from ansible_collections.attested.kubernetes.tests.support.vm_bed import LoneMachine

LOG = "/sys/kernel/security/tpm0/binary_bios_measurements"
PATIENT = "systemd.default_timeout_start_sec=1800 systemd.default_device_timeout_sec=1800"
LINE = f"{COMMAND_LINE} panic=30 {PATIENT}"
HELD = (0, 4, 7, 9, 11)
KEYS_OF_OTHERS = Path("/usr/share/OVMF/OVMF_VARS_4M.ms.fd")
OWNER = "5f4c8e9a-3d0b-4a57-9d52-7b1a3f8d2c61"


class ReadMachine(Protocol):
    """A machine that answers by ssh."""

    def inside(self, script: str, *, check: bool = True) -> str:
        """Run a shell script as root on the machine and return its output."""

    def registers(self) -> dict[int, str]:
        """Return the registers of its TPM in upper case hex."""


def observed(machine: ReadMachine) -> dict[str, Any]:
    """Return registers, events and facts of the boot that the machine is in, as evidence shows them."""
    pcrs = {index: bytes.fromhex(value) for index, value in machine.registers().items()}
    text = machine.inside(f"test ! -e {LOG} || od -An -v -tx1 {LOG}")
    line = machine.inside("cat /proc/cmdline").encode()
    log = parse_firmware_log(bytes.fromhex("".join(text.split())))
    facts = boot_facts(log, quoted=pcrs, command_line=line)
    return {"pcrs": pcrs, "events": describe(log, (), command_line=line), "facts": facts}


def accepts(profile: MeasurementProfile, boot: dict[str, Any]) -> str:
    """Return the code of the refusal of this boot, empty where the profile accepts it."""
    try:
        decide((profile,), boot["pcrs"], boot["events"], facts=boot["facts"])
    except PolicyError as error:
        return error.code
    return ""


def ask(machine: LoneMachine, *, check: bool = False, **options: Any) -> dict[str, Any]:
    """Run the module boot_image on the machine, by Ansible over ssh; return its answer."""
    program = str(Path(sys.executable).parent / "ansible")
    ssh = f"-F {machine.root / 'ssh' / 'config'} -o HostName={ADDRESS} -o ConnectTimeout=60"
    settings = {"ANSIBLE_SSH_ARGS": ssh, "ANSIBLE_FORCE_COLOR": "0"}
    words = ["-i", f"{VM},", "-b", "-T", "120", "-e", "ansible_python_interpreter=/usr/bin/python3"]
    words += ["--check"] if check else []
    module = ["-m", "attested.kubernetes.boot_image", "-a", json.dumps(options), VM]
    enter = ["nsenter", f"--net={NAMESPACES / machine.name}"]
    argv = [*enter, program, *words, *module]
    done = subprocess.run(
        argv, env={**os.environ, **settings}, capture_output=True, text=True, check=False, timeout=1800
    )
    assert "=> {" in done.stdout, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout.partition("=> ")[2])
    return found


def build(machine: LoneMachine, path: str, line: str, *, check: bool = False, initrd: str = "") -> dict[str, Any]:
    """Build an image on the machine, by default with the initrd that it has; a generic one takes many minutes there."""
    initrd = initrd or machine.inside("ls /boot/initrd.img-*").split()[0]
    return ask(machine, check=check, state="built", path=path, command_line=line, initrd=initrd)


def entries(machine: LoneMachine) -> dict[str, str]:
    """Return what efibootmgr says of the order."""
    lines = machine.inside("/usr/bin/efibootmgr || /usr/sbin/efibootmgr").splitlines()
    return {name: value.strip() for name, _colon, value in (line.partition(":") for line in lines) if value}


def program_of(machine: LoneMachine, path: str) -> bytes:
    """Fetch a file of the machine."""
    text = machine.inside(f"base64 {path}")
    return subprocess.run(["base64", "-d"], input=text.encode(), capture_output=True, check=True).stdout


def known_keys() -> bytes:
    """Return the signature lists of Microsoft out of the variables that OVMF's package has."""
    data, name = KEYS_OF_OTHERS.read_bytes(), "db\0".encode("utf-16le")
    at = data.index(uuid.UUID("d719b2cb-3d3a-4596-a3bc-dad00e67656f").bytes_le + name) + 16
    size = int.from_bytes(data[at - 20 : at - 16], "little")
    return data[at + len(name) : at + len(name) + size]


def signed_lists(folder: Path, key: Path, certificate: Path) -> list[Path]:
    """Return the variables db, KEK and PK as firmware takes them: Microsoft's and the site's, of the site alone."""
    own = folder / "site.esl"
    subprocess.run(("cert-to-efi-sig-list", "-g", OWNER, str(certificate), str(own)), check=True, capture_output=True)
    for name in ("db", "KEK", "PK"):
        (folder / f"{name}.esl").write_bytes((known_keys() if name == "db" else b"") + own.read_bytes())
        files = (str(folder / f"{name}.esl"), str(folder / f"{name}.auth"))
        words = ("-g", OWNER, "-k", str(key), "-c", str(certificate), name)
        subprocess.run(("sign-efi-sig-list", *words, *files), check=True, capture_output=True)
    return [folder / f"{name}.auth" for name in ("db", "KEK", "PK")]
