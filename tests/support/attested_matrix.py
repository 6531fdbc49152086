# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Injects faults on a lab machine before the ordered steps, one after the other; deployed beside the collection.

A test appends a call of `before` to the deployed copies of the modules with the steps (`striking.py`); the code itself
has no hook. Nothing is flushed to disk: a lab machine that reboots keeps its written files.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import time
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

# a volume of the machine: the test reads and writes it on the host, even if the machine is down
PLACE = Path("/var/lib/containerd/attested-matrix")
ORDERS, STRUCK, HELD = "orders.json", "struck.json", "held"
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
HOLD = "hold"
"""A fault that the test causes: the step waits until the test releases it."""
END = "end"
"""Faults of the process at the step."""
HOLD_SECONDS, END_SECONDS = 300.0, 600.0

CUT_SECONDS = 8
_ALL = (("INPUT", "--in-interface"), ("OUTPUT", "--out-interface"))
_MEND = "; ".join(f"iptables --wait --delete {chain} {link} eth0 --jump DROP" for chain, link in _ALL)

COMMANDS: dict[str, tuple[tuple[str, ...], ...]] = {
    "kill": (("systemctl", "kill", "--kill-whom=all", "--signal=KILL", "attested-bootstrapper.service"),),
    # the iptables rules of a cut outlive the reboot of a container, the unit that deletes them does not
    "reboot": (("sh", "-c", f"{_MEND}; true"), ("systemctl", "reboot", "--force")),
    "cut": (
        *(("iptables", "--wait", "--insert", chain, link, "eth0", "--jump", "DROP") for chain, link in _ALL),
        # in a separate unit: the network is restored even if this process is killed
        ("systemd-run", "--quiet", "--collect", "sh", "-c", f"sleep {CUT_SECONDS}; {_MEND}"),
    ),
    HOLD: (),
    END: (("sh", "-c", "kill -KILL $PPID"),),
}

OURS = "ansible_collections.attested.kubernetes.plugins.module_utils."
STEPS = {
    "bundle.services": ("ServiceGateway", {"restart": "RESTART", "fault": "HEALTH"}),
    "node.kubernetes": (
        "KubernetesGateway",
        {"configure": "CONFIGURE", "_restart_kubelet": "KUBELET", "_require_node": "NODE", "_end": "END"},
    ),
}
"""The steps of modules that Ansible copies to a machine: module, class, and the point before each method."""


class Watcher(MetaPathFinder):
    """Inject faults into modules of `STEPS` at their import, from any path."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find the module like Python, and append the calls of `before` to its code."""
        own = name.removeprefix(OURS)
        if own == name or own not in STEPS:
            return None
        sys.meta_path.remove(self)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            sys.meta_path.insert(0, self)
        if spec is None or spec.loader is None:
            return spec
        load, (owner, methods) = spec.loader.exec_module, STEPS[own]

        def exec_module(module: ModuleType) -> None:
            load(module)
            if module.__name__ != name:  # the loader of an archive is shared by all of its modules
                return
            for method, point in methods.items():
                before(getattr(module, owner), method, lambda *_some, at=point, **_named: f"{own}:{at}")

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def watch() -> None:
    """Inject faults into modules of `STEPS` that this Python imports later."""
    sys.meta_path.insert(0, Watcher())


def before(owner: type, method: str, point_of: Callable[..., str], *, place: Path = PLACE) -> None:
    """Inject the fault before ``method`` of the class ``owner``; ``point_of`` its arguments returns the point."""
    go_on = getattr(owner, method)

    def struck(*arguments: Any, **named: Any) -> Any:
        strike(point_of(*arguments, **named), place)
        return go_on(*arguments, **named)

    setattr(owner, method, struck)


def default(owner: type, name: str, value: float) -> None:
    """Replace the default ``value`` of a keyword argument of ``owner``."""
    owner.__init__.__kwdefaults__[name] = value  # type: ignore[misc]


def strike(point: str, place: Path) -> None:
    """Run the first order if it is for ``point``; after a kill or reboot this does not return."""
    orders = _read(place / ORDERS)
    if not orders or orders[0]["point"] != point:
        return
    fault = orders[0]["fault"]
    if fault == HOLD:
        (place / HELD).touch()
    _write(place / ORDERS, orders[1:])
    _write(place / STRUCK, [*_read(place / STRUCK), {**orders[0], "boot": BOOT_ID.read_text().strip()}])
    for command in COMMANDS[fault]:
        subprocess.run(command, check=True)
    if fault in {"kill", "reboot", END}:
        time.sleep(END_SECONDS)
    _wait_while(place / HELD)


def _wait_while(held: Path) -> None:
    deadline = time.monotonic() + HOLD_SECONDS
    while held.exists() and time.monotonic() < deadline:
        time.sleep(0.05)


def _read(path: Path) -> list[dict[str, str]]:
    try:
        found: list[dict[str, str]] = json.loads(path.read_text())
    except FileNotFoundError:
        return []
    return found


def _write(path: Path, content: list[dict[str, str]]) -> None:
    beside = path.with_suffix(".new")
    beside.write_text(json.dumps(content))
    beside.replace(path)
