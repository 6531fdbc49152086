# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The roles that put a control plane out, against a real API and a real etcd: one is dead, one lives, one is the last.

Both roles run on this machine in the place of a control plane: kubectl asks the API of the bed, etcd is asked over TLS.
The API of the bed keeps its objects elsewhere, so that the members may go.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.admission import HELD
from ansible_collections.attested.kubernetes.tests.support.api_bed import binaries, why_not
from ansible_collections.attested.kubernetes.tests.support.etcd_bed import EtcdBed, etcd_bed
from ansible_collections.attested.kubernetes.tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ansible_collections.attested.kubernetes.tests.support.api_bed import ApiBed

KIND = "nodeidentities.attested-kubernetes.dev"
DEAD, LAST, LIVE = NODES = ("plane-1", "plane-2", "plane-3")
EKS = {name: f"{number}{'e' * 63}" for number, name in enumerate(NODES, start=1)}
HEIR = "ek-" + "4" * 20
KUBECTL = """#!/bin/sh
[ "$1 $2" = "--kubeconfig=/etc/kubernetes/admin.conf --server=https://127.0.0.1:6443" ] || exit 99
shift 2
cd "{bed}" && exec "{kubectl}" --server={server} --certificate-authority=ca.crt \\
  --client-certificate=admin.crt --client-key=admin.key "$@"
"""
BOOK = """
- hosts: localhost
  connection: local
  gather_facts: false
  module_defaults:
    attested.kubernetes.etcd_member: {{endpoint: "{endpoint}", certificates: "{certificates}"}}
  tasks:
    - when: begins
      block:
        - ansible.builtin.include_role: {{name: attested.kubernetes.node_removal, tasks_from: revoke}}
          vars: {{node_removal_name: {dead}, node_removal_etcd_member: {dead}, node_removal_compromised: true}}
      rescue:
        - ansible.builtin.set_fact: {{compromised: "{{{{ ansible_failed_result.reason }}}}"}}
    - ansible.builtin.include_role: {{name: attested.kubernetes.node_removal, tasks_from: revoke}}
      vars:
        node_removal_name: {dead_identity}
        node_removal_replaced_by: {heir}
        node_removal_etcd_member: {dead}
        node_removal_revoke_drain_seconds: 5
    - ansible.builtin.include_role: {{name: attested.kubernetes.node_removal}}
      vars: &live {{node_removal_name: {live}, node_removal_control_plane: true, node_removal_drain_seconds: 5}}
    - ansible.builtin.include_role: {{name: attested.kubernetes.node_removal, tasks_from: gone}}
      vars: *live
    - when: begins
      block:
        - ansible.builtin.include_role: {{name: attested.kubernetes.node_removal}}
          vars: {{node_removal_name: {last}, node_removal_control_plane: true}}
      rescue:
        - ansible.builtin.set_fact: {{last: "{{{{ ansible_failed_result.reason }}}}"}}
    - when: begins
      ansible.builtin.debug: {{msg: "compromised={{{{ compromised }}}} last={{{{ last }}}}"}}
"""


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdBed]:
    """Three members, of which the first is killed for good."""
    if reason := why_not():
        pytest.skip(reason)
    with etcd_bed(tmp_path_factory.mktemp("planes"), *NODES) as bed:
        bed.kill(DEAD)
        wait_for(lambda: all(one.healthy for one in bed.gateway(LAST).members() if one.name != DEAD))
        yield bed


@pytest.fixture(scope="module")
def planes(api: ApiBed) -> None:
    """Identities, Nodes, and a component's Pod of each."""
    for name, ek in EKS.items():
        spec = {"ekSha256": ek, "nodeName": name, "role": "control-plane", "admission": "Approved"}
        pod = {
            "nodeName": name,
            "containers": [{"name": "etcd", "image": "localhost/none"}],
            "tolerations": [{"operator": "Exists"}],
        }
        head = {"name": f"etcd-{name}", "namespace": "kube-system"}
        api.apply(
            {
                "apiVersion": "attested-kubernetes.dev/v1alpha1",
                "kind": "NodeIdentity",
                "metadata": {"name": f"ek-{ek[:20]}"},
                "spec": spec,
            },
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}},
            {"apiVersion": "v1", "kind": "Pod", "metadata": head, "spec": pod},
        )


def play(api: ApiBed, etcd: EtcdBed, where: Path, *, begins: bool) -> str:
    """Run the book as an admin's machine would, and return what it printed."""
    kubectl = where / "bin" / "kubectl"
    kubectl.parent.mkdir(exist_ok=True)
    kubectl.write_text(KUBECTL.format(bed=api.directory, kubectl=binaries() / "kubectl", server=api.server))
    kubectl.chmod(0o700)
    said = {
        "endpoint": etcd.members[LAST].client_url, "certificates": etcd.directory, "heir": HEIR, "dead": DEAD,
        "dead_identity": f"ek-{EKS[DEAD][:20]}", "live": LIVE, "last": LAST,
    }  # fmt: skip
    (where / "book.yml").write_text(BOOK.format(**said))
    plain = {"ANSIBLE_STDOUT_CALLBACK": "default", "ANSIBLE_FORCE_COLOR": "0"}
    variables = {"ansible_python_interpreter": sys.executable, "begins": begins}
    done = subprocess.run(
        [Path(sys.executable).parent / "ansible-playbook", "-e", json.dumps(variables), "book.yml"],
        cwd=where,
        env={**os.environ, **plain, "PATH": f"{kubectl.parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def identity(api: ApiBed, name: str) -> dict[str, Any]:
    """Return what the admin's side of an identity says."""
    found: dict[str, Any] = api.get(KIND, f"ek-{EKS[name][:20]}")["spec"]
    return found


@pytest.mark.usefixtures("planes")
def test_a_dead_one_is_replaced_a_live_one_removed_and_the_last_one_stays(
    api: ApiBed, etcd: EtcdBed, tmp_path: Path
) -> None:
    said = play(api, etcd, tmp_path, begins=True)
    assert "compromised=HELD_KEYS_NOT_ROTATED last=ETCD_LAST_MEMBER" in said
    assert [one.name for one in etcd.gateway(LAST).members()] == [LAST]
    assert identity(api, DEAD)["admission"] == "Revoked"
    assert identity(api, DEAD)["replacedBy"] == HEIR
    assert identity(api, LIVE)["admission"] == "Refused"
    assert identity(api, LAST)["admission"] == "Approved"
    left = api.kubectl("get", "nodes,pods", "--all-namespaces", "--output=name").split()
    for name in (DEAD, LIVE):
        assert not {f"node/{name}", f"pod/etcd-{name}"} & set(left)
    assert {f"node/{LAST}", f"pod/etcd-{LAST}"} <= set(left)
    for one in HELD:
        assert one.could in said
    again = play(api, etcd, tmp_path, begins=False)
    assert "changed=0" in again
