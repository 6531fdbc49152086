# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Action of the module ``rescue``: what `attested rescue keys` and `extract` do, on the admin's machine.

It is an action, so that only this process reads the master secret; a result holds names, paths and hashes.
"""

from __future__ import annotations

import hashlib
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible_collections.attested.kubernetes.plugins.module_utils.admin.places import require_outside
from ansible_collections.attested.kubernetes.plugins.module_utils.cli.rescue_disks import (
    WRONG,
    examine_disks,
    is_written,
    mounted_disk,
    secret_files,
    values_of,
    written,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.core.files import read_bytes
from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import ArgumentSpec
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import DiskError, SystemFault
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.ring import import_ring
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.rescue.extract import (
    ETCD,
    MANIFEST,
    PKI,
    SUMS,
    extract_data,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.rescue.values import derive_cluster
from ansible_collections.attested.kubernetes.plugins.module_utils.result import Diff, Result
from ansible_collections.attested.kubernetes.plugins.plugin_utils.action import AttestedAction

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.ring import MasterRing

_MAX_SECRET_BYTES = 4096


class ActionModule(AttestedAction):
    """Derive the keys, try them, write them; then copy the data of one disk, if requested."""

    SPEC = ArgumentSpec(
        options={
            "master_secret": {"type": "path", "no_log": False},
            "disks": {"type": "list", "elements": "str", "default": []},
            "state_file": {"type": "path"},
            "measurement_salt": {"type": "str", "no_log": False},
            "insecure_any_header": {"type": "bool", "default": False},
            "keys_to": {"type": "path", "no_log": False},
            "data_of": {"type": "path"},
            "partition": {"type": "int"},
            "mounted": {"type": "path"},
            "data_to": {"type": "path"},
        },
        mutually_exclusive=(("state_file", "measurement_salt"), ("data_of", "mounted")),
        required_one_of=(("master_secret", "mounted"),),
        required_by={
            "keys_to": ("master_secret",),
            "data_of": ("master_secret", "data_to"),
            "mounted": ("data_to",),
        },
    )

    def perform(self, params: Mapping[str, Any], check_mode: bool) -> Result:
        """Return what is derived from the secret, and write the requested files; no disk is changed."""
        for name in ("keys_to", "data_to"):
            if params[name]:
                require_outside(params[name])
        warnings: list[str] = []
        master = _master(params["master_secret"]) if params["master_secret"] else None
        keys = _keys(params, master, warnings, check_mode=check_mode) if master else Result()
        data = _data(params, master, check_mode=check_mode) if params["data_to"] else Result()
        made = [*keys.values.get("files", ()), *([str(params["data_to"])] if data.changed else [])]
        return Result(
            changed=keys.changed or data.changed,
            values={**keys.values, **data.values},
            diff=Diff(before="", after="".join(f"{one}\n" for one in made), header="files"),
            warnings=tuple(warnings),
        )


def _master(path: str) -> MasterRing:
    return import_ring(read_bytes(path, limit=_MAX_SECRET_BYTES))


def _keys(params: Mapping[str, Any], master: MasterRing, warnings: list[str], *, check_mode: bool) -> Result:
    """Derive the keys, try them, and write the files that differ; raises DISK_KEY_WRONG if any key is wrong."""
    insecure = params["insecure_any_header"]
    given = [*params["disks"], *([params["data_of"]] if params["data_of"] and not params["disks"] else [])]
    found = [row for one in given for row in examine_disks(one, master, insecure=insecure, warn=warnings.append)]
    wrong = [f"{row['disk']} ({row['from']})" for row in found if row["key"] == WRONG]
    if wrong:
        raise DiskError(
            f"expected the key of each disk to open it, not that of {', '.join(wrong)}", reason=Reason.DISK_KEY_WRONG
        )
    known = values_of(state=params["state_file"], measurement_salt=params["measurement_salt"])
    secrets = derive_cluster(master, disks=tuple(row["disk"] for row in found), values=known)
    public = secrets.public
    values = {
        "master_secret_fingerprint": public.fingerprint,
        "cluster_id": public.cluster_id,
        "pcr15_sha256": public.pcr15_sha256,
        "pcr15_sha384": public.pcr15_sha384,
        "ssh_ca": public.ssh_ca,
        "disks": found,
        "files": [],
    }
    if not params["keys_to"]:
        return Result(values=values)
    folder = Path(params["keys_to"])
    files = secret_files(secrets)
    changed = {name: data for name, data in files.items() if not is_written(folder / name, data)}
    if changed and not check_mode:
        written(folder, changed)
    return Result(changed=bool(changed), values={**values, "files": [str(folder / name) for name in files]})


def _data(params: Mapping[str, Any], master: MasterRing | None, *, check_mode: bool) -> Result:
    """Copy the data of one disk into a new folder; raises FILE_UNUSABLE if the folder is not empty."""
    out = Path(params["data_to"])
    if out.is_dir() and any(out.iterdir()):
        raise SystemFault(f"expected an empty folder or none, got {out}", reason=Reason.FILE_UNUSABLE)
    if check_mode:
        return Result(changed=True, values={"data": {}})
    with _source(params, master) as (place, uuid):
        done = extract_data(place, out)
    data = {
        "disk": uuid,
        "files": len(done.files),
        "bytes": sum(one.size for one in done.files),
        "pki": _folder(out / PKI),
        "etcd": _folder(out / ETCD),
        "left_out": [f"{path} ({kind})" for path, kind in done.left_out],
        "missing": list(done.missing),
        "sums": str(out / SUMS),
        "sums_sha256": hashlib.sha256(read_bytes(out / SUMS, limit=1 << 30)).hexdigest(),
        "manifest": str(out / MANIFEST),
    }
    return Result(changed=True, values={"data": data})


def _source(params: Mapping[str, Any], master: MasterRing | None) -> AbstractContextManager[tuple[Path, str]]:
    if params["mounted"]:
        return nullcontext((Path(params["mounted"]), ""))
    if master is None or not params["data_of"]:
        raise SystemFault("expected data_of with master_secret, or mounted", reason=Reason.OPTION_INVALID)
    return mounted_disk(Path(params["data_of"]), master, partition=params["partition"])


def _folder(path: Path) -> str:
    return str(path) if path.is_dir() else ""
