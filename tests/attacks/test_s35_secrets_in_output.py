# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S35: canary secrets through playbooks, modules and both services: none comes out anywhere.

Whole playbooks against machines, with journals, facts and every process watched: `tests/e2e/test_secrets.py`.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.derive import DiskId, disk_key
from ansible_collections.attested.kubernetes.tests.component.playbooks.test_site import (
    PASSWORD,
    VaultLibrary,
    clear_secrets,
    copy_example,
    play,
)
from ansible_collections.attested.kubernetes.tests.support import boots
from ansible_collections.attested.kubernetes.tests.support.canary import ProcessWatch, spellings, spellings_of_pem
from ansible_collections.attested.kubernetes.tests.support.service_bed import CHANGED_BOOT, Machine
from ansible_collections.attested.kubernetes.tests.support.threats import Threat
from ansible_collections.attested.kubernetes.tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from ansible_collections.attested.kubernetes.tests.support.service_bed import ServiceBed

THREAT = Threat(
    id="S35",
    title="Secrets in Ansible output, facts, logs, argv",
    case="ansible#41576, ansible#6581; async files in clear (measured)",
    bed="api",
    stops=(("keyservice/master.py", ""), ("core/logs.py", ""), ("tests/e2e/test_secrets.py", "")),
)


def holds(data: bytes, needles: list[bytes]) -> bool:
    return any(one in data for one in needles)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site whose password file is outside of it."""
    path = tmp_path_factory.mktemp("sites") / "prod"
    copy_example(path)
    (path.parent / "password").write_text(PASSWORD)
    return path


def test_making_the_secrets_at_the_highest_verbosity(site: Path) -> None:
    """Output at -vvvv with --diff, argv and environment of every process meanwhile, files of the site afterwards."""
    password = f"--vault-password-file={site.parent / 'password'}"
    with ProcessWatch() as watch:
        runs = [play("secrets", password, "-vvvv", "--diff", cwd=site) for _unused in range(2)]
    assert [run.returncode for run in runs] == [0, 0], runs[0].stdout
    needles = [text.encode() for text in clear_secrets(site, VaultLibrary())]
    assert all(len(one) > 20 for one in needles)
    printed = "".join(run.stdout + run.stderr for run in runs).encode()
    assert b"TASK [" in printed
    assert not holds(printed, needles)
    assert {channel for channel, _data in watch.seen()} == {"argv", "environment"}
    assert not [channel for channel, data in watch.seen() if holds(data, needles)]
    assert not [str(path) for path in site.rglob("*") if path.is_file() and holds(path.read_bytes(), needles)]


def test_the_watch_sees_what_is_planted() -> None:
    planted = b"planted-0123456789-canary"
    with ProcessWatch() as watch, subprocess.Popen(["sleep", "60"], env={"PLANTED": planted.decode()}) as process:
        try:
            wait_for(lambda: any(planted in data for _channel, data in watch.seen()), seconds=60)
        finally:
            process.kill()
    assert [channel for channel, data in watch.seen() if planted in data] == ["environment"]


def test_tickets_and_refusals_leave_no_secret_in_logs_or_processes(
    bed: ServiceBed, machines: Callable[..., Machine]
) -> None:
    material = machines().ask()
    with pytest.raises(AttestedError) as refused:
        machines(boot=boots.load(CHANGED_BOOT)).ask()
    secrets = {
        "master": spellings(bed.bundle.master.key.reveal()),
        "join CA": spellings_of_pem(bed.bundle.join_ca_key.reveal()),
        "measurement": spellings(bed.bundle.measurement_secret().reveal()),
        "disk": spellings(disk_key(bed.bundle.master, DiskId(material.public.disk_id)).reveal()),
        "kubelet": spellings_of_pem(material.kubelet_key.reveal()),
    }
    seen = {f"{name}.log": (bed.directory / f"{name}.log").read_bytes() for name in ("key", "join")}
    for name, process in bed.processes.items():
        for what in ("cmdline", "environ"):
            seen[f"{name} {what}"] = Path(f"/proc/{process.pid}/{what}").read_bytes()
    seen["error"] = str(refused.value).encode()
    seen["reprs"] = f"{bed.bundle!r} {material!r} {material.secrets!r}".encode()
    assert all(seen.values())
    assert [
        (name, what) for name, needles in secrets.items() for what, data in seen.items() if holds(data, needles)
    ] == []


def test_the_needles_are_found_where_they_belong(bed: ServiceBed) -> None:
    """Else the absence above would prove nothing."""
    keys = (bed.directory / "key-service" / "keys").read_bytes()
    assert holds(keys, spellings(bed.bundle.master.key.reveal()))
    assert "ANSIBLE" not in json.dumps(str(bed.bundle))


@pytest.mark.parametrize("path", sorted(Path(__file__).parents[2].glob("roles/*/tasks/*.yml")))
def test_no_task_with_secrets_is_asynchronous(path: Path) -> None:
    """Ansible writes an async task's arguments and output to a file in clear, whatever no_log says."""
    assert "async:" not in path.read_text(encoding="utf-8")
