# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module `containerd_settings`: containerd's configuration, with fixed settings and additions of the site.

The file has version 2, which containerd 1.6, 1.7 and 2 read. The bundle's and the distribution's containerd differ only
in their directories of CNI plugins. Drop-ins are merged here, because containerd 1 replaces the whole table of a plugin
with the table of an imported file.
"""

from __future__ import annotations

import re
import shutil
import stat
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.command import SystemRunner
from ..core.files import make_directory, write_atomic
from ..errors import AttestedError, SystemFault
from ..reasons import Reason
from ..result import Diff, Result
from .containerd_files import (
    PRIVATE,
    PROXY,
    REGISTRIES,
    invalid,
    known,
    refuse_secrets,
    registry_files,
    render_proxy,
    to_toml,
)
from .node_files import write_files
from .versions import CNI_PLUGINS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..core.command import Runner

CONFIGURATION = "/etc/containerd/config.toml"
NETWORK_PLUGINS = "/opt/cni/bin"
"""The default directory into which network plugins install their programs."""
_CRI = "io.containerd.grpc.v1.cri"
_RUNTIME = "io.containerd.cri.v1.runtime"
_STATISTICS = {"stats_collect_period": "10s"}
"""containerd 2.3 reads the CPU usage of all containers once a second. kubelet reads it from their control groups."""
_RUNC = "io.containerd.runc.v2"
_OURS = "this collection sets it"
_RULED: dict[tuple[str, ...], str] = {
    ("version",): "the tables are those of version 2, which containerd 2 reads too",
    ("root",): _OURS,
    ("state",): _OURS,
    ("temp",): _OURS,
    ("imports",): "use attested_containerd_drop_ins",
    ("disabled_plugins",): _OURS,
    ("required_plugins",): _OURS,
    ("grpc",): "kubelet and kubeadm use the default path of the socket",
    ("ttrpc",): _OURS,
    ("debug", "address"): _OURS,
    ("plugins", "*", "root_path"): "images and containers stay in containerd's own directory",
    ("plugins", "io.containerd.internal.v1.opt"): _OURS,
    ("plugins", "io.containerd.cri.v1.images"): f"use the format of version 2, below {_CRI}",
    ("plugins", _RUNTIME): f"use the format of version 2, below {_CRI}",
    ("plugins", "io.containerd.grpc.v1.images"): f"use the format of version 2, below {_CRI}",
    ("plugins", _CRI, "sandbox_image"): "the bundle contains it",
    ("plugins", _CRI, "restrict_oom_score_adj"): _OURS,
    ("plugins", _CRI, "systemd_cgroup"): "systemd manages the control groups",
    ("plugins", _CRI, "disable_tcp_service"): _OURS,
    ("plugins", _CRI, "stream_server_address"): _OURS,
    ("plugins", _CRI, "stream_server_port"): _OURS,
    ("plugins", _CRI, "enable_tls_streaming"): _OURS,
    ("plugins", _CRI, "x509_key_pair_streaming"): _OURS,
    ("plugins", _CRI, "registry"): "use attested_registries",
    ("plugins", _CRI, "cni", "bin_dir"): _OURS,
    ("plugins", _CRI, "cni", "bin_dirs"): _OURS,
    ("plugins", _CRI, "cni", "conf_dir"): _OURS,
    ("plugins", _CRI, "containerd", "runtimes"): "use attested_containerd_runtimes",
    ("plugins", _CRI, "containerd", "default_runtime"): "use default_runtime_name",
    ("plugins", _CRI, "containerd", "untrusted_workload_runtime"): "use attested_containerd_runtimes",
}
"""Keys that no drop-in may set, and why; ``*`` is any name. Names are case-insensitive, as in containerd."""
_RULED_OPTIONS = {
    "systemdcgroup": "systemd manages the control groups",
    "root": _OURS,
    "binaryname": "use binary",
}
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_RUNTIME_KEYS = {"name", "type", "binary", "options"}


def render_configuration(params: Mapping[str, Any], *, sandbox_image: str, of_bundle: bool = True) -> str:
    """Return containerd's configuration (TOML) for the module options; raises CONFIG_INVALID.

    containerd ``of_bundle`` has three directories of CNI plugins: of network plugins, of the bundle, and
    ``cni_bin_dir``. Other versions have ``cni_bin_dir`` alone: containerd 1 and some of 2 support one directory.
    """
    directory = params["cni_bin_dir"]
    plugins = {"bin_dirs": [NETWORK_PLUGINS, CNI_PLUGINS, directory]} if of_bundle else {"bin_dir": directory}
    runtimes = {"runc": {"runtime_type": _RUNC, "options": {"SystemdCgroup": True}}}
    for entry in params["runtimes"]:
        name, table = _runtime(entry)
        if name in runtimes:
            raise invalid(f"attested_containerd_runtimes: expected each name once and never runc, got {name!r} again")
        runtimes[name] = table
    cri: dict[str, Any] = {
        "sandbox_image": sandbox_image,
        "restrict_oom_score_adj": bool(params["restrict_oom_score"]),
        "registry": {"config_path": REGISTRIES},
        "cni": {**plugins, "conf_dir": "/etc/cni/net.d"},
        "containerd": {"runtimes": runtimes},
    }
    tables: dict[str, Any] = {"version": 2, "plugins": {_CRI: cri, **({_RUNTIME: _STATISTICS} if of_bundle else {})}}
    for name, content in sorted(params["drop_ins"].items()):
        where = f"attested_containerd_drop_ins.{name}"
        drop_in = _table(content, where=where)
        _refuse_ruled(drop_in, where=where)
        _merge(tables, drop_in, where=where)
    return "# Written by attested.kubernetes: change the site's settings instead.\n" + to_toml(tables)


def require_allowed(params: Mapping[str, Any]) -> None:
    """Raise CONFIG_INVALID for module options that are invalid on all machines."""
    registry_files(params["registries"], params["registry_credentials"])
    render_configuration(params, sandbox_image="")
    render_proxy(params)


def sandbox_image_of(text: str) -> str:
    """Return the sandbox image of a configuration in TOML; raises CONFIG_INVALID if it has none."""
    try:
        image = tomllib.loads(text)["plugins"][_CRI]["sandbox_image"]
    except (tomllib.TOMLDecodeError, KeyError, TypeError):
        image = None
    if not isinstance(image, str) or not image:
        raise invalid(f"expected sandbox_image, or a {CONFIGURATION} that names one, got neither")
    return image


def _runtime(entry: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    known(entry, _RUNTIME_KEYS, where="attested_containerd_runtimes")
    name, kind = entry.get("name"), entry.get("type", _RUNC)
    if not isinstance(name, str) or not _NAME.fullmatch(name) or not isinstance(kind, str) or not kind:
        raise invalid(
            f"attested_containerd_runtimes: expected a name in small letters, digits and '-', and a type such as "
            f"{_RUNC}, got {name!r} and {kind!r}"
        )
    where = f"attested_containerd_runtimes, {name}"
    options = _table(entry.get("options") or {}, where=where)
    for key in options:
        if (why := _RULED_OPTIONS.get(key.lower())) is not None:
            raise invalid(f"{where}: expected options without {key}: {why}")
    binary = entry.get("binary")
    if binary is not None:
        if kind != _RUNC or not isinstance(binary, str) or not binary.startswith("/"):
            raise invalid(f"{where}: expected binary as an absolute path and with the type {_RUNC}, got {binary!r}")
        options = {"BinaryName": binary, **options}
    if kind == _RUNC:
        options = {"SystemdCgroup": True, **options}
    return name, {"runtime_type": kind, **({"options": options} if options else {})}


def _table(content: Any, *, where: str) -> dict[str, Any]:
    """Return a mapping or TOML text as mapping; raises CONFIG_INVALID."""
    if isinstance(content, str):
        try:
            content = tomllib.loads(content)
        except tomllib.TOMLDecodeError as error:
            raise invalid(f"{where}: expected TOML, got an error: {error}") from error
    if not isinstance(content, dict):
        raise invalid(f"{where}: expected a mapping or a text in TOML, got {type(content).__name__}")
    refuse_secrets(content, where=where)
    return dict(content)


def _refuse_ruled(drop_in: Mapping[str, Any], *, where: str) -> None:
    for path in _paths(drop_in):
        for pattern, why in _RULED.items():
            pairs = list(zip(path, pattern, strict=False))
            if len(pairs) == len(pattern) and all(want in ("*", have.lower()) for have, want in pairs):
                raise invalid(f"{where}: expected nothing at {'.'.join(path[: len(pattern)])}: {why}")


def _paths(table: Mapping[str, Any], before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the path of each value; an empty table is a value."""
    for key, value in table.items():
        if isinstance(value, dict) and value:
            yield from _paths(value, (*before, str(key)))
        else:
            yield (*before, str(key))


def _merge(into: dict[str, Any], other: Mapping[str, Any], *, where: str) -> None:
    for key, value in other.items():
        held = into.get(str(key))
        if isinstance(held, dict) and isinstance(value, dict):
            _merge(held, value, where=f"{where}.{key}")
        elif isinstance(held, dict):
            raise invalid(f"{where}: expected a table at {key}, got another value")
        else:
            into[str(key)] = _copy(value)


def _copy(value: Any) -> Any:
    return {str(key): _copy(one) for key, one in value.items()} if isinstance(value, dict) else value


# The files and the unit of this machine.

PROGRAM = "/usr/local/bin/containerd"
"""The path of containerd of the bundle."""
_UNIT = "containerd.service"
_RESTART_SECONDS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The machine: root of its file system, and command runner."""

    root: Path
    runner: Runner

    def at(self, path: str) -> Path:
        """Return ``path`` in ``root``."""
        return self.root / path.lstrip("/")


def apply_settings(
    params: Mapping[str, Any], check_mode: bool, *, root: Path = Path("/"), runner: Runner | None = None
) -> Result:
    """Write containerd's files, and restart it if its configuration changed; raises CONFIG_INVALID, COMMAND_FAILED.

    If containerd or its CRI plugin does not start, the previous configuration is restored. Registry files need no
    restart, because containerd reads them at each pull. The diff does not show a file with a credential.
    """
    place = Place(root=root, runner=runner or SystemRunner())
    former = {path: _content(place.at(path)) for path in (CONFIGURATION, PROXY)}
    image = params["sandbox_image"] or sandbox_image_of((former[CONFIGURATION] or b"").decode("utf-8", "replace"))
    text = render_configuration(params, sandbox_image=image, of_bundle=place.at(PROGRAM).exists())
    proxy = render_proxy(params)
    files = registry_files(params["registries"], params["registry_credentials"])
    removed = _unwanted(place, {file.path for file in files})
    removed += [PROXY] if former[PROXY] is not None and not proxy else []
    if not check_mode:
        for path in removed:
            _remove(place.at(path))
    rows = [_row(file.path, file.content.decode(), mode=file.mode, place=place) for file in files]
    registries = write_files({"files": rows}, check_mode, root=root, runner=place.runner)
    wanted = {CONFIGURATION: text, **({PROXY: proxy} if proxy else {})}
    done = _configure(place, wanted, former, check_mode=check_mode)
    sides = [one.diff for one in (registries, done) if one.diff is not None]
    return Result(
        changed=bool(registries.changed or removed or done.changed),
        values={
            "written": [*registries.values["written"], *done.values["written"]],
            "removed": removed,
            "units": done.values["units"],
        },
        diff=Diff(
            before="".join(str(one.before) for one in sides) + "".join(f"{path}\n" for path in removed),
            after="".join(str(one.after) for one in sides),
        ),
    )


def _row(path: str, content: str, *, mode: int, place: Place) -> dict[str, Any]:
    """Return a row for `write_files`; a file whose old or new mode is `PRIVATE` is secret."""
    there = place.at(path)
    had = there.is_file() and stat.S_IMODE(there.stat().st_mode) == PRIVATE
    return {"path": path, "content": content, "mode": f"{mode:04o}", "secret": had or mode == PRIVATE}


def _configure(
    place: Place, wanted: Mapping[str, str], former: Mapping[str, bytes | None], *, check_mode: bool
) -> Result:
    """Run containerd with the files ``wanted``; on failure restore ``former`` and raise."""
    rows = [_row(path, text, mode=0o644, place=place) for path, text in wanted.items()]
    other = not runs_installed(place)
    try:
        if other and not check_mode:  # systemd may still have the distribution's unit loaded
            place.runner.run(["systemctl", "daemon-reload"])
        done = write_files({"files": rows, "units": [_UNIT]}, check_mode, root=place.root, runner=place.runner)
        if not check_mode:
            restart_replaced(place)
    except AttestedError as error:
        if all(_content(place.at(path)) == former[path] for path in wanted):
            raise
        raise _taken_back(place, former, error) from error
    return replace(done, changed=True, values={**done.values, "units": [_UNIT]}) if other else done


def runs_installed(place: Place) -> bool:
    """Return whether containerd runs from the bundle's program; True if that is not installed.

    A process keeps the file that it was started from, even if that file is replaced.
    """
    try:
        installed = place.at(PROGRAM).stat()
        asked = ["systemctl", "show", "--property=MainPID", "--value", _UNIT]
        process = place.runner.run(asked).stdout.decode("utf-8", "replace").strip()
        running = place.at(f"/proc/{process}/exe").stat()
    except FileNotFoundError:
        return not place.at(PROGRAM).exists()
    return (running.st_dev, running.st_ino) == (installed.st_dev, installed.st_ino)


def restart_replaced(place: Place, *, anyway: bool = False) -> None:
    """Restart containerd unless it runs from the installed program, and check CRI; raises COMMAND_FAILED."""
    if anyway or not runs_installed(place):
        restart(place.runner)
    require_interface(place.runner)


def restart(runner: Runner) -> None:
    """Reload unit files and restart containerd; raises COMMAND_FAILED. Containers keep running."""
    runner.run(["systemctl", "daemon-reload"])
    runner.run(["systemctl", "restart", _UNIT], timeout_seconds=_RESTART_SECONDS)


def _taken_back(place: Place, former: Mapping[str, bytes | None], error: AttestedError) -> SystemFault:
    """Restore the previous files, restart containerd, and return the error to raise."""
    for path, content in former.items():
        target = place.at(path)
        if content is not None:
            make_directory(target.parent, mode=0o755)
            write_atomic(target, content, mode=0o644)
        elif target.exists():
            _remove(target)
    place.runner.run(["systemctl", "daemon-reload"], check=False)
    done = place.runner.run(["systemctl", "restart", _UNIT], timeout_seconds=_RESTART_SECONDS, check=False)
    name = "the former one" if former[CONFIGURATION] is not None else "its defaults"
    state = f"runs with {name} again" if done.returncode == 0 else f"does not start with {name} either"
    return SystemFault(
        f"expected containerd to work with the new {CONFIGURATION}, got: {error.message}; the change was reverted and "
        f"containerd {state}, correct the site's settings",
        reason=error.reason,
    )


def require_interface(runner: Runner) -> None:
    """Raise COMMAND_FAILED unless the CRI plugin is ok; containerd also starts without it."""
    rows = runner.run(["ctr", "plugins", "list"], timeout_seconds=60).stdout.decode("utf-8", "replace").splitlines()
    states = [row.split()[-1] for row in rows if row.split()[:2] == ["io.containerd.grpc.v1", "cri"]]
    if states != ["ok"]:
        raise SystemFault(
            f"expected the plugin {_CRI} of containerd to be ok, got {' '.join(states) or 'none'}; "
            "see 'journalctl -u containerd'",
            reason=Reason.COMMAND_FAILED,
        )


def _unwanted(place: Place, wanted: set[str]) -> list[str]:
    """Return the paths of registry directories and files that are not in ``wanted``."""
    top = place.at(REGISTRIES)
    if not top.is_dir():
        return []
    kept = {str(Path(path).parent) for path in wanted}
    found = []
    for directory in sorted(top.iterdir()):
        name = f"{REGISTRIES}/{directory.name}"
        if name not in kept or directory.is_symlink() or not directory.is_dir():
            found.append(name)
        else:
            found += [path for one in sorted(directory.iterdir()) if (path := f"{name}/{one.name}") not in wanted]
    return found


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def _remove(path: Path) -> None:
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    except OSError as error:
        raise SystemFault(f"cannot remove {path}: {error.strerror}", reason=Reason.FILE_UNUSABLE) from error
