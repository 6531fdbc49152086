# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S49: somebody may write NodeIdentity objects, has no policy key, and wants a control plane's disk key."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.derive import DiskId, disk_key
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.identity import Role
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.manifest import REVOKED_LABEL, render_profile
from ansible_collections.attested.kubernetes.tests.support import boots
from ansible_collections.attested.kubernetes.tests.support.exchange import learned
from ansible_collections.attested.kubernetes.tests.support.refusal import refused
from ansible_collections.attested.kubernetes.tests.support.service_bed import GOOD_BOOT
from ansible_collections.attested.kubernetes.tests.support.threats import Threat
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from collections.abc import Callable

    from ansible_collections.attested.kubernetes.tests.support.api_bed import ApiBed
    from ansible_collections.attested.kubernetes.tests.support.service_bed import Machine, ServiceBed

    Machines = Callable[..., Machine]

THREAT = Threat(
    id="S49",
    title="Identity objects written without the policy key",
    case="the disk of a control plane went to a worker that was named as its heir",
    bed="api",
    stops=(
        ("policy/identity.py", "DISK_ID_TAKEN"),
        ("policy/in_force.py step 4", "IDENTITY_UNSIGNED"),
        ("policy/signature.py step 2", "POLICY_SIGNATURE"),
        ("policy/record.py", "POLICY_ROLLED_BACK"),
        ("roles/key_service/files/admission.yml", ""),
    ),
)

KIND = "nodeidentities.attested-kubernetes.dev"
WRITER = "writer"
DISK = "7b5c1c52-0a3b-4b5e-9c8e-1f2d3c4b5a{:02x}"
_SECONDS = 900


@pytest.fixture(scope="module")
def writer(api: ApiBed) -> str:
    """A user of the cluster with every right on identities, and on nothing else."""
    api.ca.issue(WRITER, names=[(NameOID.COMMON_NAME, WRITER)])
    rule = {
        "apiGroups": ["attested-kubernetes.dev"],
        "resources": [KIND.split(".", maxsplit=1)[0], "nodeidentities/status"],
    }
    role = {"kind": "ClusterRole", "metadata": {"name": WRITER}, "rules": [{**rule, "verbs": ["*"]}]}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": WRITER}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": WRITER}
    binding = {"kind": "ClusterRoleBinding", "metadata": {"name": WRITER}, "subjects": [subject], "roleRef": reference}
    api.apply(*({"apiVersion": "rbac.authorization.k8s.io/v1", **one} for one in (role, binding)))
    probe = document("0e" * 32, "probe-49")
    api.apply(probe, render_profile(learned(boots.load(GOOD_BOOT))))
    deadline = time.monotonic() + _SECONDS  # the API server compiles policies after a moment
    while "status of an identity" not in patch_status(api, probe["metadata"]["name"], WRITER, phase="Joined"):
        if time.monotonic() > deadline:
            break  # where there is no such policy the tests below say so
        time.sleep(0.2)
    return WRITER


def document(ek: str, node: str, role: str = "worker", **spec: Any) -> dict[str, Any]:
    wanted = {"ekSha256": ek, "nodeName": node, "role": role, "admission": "Approved", **spec}
    head = {"apiVersion": "attested-kubernetes.dev/v1alpha1", "kind": "NodeIdentity"}
    return {**head, "metadata": {"name": f"ek-{ek[:20]}"}, "spec": wanted}


def patch_status(api: ApiBed, name: str, user: str, **status: Any) -> str:
    words = ("patch", KIND, name, "--subresource=status", "--type=merge", "-p", json.dumps({"status": status}))
    return api.kubectl(*words, user=user, check=False)


def write(api: ApiBed, user: str, verb: str, one: dict[str, Any]) -> None:
    api.kubectl(verb, "-f", "-", stdin=json.dumps(one), user=user)


def give_way(api: ApiBed, user: str, name: str, *, heir: str) -> None:
    """Revoke an identity and name who takes its place."""
    spec = {"admission": "Revoked", "replacedBy": heir}
    change = {"metadata": {"labels": {REVOKED_LABEL: "true"}}, "spec": spec}
    api.kubectl("patch", KIND, name, "--type=merge", "-p", json.dumps(change), user=user)


def named(machine: Machine) -> str:
    return f"ek-{machine.tpm.ek.public.spki_sha256()[:20]}"


def left_behind(api: ApiBed, user: str, heir: Machine, *, role: str, disk: str) -> None:
    """Let a node of this role with this disk be revoked by ``user``, who names ``heir`` as what takes its place."""
    gone = document(heir.tpm.ek.public.spki_sha256()[::-1], heir.name, role)
    api.apply(gone)
    patch_status(api, gone["metadata"]["name"], "admin", diskId=disk, phase="Joined")
    give_way(api, user, gone["metadata"]["name"], heir=named(heir))


@pytest.mark.parametrize(
    ("role", "number", "code"),
    [
        pytest.param("worker", 1, "", id="of a worker, as replace does it"),
        pytest.param("control-plane", 2, "DISK_ID_TAKEN", id="of a control plane"),
    ],
)
def test_a_worker_that_is_named_as_the_heir_of_a_disk(
    api: ApiBed, bed: ServiceBed, machines: Machines, writer: str, role: str, number: int, code: str
) -> None:
    heir, disk = machines(enroll=False), DISK.format(number)
    left_behind(api, writer, heir, role=role, disk=disk)
    write(api, writer, "create", document(heir.tpm.ek.public.spki_sha256(), heir.name))
    if code:
        assert refused(heir.ask, bed)["reason"] == code
        assert "diskId" not in heir.identity().get("status", {})
    else:
        assert heir.ask().secrets.disk_key == disk_key(bed.bundle.master, DiskId(disk))


def test_an_unsigned_control_plane_as_the_heir(api: ApiBed, bed: ServiceBed, machines: Machines, writer: str) -> None:
    """Equal roles are not enough: which machine is a control plane the site signs."""
    heir = machines("cp", enroll=False)
    left_behind(api, writer, heir, role="control-plane", disk=DISK.format(3))
    write(api, writer, "create", document(heir.tpm.ek.public.spki_sha256(), heir.name, "control-plane"))
    assert refused(lambda: heir.ask(role=Role.CONTROL_PLANE), bed)["reason"] == "IDENTITY_UNSIGNED"


def test_one_disk_on_two_live_identities(api: ApiBed, bed: ServiceBed, machines: Machines) -> None:
    """However it came there: neither gets the key until a person says whose it is."""
    one, two = machines(), machines()
    disk = one.ask().public.disk_id
    patch_status(api, named(two), "admin", diskId=disk)
    for machine in (one, two):
        assert refused(machine.ask, bed)["reason"] == "DISK_ID_TAKEN"
    name = json.dumps({"metadata": {"labels": {REVOKED_LABEL: "true"}}, "spec": {"admission": "Revoked"}})
    api.kubectl("patch", KIND, named(two), "--type=merge", "-p", name)
    assert refused(one.ask, bed)["reason"] == "DISK_ID_TAKEN"  # a revoked one of another node had it as well


def test_a_status_is_nobody_elses_to_write(api: ApiBed, bed: ServiceBed, machines: Machines, writer: str) -> None:
    one = machines()
    ticket = one.ask()
    for status in ({"akName": None}, {"tpm": None}, {"phase": "Admitted"}):
        assert "is written by the key service" in patch_status(api, named(one), writer, **status)
    for user in (writer, "admin"):
        for disk in (DISK.format(4), None):
            assert "diskId is immutable" in patch_status(api, named(one), user, diskId=disk)
    assert one.ask().public.disk_id == ticket.public.disk_id


@pytest.mark.parametrize("admission", ["Approved", "Refused"])
def test_what_was_decided_about_is_not_made_anew(api: ApiBed, machines: Machines, writer: str, admission: str) -> None:
    """Else the machine is enrolled again without its pinned key, its disk and its counters."""
    one = machines()
    assert one.ask()
    api.kubectl("patch", KIND, named(one), "--type=merge", "-p", json.dumps({"spec": {"admission": admission}}))
    before = one.identity()["status"]
    collection = f"/apis/attested-kubernetes.dev/v1alpha1/nodeidentities?fieldSelector=spec.nodeName%3D{one.name}"
    for words in ((KIND, named(one)), ("--raw", collection)):
        assert "cannot be deleted" in api.kubectl("delete", *words, user=writer, check=False)
    assert one.identity()["status"] == before
    assert "deleted" in api.kubectl("delete", KIND, named(one))  # by admin.conf
    waiting = document("49" * 32, "ek-" + "49" * 10, admission="Pending")
    write(api, writer, "create", waiting)
    assert "deleted" in api.kubectl("delete", KIND, waiting["metadata"]["name"], user=writer)


def revoke(api: ApiBed, name: str, user: str) -> None:
    change = {"metadata": {"labels": {REVOKED_LABEL: "true"}}, "spec": {"admission": "Revoked"}}
    api.kubectl("patch", KIND, name, "--type=merge", "-p", json.dumps(change), user=user)


def approve(api: ApiBed, name: str, user: str) -> str:
    words = ("patch", KIND, name, "--type=merge", "-p", json.dumps({"spec": {"admission": "Approved"}}))
    return api.kubectl(*words, user=user, check=False)


def approve_soon(api: ApiBed, name: str, user: str) -> None:
    """Approve what the policy lets come back, once the API server has heard of that policy."""
    deadline = time.monotonic() + _SECONDS
    while "patched" not in (said := approve(api, name, user)):
        assert time.monotonic() < deadline, said
        time.sleep(0.2)


def test_only_the_sites_signature_brings_a_revoked_machine_back(
    api: ApiBed, bed: ServiceBed, machines: Machines, writer: str
) -> None:
    """And then with the disk that it had; a revocation after that counts as the first one did."""
    one = machines()
    disk = one.ask().public.disk_id
    revoke(api, named(one), writer)
    assert refused(one.ask, bed)["reason"] == "IDENTITY_REVOKED"
    for user in (writer, "admin"):
        assert "stays revoked" in approve(api, named(one), user)
    bed.sign(reinstated=[one.tpm.ek.public.spki_sha256()])
    approve_soon(api, named(one), writer)
    assert one.ask().public.disk_id == disk
    revoke(api, named(one), writer)
    assert refused(one.ask, bed)["reason"] == "IDENTITY_REVOKED"
    bed.sign()


def test_a_policy_that_says_so_without_the_key(api: ApiBed, bed: ServiceBed, machines: Machines, writer: str) -> None:
    """The API server believes the object; no key service does, for anybody, and then not the one without it."""
    one, other = machines(), machines()
    assert one.ask()
    assert other.ask()
    revoke(api, named(one), writer)
    assert refused(one.ask, bed)["reason"] == "IDENTITY_REVOKED"
    good = bed.policy()
    forged = {**good["spec"], "reinstated": [one.tpm.ek.public.spki_sha256()]}
    api.apply({**good, "spec": forged})
    try:
        approve_soon(api, named(one), writer)
        assert refused(one.ask, bed)["reason"] == "POLICY_SIGNATURE"
    finally:
        api.apply(good)
        assert refused(one.ask, bed)["reason"] == "POLICY_ROLLED_BACK"  # a revocation that was seen is gone
        revoke(api, named(one), "admin")
    assert refused(one.ask, bed)["reason"] == "IDENTITY_REVOKED"
    assert other.ask()
