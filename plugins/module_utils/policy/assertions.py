# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Assertions: rules beyond digests, compared with what the logs of a boot prove.

What is not proven does not hold. An assertion is as strong as the code that measured, and a register has to show which
code that was. So a profile without registers accepts no machine, whatever it asserts. Command line and kernel come from
registers that any root user can extend if the expected loader did not run. They are taken only from the loader that the
profile names for its PCR 4.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from ..reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


# The facts that the logs of one boot prove: the input of assertions, made by `evidence.eventlog`, empty if unproven.


class Loader(Enum):
    """The program that measures the command line of a boot; PCR 4 shows which program it was."""

    GRUB = "grub"
    """GRUB: its commands into PCR 8, every file that it reads into PCR 9."""
    IMAGE = "image"
    """The stub of a unified kernel image: its sections into PCR 11; the kernel in it then into PCR 9."""
    KERNEL = "kernel"
    """A kernel that firmware starts itself, or systemd-boot: its command line and initrd into PCR 9."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BootFacts:
    """Statements about a boot that follow from digests in quoted registers; hints are not among them.

    If a loader did not run, a root user may have extended its registers. So some facts belong to a loader:
    ``command_lines`` are all kernel command lines that GRUB, or else the kernel, measured, without the name of the
    kernel's file. They are empty if the text of one of them is unknown. ``kernel`` belongs to IMAGE. These facts count
    only for a profile that names the loader of its PCR 4.

    ``secure_boot``: None if the log does not prove it. ``kernel``: SHA-256 of the release in the kernel image's section
    .uname, 32 bytes or empty. ``sbat_level``: component to generation, as shim enforced it. ``source_signer`` and
    ``source_version``: fingerprint and version of the site that was measured before the node lock; empty and 0 without
    one. ``node_config``: SHA-256 (hex) of the node.yml that was measured with it. ``loader``: the loader that the
    measurements show. ``alone``: firmware started one signed image and nothing else. A root user can imitate these
    measurements, so ``loader`` and ``alone`` serve to learn from a trusted machine, and no decision uses them.
    """

    secure_boot: bool | None = None
    command_lines: Mapping[Loader, tuple[str, ...]] = field(default_factory=dict)
    firmware_version: str = ""
    kernel: bytes = b""
    sbat_level: Mapping[str, int] = field(default_factory=dict)
    source_signer: str = ""
    source_version: int = 0
    node_config: str = ""
    loader: Loader | None = None
    alone: bool = False

    def lines_by(self, loader: Loader | None) -> tuple[str, ...]:
        """Return the command lines that ``loader`` measured; nothing for None."""
        return next((lines for by, lines in self.command_lines.items() if by is loader), ())


def boot_options(command_line: str) -> tuple[str, ...]:
    """Return the words of a kernel command line; blanks within double quotes belong to a word (kernel: next_arg)."""
    words, quoted = [""], False
    for letter in command_line:
        quoted ^= letter == '"'
        if letter.isspace() and not quoted:
            words.append("")
        else:
            words[-1] += letter
    return tuple(word for word in words if word)


def is_plain(command_line: str) -> bool:
    """Whether the line is printable ASCII, so that the kernel splits it as `boot_options` does.

    The kernel takes byte 0xA0 for a blank and stops at a newline.
    """
    return command_line.isascii() and command_line.isprintable()


FIRMWARE_REGISTER, PROGRAM_REGISTER, SECURE_BOOT_REGISTER, GRUB_REGISTER, KERNEL_REGISTER, IMAGE_REGISTER = (
    0,
    4,
    7,
    8,
    9,
    11,
)
"""The registers from which each kind of fact is read, and the register that names the started programs."""

_NUMBER = re.compile(r"0*([1-9][0-9]*|0)")
_END_OF_KERNEL_OPTIONS = "--"
_NO_LOADER = f"a profile that does not name the loader that measured it (loader, with PCR {PROGRAM_REGISTER} held)"


class Lockdown(Enum):
    """The kernel's lockdown mode (``lockdown=`` on its command line)."""

    INTEGRITY = "integrity"
    CONFIDENTIALITY = "confidentiality"


@dataclass(frozen=True, slots=True, kw_only=True)
class Assertions:
    """The demands of a profile besides its registers' values; an empty member demands nothing.

    ``boot_options``: the only options that a command line may have, each complete or as ``name=*``; None: any.
    ``firmware_minimum``: the lowest firmware version, compared number by number. ``kernels``: the accepted releases
    (``uname -r``). ``sbat_minimum``: component to the lowest generation of shim's revocation level.
    ``source_signers``, ``source_minimum``: the fingerprints of accepted signers of the site, and its lowest version.
    The machine measures the site before its lock, and the lock's register is always quoted. ``node_configs``: the
    accepted digests (SHA-256, hex) of the node.yml, which is measured with the site.
    """

    secure_boot: bool = False
    lockdown: Lockdown | None = None
    boot_options: tuple[str, ...] | None = None
    firmware_minimum: str = ""
    kernels: tuple[str, ...] = ()
    sbat_minimum: Mapping[str, int] = field(default_factory=dict)
    source_signers: tuple[str, ...] = ()
    source_minimum: int = 0
    node_configs: tuple[str, ...] = ()

    @property
    def registers(self) -> tuple[int, ...]:
        """The registers that must be quoted for the demanded facts, ascending."""
        wanted = set()
        if self.secure_boot or self.sbat_minimum:
            wanted.add(SECURE_BOOT_REGISTER)
        if self.lockdown or self.boot_options is not None:
            wanted |= {GRUB_REGISTER, KERNEL_REGISTER}
        if self.firmware_minimum:
            wanted.add(FIRMWARE_REGISTER)
        if self.kernels:
            wanted.add(IMAGE_REGISTER)
        return tuple(sorted(wanted))


@dataclass(frozen=True, slots=True)
class FailedAssertion:
    """An assertion that does not hold: its reason code, the expected value and the actual value."""

    reason: Reason
    expected: str
    got: str

    def __str__(self) -> str:
        """Return the failure as a clause of a message."""
        return f"assertion: expected {self.expected}, got {self.got}"


def failed_assertions(
    assertions: Assertions, facts: BootFacts, *, measured_by: Loader | None
) -> tuple[FailedAssertion, ...]:
    """Return every assertion that does not hold, in a fixed order; empty if all hold.

    ``measured_by``: the loader whose measurements count; None if the profile names no loader, or does not hold PCR 4.
    """
    checks = (_secure_boot, _lockdown, _boot_options, _firmware, _kernel, _sbat, _signer, _version, _node_config)
    return tuple(failed for check in checks for failed in check(assertions, facts, measured_by))


def _secure_boot(assertions: Assertions, facts: BootFacts, _measured_by: Loader | None) -> Iterator[FailedAssertion]:
    if assertions.secure_boot and facts.secure_boot is not True:
        got = "a log that does not prove it" if facts.secure_boot is None else "it off"
        yield FailedAssertion(Reason.SECURE_BOOT_OFF, "Secure Boot on", got)


def _lockdown(assertions: Assertions, facts: BootFacts, measured_by: Loader | None) -> Iterator[FailedAssertion]:
    wanted = assertions.lockdown
    if wanted is None:
        return
    enough = {"lockdown=confidentiality"} | ({"lockdown=integrity"} if wanted is Lockdown.INTEGRITY else set())
    expected = f"lockdown={wanted.value} on the kernel's command line"
    lines = facts.lines_by(measured_by)
    for line in lines:
        modes = [word for word in _kernels_own(boot_options(line)) if word.startswith("lockdown=")]
        if not modes or not set(modes) <= enough:
            yield FailedAssertion(Reason.LOCKDOWN_NOT_PROVEN, expected, " and ".join(modes) or "none")
    if not lines:
        yield FailedAssertion(Reason.LOCKDOWN_NOT_PROVEN, expected, _no_line(measured_by))


def _kernels_own(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words that the kernel reads; those after ``--`` are arguments of the init program."""
    return words[: words.index(_END_OF_KERNEL_OPTIONS)] if _END_OF_KERNEL_OPTIONS in words else words


def _no_line(measured_by: Loader | None) -> str:
    return "no command line that the log proves" if measured_by else _NO_LOADER


def _boot_options(assertions: Assertions, facts: BootFacts, measured_by: Loader | None) -> Iterator[FailedAssertion]:
    allowed = assertions.boot_options
    if allowed is None:
        return
    expected = f"no other boot option than {' '.join(allowed) or 'none'}"
    lines = facts.lines_by(measured_by)
    for line in lines:
        unknown = [word for word in boot_options(line) if not _is_allowed(word, allowed)]
        if unknown:
            yield FailedAssertion(Reason.BOOT_OPTION_UNKNOWN, expected, " ".join(unknown))
    if not lines:
        yield FailedAssertion(Reason.BOOT_OPTION_UNKNOWN, expected, _no_line(measured_by))


def _is_allowed(word: str, allowed: tuple[str, ...]) -> bool:
    name, mark, _value = word.partition("=")
    return word in allowed or (bool(mark) and f"{name}=*" in allowed)


def _firmware(assertions: Assertions, facts: BootFacts, _measured_by: Loader | None) -> Iterator[FailedAssertion]:
    least, got = assertions.firmware_minimum, facts.firmware_version
    if least and (not got or _numbers(got) < _numbers(least)):
        yield FailedAssertion(
            Reason.FIRMWARE_TOO_OLD,
            f"firmware {least} or later",
            repr(got) if got else "no version that the log proves",
        )


def _numbers(version: str) -> tuple[tuple[int, str], ...]:
    """Return the numbers of a version in a form that compares like them; ``int`` refuses very long numbers."""
    return tuple((len(digits), digits) for digits in _NUMBER.findall(version))


def _kernel(assertions: Assertions, facts: BootFacts, measured_by: Loader | None) -> Iterator[FailedAssertion]:
    accepted = assertions.kernels
    kernel = facts.kernel if measured_by is Loader.IMAGE else b""
    if accepted and kernel not in {hashlib.sha256(one.encode()).digest() for one in accepted}:
        got = f"one whose hash is {kernel.hex()}" if kernel else "no release in the log" if measured_by else _NO_LOADER
        yield FailedAssertion(Reason.KERNEL_NOT_ACCEPTED, f"a kernel of the releases {', '.join(accepted)}", got)


def _sbat(assertions: Assertions, facts: BootFacts, _measured_by: Loader | None) -> Iterator[FailedAssertion]:
    for component, least in sorted(assertions.sbat_minimum.items()):
        got = facts.sbat_level.get(component, 0)
        if got < least:
            yield FailedAssertion(
                Reason.SBAT_TOO_OLD, f"SBAT level {component} {least} or later", str(got or "none that the log proves")
            )


def _signer(assertions: Assertions, facts: BootFacts, _measured_by: Loader | None) -> Iterator[FailedAssertion]:
    accepted = assertions.source_signers
    if accepted and facts.source_signer not in accepted:
        got = facts.source_signer or "no site before the lock"
        yield FailedAssertion(Reason.SOURCE_NOT_ACCEPTED, f"a site signed by {' or '.join(accepted)}", got)


def _version(assertions: Assertions, facts: BootFacts, _measured_by: Loader | None) -> Iterator[FailedAssertion]:
    least, got = assertions.source_minimum, facts.source_version
    if got < least:
        yield FailedAssertion(
            Reason.SOURCE_TOO_OLD, f"version {least} of the site or later", str(got or "none before the lock")
        )


def _node_config(assertions: Assertions, facts: BootFacts, _measured_by: Loader | None) -> Iterator[FailedAssertion]:
    accepted = assertions.node_configs
    if accepted and facts.node_config not in accepted:
        got = facts.node_config or "none before the lock"
        yield FailedAssertion(Reason.NODE_CONFIG_NOT_ACCEPTED, f"a node.yml of {' or '.join(accepted)}", got)
