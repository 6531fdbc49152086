# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Predict before a reboot whether the policy accepts what a machine boots next."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import PolicyError
from ...policy.assertions import (
    FIRMWARE_REGISTER,
    GRUB_REGISTER,
    IMAGE_REGISTER,
    KERNEL_REGISTER,
    PROGRAM_REGISTER,
    SECURE_BOOT_REGISTER,
    Assertions,
    BootFacts,
    Loader,
    failed_assertions,
    is_plain,
)
from ...reasons import Reason
from .pe import MAX_IMAGE_BYTES, KernelImage, read_image
from .prediction import INITRD_PHASES, PHASES, image_events, predict

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from ...policy.profile import Applicant, MeasurementProfile


_MOVED = (PROGRAM_REGISTER, KERNEL_REGISTER, IMAGE_REGISTER)
_BY_A_LOADER = (PROGRAM_REGISTER, GRUB_REGISTER, KERNEL_REGISTER)


@dataclass(frozen=True, slots=True, kw_only=True)
class NextBoot:
    """One boot target of a machine: an image, or a kernel with its initrd (SHA-256 of the files).

    It is an unverified claim of the machine: use it only to decide about a reboot. ``files``: SHA-256 by path of other
    files that a boot loader measures. ``problem``: why the measurements are unknown.
    """

    path: str
    image: KernelImage | None = None
    kernel: bytes = b""
    initrd: bytes = b""
    files: Mapping[str, bytes] = field(default_factory=dict)
    problem: str = ""

    def to_mapping(self) -> dict[str, Any]:
        """Return plain data for the result of a module; digests are hex."""
        told: dict[str, Any] = {
            "path": self.path,
            "kernel": self.kernel.hex(),
            "initrd": self.initrd.hex(),
            "files": {path: digest.hex() for path, digest in self.files.items()},
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
        """Return the inverse of `to_mapping`; raises `PolicyError` IMAGE_MALFORMED."""
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
            files={str(path): bytes.fromhex(digest) for path, digest in told["files"].items()},
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


class Verdict(Enum):
    """The prediction of whether the policy accepts the machine after its next boot."""

    ALLOWED = "allowed"
    REFUSED = "refused"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A verdict with the name of the accepting profile, or with the reason for a refusal or an unknown result.

    ``differences``: deviations from each profile, if they can be computed.
    """

    verdict: Verdict
    profile: str = ""
    why: str = ""
    differences: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """The verified facts of the current boot: registers, applicant, and accepting profile."""

    registers: Mapping[int, bytes] = field(default_factory=dict)
    applicant: Applicant | None = None
    profile: MeasurementProfile | None = None


def judge(found: NextBoot, profiles: Sequence[MeasurementProfile], *, now: datetime, shown: Shown) -> Judgement:
    """Return whether a profile in force at ``now`` would accept the machine after booting ``found``.

    1. The first profile without deviations accepts it.
    2. The result is unknown if all deviations from a profile, or the whole boot, cannot be computed.
    3. Everything else is refused.

    The comparison covers registers, the command line and kernel release of an image, and the files of a boot loader.
    Firmware and keys are those of the boot that was ``shown``.
    """
    if found.problem:
        return Judgement(verdict=Verdict.UNKNOWN, why=f"{found.path}: {found.problem}")
    compared = [(profile.name, _deviations(found, profile, now, shown)) for profile in profiles]
    for name, deviations in compared:
        if not deviations.wrong and not deviations.open:  # 1
            return Judgement(verdict=Verdict.ALLOWED, profile=name)
    listed = "; ".join(f"{name}: {', '.join((*one.wrong, *one.open))}" for name, one in compared) or "there is none"
    open_ones = any(not one.wrong for _name, one in compared)  # 2
    return Judgement(
        verdict=Verdict.UNKNOWN if open_ones else Verdict.REFUSED,
        why=f"{found.path}: no active profile would accept the machine after booting it ({listed})",
        differences=listed,
    )


def judge_next_boot(found: NextBoot, profiles: Sequence[MeasurementProfile], *, now: datetime) -> str:
    """Return why no profile in force at ``now`` would accept a machine after booting ``found``; empty if one would."""
    if found.problem:
        return f"{found.path}: cannot be read, so nobody knows what it will be measured as ({found.problem})"
    return judge(found, profiles, now=now, shown=Shown()).why


@dataclass(frozen=True, slots=True, kw_only=True)
class _Deviations:
    """The deviations of a boot from a profile, and the parts that cannot be computed."""

    wrong: list[str] = field(default_factory=list)
    open: list[str] = field(default_factory=list)


def _deviations(found: NextBoot, profile: MeasurementProfile, now: datetime, shown: Shown) -> _Deviations:
    wrong = [why for why in (_out_of_force(profile, now), _limits(profile, shown.applicant)) if why]
    if wrong:
        return _Deviations(wrong=wrong)
    boot = _of_image(found.image, profile) if found.image is not None else _of_loader(found, profile)
    firmware = _moved_otherwise(profile, FIRMWARE_REGISTER, shown)
    keys = _moved_otherwise(profile, SECURE_BOOT_REGISTER, shown) if _stays_with_images(found, shown) else []
    return _Deviations(wrong=[*boot.wrong, *firmware], open=[*boot.open, *keys])


def _limits(profile: MeasurementProfile, applicant: Applicant | None) -> str:
    """Return the limits of a profile that excludes the machine, else an empty text."""
    return "" if applicant is None or profile.counts_for(applicant) else f"counts for {profile.limits}"


def _stays_with_images(found: NextBoot, shown: Shown) -> bool:
    """Return whether the machine boots an image now and next: an equal signer gives an equal PCR 7."""
    return found.image is not None and shown.profile is not None and shown.profile.loader is Loader.IMAGE


def _out_of_force(profile: MeasurementProfile, now: datetime) -> str:
    """Return why the profile accepts no machine at all, or an empty text."""
    if profile.retired:
        return "retired"
    if profile.accepts_no_machine:
        return "without values for a register"
    if profile.expires is not None and now >= profile.expires:
        return f"expired at {profile.expires.isoformat()}"
    return ""


def _moved_otherwise(profile: MeasurementProfile, pcr: int, shown: Shown) -> list[str]:
    """Return the deviation of a shown register from the profile; empty if there is none."""
    value, allowed = shown.registers.get(pcr), profile.registers.get(pcr)
    if value is None or allowed is None or value in {one.digest for one in allowed}:
        return []
    return [f"PCR {pcr} is {value.hex()}"]


def _of_image(image: KernelImage, profile: MeasurementProfile) -> _Deviations:
    """Return the deviations, with or without systemd in the initrd: the image does not show which."""
    held = [pcr for pcr in _MOVED if pcr in profile.registers]
    tried = (_image(image, profile, held, phases) for phases in (PHASES, INITRD_PHASES))
    moved = min(tried, key=lambda one: len(one.wrong))
    asserted = _asserted(image, profile)
    return _Deviations(wrong=[*moved.wrong, *asserted.wrong], open=[*moved.open, *asserted.open])


def _of_loader(found: NextBoot, profile: MeasurementProfile) -> _Deviations:
    """Return the files without reference event: registers of a boot loader cannot be computed."""
    held = [pcr for pcr in _BY_A_LOADER if pcr in profile.registers]
    known = {event.digest for event in profile.reference_events if event.pcr in held}
    files = {"kernel": found.kernel, "initrd": found.initrd} if KERNEL_REGISTER in held else {}
    files |= found.files if held else {}
    new = [name for name, digest in files.items() if digest and digest not in known]
    registers = ", ".join(map(str, held)) if found.files else str(KERNEL_REGISTER)
    return _Deviations(open=[f"{' and '.join(new)} in no reference event of PCR {registers}"] if new else [])


def _asserted(image: KernelImage, profile: MeasurementProfile) -> _Deviations:
    """Return failing assertions of command line and kernel, from the facts that an event log would prove.

    An image without a command line gets one from the firmware or boot loader, which is unknown here.
    """
    assertions = profile.assertions
    missing: dict[int, str] = {}
    digests = [event.digest for event in image_events(image, (), missing)]
    measured = {digests[at]: digests[at + 1] for at in range(0, len(digests), 2)}
    release = measured.get(hashlib.sha256(b".uname\0").digest(), b"")
    told = Assertions(kernels=() if IMAGE_REGISTER in missing else assertions.kernels)
    if ".cmdline" in image.sections:
        told = dataclasses.replace(told, lockdown=assertions.lockdown, boot_options=assertions.boot_options)
    lines = (image.command_line,) if image.command_line and is_plain(image.command_line) else ()
    facts = BootFacts(kernel=release, command_lines={Loader.IMAGE: lines})
    measured_by = profile.loader if PROGRAM_REGISTER in profile.registers else None
    wrong = [str(failed) for failed in failed_assertions(told, facts, measured_by=measured_by)]
    if not (assertions.kernels and IMAGE_REGISTER in missing):
        return _Deviations(wrong=wrong)
    unknown = f"assertion: the kernel's release cannot be computed: {missing[IMAGE_REGISTER]}"
    return _Deviations(wrong=wrong, open=[unknown])


def _image(image: KernelImage, profile: MeasurementProfile, held: list[int], phases: tuple[str, ...]) -> _Deviations:
    predicted = predict(
        image, secure_boot=profile.assertions.secure_boot, phases=phases, reference=profile.reference_events
    )
    found = _Deviations()
    for pcr in held:
        if pcr in predicted.missing:
            found.open.append(f"PCR {pcr} cannot be computed: {predicted.missing[pcr]}")
        elif predicted.registers[pcr] not in {value.digest for value in profile.registers[pcr]}:
            found.wrong.append(f"PCR {pcr} will be {predicted.registers[pcr].hex()}")
    return found


# The boot targets on the disks of a machine: unified kernel images, and the newest kernel in /boot.

IMAGE_FOLDERS = ("boot/efi/EFI/Linux", "boot/EFI/Linux", "efi/EFI/Linux")
"""Directories of Boot Loader Specification (UAPI.1) type 2 entries, at the mount points of the ESP."""

MAX_IMAGES = 16

_BOOT = "boot"
_NUMBER = re.compile(r"\d+")


def find_next_boots(root: str | Path = "/") -> tuple[NextBoot, ...]:
    """Return the boot targets below ``root``: all images, and the newest kernel with its initrd.

    For an unreadable file, ``problem`` has the reason. Changes nothing; raises `OSError` for a directory.
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
        yield NextBoot(path=str(kernel), kernel=digest_of(kernel), initrd=digest_of(initrd) if initrd.exists() else b"")
    except (PolicyError, OSError) as error:
        yield NextBoot(path=str(kernel), problem=str(error))


def _whole(path: Path) -> bytes:
    _require_size(path)
    return path.read_bytes()


def digest_of(path: Path) -> bytes:
    """Return the SHA-256 of a file; raises `PolicyError` IMAGE_MALFORMED above `MAX_IMAGE_BYTES`."""
    _require_size(path)
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").digest()


def _require_size(path: Path) -> None:
    size = path.stat().st_size
    if size > MAX_IMAGE_BYTES:
        raise PolicyError(
            f"expected at most {MAX_IMAGE_BYTES} bytes in {path}, found {size}", reason=Reason.IMAGE_MALFORMED
        )
