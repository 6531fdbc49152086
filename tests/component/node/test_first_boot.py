# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A machine that prepares itself: its bundle comes over real HTTP, its playbook runs by the real ansible-runner.

The whole way, from user data to a node: tests/e2e/test_operator.py.
"""

from __future__ import annotations

import importlib.util
import io
import json
import tarfile
import threading
import zipfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
import yaml
from ansible_collections.attested.kubernetes.plugins.module_utils.bundle.download import Downloader, SystemWeb
from ansible_collections.attested.kubernetes.plugins.module_utils.bundle.store import sha256_of
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemRandom
from ansible_collections.attested.kubernetes.plugins.module_utils.core.logs import open_log
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.node import first_boot
from ansible_collections.attested.kubernetes.plugins.module_utils.node.first_boot import FirstBoot, address_toward
from ansible_collections.attested.kubernetes.plugins.module_utils.node.playbook import RunnerPlaybooks
from ansible_collections.attested.kubernetes.tests.support.house import ROOT
from ansible_collections.attested.kubernetes.tests.unit.fakes.machine import FakeClock
from ansible_collections.attested.kubernetes.tests.unit.plugins.module_utils.bundle.conftest import document

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from types import ModuleType

PLAY = """
- hosts: nodes
  gather_facts: false
  tasks:
    - ansible.builtin.copy:
        content: "{{ [inventory_hostname, group_names, inventory_dir, attested_node_ip,
          attested_second_node_ip | default('none'), attested_pod_subnet,
          attested_bundle, (attested_bundle_on_node ~ '/programs/kubelet.gz') is file,
          hostvars['cp-1'].attested_node_ip] | to_json }}"
        dest: "%s"
"""
UNIT = "playbooks/templates/attested-first-boot.service.j2"
FOR_WORKERS = ["images/node.tar", "manifest.json", "programs/kubelet.gz", "wheels/py3.11.tar"]


class Mirror(SimpleHTTPRequestHandler):
    """Serves a directory, and remembers what it was asked for."""

    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        super().do_GET()

    def log_message(self, *_words: object) -> None:
        """Say nothing."""


@pytest.fixture
def asked() -> list[str]:
    return []


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """The bundle of a site, as its directory lies on a web server."""
    manifest, stored = document()
    for name, content in stored.items():
        (tmp_path / "bundle" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "bundle" / name).write_bytes(content)
    (tmp_path / "bundle" / "manifest.json").write_text(json.dumps(manifest))
    return tmp_path / "bundle"


@pytest.fixture
def url(bundle: Path, asked: list[str]) -> Iterator[str]:
    handler = type("Asked", (Mirror,), {"asked": asked})
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(bundle))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def site(tmp_path: Path, bundle: Path, url: str) -> Path:
    """What cloud-init has written."""
    place = tmp_path / "site"
    place.mkdir()
    sha256 = sha256_of(bundle / "manifest.json")
    settings = {"bundle_url": url, "bundle_sha256": sha256, "control_plane": "127.0.0.1"}
    (place / "first-boot.json").write_text(json.dumps(settings))
    planes = {"hosts": {"cp-1": {"attested_node_ip": "10.0.0.11"}}}
    groups = {"control_planes": planes, "workers": {}}
    (place / "hosts.json").write_text(
        json.dumps({"nodes": {"vars": {"attested_pod_subnet": "10.9.0.0/16"}, "children": groups}})
    )
    return place


@pytest.fixture
def boot(tmp_path: Path, site: Path) -> Callable[..., FirstBoot]:
    (tmp_path / "play.yml").write_text(PLAY % (tmp_path / "played"))

    def make(hostname: str = "W-7.prod.example") -> FirstBoot:
        return FirstBoot(
            log=open_log(stream=io.StringIO()),
            playbooks=RunnerPlaybooks(tmp_path / "run", require_memory=lambda _path: None),
            downloader=Downloader(web=SystemWeb(), clock=FakeClock(), random=SystemRandom()),
            site=site,
            store=tmp_path / "first-boot" / "bundle",
            done=tmp_path / "done",
            playbook=tmp_path / "play.yml",
            hostname=lambda: hostname,
        )

    return make


def code_of(run: Callable[[], object]) -> str:
    with pytest.raises(AttestedError) as caught:
        run()
    return caught.value.code


def test_it_brings_what_a_worker_needs_and_runs_the_playbook_for_itself(
    boot: Callable[..., FirstBoot], tmp_path: Path, site: Path, asked: list[str]
) -> None:
    boot().run()
    store = str(tmp_path / "first-boot" / "bundle")
    assert json.loads((tmp_path / "played").read_text()) == [
        "w-7",
        ["nodes", "workers"],
        str(site),
        "127.0.0.1",
        "none",
        "10.9.0.0/16",
        store,
        True,
        "10.0.0.11",
    ]
    assert sorted(one.lstrip("/") for one in asked) == FOR_WORKERS
    assert (tmp_path / "done").exists()
    assert not (tmp_path / "first-boot").exists()


def test_it_finds_its_address_of_the_other_family(boot: Callable[..., FirstBoot], tmp_path: Path, site: Path) -> None:
    settings = json.loads((site / "first-boot.json").read_text())
    (site / "first-boot.json").write_text(json.dumps({**settings, "second_control_plane": "::1"}))
    boot().run()
    assert json.loads((tmp_path / "played").read_text())[3:5] == ["127.0.0.1", "::1"]


def test_a_start_after_a_failure_brings_nothing_twice(
    boot: Callable[..., FirstBoot], tmp_path: Path, asked: list[str]
) -> None:
    (tmp_path / "play.yml").write_text("- hosts: nodes\n  gather_facts: false\n  tasks: [{ansible.builtin.fail: }]\n")
    assert code_of(boot().run) == "PLAYBOOK_FAILED"
    assert not (tmp_path / "done").exists()
    (tmp_path / "play.yml").write_text(PLAY % (tmp_path / "played"))
    boot().run()
    assert len(asked) == len(FOR_WORKERS)


def test_a_start_that_ends_while_the_bundle_is_removed_is_made_again(
    boot: Callable[..., FirstBoot], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut(_place: Path, **_options: object) -> None:
        raise SystemExit

    with monkeypatch.context() as patched:
        patched.setattr(first_boot, "shutil", SimpleNamespace(rmtree=cut))
        with pytest.raises(SystemExit):
            boot().run()
    assert not (tmp_path / "done").exists()
    boot().run()
    assert ((tmp_path / "done").exists(), (tmp_path / "first-boot").exists()) == (True, False)


@pytest.mark.parametrize("name", ["manifest.json", "programs/kubelet.gz"])
def test_a_file_of_another_bundle_is_refused_and_nothing_runs(
    boot: Callable[..., FirstBoot], tmp_path: Path, bundle: Path, name: str
) -> None:
    (bundle / name).write_bytes(b"something else")
    assert code_of(boot().run) == "COMPONENT_HASH_MISMATCH"
    assert not (tmp_path / "played").exists()


def test_a_mirror_that_answers_with_a_page_is_refused(boot: Callable[..., FirstBoot], bundle: Path) -> None:
    (bundle / "images/node.tar").write_bytes(b"<!DOCTYPE html><title>Log in</title>")
    assert code_of(boot().run) == "COMPONENT_IS_A_PAGE"


@pytest.mark.parametrize("name", ["localhost", "", "w_7", "-w", "w" * 64])
def test_a_host_name_that_names_no_node_is_refused_before_anything_is_brought(
    boot: Callable[..., FirstBoot], asked: list[str], name: str
) -> None:
    assert code_of(boot(name).run) == "CONFIG_INVALID"
    assert asked == []


def test_without_a_route_to_the_control_plane_the_address_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(_peer: str) -> str:
        raise OSError(101, "Network is unreachable")

    monkeypatch.setattr(first_boot, "own_address", unreachable)
    assert code_of(lambda: address_toward("10.0.0.11")) == "CONFIG_INVALID"
    monkeypatch.undo()
    assert address_toward("localhost") in {"127.0.0.1", "::1"}


def test_the_program_says_what_is_wrong_with_its_site(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "first-boot.json").write_text("{}")
    monkeypatch.setattr(FirstBoot, "__init__", partial_site(tmp_path))
    assert first_boot.main([]) == 1
    assert "attested-agent first-boot: CONFIG_INVALID: " in capsys.readouterr().err


def partial_site(site: Path) -> Callable[..., None]:
    made = FirstBoot.__init__
    return lambda self, **named: made(self, site=site, **named)


def test_the_playbook_is_that_of_the_installed_collection() -> None:
    assert first_boot.PLAYBOOK.samefile(ROOT / "playbooks/prepare.yml")
    assert yaml.safe_load(first_boot.PLAYBOOK.read_text())[0]["hosts"] == "nodes"


# What runs before it, with the system's Python alone.


@pytest.fixture
def script(tmp_path: Path, site: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("first_boot_script", ROOT / "playbooks/files/first_boot.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "SITE", site)
    monkeypatch.setattr(module, "STORE", tmp_path / "first-boot" / "bundle")
    return module


def test_both_use_the_same_places(script: ModuleType) -> None:
    text = (ROOT / "playbooks/files/first_boot.py").read_text(encoding="utf-8")
    for place in (first_boot.SITE, first_boot.STORE):
        assert f'Path("{place}")' in text
    assert str(first_boot.DONE) in (ROOT / UNIT).read_text(encoding="utf-8")
    assert script.VENV == "/opt/attested/venv"


def test_the_script_brings_a_file_once_and_no_other_than_the_manifest_names(
    script: ModuleType, bundle: Path, url: str, asked: list[str]
) -> None:
    sha256 = sha256_of(bundle / "manifest.json")
    for _each in range(2):
        assert script.bring(url, "manifest.json", sha256).read_bytes() == (bundle / "manifest.json").read_bytes()
    assert len(asked) == 1
    assert script.bring(str(bundle), "images/node.tar", sha256_of(bundle / "images/node.tar")).is_file()
    with pytest.raises(SystemExit, match=f"programs/kubelet.gz: expected sha256 {sha256}, got "):
        script.bring(url, "programs/kubelet.gz", sha256)
    assert [one.name for one in (script.STORE / "programs").iterdir()] == []


def test_the_script_chooses_the_wheels_of_this_machine(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    archives = [{"python": "3.11", "arch": "arm64"}, {"python": "3.13", "arch": "amd64"}]
    monkeypatch.setattr(script.platform, "machine", lambda: "aarch64")
    monkeypatch.setattr(script.sys, "version_info", (3, 11, 2))
    assert script.wheels_for_this_machine(archives) is archives[0]
    monkeypatch.setattr(script.platform, "machine", lambda: "x86_64")
    with pytest.raises(SystemExit, match="expected wheels for 3.11/amd64 in the bundle, it has 3.11/arm64, 3.13/amd64"):
        script.wheels_for_this_machine(archives)


def test_the_script_unpacks_the_own_wheel(script: ModuleType, tmp_path: Path) -> None:
    """A wheel has no entries of directories, so that Python could import no package without __init__ out of it."""
    name = "attested_kubernetes-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(tmp_path / name, "w") as wheel:
        wheel.writestr("ansible_collections/attested/kubernetes/demo.py", "HERE = 1")
    with tarfile.open(tmp_path / "wheels.tar", "w") as tar:
        tar.add(tmp_path / name, arcname=name)
    wheels = [{"name": "demo", "filename": "demo.whl"}, {"name": "attested-kubernetes", "filename": name}]
    place = script.unpacked_wheel(tmp_path / "wheels.tar", wheels)
    assert (place / "ansible_collections/attested/kubernetes/demo.py").read_text() == "HERE = 1"
