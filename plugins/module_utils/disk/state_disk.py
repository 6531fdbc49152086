# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The implementation of the modules `state_disk` and `state_disk_info`."""

from __future__ import annotations

import json
import re
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from ..core.command import SystemRunner
from ..core.files import read_bytes
from ..errors import AttestedError, DiskError
from ..keyservice.derive import DiskId
from ..keyservice.ring import require_version_name
from ..reasons import Reason
from ..result import Diff, Result
from . import helper
from .gateway import LinuxDevice, read_begin
from .generation import MAX_RECORD_BYTES, parse_record
from .luks_check import STATE_DISK, verify_header
from .luks_header import read_header
from .paths import StatePaths
from .plan import require_by_id
from .process import call_key_process

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..core.command import Runner
    from ..keyservice.ticket import SealedSecrets
    from .plan import DiskFacts

_VOLUME = re.compile(r"(?:[0-9a-f]{64})?")
_SECONDS = 8 * 86400.0  # Longer than the longest wipe.
_NO_UUID = "00000000-0000-0000-0000-000000000000"


def run(
    params: Mapping[str, Any],
    check_mode: bool,
    *,
    runner: Runner | None = None,
    sealed: SealedSecrets | None = None,
) -> Result:
    """Plan and apply ``params`` in the helper process; this process never holds a key.

    ``sealed`` are the sealed secrets of a ticket, which hold the key instead of a file.
    """
    job = _job(params, apply=not check_mode)
    if sealed is not None:
        job["sealed"] = sealed.to_job()
    answer = call_key_process(helper.__name__, job, runner=runner or SystemRunner(), timeout_seconds=_SECONDS)
    steps: list[str] = answer["steps"]
    return Result(
        changed=bool(steps),
        values={
            "steps": steps,
            "uuid": params["uuid"],
            "volume": answer["volume"],
            "initialised": answer["initialised"],
        },
        diff=Diff(before="", after="".join(f"{step}\n" for step in steps), header=params["device"]),
    )


def inspect(params: Mapping[str, Any], check_mode: bool) -> Result:
    """Return the content of a disk, without a key and without a change."""
    del check_mode
    runner, paths = SystemRunner(), StatePaths(memory=Path(params["memory"]))
    uuid = params["uuid"] or _NO_UUID
    facts = LinuxDevice(require_by_id(params["device"]), paths=paths, runner=runner, follower=runner).facts(uuid)
    return Result(values={"present": facts is not None, **_shown(facts), "wipe": wipe_progress(paths)})


def key_name_of(device: str, paths: StatePaths) -> str:
    """Return the name of the master secret's version from the record of an open disk.

    The record must match the header. Returns "" if the disk is not open, if a key exchange is unfinished, or if the
    record has no name. Raises STATE_DISK_OPTION, STATE_DISK_RECORD, LUKS_... and FILE_UNUSABLE.
    """
    begin = read_begin(require_by_id(device))
    if not paths.record.exists():
        return ""
    record = parse_record(read_bytes(paths.record, limit=MAX_RECORD_BYTES + 1))
    return record.key if record.header == read_header(begin).digest.hex() else ""


def _shown(facts: DiskFacts | None) -> dict[str, Any]:
    if facts is None:
        return {}
    return {
        "size_bytes": facts.size_bytes,
        "sector_bytes": facts.sector_bytes,
        "signatures": [{"type": one.type, "offset": one.offset} for one in facts.signatures],
        "empty": facts.empty,
        "contents": facts.contents(),
        "used_by": list(facts.users),
        "opened": facts.mapped,
        "header": _header(facts),
    }


def _header(facts: DiskFacts) -> dict[str, Any]:
    """Return the values of the header, and the reason code of a failed verification ("" if it is verified)."""
    try:
        header = facts.header()
    except AttestedError as error:
        return {"refused": error.code}
    if header is None:
        return {}
    shown = {"uuid": header.uuid, "label": header.label, "slots": sorted(header.metadata.keyslots)}
    try:
        verified = verify_header(header, STATE_DISK)
    except AttestedError as error:
        return {**shown, "refused": error.code}
    return {**shown, "refused": "", "initialised": verified.initialised, "volume": verified.volume.hex()}


def wipe_progress(paths: StatePaths) -> dict[str, Any]:
    """Return ``done_bytes`` and ``size_bytes`` of a running wipe, empty if there is none.

    Raises FILE_UNUSABLE.
    """
    if not paths.progress.exists():
        return {}
    members: dict[str, Any] = json.loads(read_bytes(paths.progress))
    return members


def _job(params: Mapping[str, Any], *, apply: bool) -> dict[str, Any]:
    require_by_id(params["device"])
    DiskId(params["uuid"])
    volume = params["volume"] or ""
    if not _VOLUME.fullmatch(volume):
        raise DiskError(f"expected a volume in 64 hexadecimal digits, got {volume!r}", reason=Reason.STATE_DISK_OPTION)
    for name in params["directories"]:
        path = PurePosixPath(name)
        if not path.is_absolute() or ".." in path.parts or len(path.parts) < 2:  # noqa: PLR2004
            raise DiskError(f"expected an absolute directory, got {name!r}", reason=Reason.STATE_DISK_OPTION)
    names = ("device", "uuid", "state", "minimum_bytes", "directories", "mount_point", "memory", "journal")
    tpm = ("tcti", "tpm_timeout_seconds")
    return {
        **{name: params[name] for name in (*names, *tpm)},
        "volume": volume,
        "erase": params["erase"] or "",
        "key_file": params["key_file"] or "",
        "key_name": require_version_name(params["key_name"]) if params.get("key_name") else "",
        "former_key_files": list(params.get("former_key_files") or ()),
        "apply": apply,
    }
