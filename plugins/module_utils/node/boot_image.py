# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One unified kernel image for many machines, made with the tools of a distribution.

The same kernel, initrd, stub and command line make the same bytes: nothing of the machine that makes it, and no time,
goes into the image or into an initrd that is made for it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._deps import require
from .._deps.crypto import serialization, unreadable, x509
from ..core.command import SystemRunner
from ..core.files import make_directory, read_bytes, write_atomic
from ..errors import PolicyError, SiteError
from ..evidence.image.pe import MAX_IMAGE_BYTES, parse_program, read_image, room_behind, without_time
from ..policy.assertions import boot_options, is_plain
from ..reasons import Reason
from ..result import Diff, Result

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..core.command import Runner

STUBS = ("linuxx64.efi.stub", "linuxaa64.efi.stub")
"""Of systemd, in the package systemd-boot-efi of Debian and Ubuntu; a machine has the one of its architecture."""

_STUB_FOLDER = "usr/lib/systemd/boot/efi"
_KERNEL = "vmlinuz-"
_NUMBER = re.compile(r"\d+")
_INITRD_SECONDS = 3600
_JOIN_SECONDS = 600
_SMALL = 1 << 20
_ROOTS = ("root=", "roothash=")
_STANDARD_INPUT = "/dev/stdin"

# What makes an initrd that fits any machine, for mkinitramfs; RESUME and KEYMAP would be those of this machine.
_GENERIC = "MODULES={kind}\nBUSYBOX=auto\nKEYMAP=n\nCOMPRESS=zstd\nFSTYPE=auto\nRESUME=none\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What an image is made of; ``sections`` in the order in which they stand behind those of the stub.

    The kernel is the last one: on some machines it unpacks itself in place.
    """

    stub: bytes
    os_release: bytes
    command_line: str
    release: str
    initrd: bytes
    kernel: bytes

    @property
    def sections(self) -> dict[str, bytes]:
        """The sections by name (UAPI.5)."""
        return {
            ".osrel": self.os_release,
            ".cmdline": self.command_line.encode(),
            ".uname": self.release.encode(),
            ".initrd": self.initrd,
            ".linux": self.kernel,
        }


def require_parts(parts: Parts) -> None:
    """Check the parts.

    Raises `PolicyError` IMAGE_MALFORMED for a file that is not what it has to be, `SiteError` OPTION_INVALID for a
    command line that no machine could boot with.
    """
    if not parts.initrd:
        raise PolicyError("expected an initrd, got an empty file", reason=Reason.IMAGE_MALFORMED)
    parse_program(parts.kernel)
    if ".linux" in parse_program(parts.stub).sections:
        raise PolicyError("expected a stub without a kernel, got a whole image", reason=Reason.IMAGE_MALFORMED)
    if not is_plain(parts.command_line):
        raise SiteError("expected a command line of one line of ASCII, got another", reason=Reason.OPTION_INVALID)
    if not any(option.startswith(_ROOTS) for option in boot_options(parts.command_line)):
        raise SiteError(
            f"expected root= or roothash= on the command line, got {parts.command_line!r}", reason=Reason.OPTION_INVALID
        )


def assemble(parts: Parts, *, runner: Runner) -> bytes:
    """Return the image of ``parts``, unsigned; raises as `require_parts`, and `SystemFault` for objcopy.

    What objcopy made is read back, section by section.
    """
    require_parts(parts)
    room = room_behind(parts.stub)
    at, words = room.address, []
    with tempfile.TemporaryDirectory(prefix="attested-image-") as scratch:
        folder = Path(scratch)
        for name, content in parts.sections.items():
            write_atomic(folder / name, content)
            words += [f"--add-section={name}={folder / name}", f"--change-section-vma={name}={at:#x}"]
            at += -(-len(content) // room.step) * room.step
        write_atomic(folder / "stub", parts.stub)
        argv = ("objcopy", *words, str(folder / "stub"), str(folder / "image"))
        runner.run(argv, timeout_seconds=_JOIN_SECONDS)
        made = without_time(read_bytes(folder / "image", limit=MAX_IMAGE_BYTES))
    found = parse_program(made).sections
    wrong = [name for name, content in parts.sections.items() if found.get(name) != content]
    if wrong:
        raise PolicyError(
            f"expected the sections {', '.join(wrong)} in the image as they were given, objcopy made others",
            reason=Reason.IMAGE_MALFORMED,
        )
    return made


def generic_initrd(release: str, modules: tuple[str, ...], *, runner: Runner) -> bytes:
    """Return an initrd of initramfs-tools for the kernel ``release`` that fits any machine, the same bytes each time.

    ``modules``: the only ones that it has; all that a root file system may need where empty. Of this machine it takes
    packages, their hooks and the microcode, and nothing from /etc/initramfs-tools.
    """
    with tempfile.TemporaryDirectory(prefix="attested-initrd-") as scratch:
        folder = Path(scratch)
        for name in ("conf.d", "hooks", "scripts"):
            make_directory(folder / "settings" / name)
        kind = "list" if modules else "most"
        write_atomic(folder / "settings" / "initramfs.conf", _GENERIC.format(kind=kind).encode())
        write_atomic(folder / "settings" / "modules", "".join(f"{one}\n" for one in modules).encode())
        argv = ("mkinitramfs", "-d", str(folder / "settings"), "-o", str(folder / "initrd"), release)
        runner.run(argv, timeout_seconds=_INITRD_SECONDS, env={"SOURCE_DATE_EPOCH": "1"})
        return read_bytes(folder / "initrd", limit=MAX_IMAGE_BYTES)


# The work of the module ``boot_image`` with the state built, on a machine whose kernel the image shall have.


def run_built(params: Mapping[str, Any], check_mode: bool, *, runner: Runner | None = None) -> Result:
    """Make the image ``params["path"]`` from this machine's kernel; values: path, sha256, release, command_line.

    Check mode makes it as well, and writes nothing.
    """
    runner = runner or SystemRunner()
    kernel = Path(params["kernel"]) if params["kernel"] else newest_kernel(Path("/boot"))
    release = kernel.name.removeprefix(_KERNEL)
    given = params["initrd"]
    kernel_bytes = read_bytes(kernel, limit=MAX_IMAGE_BYTES)
    parts = Parts(
        stub=read_bytes(params["stub"] or _stub(Path("/")), limit=MAX_IMAGE_BYTES),
        os_release=read_bytes(params["os_release"], limit=_SMALL),
        command_line=params["command_line"],
        release=release,
        initrd=read_bytes(given, limit=MAX_IMAGE_BYTES)
        if given
        else generic_initrd(release, tuple(params["initrd_modules"]), runner=runner),
        kernel=kernel_bytes,
    )
    made = assemble(parts, runner=runner)
    return write_image(Path(params["path"]), made, check_mode=check_mode)


def newest_kernel(boot: Path) -> Path:
    """Return the kernel with the highest numbers in its name; raises `SiteError` OPTION_INVALID where there is none."""
    found = sorted(boot.glob(f"{_KERNEL}*"), key=lambda path: [int(one) for one in _NUMBER.findall(path.name)])
    if not found:
        raise SiteError(f"expected a kernel {boot}/{_KERNEL}*, found none", reason=Reason.OPTION_INVALID)
    return found[-1]


def _stub(root: Path) -> Path:
    found = [path for path in (root / _STUB_FOLDER / name for name in STUBS) if path.exists()]
    return found[0] if found else root / _STUB_FOLDER / STUBS[0]


def write_image(path: Path, image: bytes, *, check_mode: bool) -> Result:
    """Write the image unless it is there, and say what it is."""
    before = hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else ""
    after = hashlib.sha256(image).hexdigest()
    if before != after and not check_mode:
        make_directory(path.parent, mode=0o755)
        write_atomic(path, image, mode=0o644)
    found = read_image(image)
    values = {
        "path": str(path),
        "sha256": after,
        "release": found.release,
        "command_line": found.command_line,
    }
    diff = Diff(before={"sha256": before}, after={"sha256": after}, header=str(path))
    return Result(changed=before != after, values=values, diff=diff)


# The state signed, on the machine that has the key of the site.


def run_signed(
    params: Mapping[str, Any],
    check_mode: bool,
    *,
    runner: Runner | None = None,
    open_key: Callable[[bytes], bytes] = bytes,
) -> Result:
    """Sign the image ``params["image"]`` into ``params["path"]`` with sbsign, unless that is the same image, signed.

    ``open_key`` returns the key in clear, which sbsign reads from its standard input. Beside the image lies the
    certificate as firmware takes it (DER). Raises `SiteError` BOOT_KEY_MISMATCH for a key that is not that of the
    certificate.
    """
    require("cryptography")
    runner = runner or SystemRunner()
    image, path, certificate = Path(params["image"]), Path(params["path"]), str(params["certificate"])
    key = open_key(read_bytes(params["key"], limit=_SMALL))
    require_key_of(key, Path(certificate), named=str(params["key"]))
    signed = _signed(path, image, key, certificate, runner)
    written = write_image(path, signed, check_mode=check_mode)
    enrolled, is_new = _write_der(path.parent, Path(certificate), check_mode=check_mode)
    values = {**written.values, "certificate": str(enrolled)}
    return dataclasses.replace(written, changed=written.changed or is_new, values=values)


def _write_der(folder: Path, certificate: Path, *, check_mode: bool) -> tuple[Path, bool]:
    """Write the certificate for the firmware; return its file, and whether that differs from what was there."""
    path = folder / f"{certificate.stem}.cer"
    der = x509.load_pem_x509_certificate(read_bytes(certificate, limit=_SMALL)).public_bytes(serialization.Encoding.DER)
    changed = not path.exists() or path.read_bytes() != der
    if changed and not check_mode:
        make_directory(folder, mode=0o755)
        write_atomic(path, der, mode=0o644)
    return path, changed


def _signed(path: Path, image: Path, key: bytes, certificate: str, runner: Runner) -> bytes:
    """Return the signed image: what lies at ``path`` where that is the same image and its signature is good."""
    wanted = parse_program(read_bytes(image, limit=MAX_IMAGE_BYTES)).digest
    if path.exists():
        there = read_bytes(path, limit=MAX_IMAGE_BYTES)
        verified = runner.run(("sbverify", "--cert", certificate, str(path)), check=False)
        if parse_program(there).digest == wanted and not verified.returncode:
            return there
    with tempfile.TemporaryDirectory(prefix="attested-signed-") as scratch:
        signed = Path(scratch) / "image"
        argv = ("sbsign", "--key", _STANDARD_INPUT, "--cert", certificate, "--output", str(signed), str(image))
        runner.run(argv, stdin=key, timeout_seconds=_JOIN_SECONDS)
        runner.run(("sbverify", "--cert", certificate, str(signed)))
        made = read_bytes(signed, limit=MAX_IMAGE_BYTES)
    if parse_program(made).digest != wanted:
        raise PolicyError(
            "expected the same program with a signature, sbsign made another one", reason=Reason.IMAGE_MALFORMED
        )
    return made


def require_key_of(key: bytes, certificate: Path, *, named: str) -> None:
    """Check that the certificate is that of the key; raises `SiteError` BOOT_KEY_MISMATCH, also for other files."""
    try:
        private: Any = serialization.load_pem_private_key(key, password=None)
        public: Any = x509.load_pem_x509_certificate(read_bytes(certificate, limit=_SMALL)).public_key()
    except unreadable() as error:
        raise SiteError(
            f"expected a PEM key without a password in {named} and a certificate in {certificate}, got something else",
            reason=Reason.BOOT_KEY_MISMATCH,
        ) from error
    if private.public_key() != public:
        raise SiteError(
            f"expected the key of the certificate {certificate} in {named}, got another",
            reason=Reason.BOOT_KEY_MISMATCH,
        )
