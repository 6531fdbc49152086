# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What replaced modules do in `test_rotate_authorities`: they change a state in a file, by the real plan."""

from __future__ import annotations

import fcntl
import json
from datetime import datetime
from pathlib import Path
from typing import Any

from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.rotation.values import ClusterFacts, plan_values

NAMES = ("cluster", "etcd", "front-proxy", "service-accounts")
NEW = "fedcba9876543210"

State = dict[str, Any]


def rotation_info(state: State, host: str, params: State, _trace: list[str]) -> State:
    assert params == {"kind": "authorities"}
    plane = state["planes"].get(host)
    known = {name for keys in plane["trusted"].values() for name in keys} if plane else set()
    if plane and plane["staged"]:
        known.add(NEW)
    return {
        "node": host,
        "kubelet": {"name": host, **state["kubelets"][host]},
        "plane": {"name": host, **plane} if plane else {},
        "known": {name: f"PEM {name}" for name in known},
        "cluster_ca": " ".join(plane["trusted"]["cluster"]) if plane else "",
    }


def rotation(state: State, _host: str, params: State, _trace: list[str]) -> State:
    assert params["kind"] == "authorities"
    facts = ClusterFacts(
        nodes=frozenset(state["kubelets"]),
        control_planes=frozenset(state["planes"]),
        now=datetime.fromisoformat(state["now"]),
        stored={},
    )
    return plan_values("authorities", params["found"], facts, old=params["old"])


def rotation_phase(state: State, host: str, params: State, trace: list[str]) -> State:
    phase, plane = params["plan"]["phases"][0], state["planes"][host]
    bundles = params["plan"]["changes"][host]
    deed = f"{phase} on {host}"
    if state["sick"] == deed:
        raise SystemExit(f"{deed}: CONTROL_PLANE_COMPONENT_UNHEALTHY")
    if phase == "share":
        assert (params["handle"], params["sealed"]) == (f"judged {host}", f"for {host}")
    trace.append(deed)
    if phase in ("make", "share"):
        plane |= {"staged": dict.fromkeys(NAMES, NEW), "taken": False}
    elif phase == "forget":
        plane |= {"staged": {}, "taken": True}
    else:
        plane |= {"trusted": bundles, "taken": True}
        state["kubelets"][host] |= {"trusted": bundles["cluster"], "named": bundles["cluster"]}
    if phase == "issue":
        plane |= {"signers": dict.fromkeys(NAMES, NEW), "issued": {name: [NEW] for name in NAMES[:3]}}
        plane["since"] = state["now"]
    return {"changed": True}


def rotation_share(_state: State, host: str, params: State, _trace: list[str]) -> State:
    assert params["kind"] == "authorities"
    if "orders" not in params:
        return {"handle": f"offer of {host}", "offer": "offered"}
    assert params["handle"] == f"offer of {host}"
    assert params["orders"] == {name: f"order for {name}" for name in params["orders"]}
    return {"boxes": {name: f"for {name}" for name in params["orders"]}}


def rotation_recipient(_state: State, host: str, params: State, _trace: list[str]) -> State:
    assert (params["offer"], tuple(params["names"])) == ("offered", NAMES)
    return {"handle": f"judged {host}", "order": f"order for {host}"}


def kubelet_authorities(state: State, host: str, _params: State, trace: list[str]) -> State:
    trace.append(f"kubelet on {host}")
    plane = state["planes"]["cp-1"]
    state["kubelets"][host]["issued"] = plane["signers"]["cluster"]
    if host not in state["planes"]:
        state["kubelets"][host] |= {"trusted": plane["trusted"]["cluster"], "named": plane["trusted"]["cluster"]}
    return {"changed": True}


def join_turn(_state: State, host: str, params: State, _trace: list[str]) -> State:
    assert (host, params["holder"]) == ("cp-1", "rotate-authorities")
    return {}


def admin_kubeconfig(state: State, _host: str, params: State, trace: list[str]) -> State:
    if "certificate" in params:
        trace.append("kubeconfig")
        state["kubeconfig"] = params["cluster_ca"]
        return {"changed": True}
    return {} if state["kubeconfig"] == params["cluster_ca"] else {"request": "a request"}


def admin_certificate(state: State, host: str, params: State, _trace: list[str]) -> State:
    assert params["request"] == "a request"
    return {"certificate": "a certificate", "cluster_ca": " ".join(state["planes"][host]["trusted"]["cluster"])}


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
