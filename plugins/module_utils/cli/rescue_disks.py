# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Shared functions of `attested rescue` and the playbook `rescue`: try keys on disks, and mount a disk temporarily."""

from __future__ import annotations

import stat
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from .._deps.crypto import exceptions, serialization
from ..core.command import SystemRunner
from ..core.files import read_bytes
from ..errors import AttestedError, DiskError
from ..keyservice.derive import DiskId
from ..reasons import Reason
from ..rescue.disk import (
    copy_header,
    disk_id_of,
    find_disk,
    find_disks,
    judge_copy,
    mount_disk,
    require_key,
    unmount_disk,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..core.command import Runner
    from ..keyservice.master import DiskKey
    from ..keyservice.ring import MasterRing
    from ..rescue.disk import DiskCopy
    from ..rescue.partitions import Partition
    from ..rescue.values import ClusterSecrets

WRONG = "wrong"
OPENS = "opens the disk"
_FOLDER = "attested-rescue-"
_OWNER_ALONE = 0o600
_SSH = b"-----BEGIN OPENSSH PRIVATE KEY-----"

Row = dict[str, str]


def examine_disks(given: str, master: MasterRing, *, insecure: bool, warn: Callable[[str], object]) -> list[Row]:
    """Return a row for each disk in ``given``.

    ``given`` is a UUID or a file, which may be an image with several partitions. ``insecure``: a refused header only
    causes a warning by ``warn``, and the key is not tried on that disk.
    """
    source = Path(given)
    if not source.exists():
        return [{"disk": DiskId(given).uuid, "from": "UUID", "header": "not seen", "key": "not tried"}]
    return [_examined(source, place, master, insecure=insecure, warn=warn) for place in find_disks(source)]


def secret_files(secrets: ClusterSecrets) -> dict[str, bytes]:
    """Return the secrets by the names of the files that they are written to."""
    named = {f"{uuid}.key": key.reveal() for uuid, key in secrets.disks.items()}
    others = {f"{uuid}.{one.name}.key": one.key.reveal() for uuid, keys in secrets.others.items() for one in keys}
    return {
        **named,
        **others,
        "measurement-secret": secrets.measurement_secret.reveal(),
        "ssh_ca": secrets.ssh_ca.reveal(),
    }


def is_written(path: Path, data: bytes) -> bool:
    """Return whether ``path`` holds the secret ``data`` with mode 0600.

    An SSH key may be in another encoding.
    """
    if not path.is_file() or stat.S_IMODE(path.stat().st_mode) != _OWNER_ALONE:
        return False
    return _plain(read_bytes(path)) == _plain(data)


def _plain(data: bytes) -> bytes:
    """Return a secret; reduce an OpenSSH key file, which also contains random check bytes, to the key."""
    if not data.startswith(_SSH):
        return data
    try:
        key = serialization.load_ssh_private_key(data, password=None)
    except (ValueError, TypeError, exceptions.UnsupportedAlgorithm):
        return data
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def key_of(runner: Runner, copy: DiskCopy, master: MasterRing) -> DiskKey:
    """Return the key of a disk.

    If the master secret was rotated, the key of the version that `require_key` accepts. The last key is returned
    untried: opening the disk with a wrong key fails with its own error.
    """
    keys = [one.key for one in master.disk_keys(DiskId(disk_id_of(copy)))]
    for key in keys[:-1]:
        try:
            require_key(runner, copy, key)
        except AttestedError as error:
            if error.reason is not Reason.DISK_KEY_WRONG:
                raise
        else:
            return key
    return keys[-1]


@contextmanager
def mounted_disk(source: Path, master: MasterRing, *, partition: int | None) -> Iterator[tuple[Path, str]]:
    """Mount the disk read only, yield its mount point and UUID, and unmount it at the end."""
    runner = SystemRunner()
    with tempfile.TemporaryDirectory(prefix=_FOLDER) as folder:
        copy = copy_header(source, Path(folder), place=find_disk(source, partition=partition))
        uuid = disk_id_of(copy)
        place = Path(folder) / "mounted"
        place.mkdir()
        mounted = mount_disk(runner, copy, key_of(runner, copy, master), place=place)
        try:
            yield place, uuid
        finally:
            unmount_disk(runner, place=place, name=mounted.name)


def _examined(
    source: Path, place: Partition, master: MasterRing, *, insecure: bool, warn: Callable[[str], object]
) -> Row:
    with tempfile.TemporaryDirectory(prefix=_FOLDER) as folder:
        copy = copy_header(source, Path(folder), place=place)
        where = f", partition {place.number} at byte {place.start}" if place.number else ""
        row = {"disk": disk_id_of(copy), "from": f"{source}{where}"}
        try:
            header = judge_copy(copy)
        except DiskError as error:
            if not insecure:
                raise
            warn(f"{error.code}: {error.message}")
            return row | {"header": error.code, "key": "not tried"}
        good = "as it must be" + ("" if header.initialised else ", of a disk that never joined")
        return row | {"header": good, "key": _tried(copy, master)}


def _tried(copy: DiskCopy, master: MasterRing) -> str:
    runner = SystemRunner()
    try:
        require_key(runner, copy, key_of(runner, copy, master))
    except AttestedError as error:
        if error.reason is Reason.DISK_KEY_WRONG:
            return WRONG
        if error.reason in {Reason.COMMAND_MISSING, Reason.LUKS_DAMAGED}:
            return f"not tried ({error.message})"
        raise
    return OPENS
