# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Objects of a definition with two versions come to the one that is stored: what a real etcd has, says so."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemClock
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import KubeadmError
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.cluster_info import run_objects
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.custom_objects import CustomObjects
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.kubectl import Kubectl
from ansible_collections.attested.kubernetes.tests.support import charts
from ansible_collections.attested.kubernetes.tests.support.rotation import Pinned, Rotation, kubectl
from ansible_collections.attested.kubernetes.tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ansible_collections.attested.kubernetes.plugins.module_utils.core.command import CommandResult
    from ansible_collections.attested.kubernetes.tests.support.api_bed import ApiBed

CRDS = Path(__file__).parents[2] / "roles/control_plane/files/crds"
OBJECTS = 130
NUMBERS = count()


class Killed(BaseException):
    """The run ends here; nothing of ours catches it."""


class Watched(Pinned):
    """The kubectl of the bed; what it is told is kept, and something may happen before it is told it."""

    def __init__(self, before: Callable[[Sequence[str]], None] = lambda _words: None) -> None:
        self.told: list[Sequence[str]] = []
        self.before = before

    def run(self, argv: Sequence[str], **options: Any) -> CommandResult:
        self.before(argv)
        self.told.append(argv)
        return super().run(argv, **options)

    @property
    def patches(self) -> list[Sequence[str]]:
        return [argv for argv in self.told if "patch" in argv]


class Kind:
    """A definition of this test, whose objects lie in two namespaces."""

    def __init__(self, bed: ApiBed) -> None:
        self.bed = bed
        self.plural = f"gadgets{chr(97 + next(NUMBERS))}s"
        self.name = f"{self.plural}.{charts.GROUP}"
        self.define("v1")

    def define(self, storage: str, *versions: str) -> None:
        """Apply the definition with these versions besides the stored one."""
        document = charts.definition(self.plural)
        (one,) = document["spec"]["versions"]
        names = sorted({storage, *versions})
        document["spec"]["versions"] = [{**one, "name": name, "storage": name == storage} for name in names]
        self.bed.apply(document)
        self.bed.kubectl("wait", "--for=condition=Established", f"crd/{self.name}", "--timeout=900s")

    def fill(self, version: str = "v1") -> None:
        """Make objects with a status."""
        kind = charts.definition(self.plural)["spec"]["names"]["kind"]
        items = [
            {
                "apiVersion": f"{charts.GROUP}/{version}",
                "kind": kind,
                "metadata": {"name": f"one-{number}", "namespace": ("default", "kube-system")[number % 2]},
                "spec": {"number": number},
            }
            for number in range(OBJECTS)
        ]
        self.bed.apply(*items)

    @property
    def stored(self) -> list[str]:
        """What the definition says that etcd may hold."""
        found: list[str] = self.bed.get("crd", self.name)["status"]["storedVersions"]
        return found

    @property
    def in_etcd(self) -> dict[str, int]:
        """How many objects etcd has in each version."""
        first = f"/registry/{charts.GROUP}/{self.plural}/"
        found = [
            json.loads(value)
            for _key, value in Rotation(self.bed, {}).etcd.pages(first.encode(), first[:-1].encode() + b"0")
        ]
        versions = [one["apiVersion"].rpartition("/")[2] for one in found]
        return {version: versions.count(version) for version in set(versions)}

    @property
    def revisions(self) -> set[str]:
        """Revisions of the definition and of all objects."""
        items = self.bed.get(f"{self.plural}.{charts.GROUP}", "--all-namespaces")["items"]
        return {one["metadata"]["resourceVersion"] for one in [*items, self.bed.get("crd", self.name)]}

    def store_anew(self, runner: Watched, *, check_mode: bool = False) -> tuple[str, ...]:
        """Do what the module does."""
        kubectl(self.bed)
        asked = Kubectl(runner, kubeconfig=self.bed.directory / "admin.conf")
        return CustomObjects(asked, clock=SystemClock()).store_anew([self.name], check_mode=check_mode)


@pytest.fixture
def kind(api: ApiBed) -> Iterator[Kind]:
    made = Kind(api)
    made.fill()
    yield made
    api.kubectl("delete", "crd", made.name, "--timeout=900s")


def test_nothing_is_written_where_one_version_was_ever_stored(kind: Kind) -> None:
    before, runner = kind.revisions, Watched()
    assert kind.store_anew(runner) == ()
    assert (runner.patches, kind.revisions, kind.stored) == ([], before, ["v1"])


def test_objects_come_to_the_version_that_is_stored_and_the_older_one_may_go(kind: Kind) -> None:
    kind.define("v2", "v1")
    line = f"{kind.name}: stored as v1, v2 -> v2"
    assert (kind.stored, kind.in_etcd) == (["v1", "v2"], {"v1": OBJECTS})

    before, foreseen = kind.revisions, Watched()
    assert kind.store_anew(foreseen, check_mode=True) == (line,)
    assert (foreseen.patches, kind.revisions) == ([], before)

    assert kind.store_anew(Watched()) == (line,)
    assert (kind.stored, kind.in_etcd) == (["v2"], {"v2": OBJECTS})
    assert kind.store_anew(Watched()) == ()
    kind.define("v2")  # the API server refuses to drop a version that etcd may hold
    assert kind.bed.get(f"{kind.plural}.{charts.GROUP}", "one-0")["spec"] == {"number": 0}


def test_a_run_that_is_killed_half_way_is_continued(kind: Kind) -> None:
    kind.define("v2", "v1")

    def kill(_argv: Sequence[str]) -> None:
        if len(runner.patches) == 2:
            raise Killed

    runner = Watched(kill)
    with pytest.raises(Killed):
        kind.store_anew(runner)
    half = kind.in_etcd
    assert (kind.stored, sum(half.values())) == (["v1", "v2"], OBJECTS)
    assert min(half.values()) > 0
    assert len(half) == 2

    assert kind.store_anew(Watched()) == (f"{kind.name}: stored as v1, v2 -> v2",)
    assert (kind.stored, kind.in_etcd) == (["v2"], {"v2": OBJECTS})


def test_objects_that_are_changed_and_deleted_meanwhile_stay_so(kind: Kind) -> None:
    kind.define("v2", "v1")
    resource = f"{kind.plural}.v1.{charts.GROUP}"

    def disturb(argv: Sequence[str]) -> None:
        if "patch" in argv and not runner.patches:
            kind.bed.kubectl("delete", resource, "one-0")
            kind.bed.kubectl("patch", resource, "one-2", "--type=merge", '--patch={"spec": {"number": 200}}')

    runner = Watched(disturb)
    kind.store_anew(runner)
    assert (kind.stored, kind.in_etcd) == (["v2"], {"v2": OBJECTS - 1})
    assert kind.bed.get(resource, "one-2")["spec"] == {"number": 200}


def test_a_definition_that_changes_meanwhile_is_looked_at_again(kind: Kind) -> None:
    """Its note of versions is written for the storage version that the objects were written for, or not at all."""
    kind.define("v2", "v1")

    def change(argv: Sequence[str]) -> None:
        if "--subresource=status" in argv and not any("--subresource=status" in one for one in runner.told):
            kind.define("v3", "v2", "v1")

    runner = Watched(change)
    kind.store_anew(runner)
    assert (kind.stored, kind.in_etcd) == (["v3"], {"v3": OBJECTS})


def test_what_is_refused_again_and_again_fails_and_changes_no_note(kind: Kind) -> None:
    kind.define("v2", "v1")
    runner = Watched()
    refusal = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": kind.plural},
        "spec": {
            "matchConstraints": {
                "resourceRules": [
                    {"apiGroups": [charts.GROUP], "apiVersions": ["*"], "operations": ["UPDATE"], "resources": ["*"]}
                ]
            },
            "validations": [{"expression": "object.metadata.name != 'one-4'", "message": "not that one"}],
        },
    }
    binding = {
        "apiVersion": refusal["apiVersion"],
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": kind.plural},
        "spec": {"policyName": kind.plural, "validationActions": ["Deny"]},
    }
    kind.bed.apply(refusal, binding)
    try:
        _until_refused(kind)
        with pytest.raises(KubeadmError, match="not that one") as caught:
            kind.store_anew(runner)
    finally:
        for one in (binding, refusal):
            kind.bed.kubectl("delete", str(one["kind"]), kind.plural)
    assert caught.value.code == "KUBECTL_FAILED"
    assert kind.stored == ["v1", "v2"]


def _until_refused(kind: Kind) -> None:
    """A policy holds a moment after it was made."""
    words = ("patch", f"{kind.plural}.{charts.GROUP}", "one-4", "--type=merge", '--patch={"spec": {"number": 4}}')
    wait_for(lambda: "not that one" in kind.bed.kubectl(*words, check=False))


def test_the_definitions_of_this_collection_are_found_in_its_manifests(api: ApiBed) -> None:
    texts = [path.read_text() for path in sorted(CRDS.glob("*.yml"))]
    other = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: other, namespace: default}\n---\n"
    absent = json.dumps(charts.definition("absents"))
    names = kubectl(api).definitions_in([*texts, other, absent])
    assert sorted(names) == sorted(
        one["metadata"]["name"] for one in api.get("crd")["items"] if one["spec"]["group"] == "attested-kubernetes.dev"
    )
    assert len(names) == len(texts)


def test_the_module_says_what_it_did_and_a_second_run_nothing(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    kind.define("v2", "v1")
    kubectl(kind.bed)
    runner = Watched()
    monkeypatch.setattr(Kubectl, "of_a_module", lambda path: Kubectl(runner, kubeconfig=Path(path)))
    document = kind.bed.get("crd", kind.name)
    manifest = json.dumps(
        {key: document[key] for key in ("apiVersion", "kind")}
        | {"metadata": {"name": kind.name}, "spec": document["spec"]}
    )
    params = {
        "manifests": [manifest],
        "field_manager": "attested-site",
        "kubeconfig": str(kind.bed.directory / "admin.conf"),
        "store_anew": False,
    }
    results = [
        run_objects(params, False),
        *(run_objects({**params, "store_anew": True}, check_mode) for check_mode in (True, False, False)),
        run_objects({**params, "store_anew": True, "kubeconfig": "/no/such/file"}, True),
    ]
    assert [result.changed for result in results] == [False, True, True, False, True]
    assert "stored as v1, v2 -> v2" in str(results[2].diff.after if results[2].diff else "")
    assert kind.in_etcd == {"v2": OBJECTS}
