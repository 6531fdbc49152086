# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Assertions: rules beyond digests, held against what the logs of a boot prove.

What is not proven does not hold. An assertion is as strong as the code that measured: it needs a register that says
which code that was, so a profile without registers accepts nobody, whatever it asserts. Command line and kernel come
from registers that anybody may extend where the code that rules them did not run: they are taken from the loader that
the profile says its PCR 4 names, and from nowhere else.
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


# What the logs of one boot prove: the input of assertions, made by `evidence.eventlog` and empty where unproven.


class Loader(Enum):
    """Who measures the command line of a boot; which one it was follows from the programs that PCR 4 names."""

    GRUB = "grub"
    """GRUB: its commands into PCR 8, every file that it reads into PCR 9."""
    IMAGE = "image"
    """The stub of a unified kernel image: its sections into PCR 11; the kernel in it then into PCR 9."""
    KERNEL = "kernel"
    """A kernel that firmware starts itself, or systemd-boot: its command line and initrd into PCR 9."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BootFacts:
    """Statements about a boot that follow from digests in quoted registers; a hint is never among them.

    What anybody may have measured where a loader did not run is told by loader: ``command_lines`` are all kernel
    command lines that GRUB, or else the kernel, measured (without the name of the kernel's file; nothing where one of
    them is not known as text), and ``kernel`` is of IMAGE alone. They count for a profile that says which loader its
    PCR 4 names.

    ``secure_boot``: None where the log does not prove it. ``kernel``: SHA-256 of the release in the kernel image's
    section .uname, 32 bytes or none. ``sbat_level``: component to generation, as shim enforced it.
    ``source_signer`` and ``source_version``: fingerprint and version of the site that was measured in front of the
    node lock, empty and 0 where none was, ``node_config`` the SHA-256 (hex) of the node.yml that it says.
    ``loader``: whose traces there are; ``alone``: firmware started one signed image, and nothing else. Who rules the
    machine can leave traces too, so both are for learning from a machine that is trusted then, and no decision looks at
    them.
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
        """Return the command lines that ``loader`` measured; none where nobody says who measured."""
        return next((lines for by, lines in self.command_lines.items() if by is loader), ())


def boot_options(command_line: str) -> tuple[str, ...]:
    """Return the words of a kernel command line; blanks within double quotes do not part them (kernel: next_arg)."""
    words, quoted = [""], False
    for letter in command_line:
        quoted ^= letter == '"'
        if letter.isspace() and not quoted:
            words.append("")
        else:
            words[-1] += letter
    return tuple(word for word in words if word)


def is_plain(command_line: str) -> bool:
    """Whether the kernel reads the line as it is shown here: it takes byte 0xA0 for a blank and stops at a newline."""
    return command_line.isascii() and command_line.isprintable()


FIRMWARE_REGISTER, PROGRAM_REGISTER, SECURE_BOOT_REGISTER, GRUB_REGISTER, KERNEL_REGISTER, IMAGE_REGISTER = (
    0,
    4,
    7,
    8,
    9,
    11,
)
"""Which registers a fact of each kind is read from, and the one that names the programs which were started."""

_NUMBER = re.compile(r"0*([1-9][0-9]*|0)")
_REST_IS_INITS = "--"
_NOBODY = f"a profile that does not say who measured it (loader, with PCR {PROGRAM_REGISTER} held)"


class Lockdown(Enum):
    """What the kernel is told to keep root from (``lockdown=`` on its command line)."""

    INTEGRITY = "integrity"
    CONFIDENTIALITY = "confidentiality"


@dataclass(frozen=True, slots=True, kw_only=True)
class Assertions:
    """What a profile demands beside its registers' values; an empty member demands nothing.

    ``boot_options``: the only options that a command line may have, each as it is or as ``name=*``; None: any.
    ``firmware_minimum``: the least firmware version, number by number. ``kernels``: the accepted releases
    (``uname -r``). ``sbat_minimum``: component to the least generation of shim's revocation level.
    ``source_signers``, ``source_minimum``: fingerprints of who may have signed the site that the machine measured in
    front of its lock, and the least version of it; the lock's register is quoted always. ``node_configs``: the accepted
    digests of its node.yml (SHA-256, hex), which is measured there with the site.
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
        """The registers that must be quoted for the facts that are demanded, ascending."""
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
    """An assertion that does not hold: its code, and what was expected and came."""

    reason: Reason
    expected: str
    got: str

    def __str__(self) -> str:
        """Return it as a clause."""
        return f"assertion: expected {self.expected}, got {self.got}"


def failed_assertions(
    assertions: Assertions, facts: BootFacts, *, measured_by: Loader | None
) -> tuple[FailedAssertion, ...]:
    """Return every assertion that does not hold, in a fixed order; none means that all hold.

    ``measured_by``: the loader whose measurements count, None where the profile holds no PCR 4 that names one.
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
        told = [word for word in _kernels_own(boot_options(line)) if word.startswith("lockdown=")]
        if not told or not set(told) <= enough:
            yield FailedAssertion(Reason.LOCKDOWN_NOT_PROVEN, expected, " and ".join(told) or "none")
    if not lines:
        yield FailedAssertion(Reason.LOCKDOWN_NOT_PROVEN, expected, _no_line(measured_by))


def _kernels_own(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words that the kernel reads; from ``--`` on they are the init program's."""
    return words[: words.index(_REST_IS_INITS)] if _REST_IS_INITS in words else words


def _no_line(measured_by: Loader | None) -> str:
    return "no command line that the log proves" if measured_by else _NOBODY


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
    """Return the numbers in order, as what compares like them: ``int`` refuses thousands of digits, a log does not."""
    return tuple((len(digits), digits) for digits in _NUMBER.findall(version))


def _kernel(assertions: Assertions, facts: BootFacts, measured_by: Loader | None) -> Iterator[FailedAssertion]:
    accepted = assertions.kernels
    kernel = facts.kernel if measured_by is Loader.IMAGE else b""
    if accepted and kernel not in {hashlib.sha256(one.encode()).digest() for one in accepted}:
        got = f"one whose hash is {kernel.hex()}" if kernel else "no release in the log" if measured_by else _NOBODY
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
        got = facts.source_signer or "no site in front of the lock"
        yield FailedAssertion(Reason.SOURCE_NOT_ACCEPTED, f"a site signed by {' or '.join(accepted)}", got)


def _version(assertions: Assertions, facts: BootFacts, _measured_by: Loader | None) -> Iterator[FailedAssertion]:
    least, got = assertions.source_minimum, facts.source_version
    if got < least:
        yield FailedAssertion(
            Reason.SOURCE_TOO_OLD, f"version {least} of the site or later", str(got or "none in front of the lock")
        )


def _node_config(assertions: Assertions, facts: BootFacts, _measured_by: Loader | None) -> Iterator[FailedAssertion]:
    accepted = assertions.node_configs
    if accepted and facts.node_config not in accepted:
        got = facts.node_config or "none in front of the lock"
        yield FailedAssertion(Reason.NODE_CONFIG_NOT_ACCEPTED, f"a node.yml of {' or '.join(accepted)}", got)
