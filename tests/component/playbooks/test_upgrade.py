# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`upgrade` over several minor versions: which machine goes to which release, in which order, and what is refused.

The playbook, its plan and the table of releases are real. What changes a machine is replaced and writes down that it
was called; so are the parts that have nothing to do with Kubernetes.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.attested.kubernetes.tests.support.replaced_module import replace_modules

ROOT = Path(__file__).resolve().parents[3]
BIN = Path(sys.executable).parent
PLANES, WORKERS = ("cp-1", "cp-2", "cp-3"), ("w-1", "w-2")
MODULES = {
    "cluster_info": ("deprecated_apis",),
    "etcd_backup": ("site", "directory", "keep", "recipients"),
    "node_kubernetes": (
        *(
            "release",
            "role",
            "step",
            "after",
            "until",
            "images",
            "containerd",
            "allow_cgroup_v1",
            "ignore_preflight_errors",
        ),
    ),
    "node_status_info": (),
    "trace": ("what", "name", "state"),
}
PROGRAM = '''
import json
from pathlib import Path


def call(root, name, host, params):
    """Write down the call and answer as the test says; what fails is told by its line."""
    said = json.loads(Path(root, "answers.json").read_text())
    shown = {
        "node_kubernetes": f"{params.get('step') or 'last'}, {params.get('until', 'kubelet')}, "
        f"after {params.get('after') or 'nothing'}, {[one['reference'] for one in params.get('images', ())]}",
        "trace": params.get("what") or params.get("name"),
    }.get(name, "")
    line = f"{name} {host} {shown}".strip()
    if not name.endswith("_info"):
        with Path(root, "trace").open("a") as trace:
            trace.write(f"{line}\\n")
    if said["fails"] and line.startswith(said["fails"]):
        raise SystemExit("KUBERNETES_NOT_HEALTHY: expected a healthy node")
    if name == "cluster_info":
        if said["away"] and not Path(root, "asked").exists():
            Path(root, "asked").touch()
            raise SystemExit("KUBECTL_FAILED: the connection was refused")
        return {"nodes": said["nodes"], "deprecated_apis": said["deprecated"] if params.get("deprecated_apis") else []}
    if name == "node_status_info":
        ends = "Run attested renew-control-plane: certificate apiserver of this control plane ends"
        return {"needs_person": host == "cp-2", "to_do": ends if host == "cp-2" else "Nothing."}
    return {"drain": not params.get("step")}
'''
FOUND = {
    "node_bundle_current": True,
    "node_bundle_kubernetes_version": "{{ (lookup('file', attested_bundle ~ '/manifest.json') | from_json)"
    ".kubernetes_version }}",
    "node_bundle_release": "9f2c1d5e9f2c",
    "node_bundle_member": True,
    "node_bundle_free_bytes": "{{ 900 * 1024 * 1024 if inventory_hostname in full | default([]) else 2 ** 31 }}",
}
DEPRECATED = [
    {"api": "example.k8s.io/v1beta1 old", "removed": "1.37"},
    {"api": "example.k8s.io/v1beta2 later", "removed": "1.40"},
    {"api": "v1 componentstatuses", "removed": ""},
]
KUBECTL = """#!/bin/sh
case "$*" in
  *poddisruptionbudgets*) echo '{"items": []}';;
  *drain*) for word; do case "$word" in cp-*|w-*) echo "drain $word" >> TRACE;; esac; done;;
  *" get node "*) echo '{"metadata": {}, "spec": {}}';;
esac
"""


class Site:
    """Three control planes and two workers, and a bundle."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._known: dict[str, tuple[list[str], str]] = {}
        collection = root / "ansible_collections" / "attested" / "kubernetes"
        shutil.copytree(ROOT / "playbooks", collection / "playbooks")
        for book in collection.glob("playbooks/**/*.yml"):
            text = book.read_text(encoding="utf-8").replace("/opt/attested/venv/bin/python", sys.executable)
            text = text.replace("/opt/attested/releases/", f"{root}/releases/")
            book.write_text(
                text.replace("ansible.builtin.systemd_service", "attested.kubernetes.trace"), encoding="utf-8"
            )
        (root / "program.py").write_text(PROGRAM, encoding="utf-8")
        replace_modules(collection, root / "program.py", root, MODULES)
        (collection / "plugins" / "modules").mkdir()
        shutil.copy(ROOT / "plugins/modules/release_info.py", collection / "plugins/modules")
        (collection / "roles/node_bundle/tasks").mkdir(parents=True)
        (collection / "roles/bundle_builder").symlink_to(ROOT / "roles/bundle_builder")
        self._tasks(collection / "roles/node_bundle/tasks/find.yml", {"ansible.builtin.set_fact": FOUND})
        (collection / "roles/control_plane/tasks").mkdir(parents=True)
        self._tasks(
            collection / "roles/control_plane/tasks/objects.yml",
            {
                "attested.kubernetes.trace": {
                    "what": "CRDs{{ ', stored' if control_plane_store_anew | default(false) else '' }}"
                }
            },
        )
        for name, what in {
            "upgrade_node": "services",
            "addons": "add-ons",
            "cluster_release": "version {{ control_plane_release_version }}",
        }.items():
            self._tasks(collection / f"playbooks/tasks/{name}.yml", {"attested.kubernetes.trace": {"what": what}})
        for place in (root / "bin", root / "releases/9f2c1d5e9f2c/usr/local/bin"):
            place.mkdir(parents=True)
            (place / "kubectl").write_text(KUBECTL.replace("TRACE", str(root / "trace")))
            (place / "kubectl").chmod(0o700)
        (root / "cluster.yml").write_text("cluster_id: one\n")

    @staticmethod
    def _tasks(place: Path, task: dict[str, Any]) -> None:
        place.write_text(yaml.safe_dump([task]), encoding="utf-8")

    def bundle(self, version: str, *steps: str) -> None:
        """Write the manifest of a bundle of ``version`` with these releases on the way."""

        def archives(of: str) -> list[dict[str, Any]]:
            return [{"name": "control-plane", "images": [{"component": "etcd", "reference": f"etcd of {of}"}]}]

        told = {"kubernetes_version": version, "image_archives": archives(version)}
        between = [{"kubernetes_version": one, "image_archives": archives(one)} for one in steps]
        (self.root / "bundle").mkdir(exist_ok=True)
        (self.root / "bundle/manifest.json").write_text(json.dumps(told | ({"steps": between} if between else {})))

    def run(
        self,
        running: dict[str, str],
        *options: str,
        fails: str = "",
        ends: int = 0,
        without: str = "",
        standing: str = "EvidenceGood",
        away: bool = False,
    ) -> tuple[list[str], str]:
        """Return what was called, and what was printed; ``running``: KUBELET or KUBELET/API SERVER by node.

        ``without``: the node that is not Ready; ``standing``: that of w-1; ``away``: the first API server refuses the
        first connection. A run changes nothing that the
        next one reads, so the same one is made once for all tests.
        """
        bundle = (self.root / "bundle/manifest.json").read_text()
        key = json.dumps([bundle, running, options, fails, ends, without, standing, away])
        if key not in self._known:
            self._known[key] = self._run(running, options, fails, ends, without, standing, away)
        return self._known[key]

    def _run(
        self,
        running: dict[str, str],
        options: tuple[str, ...],
        fails: str,
        ends: int,
        without: str,
        standing: str,
        away: bool,
    ) -> tuple[list[str], str]:
        hosts: dict[str, Any] = {
            group: {"hosts": {name: {"ansible_remote_tmp": str(self.root / name)} for name in names}}
            for group, names in (("control_planes", PLANES), ("workers", WORKERS))
        }
        known = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
        known["attested_bundle"] = str(self.root / "bundle")
        (self.root / "hosts.yml").write_text(yaml.safe_dump({"nodes": {"vars": known, "children": hosts}}))
        rows = [
            {
                "name": name,
                "version": f"v{version.partition('/')[0]}",
                "api_version": version.partition("/")[2],
                "role": "control-plane" if name in PLANES else "worker",
                "registered": True,
                "ready": name != without,
                "standing": standing if name == "w-1" else "EvidenceGood",
            }
            for name, version in running.items()
        ]
        told = {"nodes": rows, "fails": fails, "deprecated": DEPRECATED, "away": away}
        (self.root / "answers.json").write_text(json.dumps(told))
        for name in ("trace", "asked"):
            (self.root / name).unlink(missing_ok=True)
        done = subprocess.run(
            [BIN / "ansible-playbook", "-i", "hosts.yml", "attested.kubernetes.upgrade", "--forks=1", *options],
            cwd=self.root,
            env={
                "PATH": f"{self.root}/bin:{BIN}:{os.environ['PATH']}",
                "HOME": str(self.root),
                "ANSIBLE_COLLECTIONS_PATH": str(self.root),
                "ANSIBLE_CALLBACK_RESULT_FORMAT": "json",
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == ends, done.stdout + done.stderr
        trace = self.root / "trace"
        return trace.read_text().splitlines() if trace.exists() else [], done.stdout + done.stderr


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return Site(tmp_path_factory.mktemp("site"))


def kubernetes(lines: list[str]) -> list[str]:
    """Return what concerns Kubernetes, without what it was called with."""
    others = ("services", "CRDs")
    lines = [line for line in lines if not any(one in line for one in others)]
    kept = [line.partition(", ")[0].removeprefix("node_kubernetes ") for line in lines]
    return [one for one in kept if "add-ons" not in one and "reattest" not in one]


OLD = dict.fromkeys((*PLANES, *WORKERS), "1.35.4")
NODES = [[f"{name} last", f"drain {name}", f"{name} last"] for name in (*PLANES, *WORKERS)]


def test_control_planes_take_one_minor_at_a_time_and_every_node_is_drained_once(site: Site) -> None:
    site.bundle("1.37.2", "1.36.3")
    lines, printed = site.run(OLD)
    assert kubernetes(lines) == [
        *(f"{name} 1.36.3" for name in PLANES),
        "trace cp-1 version 1.36.3",
        *(line for part in NODES[:3] for line in part),
        "trace cp-1 version 1.37.2",
        *(line for part in NODES[3:] for line in part),
    ]
    assert "node_kubernetes cp-2 1.36.3, kubelet, after nothing, ['etcd of 1.36.3']" in lines
    assert "node_kubernetes cp-2 last, configuration, after 1.36.3, ['etcd of 1.37.2']" in lines
    assert "cp-2: control plane to 1.36.3, its kubelet stays" in printed
    assert "cp-2: 1.35.4 -> 1.37.2, Pods are drained" in printed
    assert "w-1: 1.35.4 -> 1.37.2, Pods are drained" in printed


def test_new_crds_go_before_all_services_and_what_is_stored_comes_after_them(site: Site) -> None:
    site.bundle("1.36.3")
    lines, _printed = site.run(OLD)
    services = [f"trace {name} services" for name in (*PLANES, *WORKERS)]
    assert lines[:8] == ["trace cp-1 CRDs", *services, "trace cp-1 CRDs, stored", "trace cp-1 add-ons"]


def test_the_plan_names_deprecated_apis(site: Site) -> None:
    site.bundle("1.37.2", "1.36.3")
    _lines, printed = site.run(OLD)
    used = "is in use, Kubernetes"
    assert f"old {used} 1.37 does not serve it: its clients fail after this upgrade" in printed
    assert f'later {used} 1.40 does not serve it"' in printed
    assert "componentstatuses" not in printed


def test_the_plan_names_pauses_what_is_not_rolled_back_and_what_needs_an_admin(site: Site) -> None:
    site.bundle("1.37.2", "1.36.3")
    _lines, printed = site.run(OLD)
    assert "each API server restarts up to 2 times, while the others answer" in printed
    assert "those of workers 1 at a time; a node that is not drained within 300 s stops the upgrade" in printed
    assert "Not rolled back: CRDs and settings of the site, etcd after all of its members" in printed
    assert "cp-2: Run attested renew-control-plane: certificate apiserver" in printed
    assert "cp-1: Run" not in printed
    _lines, printed = site.run({**OLD, **dict.fromkeys(PLANES, "1.37.2/1.37.2")})
    assert "each API server restarts" not in printed
    assert 'settings of the site"' in printed


@pytest.mark.parametrize("options", [(), ("--check",)], ids=["upgrade", "plan"])
@pytest.mark.parametrize(
    "of",
    [{"without": "w-1"}, {"standing": "ReattestationFailed"}, {"standing": "ReattestationOverdue"}],
    ids=["not ready", "refused", "overdue"],
)
def test_a_node_that_is_not_well_is_named_before_the_first_change(
    site: Site, of: dict[str, str], options: tuple[str, ...]
) -> None:
    site.bundle("1.37.2", "1.36.3")
    lines, printed = site.run(OLD, *options, ends=2, **of)
    assert lines == []
    assert "KUBERNETES_NOT_HEALTHY: expected all nodes to be Ready and their evidence to be accepted" in printed
    assert "got w-1; nothing was changed" in " ".join(printed.split())


@pytest.mark.parametrize("options", [(), ("--check",)], ids=["upgrade", "plan"])
def test_a_full_disk_is_refused_before_the_first_change(site: Site, options: tuple[str, ...]) -> None:
    site.bundle("1.37.2", "1.36.3")
    lines, printed = site.run(OLD, "-e", '{"full": ["w-2"]}', *options, ends=2)
    assert lines == []
    assert "w-2 has 900.00 MB of free disk space, an upgrade needs 1 GiB" in printed
    assert "w-1 has" not in printed
    assert "KUBERNETES_NOT_HEALTHY: expected 1 GiB of free disk space on each node" in printed
    assert "got less on w-2" in " ".join(printed.split())


def test_an_api_server_that_restarts_is_waited_for_before_the_plan(site: Site) -> None:
    """kubeadm of a run that was cut off goes on, and restarts it."""
    site.bundle("1.36.3")
    lines, printed = site.run(OLD, away=True)
    assert printed.count("FAILED - RETRYING: [cp-1]: Read the cluster's nodes") == 1
    assert lines == site.run(OLD)[0]


def test_a_full_disk_stops_no_upgrade_that_only_changes_services(site: Site) -> None:
    site.bundle("1.35.4")
    lines, _printed = site.run(OLD, "-e", '{"full": ["w-2"]}')
    assert "trace w-2 services" in lines


def test_the_plan_is_made_for_all_nodes_at_the_same_time(site: Site) -> None:
    """A run of the playbook goes from node to node; in check mode nothing is changed, so no node waits for another."""
    site.bundle("1.36.3")
    _lines, printed = site.run(OLD, "--check")
    assert printed.count("PLAY [Upgrade the services of the control planes one by one]") == 1
    assert printed.count("PLAY [Upgrade Kubernetes on the workers]") == 1
    _lines, printed = site.run(OLD)
    assert printed.count("PLAY [Upgrade the services of the control planes one by one]") == len(PLANES)
    assert printed.count("PLAY [Upgrade Kubernetes on the workers]") == len(WORKERS)


def test_one_minor_needs_no_release_in_between(site: Site) -> None:
    site.bundle("1.36.3")
    lines, _printed = site.run(OLD)
    assert kubernetes(lines) == [
        *(line for part in NODES[:3] for line in part),
        "trace cp-1 version 1.36.3",
        *(line for part in NODES[3:] for line in part),
    ]


def test_a_control_plane_that_fails_stops_all_that_comes_after_it(site: Site) -> None:
    site.bundle("1.37.2", "1.36.3")
    lines, printed = site.run(OLD, fails="node_kubernetes cp-2 1.36.3", ends=2)
    assert kubernetes(lines) == ["cp-1 1.36.3", "cp-2 1.36.3"]
    assert "KUBERNETES_NOT_HEALTHY" in printed


def test_a_run_that_was_cut_off_in_the_last_release_is_continued(site: Site) -> None:
    """The API server of the first control plane is ahead of the kubelets of the others by two minor versions."""
    site.bundle("1.37.2", "1.36.3")
    _lines, printed = site.run({**OLD, "cp-1": "1.37.2/1.37.2", "cp-2": "1.35.4/1.36.3", "cp-3": "1.35.4/1.36.3"})
    assert "cp-1: " not in printed.partition("Print the plan")[2].partition("TASK")[0]
    assert "its kubelet stays" not in printed
    assert "cp-2: 1.35.4 -> 1.37.2, Pods are drained" in printed


def test_a_run_that_was_cut_off_before_the_workers_keeps_the_version_of_the_cluster(site: Site) -> None:
    """All control planes are done, so the release in between would be a downgrade of the object."""
    site.bundle("1.37.2", "1.36.3")
    lines, _printed = site.run({**OLD, **dict.fromkeys(PLANES, "1.37.2/1.37.2")})
    assert [line for line in lines if "version" in line] == ["trace cp-1 version 1.37.2"]


def test_nothing_is_done_about_releases_in_between_where_all_nodes_are_there(site: Site) -> None:
    site.bundle("1.37.2", "1.36.3")
    lines, printed = site.run(dict.fromkeys(OLD, "1.37.2"))
    assert not any("1.36.3" in line for line in kubernetes(lines))
    assert "Kubernetes 1.37.2: nothing to upgrade" in printed


@pytest.mark.parametrize(
    ("running", "bundle", "said"),
    [
        pytest.param(OLD, ("1.37.2",), "set attested_kubernetes_steps: [1.36.3], run bundle", id="without steps"),
        pytest.param(OLD, ("1.37.2", "1.36.2"), "with 1.36.3, got 1.36.2", id="with another step"),
        pytest.param(
            {**dict.fromkeys(OLD, "1.36.3"), "w-1": "1.33.9"},
            ("1.37.2",),
            "set attested_kubernetes_version: 1.36.3, run bundle",
            id="a kubelet that is too old",
        ),
    ],
)
def test_a_bundle_that_does_not_lead_there_changes_nothing(
    site: Site, running: dict[str, str], bundle: tuple[str, ...], said: str
) -> None:
    site.bundle(*bundle)
    lines, printed = site.run(running, ends=2)
    assert lines == []
    assert "RELEASE_SKEW" in printed
    assert said in " ".join(printed.split())
