# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Add-ons by the real Helm at a real API server: releases, and custom objects that a change of a chart deletes."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shlex
import shutil
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from ansible.errors import AnsibleActionFail
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar
from ansible_collections.attested.kubernetes.plugins.action.addon import ActionModule
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.age_file import make_identity, open_by
from ansible_collections.attested.kubernetes.plugins.module_utils.core.command import CommandResult, SystemRunner
from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import failure_of, result_of
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm import custom_objects
from ansible_collections.attested.kubernetes.plugins.module_utils.node import addon as node_addon
from ansible_collections.attested.kubernetes.tests.support import charts
from ansible_collections.attested.kubernetes.tests.support.api_bed import ApiBed, api_bed, binaries, why_not
from ansible_collections.attested.kubernetes.tests.support.canary import ProcessWatch, spellings
from ansible_collections.attested.kubernetes.tests.support.kits import missing_for_age
from ansible_collections.attested.kubernetes.tests.support.rotation import kubectl
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.master import SecretBytes

CANARY = "never-to-be-seen-7c20b4"
OBJECTS = 200
WIDGETS = charts.WIDGETS


class Killed(BaseException):
    """The run ends here, as by a power cut: nothing of ours catches it."""


def kill_helm(argv: list[str], when: Callable[[], bool], options: dict[str, Any]) -> None:
    """Start helm, and kill it as soon as ``when``."""
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, env={**os.environ, **options["env"]})
    assert process.stdin is not None
    process.stdin.write(options["stdin"])
    process.stdin.close()
    try:
        deadline = time.monotonic() + 60
        while not when():
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.05)
    finally:
        process.kill()
        process.wait()


class Programs(SystemRunner):
    """The real ones, from the cache of the bundle; what they are told and say is kept."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []
        self.kill_when: Callable[[], bool] | None = None

    def run(self, argv: Sequence[str], **options: Any) -> CommandResult:
        if self.kill_when and "--rollback-on-failure" in argv:
            kill_helm([str(binaries() / argv[0]), *argv[1:]], self.kill_when, options)
            raise Killed
        done = super().run([str(binaries() / argv[0]), *argv[1:]], **options)
        self.seen += [" ".join(argv).encode(), done.stderr]
        return done


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiBed]:
    """An API server of its own, since definitions come and go; with a kubeconfig of its admin."""
    if reason := why_not() or missing_for_age():
        pytest.skip(reason)
    if not (binaries() / "helm").is_file():
        pytest.skip(f"no helm in {binaries()}: build the bundle first (playbook bundle)")
    with api_bed(tmp_path_factory.mktemp("api")) as made:
        kubectl(made)
        yield made


@pytest.fixture(scope="module")
def keys() -> tuple[SecretBytes, str]:
    return make_identity()


class Site:
    """A site with addons.yml, and the control plane that its action reaches."""

    def __init__(self, root: Path, bed: ApiBed, recipient: str, name: str) -> None:
        self.root = root / "site"
        self.root.mkdir()
        (self.root / "hosts.yml").write_text("nodes: {}\n")
        self.journals = root / "etcd"
        self.journals.mkdir()
        self.bed, self.recipient, self.name = bed, recipient, name
        self.programs = Programs()
        self.said: list[dict[str, Any]] = []

    def list(self, chart: Path | str, **options: Any) -> None:
        place = chart if isinstance(chart, str) else chart.name
        row = {"name": self.name, "namespace": self.name, "chart": place, "timeout_seconds": 60, **options}
        (self.root / "addons.yml").write_text(yaml.safe_dump({"addons": [row]}))

    def list_absent(self, **options: Any) -> None:
        row = {"name": self.name, "namespace": self.name, "state": "absent", "timeout_seconds": 60, **options}
        (self.root / "addons.yml").write_text(yaml.safe_dump({"addons": [row]}))

    def run(self, *, check_mode: bool = False, **options: Any) -> dict[str, Any]:
        """Do what the task of the playbook does."""
        args = {
            "name": self.name,
            "site": str(self.root),
            "directory": str(self.root / "backups"),
            "recipients": [self.recipient],
            "kubeconfig": str(self.bed.directory / "admin.conf"),
            **options,
        }
        known = {"async_val": 0, "check_mode": check_mode, "diff": True, "environment": None, "action": "addon"}
        shell = SimpleNamespace(tmpdir=None)
        connection = SimpleNamespace(transport="ssh", _shell=shell, fetch_file=copy, put_file=copy)
        loader = DataLoader()
        action = Addon(
            SimpleNamespace(args=args, **known),
            connection,
            SimpleNamespace(become=False),
            loader=loader,
            templar=Templar(loader=loader, variables={"password": CANARY}),
            shared_loader_obj=None,
        )
        action.site = self
        answer: dict[str, Any] = action.run(task_vars={})
        self.said.append(answer)
        return answer

    def helm(self, *words: str, check: bool = True) -> str:
        """Run plain helm as any admin does."""
        argv = [
            str(binaries() / "helm"),
            f"--kubeconfig={self.bed.directory / 'admin.conf'}",
            f"--namespace={self.name}",
        ]
        done = subprocess.run([*argv, *words], capture_output=True, text=True, check=False)
        if check and done.returncode:
            raise RuntimeError(done.stderr)
        return done.stdout + ("" if check else done.stderr)

    def widgets(self) -> dict[tuple[str, str], dict[str, Any]]:
        """Return the objects, without what the API server owns."""
        found = self.bed.get(WIDGETS, "--all-namespaces")["items"]
        return {(one["metadata"]["namespace"], one["metadata"]["name"]): own(one) for one in found}

    def make_widgets(self, count: int = OBJECTS) -> dict[tuple[str, str], dict[str, Any]]:
        """Make objects with status and finalizers, half of which have the first one as their owner."""
        items = [widget(self.name, number) for number in range(count)]
        put(self.bed, items[:1], "create")
        owner = self.bed.get(WIDGETS, f"--namespace={self.name}")["items"][0]["metadata"]["uid"]
        reference = {"apiVersion": f"{charts.GROUP}/v1", "kind": "Widget", "name": "w-0", "uid": owner}
        for item in items[1::2]:
            item["metadata"]["ownerReferences"] = [reference]
        if items[1:]:
            put(self.bed, items[1:], "create")
        put(self.bed, items, "replace", "--subresource=status")
        return self.widgets()


class Addon(ActionModule):
    """The action as an admin's machine runs it; the module of the node works in this process."""

    site: Site

    def execute(self, module: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        assert module == "attested.kubernetes.addon_release"
        params = {"path": None, "recipients": None, "journal_directory": str(self.site.journals), **arguments}
        try:
            result = node_addon.run(params, bool(self._task.check_mode), runner=self.site.programs)
        except AttestedError as error:
            return {"failed": True} | failure_of(error)
        return result_of(result, diff_mode=True)

    def _low_level_execute_command(self, cmd: str, **_options: Any) -> dict[str, Any]:
        done = subprocess.run(shlex.split(cmd), capture_output=True, text=True, check=False)
        return {"rc": done.returncode, "stdout": done.stdout}


def copy(one: str, other: str) -> None:
    shutil.copy(one, other)


def widget(namespace: str, number: int) -> dict[str, Any]:
    return {
        "apiVersion": f"{charts.GROUP}/v1",
        "kind": "Widget",
        "metadata": {
            "name": f"w-{number}",
            "namespace": namespace,
            "labels": {"number": str(number)},
            "finalizers": ["addons.example.com/held"] if number % 3 == 0 else [],
        },
        "spec": {"size": number, "text": "ä" * 20},
        "status": {"phase": "Ready", "seen": number},
    }


def put(bed: ApiBed, items: list[dict[str, Any]], *words: str, check: bool = True) -> None:
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    bed.kubectl(*words, "-f", "-", stdin=text, check=check)


def let_go(bed: ApiBed) -> None:
    """Take the finalizers of all objects away."""
    items = bed.get(WIDGETS, "--all-namespaces")["items"]
    for item in items:
        for name in ("finalizers", "resourceVersion"):
            item["metadata"].pop(name, None)
    put(bed, items, "replace", check=False)


def own(item: dict[str, Any]) -> dict[str, Any]:
    """Return an object without what the API server owns; an owner is named, not numbered."""
    server = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields")
    metadata = {name: value for name, value in item["metadata"].items() if name not in server}
    if "ownerReferences" in metadata:
        metadata["ownerReferences"] = [{**one, "uid": ""} for one in metadata["ownerReferences"]]
    return {**item, "metadata": metadata}


@pytest.fixture
def site(tmp_path: Path, bed: ApiBed, keys: tuple[SecretBytes, str], request: pytest.FixtureRequest) -> Iterator[Site]:
    made = Site(tmp_path, bed, keys[1], f"a{abs(hash(request.node.nodeid)) % 10**8}")
    yield made
    made.helm("uninstall", made.name, "--no-hooks", check=False)
    with contextlib.suppress(RuntimeError):  # the definition may be gone already
        let_go(bed)
    bed.kubectl("delete", "crd", WIDGETS, "--ignore-not-found")


@pytest.fixture
def released(site: Site) -> Site:
    """The site, with its add-on installed in a version that has the definition as a template."""
    site.list(charts.chart(site.root / "one", charts.definition()))
    assert site.run()["changed"]
    return site


def uninstalled_definition(root: Path, *more: Mapping[str, Any]) -> Path:
    return charts.chart(root / "two", charts.config_map("one", "two"), *more, version="2.0.0")


def test_plain_helm_deletes_the_objects_when_it_rolls_back(released: Site) -> None:
    """Why this exists: the same upgrade without us."""
    before = released.make_widgets()
    let_go(released.bed)  # a finalizer only delays it
    two = uninstalled_definition(released.root, charts.never_ready())
    said = released.helm("upgrade", released.name, str(two), "--rollback-on-failure", "--timeout=5s", check=False)
    assert "rollback-on-failure" in said, said
    assert (len(before), released.widgets()) == (OBJECTS, {})


def test_an_upgrade_that_fails_gives_the_objects_back(released: Site, keys: tuple[SecretBytes, str]) -> None:
    before = released.make_widgets()
    released.list(uninstalled_definition(released.root, charts.never_ready()), timeout_seconds=5)
    answer = released.run()
    assert answer["reason"] == "ADDON_FAILED", answer
    assert f"{OBJECTS} objects" in answer["msg"]
    assert released.widgets() == before
    owner = released.bed.get(WIDGETS, "w-0", f"--namespace={released.name}")["metadata"]["uid"]
    owned = released.bed.get(WIDGETS, "w-1", f"--namespace={released.name}")["metadata"]["ownerReferences"]
    assert [one["uid"] for one in owned] == [owner]
    history = json.loads(released.helm("history", released.name, "--output=json"))
    assert (history[-1]["status"], history[-1]["chart"]) == ("deployed", "widgets-1.0.0")
    assert list(released.journals.iterdir()) == []
    (saved,) = (released.root / "backups").iterdir()
    assert (saved.stat().st_mode & 0o777, saved.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    items = json.loads(open_by(saved.read_bytes(), [keys[0]]).reveal())["items"]
    assert len(items) == OBJECTS + 1


def test_an_upgrade_that_drops_a_definition_keeps_its_objects(released: Site) -> None:
    """It succeeds, and says what it put back; what had no objects stays deleted."""
    before = released.make_widgets(3)
    released.list(uninstalled_definition(released.root))
    foreseen = released.run(check_mode=True)
    assert (foreseen["changed"], foreseen["definitions"], foreseen["objects"]) == (True, [WIDGETS], 3)
    assert WIDGETS in foreseen["warnings"][0]
    assert (released.widgets(), (released.root / "backups").exists()) == (before, False)
    done = released.run()
    assert done.get("msg") is None
    assert done["put_back"]["definitions"] == [WIDGETS]
    assert len(done["put_back"]["objects"]) == 3
    assert "put back 1 definition " in done["warnings"][0]
    assert released.widgets() == before
    again = released.run()
    assert (again["changed"], again.get("warnings")) == (False, None)


def test_a_definition_without_objects_goes(released: Site) -> None:
    released.list(uninstalled_definition(released.root))
    assert released.run()["put_back"] == {"definitions": [], "objects": []}
    assert WIDGETS not in released.bed.kubectl("get", "crd", "-o", "name")


def test_a_release_is_uninstalled_and_its_objects_stay(released: Site, keys: tuple[SecretBytes, str]) -> None:
    """What has objects is put back, as with each other change; once they are gone by the admin's hand, it goes."""
    before = released.make_widgets(4)
    released.list_absent()
    foreseen = released.run(check_mode=True)
    assert (foreseen["changed"], foreseen["definitions"], foreseen["objects"]) == (True, [WIDGETS], 4)
    assert WIDGETS in foreseen["diff"]["before"]
    assert foreseen["diff"]["after"] == ""
    assert json.loads(released.helm("history", released.name, "--output=json"))[-1]["status"] == "deployed"
    done = released.run()
    assert done.get("msg") is None, done
    assert (done["changed"], done["put_back"]["definitions"], len(done["put_back"]["objects"])) == (True, [WIDGETS], 4)
    assert released.widgets() == before
    assert json.loads(released.helm("list", "--output=json")) == []
    (saved,) = (released.root / "backups").iterdir()
    assert len(json.loads(open_by(saved.read_bytes(), [keys[0]]).reveal())["items"]) == 5
    again = released.run()
    assert (again["changed"], again["chart_digest"], again.get("warnings")) == (False, "", None)


def test_a_hook_that_fails_keeps_the_release(released: Site) -> None:
    """The hook is a Job that nothing runs here: Helm gives up, we roll back, and the next run tries again."""
    before = released.make_widgets(2)
    released.list(charts.chart(released.root / "two", charts.definition(), charts.delete_hook(), version="2.0.0"))
    assert released.run()["changed"]
    released.list_absent(timeout_seconds=3)
    for _attempt in range(2):
        assert released.run()["reason"] == "ADDON_FAILED"
        assert released.widgets() == before
        newest = json.loads(released.helm("history", released.name, "--output=json"))[-1]
        assert (newest["status"], newest["chart"]) == ("deployed", "widgets-2.0.0")


def test_the_network_plugin_is_the_first_add_on_and_needs_no_list(site: Site) -> None:
    """Its chart is in the collection; without kubelets nothing gets ready, so the API server only looks at it."""
    options = {"network_plugin": "flannel", "image": "localhost/attested-flannel:0.28.10"}
    site.list(charts.chart(site.root / "one", charts.config_map("one", "two")))
    listed = site.run(name=None, **options)["addons"]
    assert [(one["name"], one["network"]) for one in listed] == [("flannel", True), (site.name, False)]
    (site.root / "addons.yml").write_text("no list")
    foreseen = site.run(check_mode=True, name="flannel", namespace="kube-system", **options)
    assert foreseen["changed"] is True, foreseen
    assert "image: localhost/attested-flannel:0.28.10" in foreseen["diff"]["after"].replace('"', "")
    assert foreseen.get("warnings") is None
    with pytest.raises(AnsibleActionFail, match="bundle, image"):
        site.run(check_mode=True, name="flannel", namespace="kube-system", network_plugin="flannel")


def test_check_mode_shows_manifests_and_neither_secret_nor_value(site: Site) -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"p": "{{ .Values.p }}"}}
    shown = charts.config_map("shown", "size {{ .Values.size }}")
    site.list(charts.chart(site.root / "one", secret, shown), values={"p": "{{ password }}", "size": 4})
    with ProcessWatch() as watch:
        foreseen = site.run(check_mode=True)
        before = site.bed.kubectl("get", "secrets", "--all-namespaces", "-o", "name")
        done = site.run()
        processes = b"\n".join(data for _channel, data in watch.seen())
    assert (foreseen["changed"], before) == (True, "")
    assert foreseen["diff"] == done["diff"]
    assert "size 4" in foreseen["diff"]["after"]
    assert "kind: Secret  # s, not shown" in foreseen["diff"]["after"]
    assert site.bed.get("secret", "s", f"--namespace={site.name}")["data"]["p"]  # the canary is where it belongs
    told = [json.dumps(site.said).encode(), processes, *site.programs.seen]
    assert [needle for needle in spellings(CANARY.encode()) if any(needle in one for one in told)] == []
    assert site.run()["changed"] is False
    site.list(charts.chart(site.root / "two", charts.config_map("a", "{{ fail .Values.p }}")), values={"p": CANARY})
    assert site.run()["msg"].count("[value]") == 1
    assert CANARY not in json.dumps(site.said)


def test_plain_helm_can_go_on_and_the_site_is_followed_again(released: Site) -> None:
    other = charts.chart(
        released.root / "other", charts.definition(), charts.config_map("by-hand", "1"), version="1.1.0"
    )
    released.helm("upgrade", released.name, str(other))
    assert "by-hand" in released.bed.kubectl("get", "configmap", f"--namespace={released.name}", "-o", "name")
    done = released.run()
    assert done["changed"]
    assert "by-hand" in done["diff"]["before"]
    assert "by-hand" not in released.bed.kubectl("get", "configmap", f"--namespace={released.name}", "-o", "name")


def test_a_run_that_is_killed_after_the_definition_went_is_finished_by_the_next(released: Site) -> None:
    before = released.make_widgets(20)
    released.list(uninstalled_definition(released.root, charts.never_ready()), timeout_seconds=5)
    released.programs.kill_when = lambda: "deletionTimestamp" in released.bed.kubectl("get", "crd", "-o", "json")
    with pytest.raises(Killed):
        released.run()
    assert [path.stat().st_mode & 0o777 for path in released.journals.iterdir()] == [0o600]
    assert json.loads(released.helm("history", released.name, "--output=json"))[-1]["status"] == "pending-upgrade"
    released.programs.kill_when = None
    released.list(released.root / "one")
    done = released.run()
    assert done["changed"], done
    assert released.widgets() == before
    assert list(released.journals.iterdir()) == []
    assert released.run()["changed"] is False


def test_objects_that_are_refused_are_kept_for_the_next_run(released: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A webhook that does not answer, often that of the add-on itself."""
    monkeypatch.setattr(custom_objects, "_BACK_SECONDS", 4)
    before = released.make_widgets(3)
    webhook = {
        "name": "silent.example.com",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "rules": [
            {"apiGroups": [charts.GROUP], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["widgets"]}
        ],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    facts = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": "silent"}, "webhooks": [webhook]}
    released.bed.apply({**facts, "kind": "ValidatingWebhookConfiguration"})
    released.list(uninstalled_definition(released.root))
    try:
        answer = released.run()
        again = released.run()
    finally:
        released.bed.kubectl("delete", "validatingwebhookconfiguration", "silent")
    assert (answer["reason"], again["reason"]) == ("ADDON_OBJECTS_LOST", "ADDON_OBJECTS_LOST")
    assert "silent.example.com" in answer["msg"]
    monkeypatch.setattr(custom_objects, "_BACK_SECONDS", 900)  # the API server forgets the webhook a moment later
    assert released.run()["changed"]
    assert released.widgets() == before
    assert list(released.journals.iterdir()) == []


def test_another_helm_at_work_is_not_disturbed(released: Site) -> None:
    slow = charts.chart(released.root / "slow", charts.definition(), charts.never_ready(), version="1.1.0")
    argv = [str(binaries() / "helm"), f"--kubeconfig={released.bed.directory / 'admin.conf'}"]
    words = [f"--namespace={released.name}", "upgrade", released.name, str(slow), "--wait", "--timeout=60s"]
    process = subprocess.Popen([*argv, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while "pending" not in released.helm("history", released.name, "--output=json"):
            time.sleep(0.1)
        released.list(uninstalled_definition(released.root))
        assert released.run()["reason"] == "ADDON_BUSY"
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()


def test_a_chart_comes_as_an_archive_or_from_a_registry_by_its_digest(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The crds/ of a chart is installed too, and counts as brought by it."""
    packed = charts.archive(
        charts.chart(tmp_path / "widgets", charts.config_map("a", "{{ .Values.b }}"), crds=(charts.definition(),))
    )
    (site.root / "widgets-1.0.0.tgz").write_bytes(packed)
    digest = f"sha256:{hashlib.sha256(packed).hexdigest()}"
    site.list(site.root / "widgets-1.0.0.tgz", digest=digest, values={"b": "by archive"})
    done = site.run()
    assert (done["changed"], done["chart_digest"]) == (True, digest), done.get("msg")
    site.make_widgets(2)
    site.bed.ca.issue("registry", names=[(NameOID.COMMON_NAME, "registry")], server=True)
    monkeypatch.setenv("SSL_CERT_FILE", str(site.bed.directory / "ca.crt"))
    files = [site.bed.directory / f"registry.{kind}" for kind in ("crt", "key")]
    with charts.registry(packed, *files) as (reference, manifest):
        site.list(reference, digest=manifest, values={"b": "by registry"})
        done = site.run()
        assert done.get("msg") is None
        assert done["objects"] == 2
        assert site.run()["changed"] is False
        site.list(reference, digest=f"sha256:{'0' * 64}")
        assert site.run()["reason"] == "ADDON_FAILED"
    data = site.bed.get("configmap", "a", f"--namespace={site.name}")["data"]
    assert data == {"text": "by registry"}


@pytest.mark.parametrize(
    ("login", "by_token"),
    [
        pytest.param(("site", CANARY), False, id="user and password"),
        pytest.param(("site", CANARY), True, id="user and password for a token"),
        pytest.param(("", CANARY), False, id="a token"),
    ],
)
def test_a_chart_comes_from_a_registry_with_a_login(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, login: tuple[str, str], *, by_token: bool
) -> None:
    """Helm reads the credential of that registry from a file in memory, which is gone afterwards."""
    packed = charts.archive(charts.chart(tmp_path / "widgets", charts.config_map("a", "b")))
    site.bed.ca.issue("registry", names=[(NameOID.COMMON_NAME, "registry")], server=True)
    monkeypatch.setenv("SSL_CERT_FILE", str(site.bed.directory / "ca.crt"))
    files = [site.bed.directory / f"registry.{kind}" for kind in ("crt", "key")]
    user, password = login
    with charts.registry(packed, *files, login=login, by_token=by_token) as (reference, manifest):
        host = reference.removeprefix("oci://").partition("/")[0]
        row = {"username": user, "password": password} if user else {"token": password}
        site.list(reference, digest=manifest)
        for credentials in ([], [{"host": "other.invalid", **row}]):
            assert site.run(registry_credentials=credentials)["reason"] == "ADDON_FAILED"
        assert site.run(registry_credentials=[{"host": host, "token": f"{CANARY} x"}])["reason"] == "CONFIG_INVALID"
        done = site.run(registry_credentials=[{"host": "other.invalid", "token": "x"}, {"host": host, **row}])
    assert (done["changed"], done.get("msg")) == (True, None)
    assert list(Path("/dev/shm").glob("attested-addon-*")) == []
    told = [repr(site.said).encode(), *site.programs.seen]
    assert not any(word in text for text in told for word in spellings(CANARY.encode()))


@pytest.mark.parametrize(
    ("chart", "options", "run", "code"),
    [
        pytest.param("one", {"digest": f"sha256:{'0' * 64}"}, {}, "ADDON_INVALID", id="another digest"),
        pytest.param("none", {}, {}, "ADDON_INVALID", id="no chart"),
        pytest.param("one", {}, {"name": "other"}, "ADDON_INVALID", id="another name"),
        pytest.param("one", {"values": {"a": "{{ undefined_variable }}"}}, {}, "ADDON_INVALID", id="no such variable"),
        pytest.param("broken", {}, {}, "ADDON_FAILED", id="a chart that does not render"),
        pytest.param("one", {}, {"keep": 0}, "OPTION_INVALID", id="keep nothing"),
    ],
)
def test_what_cannot_be_is_refused(
    chart: str, options: dict[str, Any], run: dict[str, Any], code: str, site: Site
) -> None:
    charts.chart(site.root / "one", charts.config_map("a", "b"))
    charts.chart(site.root / "broken", charts.config_map("a", '{{ fail "not this" }}'))
    site.list(site.root / chart, **options)
    answer = site.run(**run)
    assert answer["reason"] == code, answer
    assert site.helm("list", "--output=json").strip() == "[]"
    assert not (site.root / "backups").exists()


def test_without_a_recipient_nothing_that_has_objects_is_changed(released: Site) -> None:
    before = released.make_widgets(1)
    released.list(uninstalled_definition(released.root))
    assert released.run(recipients=[])["reason"] == "KIT_KEY_UNUSABLE"
    assert released.widgets() == before
    assert json.loads(released.helm("history", released.name, "--output=json"))[-1]["chart"] == "widgets-1.0.0"


def test_a_definition_moves_to_another_release(released: Site, tmp_path: Path, keys: tuple[SecretBytes, str]) -> None:
    before = released.make_widgets(3)
    released.list(uninstalled_definition(released.root))
    assert released.run()["put_back"]["definitions"] == [WIDGETS]
    (tmp_path / "second").mkdir()
    second = Site(tmp_path / "second", released.bed, keys[1], f"{released.name}b")
    chart = charts.chart(second.root / "one", charts.definition())
    second.list(chart)
    assert second.run()["reason"] == "ADDON_FAILED"
    second.list(chart, adopt=True)
    done = second.run()
    assert done.get("msg") is None
    assert done["changed"]
    assert released.widgets() == before
    owner = released.bed.get("crd", WIDGETS)["metadata"]["annotations"]["meta.helm.sh/release-name"]
    assert owner == second.name
    second.helm("uninstall", second.name, check=False)


def test_a_copy_is_restored_by_kubectl_alone(released: Site, keys: tuple[SecretBytes, str]) -> None:
    before = released.make_widgets(3)
    released.list(uninstalled_definition(released.root))
    done = released.run()
    assert done.get("msg") is None
    copy_there = done["path"]
    let_go(released.bed)
    released.bed.kubectl("delete", "crd", WIDGETS)
    items = json.loads(open_by(Path(copy_there).read_bytes(), [keys[0]]).reveal())["items"]
    for item in items:
        for field in ("uid", "ownerReferences"):  # an owner has another uid now
            item["metadata"].pop(field, None)
            before.get((released.name, item["metadata"]["name"]), {"metadata": {}})["metadata"].pop(field, None)
    put(released.bed, items, "create", check=False)  # the definition; its kind is not known yet
    released.bed.kubectl("wait", "--for=condition=Established", f"crd/{WIDGETS}", "--timeout=900s")
    put(released.bed, items, "create", check=False)  # the objects; the definition is there
    put(released.bed, items[1:], "replace", "--subresource=status")
    assert released.widgets() == before


def test_the_oldest_copies_go(released: Site) -> None:
    released.make_widgets(1)
    (released.root / "backups").mkdir()
    old = [f"addon-{released.name}.{released.name}-2020010{day}T000000Z.age" for day in (1, 2)]
    for name in (*old, "addon-other.other-20200101T000000Z.age", "etcd-20200101T000000Z.age"):
        (released.root / "backups" / name).touch()
    released.list(uninstalled_definition(released.root))
    done = released.run(keep=2)
    assert done["removed"] == old[:1]
    left = {path.name for path in (released.root / "backups").iterdir()}
    assert left == {
        old[1],
        Path(done["path"]).name,
        "addon-other.other-20200101T000000Z.age",
        "etcd-20200101T000000Z.age",
    }
