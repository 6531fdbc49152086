# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What one run of a module costs a node: processor time of its process and what is sent, beside a bare `ping`.

Ansible itself makes each archive; a new process of this interpreter, which has the collection's wheel, runs it as on a
node, interleaved. A module loads and checks all that it needs, then ends at a file or device that is not there: what
its work costs is not measured. `--before` also measures the modules of another commit.
Usage: python tests/bench/tasks.py [--rounds N] [--before COMMIT]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from ansible_collections.attested.kubernetes.tests.support.bench import Figure, checkout, report

ROOT = Path(__file__).parents[2]
MAX_CPU_MS = 150
NOWHERE = "/nonexistent/attested"
AS_ON_A_NODE = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
UUID = "7b5c1c52-0a3b-4b5e-9c8e-1f2d3c4b5a69"
TASKS: dict[str, dict[str, object]] = {
    "attestation_info": {"node_config": NOWHERE},
    "join_ticket": {"node_config": NOWHERE},
    "kubeadm_node": {"node_config": NOWHERE, "node_ip": "192.0.2.1"},
    "node_lock": {"cluster_id": "00" * 32, "tcti": f"device:{NOWHERE}", "directory": NOWHERE},
    "state_disk": {"device": NOWHERE, "uuid": UUID, "state": "closed", "memory": NOWHERE, "journal": NOWHERE},
}
PACK = """
import json, sys
from ansible.executor.module_common import modify_module
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.loader import init_plugin_loader, module_loader
from ansible.template import Templar
init_plugin_loader()
name, options = sys.argv[1], json.loads(sys.argv[2])
found = module_loader.find_plugin_with_context(name)
options |= {"_ansible_check_mode": False, "_ansible_remote_tmp": "/tmp", "_ansible_keep_remote_files": False}
packed = modify_module(
    module_name=found.resolved_fqcn, module_path=found.plugin_resolved_path, module_args=options,
    templar=Templar(DataLoader()), module_compression="ZIP_DEFLATED",
    task_vars={"ansible_python_interpreter": sys.executable},
)
sys.stdout.buffer.write(packed.b_module_data)
"""


class Archive(NamedTuple):
    """A module with its options, as it is sent to a node."""

    path: Path
    ends_well: bool

    def milliseconds(self) -> float:
        """Run it once; return the processor time of its process and of those that it started."""
        before = _of_children()
        done = subprocess.run([sys.executable, str(self.path)], env=AS_ON_A_NODE, capture_output=True, check=False)
        spent = _of_children() - before
        said = json.loads(done.stdout)
        if bool(said.get("failed")) == self.ends_well or (not self.ends_well and not said.get("reason")):
            raise SystemExit(f"expected {self.path.name} to end {'well' if self.ends_well else 'by a refusal'}: {said}")
        return spent * 1000


def _of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def archive(name: str, options: dict[str, object], *, tree: Path, folder: Path, ends_well: bool = False) -> Archive:
    """Let Ansible make the archive of a module of the collection below ``tree``."""
    settings = {"PYTHONPATH": str(tree), "ANSIBLE_COLLECTIONS_PATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    words = (sys.executable, "-c", PACK, name, json.dumps(options))
    done = subprocess.run(words, env={**os.environ, **settings}, capture_output=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr.decode(errors="replace"))
    path = folder / name.rpartition(".")[2]
    path.write_bytes(done.stdout)
    return Archive(path, ends_well)


def archives(tree: Path, folder: Path) -> dict[str, Archive]:
    """Make the archives of all tasks, by the name of the module."""
    folder.mkdir()
    return {
        name: archive(f"attested.kubernetes.{name}", options, tree=tree, folder=folder)
        for name, options in TASKS.items()
    }


def measured(rounds: int, before: str) -> list[Figure]:
    """Run everything in turn; return CPU and size of each module, `ping` and the other commit beside them."""
    with tempfile.TemporaryDirectory(prefix="attested-tasks-") as scratch:
        folder = Path(scratch)
        ours = archives(ROOT / ".dev", folder / "ours")
        former = (
            archives(checkout(before, folder / "tree", "galaxy.yml", "meta", "plugins"), folder / "former")
            if before
            else {}
        )
        ping = archive("ansible.builtin.ping", {}, tree=ROOT / ".dev", folder=folder, ends_well=True)
        every = {"ping": ping, **ours, **{f"{name} before": one for name, one in former.items()}}
        spent: dict[str, list[float]] = {name: [] for name in every}
        for _unused in range(rounds):
            for name, one in every.items():
                spent[name].append(one.milliseconds())
        cpu = {name: statistics.median(values) for name, values in spent.items()}
        kilobytes = {name: one.path.stat().st_size / 1000 for name, one in every.items()}
    return [figure for name in ours for figure in _figures(name, cpu, kilobytes, before)]


def _figures(name: str, cpu: dict[str, float], kilobytes: dict[str, float], before: str) -> list[Figure]:
    other, words = (f"{name} before", f"at {before}") if before else ("ping", "ansible.builtin.ping")
    return [
        Figure(
            name=f"{name}: CPU of one run",
            value=cpu[name],
            unit="ms",
            budget=MAX_CPU_MS,
            baseline=cpu[other],
            baseline_name=f"ms, {words}",
        ),
        Figure(
            name=f"{name}: sent to the node",
            value=kilobytes[name],
            unit="kB",
            baseline=kilobytes[other],
            baseline_name=f"kB, {words}",
        ),
    ]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15, help="default: %(default)s")
    parser.add_argument("--before", default="", metavar="COMMIT", help="also the modules of this commit")
    options = parser.parse_args()
    report(*measured(options.rounds, options.before))


if __name__ == "__main__":
    main()
