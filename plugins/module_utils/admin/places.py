# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write secrets in clear: into files that only their owner can read, and never into a repository or a site."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..core.files import read_bytes, write_atomic
from ..errors import AttestedError, SystemFault
from ..reasons import Reason
from .age_file import MAGIC
from .envelope import MAX_FILE_BYTES, read_envelope
from .shares import combine_shares, shares_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..keyservice.master import MasterSecret
    from .kit import Kit
    from .shares import Share, ShareOrder


MAX_SHARES_BYTES = 1 << 18
_SIGNS = (".git", ".hg", ".svn", "hosts.yml")


def require_outside(path: str | Path) -> Path:
    """Return ``path`` with links resolved; raises SHARES_EXPOSED below a site or a repository's working copy."""
    place = Path(path).resolve()
    for folder in (place, *place.parents):
        for sign in _SIGNS:
            if (folder / sign).exists():
                raise SystemFault(
                    f"expected a place outside of repositories and sites, {place} lies below {folder} with its {sign}",
                    reason=Reason.SHARES_EXPOSED,
                )
    return place


def write_secret(path: str | Path, data: bytes) -> Path:
    """Write ``data`` with mode 0600 and return the path; raises SHARES_EXPOSED and FILE_UNUSABLE."""
    place = require_outside(path)
    write_atomic(place, data, mode=0o600)
    return place


def require_empty(folder: str | Path) -> Path:
    """Return the folder for new shares; raises SHARES_EXPOSED, and PLACE_TAKEN if it is not empty."""
    place = require_outside(folder)
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise SystemFault(f"expected an empty folder or none at {place}", reason=Reason.PLACE_TAKEN)
    return place


def holds_split(folder: str | Path, master: MasterSecret, order: ShareOrder) -> bool:
    """Return whether ``folder`` holds exactly the shares of a split of ``master`` by ``order``.

    Raises SHARES_EXPOSED, and PLACE_TAKEN if it holds anything else.
    """
    place = require_outside(folder)
    if not place.exists() or (place.is_dir() and not any(place.iterdir())):
        return False
    try:
        shares = read_shares([place])
        good = combine_shares(shares, order.passphrase).master == master
    except AttestedError:
        return require_empty(place).exists()
    places = [share.phrase.place for share in shares]
    whole = places == list(range(1, order.count + 1)) and len(list(place.iterdir())) == order.count
    if not (good and whole and shares[0].phrase.threshold == order.threshold):
        require_empty(place)
    return True


def write_shares(folder: str | Path, texts: Sequence[str]) -> tuple[Path, ...]:
    """Write share-1.txt and so on with mode 0600; raises as `require_empty` does, before anything is written."""
    place = require_empty(folder)
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise SystemFault(f"cannot make {place}: {error.strerror}", reason=Reason.FILE_UNUSABLE) from error
    paths = tuple(place / f"share-{number}.txt" for number in range(1, len(texts) + 1))
    for path, text in zip(paths, texts, strict=True):
        write_atomic(path, text.encode("ascii"), mode=0o600)
    return paths


def read_shares(paths: Iterable[str | Path]) -> tuple[Share, ...]:
    """Return the shares in the files ``paths``; of a folder, in all its files share-*.txt."""
    files: list[Path] = []
    for path in map(Path, paths):
        files += sorted(path.glob("share-*.txt")) if path.is_dir() else [path]
    return tuple(one for file in files for one in shares_of(str(file), read_bytes(file, limit=MAX_SHARES_BYTES)))


# Read and write kits: the encrypted file, and the directory of a decrypted kit, which is clear text.

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
