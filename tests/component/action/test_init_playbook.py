# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The action `init` in a real run of ansible-playbook, on a terminal, against a machine over real sockets."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import KubeadmError
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.tests.support.cluster_ca import ClusterCa
from ansible_collections.attested.kubernetes.tests.support.init_bed import Founding, InitBed, Waiting, failing, running
from ansible_collections.attested.kubernetes.tests.support.init_site import InitSite

if TYPE_CHECKING:
    from collections.abc import Iterator

BIN = Path(sys.executable).parent
ERASE = "\r\x1b[K"


class Terminal:
    """A run of ansible-playbook whose output is a terminal; everything that it writes is kept."""

    def __init__(self, site: InitSite, port: int, *options: str) -> None:
        """Start the run of one task that looks at nothing and one that makes the cluster."""
        tasks = [
            {"name": "Look at one thing", "ansible.builtin.assert": {"that": True}},
            {"name": "Initialize the cluster", "attested.kubernetes.init": site.options(port)},
        ]
        play = {"name": "Init", "hosts": "control_planes", "gather_facts": False, "tasks": tasks}
        (site.root / "play.yml").write_text(yaml.safe_dump([play]), encoding="utf-8")
        ours, theirs = os.openpty()
        argv = [BIN / "ansible-playbook", "-i", "hosts.yml", "--vault-password-file", "password", *options, "play.yml"]
        self._process = subprocess.Popen(
            argv, cwd=site.root, env=_environment(site), stdin=theirs, stdout=theirs, stderr=theirs
        )
        os.close(theirs)
        self._written = b""
        self._more = threading.Condition()
        self._reader = threading.Thread(target=self._read, args=(ours,), daemon=True)
        self._reader.start()

    def wrote(self, text: str) -> None:
        """Wait until ``text`` was written while the run goes on."""
        with self._more:
            found = self._more.wait_for(lambda: text.encode() in self._written, timeout=120)
        assert found, self.text
        assert self._process.poll() is None

    def end(self) -> int:
        """Return the exit code."""
        code = self._process.wait(timeout=120)
        self._reader.join(timeout=900)
        return code

    @property
    def text(self) -> str:
        """Everything so far."""
        return self._written.decode()

    def rows(self) -> list[str]:
        """Return what stays on the screen; a row that was written over another without erasing shows both."""
        rows = [row.rpartition(ERASE)[2].rstrip() for row in self.text.replace("\r\n", "\n").split("\n")]
        return [row for row in rows if row]

    def _read(self, ours: int) -> None:
        while True:
            try:
                data = os.read(ours, 4096)
            except OSError:  # the other end was closed
                break
            with self._more:
                self._written += data
                self._more.notify_all()
        os.close(ours)


def _environment(site: InitSite) -> dict[str, str]:
    home = str(site.root.parent / "home")
    shown = {"ANSIBLE_STDOUT_CALLBACK": "attested.kubernetes.stages", "ANSIBLE_NOCOLOR": "1", "COLUMNS": "200"}
    return {**os.environ, **shown, "HOME": home, "ANSIBLE_HOME": f"{home}/.ansible", "ANSIBLE_LOG_PATH": f"{home}.log"}


@pytest.fixture
def site(tmp_path: Path) -> InitSite:
    return InitSite(tmp_path / "prod")


@pytest.fixture
def bed(site: InitSite, tmp_path: Path) -> Iterator[InitBed]:
    """The machine of cp-1, prepared from the site."""
    ca = ClusterCa(tmp_path / "machine")
    bed = InitBed(founding=Founding(kubeconfig=lambda order: ca.kubeconfig(order.admin_request)), keys=site.keys)
    with bed.attester() as one:
        site.enroll(one.ek)
    return bed


def port_of(machine: Any) -> int:
    return int(machine.endpoint.rpartition(":")[2])


async def test_the_terminal_shows_each_task_while_it_runs_and_is_not_garbled(bed: InitBed, site: InitSite) -> None:
    waiting = Waiting()
    bed.founding.acts = [waiting]
    async with running(bed) as machine:
        run = Terminal(site, port_of(machine))
        await asyncio.to_thread(run.wrote, "Set up the control plane")
        waiting.go_on.set()
        code = await asyncio.to_thread(run.end)
    assert code == 0, run.text
    words = [row.split() for row in run.rows()]
    # A task that changes nothing has a row of its own where it took longer than a second.
    words = [row for row in words if row[:4] != ["Look", "at", "one", "thing"]]
    asked = words.index(["cp-1:", "requesting", "evidence", "from", machine.endpoint])
    assert asked == words.index(["Init"]) + 1, "the name of the play stands above"
    assert words[asked + 1 : asked + 3] == [
        ["cp-1:", "is", "the", "enrolled", "machine,", "booted", "as", "machines", "(posture", "boot)"],
        ["cp-1:", "Make", "the", "cluster"],
    ]
    assert words[asked + 3][:3] == ["-", "Set", "up"]
    assert words[asked + 4][:5] == ["Initialize", "the", "cluster", "changed", "cp-1"]
    assert words[asked + 5][:6] == ["-", "Make", "the", "cluster", "changed", "cp-1"]


async def test_a_failed_step_of_the_machine_stands_on_the_terminal_with_its_last_lines(
    bed: InitBed, site: InitSite
) -> None:
    failed = KubeadmError("expected phase certs to end well", reason=Reason.KUBEADM_PHASE_FAILED)
    bed.founding.acts = [failing(failed, "no space left on device")]
    async with running(bed) as machine:
        run = Terminal(site, port_of(machine))
        code = await asyncio.to_thread(run.end)
    rows = run.rows()
    assert code != 0
    for row in (
        "  cp-1: expected phase certs to end well",
        "    during   Make the cluster / Set up the control plane",
        "    reason   KUBEADM_PHASE_FAILED",
        "    its last lines:",
        "      no space left on device",
    ):
        assert row in rows


async def test_no_secret_shows_at_full_verbosity_and_a_planted_one_would(bed: InitBed, site: InitSite) -> None:
    async with running(bed) as machine:
        run = Terminal(site, port_of(machine), "-vvvv", "--diff")
        assert await asyncio.to_thread(run.end) == 0, run.text
    outside = [path for path in site.root.parent.rglob("*") if path.is_file() and "machine" not in path.parts]
    assert Path(f"{site.root.parent}/home.log") in outside
    said = run.text.encode() + b"".join(path.read_bytes() for path in outside)
    assert [canary for canary in site.canaries() if canary in said] == []
    planted = json.dumps({"key": site.bundle.master.key.reveal().hex()}).encode()
    assert [canary for canary in site.canaries() if canary in said + planted] != []
