# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What replaced modules do in `test_rotate_keys`: they change a state in a file, by the real plans."""

from __future__ import annotations

import fcntl
import json
from datetime import datetime
from pathlib import Path
from typing import Any

from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.rotation.encryption_key import PlaneKeys
from ansible_collections.attested.kubernetes.plugins.module_utils.rotation.values import (
    ClusterFacts,
    plan_values,
    show_keys,
)

KEY, VERSION = "key-2-00000000000000ab", "2-cdcdcdcdcdcdcdcd"
HOLDERS = {"encryption_key": "rotate-encryption-key", "master_secret": "rotate-master-secret"}

State = dict[str, Any]


def deed(state: State, trace: list[str], text: str) -> None:
    """Do something that the next task may find undone."""
    if state["sick"] == text:
        raise SystemExit(f"{text}: COMMAND_FAILED")
    trace.append(text)


def node_status_info(state: State, host: str, _params: State, _trace: list[str]) -> State:
    return {"phase": "Joined" if host in state["planes"] else "Prepared"}


def rotation_info(state: State, host: str, params: State, _trace: list[str]) -> State:
    held = state["planes"].get(host)
    if params["kind"] == "encryption_key":
        keys = {name: f"of {name}" for name in held if name != "identity"}
        return show_keys(PlaneKeys(name=host, keys=keys, taken=True, clear_first=held[:1] == ["identity"]))
    disk = state["disks"].get(host)
    assert params.get("device") == (f"/dev/disk/by-id/{host}" if disk else None)
    return {"node": host, "plane": {"names": held, "taken": True} if held else None, "disk": disk}


def rotation(state: State, _host: str, params: State, trace: list[str]) -> State:
    facts = ClusterFacts(
        nodes=frozenset(state["nodes"]),
        control_planes=frozenset(state["planes"]),
        now=datetime.fromisoformat(state["now"]),
        stored=state["stored"],
        versions=tuple(state["site"]),
    )
    plan = plan_values(params["kind"], params["found"], facts, old=params["old"])
    if params.get("apply"):
        deed(state, trace, f"{plan['phases'][0]} in the site")
        state["site"] = [*state["site"], VERSION] if plan["phases"][0] == "make" else [plan["successor"]]
    return plan


def rotation_phase(state: State, host: str, params: State, trace: list[str]) -> State:
    assert params["kind"] == "encryption_key"
    phase, held = params["plan"]["phases"][0], state["planes"][host]
    deed(state, trace, f"{phase} on {host}")
    if phase == "make":
        state["planes"][host] = [*held, KEY]
        return {"changed": True}
    order = params["plan"]["changes"][host]["keys"]
    if set(order) - set(held):
        assert (params["handle"], params["sealed"]) == (f"judged {host}", f"for {host}")
    else:
        assert "sealed" not in params
    state["planes"][host] = order
    return {"changed": order != held}


def rotation_share(_state: State, host: str, params: State, _trace: list[str]) -> State:
    assert params["kind"] == "encryption_key"
    if "orders" not in params:
        return {"handle": f"offer of {host}", "offer": "offered"}
    assert params["handle"] == f"offer of {host}"
    assert params["orders"] == {name: f"order for {name}" for name in params["orders"]}
    return {"boxes": {name: f"for {name}" for name in params["orders"]}}


def rotation_recipient(state: State, host: str, params: State, trace: list[str]) -> State:
    if params["kind"] == "encryption_key":
        assert (params["offer"], params["names"]) == ("offered", [KEY])
        return {"handle": f"judged {host}", "order": f"order for {host}"}
    assert set(params["names"]) <= set(state["site"])
    deed(state, trace, f"{' '.join(name[0] for name in params['names'])} to {host}")
    state["planes"][host] = params["names"]
    return {"changed": True, "names": params["names"]}


def stored_secrets(state: State, _host: str, params: State, trace: list[str]) -> State:
    deed(state, trace, "rewrite")
    state["stored"] = {params["in_force"]: sum(state["stored"].values())}
    return {"changed": True, "done": 1, "left": 0, "total": 1}


def state_disk_key(state: State, host: str, params: State, trace: list[str]) -> State:
    assert params["device"] == f"/dev/disk/by-id/{host}"
    deed(state, trace, f"rekey {host}")
    state["disks"][host] = params["name"]
    return {"changed": True}


def recovery_kit(state: State, _host: str, _params: State, trace: list[str]) -> State:
    trace.append("kit with " + " ".join(name[0] for name in state["site"]))
    return {"changed": True}


def join_turn(state: State, host: str, params: State, _trace: list[str]) -> State:
    assert (host, params["holder"]) == ("cp-1", HOLDERS[state["kind"]])
    return {}


def tpm_authorization(_state: State, _host: str, _params: State, _trace: list[str]) -> State:
    return {}


def call(root: str, name: str, host: str, params: State) -> State:
    with Path(root, "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        state, trace = json.loads(Path(root, "state.json").read_text()), []
        try:
            said: State = globals()[name](state, host, params, trace)
        except AttestedError as error:
            raise SystemExit(f"{error.code}: {error}") from error
        Path(root, "state.json").write_text(json.dumps(state))
        with Path(root, "trace").open("a") as lines:
            lines.writelines(f"{line}\n" for line in trace)
    return said
