# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kill -9 of a node's run at each step, in a running lab: the next run ends with a joined node and one lock event.

Works on the last worker of the lab in ``ATTESTED_LAB`` (its directory), which must have been through init and node;
the worker is reset before each case and is a node again afterwards.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

LAB = Path(os.environ.get("ATTESTED_LAB", Path.home() / ".local" / "state" / "attested-lab"))
WORKER = "w-2"
RUN_SECONDS = 600

# Runs what the module kubeadm_node runs, and kills itself just before the step that it is told.
VICTIM = """
import json, os, signal, sys
from ansible_collections.attested.kubernetes.plugins.module_utils.node import client, order
step, address = sys.argv[1:]
go_on = order.NodeRun._do
def do(self, name, wait_seconds):
    if name.name == step:
        os.kill(os.getpid(), signal.SIGKILL)
    return go_on(self, name, wait_seconds)
order.NodeRun._do = do
client.run_node({
    "state": "joined", "node_config": "/etc/attested/node.yml", "node_ip": address, "ticket": None, "wait_seconds": 60,
    "cri_socket": "unix:///run/containerd/containerd.sock", "ignore_preflight_errors": [], "allow_cgroup_v1": True,
    "role": "worker",
}, False)
"""

# Kills the run with all its children as soon as the file that kubeadm writes first is there.
DURING_KUBEADM = """
setsid /opt/attested/venv/bin/python -c "$1" NEVER "$2" & victim=$!
while ! [ -e /etc/kubernetes/bootstrap-kubelet.conf ] && [ -d /proc/$victim ]; do sleep 0.01; done
kill -9 -- -$victim
"""


def on(machine, *words, check=True):
    """Run a command on a machine of the lab."""
    argv = [str(LAB / "podman"), "exec", machine, *words]
    return subprocess.run(argv, capture_output=True, text=True, check=check, timeout=RUN_SECONDS)


def play(name, *options):
    """Run a playbook in the lab's site and return what it printed."""
    program = Path(sys.executable).parent / "ansible-playbook"
    done = subprocess.run(
        [program, f"attested.kubernetes.{name}", *options],
        cwd=LAB / "site",
        capture_output=True,
        text=True,
        check=False,
        timeout=RUN_SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def cluster(*words):
    return on("cp-1", "kubectl", "--kubeconfig=/etc/kubernetes/admin.conf", *words)


@pytest.fixture
def address():
    if not (LAB / "podman").exists():
        pytest.skip(f"no lab in {LAB}: run make lab, or name one in ATTESTED_LAB")
    found = cluster("get", "node", WORKER, "-o", "jsonpath={.status.addresses[0].address}")
    play("reset", "-e", f"confirm={WORKER}")
    return found.stdout


def lock_events():
    """Return how often the log says that the register was extended, and whether the register says the same."""
    log = on(WORKER, "cat", "/run/attested/nodelock.log").stdout
    records = [json.loads(part) for part in log.split("\x1e") if part]
    value = bytes(32)
    userspace = on(WORKER, "cat", "/srv/boot/userspace.json").stdout
    for one in [*map(json.loads, filter(None, userspace.split("\x1e"))), *records]:
        if one["pcr"] == 15:
            digest = next(entry["digest"] for entry in one["digests"] if entry["hashAlg"] == "sha256")
            value = hashlib.sha256(value + bytes.fromhex(digest)).digest()
    shown = on(WORKER, "tpm2_pcrread", "-T", "swtpm:path=/srv/tpm/tpm", "sha256:15").stdout.lower()
    return len(records), value.hex() in shown


def status():
    return json.loads(on(WORKER, "attested", "status", "--json", check=False).stdout)


@pytest.mark.parametrize(
    ("step", "phase"),
    [
        pytest.param("LOCK", "Asking", id="before the lock"),
        pytest.param("WRITE", "Locked", id="after the lock"),
        pytest.param("KUBEADM", "Locked", id="before kubeadm"),
        pytest.param("CONFIRM", "Joining", id="after kubeadm"),
    ],
)
def test_killed_before_a_step_the_next_run_ends_joined(address, step, phase):
    victim = on(WORKER, "/opt/attested/venv/bin/python", "-c", VICTIM, step, address, check=False)
    assert victim.returncode == 137, victim.stderr
    assert status()["phase"] == phase
    ends_joined()


def test_killed_during_kubeadm_the_next_run_ends_joined(address):
    on(WORKER, "bash", "-c", DURING_KUBEADM, "bash", VICTIM, address, check=False)
    assert status()["phase"] == "Joining"
    ends_joined()


def ends_joined():
    play("node", "--limit", WORKER)
    assert lock_events() == (1, True)
    assert (status()["phase"], status()["needs_person"]) == ("Joined", False)
    cluster("wait", "--for=condition=Ready", "--timeout=60s", f"node/{WORKER}")
    assert (
        cluster("get", "csr", "--field-selector=spec.signerName!=kubernetes.io/kubelet-serving", "-o", "name").stdout
        == ""
    )
    assert "nothing changed" in play("node", "--limit", WORKER)
