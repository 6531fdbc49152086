# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read and write kits: the encrypted file, and the directory of a decrypted kit, which is clear text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.files import read_bytes, write_atomic
from ..errors import SystemFault
from ..reasons import Reason
from .age_file import MAGIC
from .envelope import MAX_FILE_BYTES, read_envelope
from .places import require_outside

if TYPE_CHECKING:
    from pathlib import Path

    from .kit import Kit

CONTENT_FILE = "kit.json"


def read_kit_file(path: str | Path) -> bytes:
    """Return the bytes of an encrypted kit; raises FILE_UNUSABLE."""
    return read_bytes(path, limit=MAX_FILE_BYTES)


def require_replaceable(path: Path, *, cluster: bytes) -> None:
    """Raise PLACE_TAKEN if ``path`` exists and is no kit that may be of ``cluster``."""
    if path.is_symlink() or (path.exists() and not (path.is_file() and _is_kit(read_kit_file(path), cluster))):
        raise SystemFault(f"expected nothing or a kit of this cluster at {path}", reason=Reason.PLACE_TAKEN)


def write_kit_file(path: Path, data: bytes, *, cluster: bytes) -> None:
    """Write an encrypted kit atomically with mode 0600; raises as `require_replaceable`, FILE_UNUSABLE."""
    require_replaceable(path, cluster=cluster)
    write_atomic(path, data, mode=0o600)


def require_free(folder: str | Path) -> Path:
    """Return the folder for clear text; raises SHARES_EXPOSED, and PLACE_TAKEN if it is not empty."""
    place = require_outside(folder)
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise SystemFault(f"expected an empty folder or none at {place}", reason=Reason.PLACE_TAKEN)
    return place


def write_opened(folder: str | Path, kit: Kit) -> tuple[Path, ...]:
    """Write the content of ``kit`` below ``folder``, readable by its owner only, and return the paths.

    kit.json is the whole content; secrets/ and site/ have its parts under their names in a site. Raises as
    `require_free`, before anything is written.
    """
    place = require_free(folder)
    parts = {
        "secrets/master-secret.json": kit.ring.to_json(),
        "secrets/join-ca-key.pem": kit.join_ca_key.reveal(),
        "secrets/policy-key.pem": kit.policy_key.reveal(),
        **{f"site/{name}": text for name, text in kit.files},
        CONTENT_FILE: kit.to_bytes(),
    }
    for name, data in parts.items():
        _make_parents(place, name)
        write_atomic(place / name, data, mode=0o600)
    return tuple(place / name for name in parts)


def _make_parents(place: Path, name: str) -> None:
    folders = [place, *reversed([place / one for one in (place / name).relative_to(place).parents[:-1]])]
    try:
        for folder in folders:
            folder.mkdir(mode=0o700, parents=folder == place, exist_ok=True)
    except OSError as error:
        raise SystemFault(f"cannot make {place}: {error.strerror}", reason=Reason.FILE_UNUSABLE) from error


def _is_kit(data: bytes, cluster: bytes) -> bool:
    if data.startswith(MAGIC):
        return True
    if not data.startswith(b"attested-kit/"):
        return False
    return read_envelope(data).cluster_id == cluster
