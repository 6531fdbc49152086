# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node's environment: hash-pinned wheels only, switched by one rename."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.bundle.manifest import Architecture
from ansible_collections.attested.kubernetes.plugins.module_utils.bundle.releases import is_member
from ansible_collections.attested.kubernetes.plugins.module_utils.bundle.runtime import RuntimeGateway, install_runtime
from ansible_collections.attested.kubernetes.plugins.module_utils.bundle.store import this_architecture
from ansible_collections.attested.kubernetes.plugins.module_utils.core.command import CommandResult
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import ComponentError, SystemFault
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.tests.unit.plugins.module_utils.bundle.conftest import sha, wheel_tar

if TYPE_CHECKING:
    from collections.abc import Sequence

JOINED = json.dumps({"phase": "Joined", "since": None}, indent=1)
PIP = "pip-25.3-py3-none-any.whl"


@dataclass
class FakePython:
    """Makes an empty environment and notes what pip was asked for."""

    broken: bool = False
    requirements: list[str] = field(default_factory=list)

    def run(self, argv: Sequence[str], **_options: object) -> CommandResult:
        words = list(argv)
        if "venv" in words:
            (Path(words[-1]) / "bin").mkdir(parents=True)
        if "install" in words:
            if self.broken:
                raise SystemFault("expected pip to succeed", reason=Reason.COMMAND_FAILED)
            assert "--require-hashes" in words
            assert "--no-index" in words
            assert Path(words[1]).parent.name == PIP
            self.requirements = Path(words[-1]).read_text().splitlines()
        return CommandResult(argv=tuple(words), returncode=0, stdout=b"3.11", stderr=b"")


@pytest.fixture
def python() -> FakePython:
    return FakePython()


@pytest.fixture
def gateway(python, node_root) -> RuntimeGateway:
    return RuntimeGateway(python, root=node_root, python=sys.executable)


@pytest.fixture
def params(bundle_dir) -> dict[str, Any]:
    change_wheels(bundle_dir, PIP)
    return {"bundle": str(bundle_dir), "role": "worker", "path": "/opt/attested/venv"}


def change_wheels(bundle_dir: Path, *extra: str, stored: tuple[str, ...] | None = None) -> None:
    """Give the bundle the two wheels of the good case and ``extra``; ``stored`` replaces what the tar holds."""
    manifest = json.loads((bundle_dir / "manifest.json").read_text())
    archive = manifest["wheel_archives"][0]
    archive["arch"] = this_architecture().value
    known = {row["filename"]: row for row in archive["wheels"]}
    for name in extra:
        package, version, *_rest = name.split("-")
        known[name] = {
            "name": package,
            "version": version,
            "filename": name,
            "sha256": sha(name.encode()),
            "control_plane_only": False,
        }
    archive["wheels"] = list(known.values())
    data = wheel_tar(stored or tuple(known))
    (bundle_dir / archive["path"]).write_bytes(data)
    archive.update(sha256=sha(data), size=len(data))
    (bundle_dir / "manifest.json").write_text(json.dumps(manifest))


def test_check_apply_again_and_again_in_check(params, gateway, node_root):
    walk = [install_runtime(params, check, gateway=gateway).changed for check in (True, False, False, True)]

    assert walk == [True, True, False, False]
    assert (node_root / "opt/attested/venv").is_symlink()


def test_a_worker_gets_no_kubernetes_library(params, gateway, python):
    install_runtime(params, False, gateway=gateway)
    assert [line.split("==")[0] for line in python.requirements] == ["demo", "pip"]


def test_a_control_plane_gets_everything(params, gateway, python):
    install_runtime({**params, "role": "control_plane"}, False, gateway=gateway)
    assert [line.split("==")[0] for line in python.requirements] == ["demo", "kubernetes", "pip"]


def test_new_wheels_get_an_environment_of_their_own_and_one_that_nothing_refers_to_goes(
    params, gateway, node_root, bundle_dir
):
    places = []
    for version in ("1", "2"):
        change_wheels(bundle_dir, f"extra-{version}-py3-none-any.whl")
        install_runtime(params, False, gateway=gateway)
        places.append((node_root / "opt/attested/venv").resolve())

    assert len(set(places)) == 2
    assert [place.exists() for place in places] == [False, True]


def join(root: Path) -> None:
    """Let the machine be a member."""
    (root / "etc/kubernetes").mkdir(parents=True)
    (root / "etc/kubernetes/kubelet.conf").touch()


def environments(root: Path) -> set[str]:
    return {path.name for path in (root / "opt/attested").glob("venv-*")}


def test_a_member_keeps_its_environment_and_gets_the_new_one_beside_it(params, gateway, node_root, bundle_dir):
    """Services are not left between two codes: the link that they start from stays, in either of two runs."""
    first = install_runtime(params, False, gateway=gateway).values
    join(node_root)
    change_wheels(bundle_dir, "extra-1-py3-none-any.whl")

    runs = [install_runtime(params, check, gateway=gateway) for check in (True, False, False)]

    assert [run.changed for run in runs] == [True, True, False]
    assert (node_root / "opt/attested/venv").readlink().name == f"venv-{first['digest'][:12]}"
    assert environments(node_root) == {f"venv-{one['digest'][:12]}" for one in (first, runs[1].values)}
    assert [run.values["switched"] for run in runs] == [False] * 3
    assert runs[1].values["message"] == (
        f"prepared release {runs[1].values['release']}, in use {first['release']}; "
        "next: ansible-playbook attested.kubernetes.upgrade"
    )


@pytest.mark.parametrize(
    ("files", "member"),
    [
        pytest.param({}, False, id="fresh"),
        pytest.param({"etc/kubernetes/kubelet.conf": ""}, True, id="its kubelet has a configuration"),
        pytest.param({"var/lib/attested/node.json": JOINED}, True, id="joined, its state disk closed"),
        pytest.param(
            {"var/lib/attested/node.json": JOINED.replace("Joined", "Asking")}, False, id="asks for its ticket"
        ),
    ],
)
def test_who_is_a_member(tmp_path, files, member):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text)
    assert is_member(tmp_path) is member


def process(root: Path, **files: str) -> None:
    """Let a process run: ``cmdline``, ``maps``, and the targets of ``exe`` and ``cwd``."""
    place = root / "proc/77"
    place.mkdir(parents=True)
    for name in ("cmdline", "maps"):
        (place / name).write_text(files.get(name, ""))
    for name in ("exe", "cwd"):
        (place / name).symlink_to(files.get(name, "/"))


def unit(root: Path, text: str) -> None:
    (root / "etc/systemd/system").mkdir(parents=True)
    (root / "etc/systemd/system/old.service").write_text(text)


REFERENCES = {
    "command line": lambda root, old: process(
        root, cmdline=f"{old}/bin/python\0/opt/attested/venv/bin/attested-agent\0"
    ),
    "mapped library": lambda root, old: process(root, maps=f"7f00-7f01 r-xp 0 fd:00 5 {old}/lib/x.so\n"),
    "working directory": lambda root, old: process(root, cwd=f"{old}/lib"),
    "program": lambda root, old: process(root, exe=f"{old}/bin/python"),
    "unit": lambda root, old: unit(root, f"[Service]\nExecStart={old}/bin/attested-agent witness\n"),
    "link": lambda root, old: (root / "opt/attested/pinned").symlink_to(Path(old).name),
}


@pytest.mark.parametrize("refer", [pytest.param(refer, id=name) for name, refer in REFERENCES.items()])
def test_code_that_something_refers_to_is_not_removed(params, gateway, node_root, bundle_dir, refer):
    """Three preparations: the code that a process runs is there after each."""
    old = f"venv-{install_runtime(params, False, gateway=gateway).values['digest'][:12]}"
    refer(node_root, f"/opt/attested/{old}")

    for version in ("1", "2", "3"):
        change_wheels(bundle_dir, f"extra-{version}-py3-none-any.whl")
        install_runtime(params, False, gateway=gateway)

    assert old in environments(node_root)
    assert len(environments(node_root)) == 2


def test_nothing_is_removed_while_a_process_cannot_be_looked_at(params, gateway, node_root, bundle_dir, monkeypatch):
    install_runtime(params, False, gateway=gateway)
    process(node_root)
    read = Path.read_text
    monkeypatch.setattr(
        Path, "read_text", lambda path, **how: closed(path) if "proc" in path.parts else read(path, **how)
    )
    change_wheels(bundle_dir, "extra-1-py3-none-any.whl")

    install_runtime(params, False, gateway=gateway)

    assert len(environments(node_root)) == 2


def closed(path: Path) -> str:
    raise PermissionError(path)


def test_a_failed_install_leaves_the_old_environment_in_use(params, gateway, node_root, bundle_dir, python):
    install_runtime(params, False, gateway=gateway)
    before = (node_root / "opt/attested/venv").resolve()
    change_wheels(bundle_dir, "extra-1-py3-none-any.whl")
    python.broken = True

    with pytest.raises(ComponentError) as caught:
        install_runtime(params, False, gateway=gateway)

    assert caught.value.reason is Reason.RUNTIME_INSTALL_FAILED
    assert (node_root / "opt/attested/venv").resolve() == before
    assert sorted(
        path.name for path in (node_root / "opt/attested").iterdir() if path.is_dir() and not path.is_symlink()
    ) == ["releases", before.name]


@pytest.mark.parametrize(
    ("stored", "said"),
    [
        pytest.param((PIP, "demo-1.0-py3-none-any.whl"), "absent kubernetes", id="a wheel is absent"),
        pytest.param((PIP, "../evil.whl"), "got ../evil.whl", id="a path that leaves the directory"),
        pytest.param((PIP, "other-1.0-py3-none-any.whl"), "got other-1.0", id="a wheel that nobody named"),
    ],
)
def test_a_tar_with_other_wheels_than_the_manifest_is_refused(params, gateway, bundle_dir, stored, said):
    change_wheels(bundle_dir, PIP, stored=stored)

    with pytest.raises(ComponentError) as caught:
        install_runtime(params, False, gateway=gateway)

    assert caught.value.reason is Reason.BUNDLE_HASH_MISMATCH
    assert said in caught.value.message


def test_another_python_is_refused_and_says_what_there_is(params, bundle_dir, gateway):
    text = (bundle_dir / "manifest.json").read_text().replace('"python": "3.11"', '"python": "3.13"')
    (bundle_dir / "manifest.json").write_text(text)

    with pytest.raises(ComponentError) as caught:
        install_runtime(params, False, gateway=gateway)

    assert caught.value.reason is Reason.BUNDLE_INCOMPLETE
    assert "it has 3.13/" in caught.value.message
    assert 'Set attested_python_version: "3.11" for this machine' in caught.value.hint


def test_another_architecture_is_refused_without_a_word_on_python(params, bundle_dir, gateway):
    document = json.loads((bundle_dir / "manifest.json").read_text())
    document["wheel_archives"][0]["arch"] = "arm64" if this_architecture() is Architecture.AMD64 else "amd64"
    (bundle_dir / "manifest.json").write_text(json.dumps(document))

    with pytest.raises(ComponentError) as caught:
        install_runtime(params, False, gateway=gateway)

    assert caught.value.reason is Reason.BUNDLE_INCOMPLETE
    assert "attested_python_version" not in caught.value.hint


def test_something_else_in_the_place_of_the_link_is_left_alone(params, gateway, node_root):
    place = node_root / "opt/attested/venv"
    place.mkdir(parents=True)
    (place / "precious").touch()

    with pytest.raises(ComponentError) as caught:
        install_runtime(params, False, gateway=gateway)

    assert caught.value.reason is Reason.RUNTIME_INSTALL_FAILED
    assert (place / "precious").exists()
