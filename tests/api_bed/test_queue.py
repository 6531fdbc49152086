# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The queue of unknown machines before a real API: who waits, what an admin decides, what the key service cannot.

The playbook `approve` runs whole, from a site's directory; of its control plane the connection is local, and kubectl
asks the API of the bed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.join_attempts import CLAIM
from ansible_collections.attested.kubernetes.tests.support.api_bed import binaries
from ansible_collections.attested.kubernetes.tests.support.service_bed import Machine, ServiceBed
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ansible_collections.attested.kubernetes.tests.support.api_bed import ApiBed

KIND = "nodeidentities.attested-kubernetes.dev"
_SECONDS = 900


@pytest.fixture(scope="module")
def queueing(api: ApiBed) -> Iterator[ServiceBed]:
    """Both services of a site that chose ``queue``."""
    made = ServiceBed(api)
    path = made.directory / "key.yml"
    path.write_text(json.dumps({**json.loads(path.read_text()), "unknown_machines": "queue"}))
    try:
        made.start()
        yield made
    finally:
        assert made.stop() == 0


@pytest.fixture
def stranger(queueing: ServiceBed, tmp_path: Path, request: pytest.FixtureRequest) -> Machine:
    """A machine that nobody enrolled; the profile of its boot is in force."""
    name = f"q-{abs(hash(request.node.nodeid)) % 10**8}"
    known = Machine(f"{name}-known", queueing, tmp_path / "known")
    known.enroll()
    return Machine(name, queueing, tmp_path / "stranger")


def refused(machine: Machine) -> str:
    with pytest.raises(AttestedError):
        machine.ask()
    return str(machine.bed.last_refusal("key")["reason"])


def queued(machine: Machine) -> str:
    """Let the machine ask, and return the name of the identity that waits."""
    assert refused(machine) == "IDENTITY_UNKNOWN"
    name = f"ek-{machine.tpm.ek.public.spki_sha256()[:20]}"
    deadline = time.monotonic() + _SECONDS
    while "NotFound" in machine.bed.api.kubectl("get", KIND, name, check=False):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    return name


def patch(api: ApiBed, name: str, user: str = "admin", **spec: str) -> str:
    words = ("patch", KIND, name, "--type=merge", "-p", json.dumps({"spec": spec}))
    return api.kubectl(*words, user=user, check=False)


def test_the_walk_of_an_unknown_machine(api: ApiBed, stranger: Machine) -> None:
    """It asks, waits, is approved with kubectl, and joins: docs/machines.md."""
    name = queued(stranger)
    found = api.get(KIND, name)
    assert (found["spec"]["admission"], found["spec"]["nodeName"]) == ("Pending", name)
    assert found["metadata"]["annotations"][CLAIM] == stranger.name
    assert refused(stranger) == "IDENTITY_PENDING"
    assert stranger.name in api.kubectl("get", KIND, "-o", "wide")
    assert "patched" in patch(api, name, admission="Approved", nodeName=stranger.name)
    assert stranger.ask().public.node_name == stranger.name


def test_a_refused_machine_waits_no_more(api: ApiBed, stranger: Machine) -> None:
    name = queued(stranger)
    assert "patched" in patch(api, name, admission="Refused")
    assert refused(stranger) == "IDENTITY_REFUSED"
    assert "does not wait again" in patch(api, name, admission="Pending")


def test_its_name_and_role_are_settled_once(api: ApiBed, stranger: Machine) -> None:
    name = queued(stranger)
    assert "needs a nodeName of its own" in patch(api, name, admission="Approved")
    assert "patched" in patch(api, name, nodeName=stranger.name)
    assert "patched" in patch(api, name, admission="Approved")
    assert "nodeName is immutable" in patch(api, name, nodeName="another")
    assert "role is immutable" in patch(api, name, role="control-plane")


def test_who_takes_the_name_of_a_node_does_not_wait(api: ApiBed, stranger: Machine, tmp_path: Path) -> None:
    """The board was changed, or somebody pretends: that is an alarm and no question to an admin."""
    pretender = Machine(f"{stranger.name}-known", stranger.bed, tmp_path / "pretender")
    assert refused(pretender) == "IDENTITY_NODE_TAKEN"
    queued(stranger)  # who asked before it would be there by now
    name = f"ek-{pretender.tpm.ek.public.spki_sha256()[:20]}"
    assert "NotFound" in api.kubectl("get", KIND, name, check=False)


# ---- the playbook

_KUBECTL = """#!/bin/sh
[ "$1" = --kubeconfig=/etc/kubernetes/admin.conf ] || exit 99
shift
for word; do shift; case "$word" in --server=*) ;; *) set -- "$@" "$word" ;; esac; done
cd "{bed}" && exec "{kubectl}" --server={server} --certificate-authority=ca.crt \\
  --client-certificate=admin.crt --client-key=admin.key "$@"
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site's directory, as scaffold writes it."""
    path = tmp_path_factory.mktemp("approve") / "prod"
    variables = {
        "site": str(path),
        "cluster_name": "prod",
        "api_endpoint": "api.prod.example:6443",
        "site_directory_control_planes": {"cp-1": "192.0.2.11"},
        "site_directory_workers": {},
        "site_directory_profiles": ["deb13-base"],
    }
    done = play("scaffold", "-e", json.dumps(variables), cwd=path.parent)
    assert done.returncode == 0, done.stdout + done.stderr
    return path


@pytest.fixture
def approve(api: ApiBed, site: Path, tmp_path: Path) -> Callable[..., str]:
    """Run the playbook `approve` with variables; returns what it printed, and fails unless it ended with ``ends``."""
    kubectl = tmp_path / "bin" / "kubectl"
    kubectl.parent.mkdir()
    kubectl.write_text(_KUBECTL.format(bed=api.directory, kubectl=binaries() / "kubectl", server=api.server))
    kubectl.chmod(0o700)
    here = {"ansible_connection": "local", "ansible_become": False, "ansible_python_interpreter": sys.executable}

    def run(*options: str, ends: int = 0, **variables: str) -> str:
        path = f"{kubectl.parent}:{os.environ['PATH']}"
        done = play("approve", *options, "-e", json.dumps({**here, **variables}), cwd=site, PATH=path)
        assert done.returncode == ends, done.stdout + done.stderr
        return done.stdout

    return run


def play(name: str, *options: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).parent / "ansible-playbook"
    plain = {"ANSIBLE_STDOUT_CALLBACK": "default", "ANSIBLE_FORCE_COLOR": "0"}
    return subprocess.run(
        [program, f"attested.kubernetes.{name}", *options],
        cwd=cwd,
        env={**os.environ, **plain, **env},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def vouched(site: Path, machine: Machine) -> str:
    """Return what the site says of the machine's node, empty where it says nothing."""
    path = site / "host_vars" / machine.name / "identity.yml"
    return path.read_text(encoding="utf-8") if path.exists() else ""


def test_approve_lets_a_waiting_machine_in_and_keeps_the_site_in_step(
    stranger: Machine, approve: Callable[..., str], site: Path
) -> None:
    name = queued(stranger)
    approve(confirm=name, node=stranger.name)
    assert stranger.ask().public.node_name == stranger.name
    written = vouched(site, stranger)
    assert stranger.tpm.ek.public.spki_sha256() in written
    assert "queue: proved its key" in written
    again = approve(confirm=name, node=stranger.name)
    assert "changed=0" in again
    assert "changed=1" not in again
    assert vouched(site, stranger) == written


def test_approve_can_also_say_no(stranger: Machine, approve: Callable[..., str], site: Path) -> None:
    approve(confirm=queued(stranger), admission="Refused")
    assert refused(stranger) == "IDENTITY_REFUSED"
    assert vouched(site, stranger) == ""


def test_approve_in_check_mode_admits_nobody(stranger: Machine, approve: Callable[..., str], site: Path) -> None:
    name = queued(stranger)
    said = approve("--check", "--diff", confirm=name, node=stranger.name)
    assert '+admission: "Approved"' in said
    assert refused(stranger) == "IDENTITY_PENDING"
    assert vouched(site, stranger) == ""


@pytest.mark.parametrize(
    ("node", "code"),
    [
        pytest.param("", "IDENTITY_NAME_WANTED", id="without the node that it becomes"),
        pytest.param("{}-known", "IDENTITY_AMBIGUOUS", id="with the name of another machine"),
    ],
)
def test_approve_needs_a_name_that_is_free(
    stranger: Machine, approve: Callable[..., str], site: Path, node: str, code: str
) -> None:
    said = approve(confirm=queued(stranger), node=node.format(stranger.name), ends=2)
    assert code in said
    assert refused(stranger) == "IDENTITY_PENDING"
    assert vouched(site, stranger) == ""


@pytest.mark.parametrize(
    "variables",
    [
        pytest.param({}, id="nobody named"),
        pytest.param({"confirm": "w-1"}, id="a node's name, which a machine only claims"),
        pytest.param({"confirm": "ek-" + "0" * 64}, id="a whole hash"),
    ],
)
def test_approve_asks_which_machine_is_meant(approve: Callable[..., str], variables: dict[str, str]) -> None:
    assert "CONFIRMATION_MISSING" in approve(ends=2, **variables)


# ---- what else must not work


def test_the_default_lets_nobody_wait(api: ApiBed, bed: ServiceBed, tmp_path: Path) -> None:
    machine = Machine("refused-by-default", bed, tmp_path / "machine")
    assert refused(machine) == "IDENTITY_UNKNOWN"
    time.sleep(2)
    name = f"ek-{machine.tpm.ek.public.spki_sha256()[:20]}"
    assert "NotFound" in api.kubectl("get", KIND, name, check=False)


def document(seed: str, **spec: str) -> dict[str, Any]:
    ek = (seed * 64)[:64]
    name = f"ek-{ek[:20]}"
    wanted = {"ekSha256": ek, "nodeName": name, "role": "worker", "admission": "Pending", **spec}
    head = {"apiVersion": "attested-kubernetes.dev/v1alpha1", "kind": "NodeIdentity", "metadata": {"name": name}}
    return {**head, "spec": wanted}


@pytest.fixture(scope="module")
def key_service(api: ApiBed) -> str:
    """The key service's own user."""
    api.ca.issue("key-service", names=[(NameOID.COMMON_NAME, "attested:key-service")])
    return "key-service"


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"admission": "Approved", "nodeName": "w-9"}, id="an approved machine"),
        pytest.param({"nodeName": "w-9"}, id="a waiting one with a node's name"),
        pytest.param({"role": "control-plane"}, id="a waiting control plane"),
    ],
)
def test_the_key_service_admits_nobody(api: ApiBed, key_service: str, spec: dict[str, str]) -> None:
    words = ("create", "--validate=false", "-f", "-")
    said = api.kubectl(*words, stdin=json.dumps(document("d1", **spec)), user=key_service, check=False)
    assert "makes identities that wait" in said


def test_the_key_service_takes_away_only_who_waits(api: ApiBed, key_service: str) -> None:
    approved, waiting = document("7d", admission="Approved", nodeName="w-7d"), document("7e")
    api.apply(approved, waiting)
    said = api.kubectl("delete", KIND, approved["metadata"]["name"], user=key_service, check=False)
    assert "takes away only identities that wait" in said
    assert "deleted" in api.kubectl("delete", KIND, waiting["metadata"]["name"], user=key_service, check=False)
    assert "forbidden" in patch(api, approved["metadata"]["name"], key_service, admission="Refused").lower()
