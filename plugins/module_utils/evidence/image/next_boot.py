# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether what lies ready to be booted would be accepted: a warning before the reboot, never a decision."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import PolicyError
from ...policy.assertions import (
    FIRMWARE_REGISTER,
    IMAGE_REGISTER,
    KERNEL_REGISTER,
    PROGRAM_REGISTER,
    Assertions,
    BootFacts,
    Loader,
    failed_assertions,
    is_plain,
)
from ...reasons import Reason
from ...result import Result
from .pe import MAX_IMAGE_BYTES, KernelImage, read_image
from .prediction import INITRD_PHASES, PHASES, image_events, predict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import datetime

    from ...policy.profile import MeasurementProfile


_MOVED = (PROGRAM_REGISTER, KERNEL_REGISTER, IMAGE_REGISTER)


@dataclass(frozen=True, slots=True, kw_only=True)
class NextBoot:
    """One thing that a machine may boot: an image, or a kernel's file with its initrd (SHA-256 of the files).

    The machine tells it of itself, so it is worth a warning and nothing more. ``problem``: why it could not be read.
    """

    path: str
    image: KernelImage | None = None
    kernel: bytes = b""
    initrd: bytes = b""
    problem: str = ""

    def to_mapping(self) -> dict[str, Any]:
        """Return it as plain data, for the result of a module."""
        told: dict[str, Any] = {
            "path": self.path,
            "kernel": self.kernel.hex(),
            "initrd": self.initrd.hex(),
            "problem": self.problem,
            "image": None,
        }
        if self.image is not None:
            told["image"] = {
                "program": self.image.program.hex(),
                "kernel": self.image.kernel.hex(),
                "sections": {name: digest.hex() for name, digest in self.image.sections.items()},
                "stub": self.image.stub,
                "command_line": self.image.command_line,
                "release": self.image.release,
            }
        return told

    @classmethod
    def of_mapping(cls, told: Mapping[str, Any]) -> NextBoot:
        """Return what `to_mapping` told; raises `PolicyError` IMAGE_MALFORMED for anything else."""
        try:
            return cls._of(told)
        except (AttributeError, KeyError, OverflowError, RecursionError, TypeError, ValueError) as error:
            raise PolicyError(
                f"expected what next_boot_info returns, got something else ({str(error)[:100]})",
                reason=Reason.IMAGE_MALFORMED,
            ) from error

    @classmethod
    def _of(cls, told: Mapping[str, Any]) -> NextBoot:
        image = told["image"]
        return cls(
            path=str(told["path"]),
            kernel=bytes.fromhex(told["kernel"]),
            initrd=bytes.fromhex(told["initrd"]),
            problem=str(told["problem"]),
            image=None
            if image is None
            else KernelImage(
                program=bytes.fromhex(image["program"]),
                kernel=bytes.fromhex(image["kernel"]),
                sections={str(name): bytes.fromhex(digest) for name, digest in image["sections"].items()},
                stub=int(image["stub"]),
                command_line=str(image["command_line"]),
                release=str(image["release"]),
            ),
        )


def judge_next_boot(
    found: NextBoot,
    profiles: Iterable[MeasurementProfile],
    *,
    now: datetime,
    registers: Mapping[int, bytes] | None = None,
) -> str:
    """Return why no profile in force at ``now`` would accept the machine after booting ``found``; empty if one would.

    Looked at is what an image moves and tells: registers, its own command line, its kernel's release. Firmware and
    keys, and what is asserted of them, are as they were at the last attestation; of the firmware's register, which no
    boot path moves, ``registers`` may say what the machine showed.
    """
    if found.problem:
        return f"{found.path}: cannot be read, so nobody knows what it will be measured as ({found.problem})"
    lacking = [
        (profile.name, _out_of_force(profile, now) or _why(found, profile) or _firmware(profile, registers or {}))
        for profile in profiles
    ]
    if not all(why for _name, why in lacking):
        return ""
    told = "; ".join(f"{name}: {why}" for name, why in lacking) or "there is none"
    return f"{found.path}: no active profile would accept the machine after booting it ({told})"


def _out_of_force(profile: MeasurementProfile, now: datetime) -> str:
    """Return why the profile accepts no machine at all, whatever it boots; empty if it may."""
    if profile.retired:
        return "retired"
    if profile.accepts_nobody:
        return "without values for a register"
    if profile.expires is not None and now >= profile.expires:
        return f"expired at {profile.expires.isoformat()}"
    return ""


def _firmware(profile: MeasurementProfile, registers: Mapping[int, bytes]) -> str:
    """Return why the firmware that the machine runs is not in the profile; empty if it is."""
    value, allowed = registers.get(FIRMWARE_REGISTER), profile.registers.get(FIRMWARE_REGISTER)
    if value is None or allowed is None or value in {one.digest for one in allowed}:
        return ""
    return f"PCR {FIRMWARE_REGISTER} is {value.hex()}"


def _why(found: NextBoot, profile: MeasurementProfile) -> str:
    """Return what would deviate, empty if nothing would."""
    held = [pcr for pcr in _MOVED if pcr in profile.registers]
    if found.image is not None:
        image = found.image
        moved = min((_image(image, profile, held, phases) for phases in (PHASES, INITRD_PHASES)), key=len)
        return ", ".join([*moved, *_asserted(image, profile)])
    known = {event.digest for event in profile.reference_events if event.pcr == KERNEL_REGISTER}
    files = {"kernel": found.kernel, "initrd": found.initrd}
    new = [name for name, digest in files.items() if digest and digest not in known]
    return (
        f"{' and '.join(new)} in no reference event of PCR {KERNEL_REGISTER}" if KERNEL_REGISTER in held and new else ""
    )


def _asserted(image: KernelImage, profile: MeasurementProfile) -> list[str]:
    """Return what is asserted of command line and kernel and would not hold: facts as a log would prove them.

    An image without a command line of its own gets one from whoever starts it, which is not known here.
    """
    assertions = profile.assertions
    missing: dict[int, str] = {}
    digests = [event.digest for event in image_events(image, (), missing)]
    measured = dict(zip(digests[::2], digests[1::2], strict=True))
    release = measured.get(hashlib.sha256(b".uname\0").digest(), b"")
    told = Assertions(kernels=() if IMAGE_REGISTER in missing else assertions.kernels)
    if ".cmdline" in image.sections:
        told = dataclasses.replace(told, lockdown=assertions.lockdown, boot_options=assertions.boot_options)
    lines = (image.command_line,) if image.command_line and is_plain(image.command_line) else ()
    facts = BootFacts(kernel=release, command_lines={Loader.IMAGE: lines})
    measured_by = profile.loader if PROGRAM_REGISTER in profile.registers else None
    wrong = [str(failed) for failed in failed_assertions(told, facts, measured_by=measured_by)]
    if assertions.kernels and IMAGE_REGISTER in missing:
        wrong.append(f"assertion: the kernel's release cannot be computed: {missing[IMAGE_REGISTER]}")
    return wrong


def _image(image: KernelImage, profile: MeasurementProfile, held: list[int], phases: tuple[str, ...]) -> list[str]:
    predicted = predict(
        image, secure_boot=profile.assertions.secure_boot, phases=phases, reference=profile.reference_events
    )
    wrong = []
    for pcr in held:
        if pcr in predicted.missing:
            wrong.append(f"PCR {pcr} cannot be computed: {predicted.missing[pcr]}")
        elif predicted.registers[pcr] not in {value.digest for value in profile.registers[pcr]}:
            wrong.append(f"PCR {pcr} will be {predicted.registers[pcr].hex()}")
    return wrong


# What a machine would boot next, as it lies on its disks: unified kernel images, and the newest kernel in /boot.

IMAGE_FOLDERS = ("boot/efi/EFI/Linux", "boot/EFI/Linux", "efi/EFI/Linux")
"""Where Boot Loader Specification (UAPI.1) type 2 entries lie, below the places at which the ESP is mounted."""

MAX_IMAGES = 16

_BOOT = "boot"
_NUMBER = re.compile(r"\d+")
_CHUNK = 1 << 20


def find_next_boots(root: str | Path = "/") -> tuple[NextBoot, ...]:
    """Return what lies ready to be booted below ``root``: every image, and the newest kernel with its initrd.

    An image that cannot be read is in it with the reason as its problem. Reads only; raises `OSError` for a folder.
    """
    base = Path(root)
    return (*_images(base), *_kernel(base / _BOOT))


def _images(base: Path) -> Iterator[NextBoot]:
    found = sorted({one.resolve() for folder in IMAGE_FOLDERS for one in (base / folder).glob("*.efi")})
    for path in found[:MAX_IMAGES]:
        try:
            yield NextBoot(path=str(path), image=read_image(_whole(path)))
        except (PolicyError, OSError) as error:
            yield NextBoot(path=str(path), problem=str(error))


def _kernel(boot: Path) -> Iterator[NextBoot]:
    kernels = sorted(boot.glob("vmlinuz-*"), key=lambda path: [int(one) for one in _NUMBER.findall(path.name)])
    if not kernels:
        return
    kernel = kernels[-1]
    initrd = boot / f"initrd.img-{kernel.name.removeprefix('vmlinuz-')}"
    try:
        yield NextBoot(path=str(kernel), kernel=_digest(kernel), initrd=_digest(initrd) if initrd.exists() else b"")
    except (PolicyError, OSError) as error:
        yield NextBoot(path=str(kernel), problem=str(error))


def _whole(path: Path) -> bytes:
    _require_size(path)
    return path.read_bytes()


def _digest(path: Path) -> bytes:
    _require_size(path)
    hashed = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            hashed.update(chunk)
    return hashed.digest()


def _require_size(path: Path) -> None:
    size = path.stat().st_size
    if size > MAX_IMAGE_BYTES:
        raise PolicyError(
            f"expected at most {MAX_IMAGE_BYTES} bytes in {path}, found {size}", reason=Reason.IMAGE_MALFORMED
        )


# The work of the module ``next_boot_info``: read what lies ready to be booted on this machine.


def run(params: Mapping[str, Any], check_mode: bool) -> Result:  # noqa: ARG001  # a reader
    """Return what lies below ``params["root"]``; values: ``next_boots``."""
    return Result(values={"next_boots": [one.to_mapping() for one in find_next_boots(params["root"])]})
