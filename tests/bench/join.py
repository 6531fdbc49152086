# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long a node's way into the cluster takes, beside bare ``kubeadm join`` with its credentials in place.

Works on the two workers of a running lab (`make lab`, or another one in ATTESTED_LAB), which leave the cluster and join
it again in turns; at the end they are nodes again. Ours is everything from asking for the ticket to the Node object.
Usage: python tests/bench/join.py [--rounds N]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ansible_collections.attested.kubernetes.tests.support.bench import Figure, report

LAB = Path(os.environ.get("ATTESTED_LAB", Path.home() / ".local" / "state" / "attested-lab"))
WORKERS = ("w-1", "w-2")
CONTROL_PLANE = "cp-1"
BUDGET_OVER_BARE_SECONDS = 2.0
BUDGET_TWO_AT_ONCE = 1.5

# what the module kubeadm_node runs, in its own environment on the machine
NODE_RUN = """
import json, sys
from ansible_collections.attested.kubernetes.plugins.module_utils.node.client import run_node
done = run_node({
    "state": sys.argv[1], "node_config": "/etc/attested/node.yml", "node_ip": sys.argv[2], "ticket": None,
    "wait_seconds": 60, "cri_socket": "unix:///run/containerd/containerd.sock", "ignore_preflight_errors": [],
    "allow_cgroup_v1": sys.argv[3] == "v1", "role": "worker",
}, False)
print(json.dumps(done.values["steps"]))
"""

KEEP = """
set -e; rm -rf /var/lib/bare; mkdir -m 0700 /var/lib/bare
cp -a --parents /etc/kubernetes/kubelet.conf /var/lib/kubelet/pki /var/lib/attested/kubeadm /etc/cni/net.d /var/lib/bare
"""
BARE = """
set -e; cp -a /var/lib/bare/* /; systemctl enable --quiet kubelet; rm -f /var/lib/attested/kubeadm/*.json
kubeadm join --config /var/lib/attested/kubeadm/join.yaml \
  --ignore-preflight-errors=FileAvailable--etc-kubernetes-kubelet.conf,SystemVerification >/dev/null
"""


def on(machine: str, *words: str) -> str:
    """Run a command as root on a machine of the lab and return what it printed."""
    argv = [str(LAB / "podman"), "exec", machine, *words]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{machine}: {words[:2]} ended with {done.returncode}: {done.stderr[-1000:]}")
    return done.stdout


def node_run(machine: str, state: str, address: str) -> float:
    """Run ours on a machine and return how many seconds its steps took."""
    cgroups = "v2" if Path("/sys/fs/cgroup/cgroup.controllers").exists() else "v1"
    printed = on(machine, "/opt/attested/venv/bin/python", "-c", NODE_RUN, state, address, cgroups)
    return sum(float(step["seconds"]) for step in json.loads(printed.splitlines()[-1]))


def leave(machine: str, address: str) -> None:
    """Take a machine out of the cluster; its lock stays, as it may."""
    on(CONTROL_PLANE, "kubectl", "--kubeconfig=/etc/kubernetes/admin.conf", "delete", "node", machine)
    node_run(machine, "absent", address)


def bare(machine: str) -> float:
    """Run kubeadm with what an earlier ticket brought and return the seconds until its Node is there."""
    begun = time.perf_counter()
    on(machine, "bash", "-c", BARE)
    taken = time.perf_counter() - begun
    on(CONTROL_PLANE, "kubectl", "--kubeconfig=/etc/kubernetes/admin.conf", "get", "node", machine)
    return taken


def measure(rounds: int) -> dict[str, list[float]]:
    """Return the seconds of each way into the cluster, taken in turns."""
    addresses = {one: on(one, "hostname", "-I").split()[0] for one in WORKERS}
    last, address = WORKERS[-1], addresses[WORKERS[-1]]
    on(last, "bash", "-c", KEEP)
    taken: dict[str, list[float]] = {"ours": [], "bare": [], "two": []}
    for _round in range(rounds):
        leave(last, address)
        taken["bare"].append(bare(last))
        leave(last, address)
        taken["ours"].append(node_run(last, "joined", address))
        for one in WORKERS:
            leave(one, addresses[one])
        with ThreadPoolExecutor() as pool:
            taken["two"].append(max(pool.map(lambda one: node_run(one, "joined", addresses[one]), WORKERS)))
    on(last, "rm", "-rf", "/var/lib/bare")
    connect_pods()
    return taken


def connect_pods() -> None:
    """Give the nodes their routes again: a node that joins anew has another network for its pods."""
    program = Path(sys.executable).parent / "ansible-playbook"
    subprocess.run([program, "attested.kubernetes.node"], cwd=LAB / "site", check=True, stdout=subprocess.DEVNULL)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="the median counts (default: %(default)s)")
    options = parser.parse_args()
    if not (LAB / "podman").exists():
        print(f"join: not measured, no lab in {LAB}: run make lab first, or name one in ATTESTED_LAB")
        return
    median = {name: statistics.median(values) for name, values in measure(options.rounds).items()}
    ours, alone = median["ours"], median["bare"]
    report(
        Figure(
            name="join of one node", value=ours, unit="s", budget=alone + BUDGET_OVER_BARE_SECONDS, baseline=alone,
            baseline_name="s, bare kubeadm join",
        ),
        Figure(
            name="join of two nodes at once", value=median["two"], unit="s", budget=ours * BUDGET_TWO_AT_ONCE,
            baseline=ours, baseline_name="s, one node",
        ),
    )  # fmt: skip


if __name__ == "__main__":
    main()
