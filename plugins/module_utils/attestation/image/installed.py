# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a machine would boot next, as it lies on its disks: unified kernel images, and the newest kernel in /boot."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import PolicyError
from ...reasons import Reason
from .next_boot import NextBoot
from .pe import MAX_IMAGE_BYTES
from .uki import read_image

if TYPE_CHECKING:
    from collections.abc import Iterator

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
