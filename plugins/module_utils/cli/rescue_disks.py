# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Shared functions of `attested rescue` and the playbook `rescue`: keys in files and on disks, a temporary mount."""

from __future__ import annotations

import json
import os
import stat
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._deps.crypto import exceptions, serialization
from ..core.command import SystemRunner
from ..core.files import read_bytes, write_atomic
from ..errors import AttestedError, DiskError, SystemFault, visible
from ..keyservice.derive import DiskId
from ..keyservice.ring import import_ring
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
from ..rescue.values import ClusterValues, parse_state

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

    from ..core.command import Runner
    from ..keyservice.master import DiskKey
    from ..keyservice.ring import MasterRing
    from ..rescue.disk import DiskCopy, Partition
    from ..rescue.values import ClusterSecrets


# Shared functions of the commands of `attested rescue`: read secrets, write keys, print results.

_MAX_SECRET_BYTES = 4096
_MAX_STATE_BYTES = 65536
_SALT_HEX = 64
_WIDTH = 18


def add_secret(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """Add --master-secret."""
    parser.add_argument(
        "--master-secret",
        required=required,
        metavar="FILE",
        help="constellation-mastersecret.json, or - for standard input",
    )


def master_of(name: str) -> MasterRing:
    """Return all versions of the master secret in a file, or on standard input if ``name`` is "-"."""
    data = sys.stdin.buffer.read(_MAX_SECRET_BYTES + 1) if name == "-" else read_bytes(name, limit=_MAX_SECRET_BYTES)
    return import_ring(data)


def state_of(name: str) -> ClusterValues:
    """Return the cluster's values in the state file ``name``."""
    return parse_state(read_bytes(name, limit=_MAX_STATE_BYTES))


def values_of(*, state: str | None, measurement_salt: str | None) -> ClusterValues | None:
    """Return the cluster's values from the file ``state`` or the given salt, None without either."""
    if state:
        return state_of(state)
    if not measurement_salt:
        return None
    try:
        salt = bytes.fromhex(measurement_salt)
    except ValueError:
        salt = b""
    if len(salt) * 2 != _SALT_HEX:
        raise SystemFault(
            f"expected {_SALT_HEX} hex digits as the measurement salt", reason=Reason.RESCUE_FILE_MALFORMED
        )
    return ClusterValues(measurement_salt=salt)


def written(folder: Path, files: dict[str, bytes]) -> list[str]:
    """Write secrets as files of mode 0600, and return their paths; raises FILE_UNUSABLE."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise SystemFault(f"cannot make {folder}: {error.strerror}", reason=Reason.FILE_UNUSABLE) from error
    for name, data in files.items():
        write_atomic(folder / name, data, mode=0o600)
    return [str(folder / name) for name in files]


def warn(text: str) -> None:
    """Print a warning on standard error."""
    sys.stderr.write(f"attested: warning: {visible(text)}\n")


def print_values(values: dict[str, Any], *, as_json: bool) -> None:
    """Print a result: names and values, one line for each item of a list, or JSON."""
    if as_json:
        sys.stdout.write(json.dumps(values, indent=2) + os.linesep)
        return
    for name, value in values.items():
        if isinstance(value, dict):
            rows = [f"{one}: {inner}" for one, inner in value.items()]
        elif isinstance(value, list):
            rows = [str(one) for one in value]
        else:
            rows = [] if value is None else [str(value)]
        for row in rows:
            sys.stdout.write(f"{visible(name):<{_WIDTH}}{visible(row)}\n")


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
