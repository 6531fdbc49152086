# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Workers that become nodes at their boot as the site's signed repository says, and do not where it was tampered with.

The repository is the lab's own site, committed by real git, signed by a key of ssh-keygen and served by git's daemon on
the control plane, which nobody has to believe. The tests are in the order of one lab's life and share it.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from ansible_collections.attested.kubernetes.tests.support.canary import ProcessWatch
from ansible_collections.attested.kubernetes.tests.support.lab import Lab, obstacles
from ansible_collections.attested.kubernetes.tests.support.road import (
    LOCK_REGISTER,
    Road,
    assert_lock_events,
    records_of,
)
from ansible_collections.attested.kubernetes.tests.support.site_repository import Key, SiteRepository
from ansible_collections.attested.kubernetes.tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.slow

USED_LAB = "ATTESTED_SOURCE_LAB"
"""Of a developer: NAME:LOOPBACK:KEYS of such a lab that is up and has been through `init`; it is used and left.

KEYS is a directory with the signer's key pair, admin.key and admin.key.pub."""

SERVER = "cp-1"
URL = "git://10.89.7.11/site.git"
UNIT = "attested-node-boot.service"
COPY = "/run/attested/source/site"
LOG = "/run/attested/nodelock.log"
SECONDS = 300
"""The unit tries again after 30 seconds, on whatever this machine is; nothing fails for being slow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bed:
    """The lab, the admin's repository, and which release and bundle its machines have."""

    road: Road
    repository: SiteRepository
    pin: dict[str, Any]

    def release(self, version: int) -> str:
        """Commit the site as it is now, signed, and serve it."""
        commit = self.repository.release(version, site_files(self.road.site), **self.pin)
        self.serve()
        return commit

    def serve(self) -> None:
        """Let the daemon have what the admin's repository has."""
        store = io.BytesIO()
        with tarfile.open(fileobj=store, mode="w") as archive:
            archive.add(self.repository.path / ".git", arcname="site.git")
        unpack = "rm -rf /srv/site.git && tar -C /srv -x --no-same-owner && chown -R root: /srv/site.git"
        self.road.inside(SERVER, "sh", "-c", unpack, given=store.getvalue())

    def wait_until_ready(self, machine: str, *, boot: str) -> None:
        """Wait for the Node of this boot; the journal says why it did not come."""
        try:
            self.road.wait_until_ready(machine, boot_id=boot, seconds=SECONDS)
        except TimeoutError as error:
            raise AssertionError(self.journal(machine)[-4000:]) from error

    def journal(self, machine: str) -> str:
        """Return what the unit said in this boot."""
        return self.road.inside(machine, "journalctl", "--boot", "--unit", UNIT, "--output=cat", check=False)


def words(key: Key) -> tuple[str, str]:
    """Return what the playbooks of the lab are told."""
    source = {
        "attested_source_url": URL,
        "attested_source_signers": [key.line],
        "attested_source_transports": ["git"],
        "lab_workers": 2,
    }
    return "-e", json.dumps(source)


def site_files(site: Path) -> dict[str, str]:
    """Return what an admin commits: all of the site but what it ignores."""
    wanted = [site / "hosts.yml", site / "cluster.yml", *site.glob("group_vars/**/*"), *site.glob("host_vars/**/*")]
    return {str(one.relative_to(site)): one.read_text(encoding="utf-8") for one in wanted if one.is_file()}


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    """A cluster of one control plane, and two workers that nobody runs anything on."""
    if found := obstacles():
        pytest.skip(found)
    used = os.environ.get(USED_LAB)
    name, loopback, keys = (used or "attested-source:127.79.0:").split(":")
    directory = Path(keys) if used else tmp_path_factory.mktemp("keys")
    key = Key(directory=directory)
    lab = Lab(name=name, directory=Path.home() / ".local" / "state" / name, loopback=loopback)
    with ProcessWatch() as watch:
        road = Road(lab=lab, watch=watch, began=time.time())
        try:
            if not used:
                key.made()
                road.play("lab_machines", *words(key), where=Path.home())
                for playbook in ("lab", "init"):
                    road.play(playbook, *words(key))
            yield made(road, key, tmp_path_factory.mktemp("site") / "repository")
        finally:
            if not used:
                lab.remove()


def made(road: Road, key: Key, path: Path) -> Bed:
    """Start the daemon; the admin's repository is empty so far."""
    path.mkdir()
    repository = SiteRepository(path=path, key=key)
    repository.git("init", "--quiet", "--initial-branch=main")
    installed = yaml.safe_load(road.inside("w-1", "cat", "/etc/attested/boot-source.yml"))["bundle"]
    serve = ("/usr/bin/git", "daemon", "--export-all", "--base-path=/srv", "--reuseaddr", "/srv")
    road.inside(SERVER, "systemctl", "stop", "site-daemon.service", check=False)
    road.inside(SERVER, "systemd-run", "--unit=site-daemon", "--collect", *serve)
    release = road.inside("w-1", "/opt/attested/venv/bin/attested-agent", "--version").split()[-1]
    return Bed(road=road, repository=repository, pin={"bundle": installed, "collection": release})


def test_the_commit_is_verified_and_measured_and_makes_a_node_of_the_machine(bed: Bed) -> None:
    """One boot of a prepared machine, and nothing else is run for it."""
    commit = bed.release(7)
    boot = bed.road.reboot("w-1")
    bed.wait_until_ready("w-1", boot=boot)
    assert_lock_events(bed.road, "w-1", events=2)
    measured = measured_text(bed.road, "w-1")
    assert {"commit": commit, "version": 7, **bed.pin}.items() <= json.loads(measured).items()
    assert hashlib.sha256(measured.encode()).hexdigest() == records_of(bed.road.inside("w-1", "cat", LOG))[0]
    hosts = bed.road.inside("w-1", "cat", f"{COPY}/hosts.yml")
    assert hosts == (bed.repository.path / "hosts.yml").read_text(encoding="utf-8")
    wait_for(lambda: "node_made" in bed.journal("w-1"))
    assert bed.road.inside("w-1", "find", COPY, "-perm", "/077").split() == []


def test_a_rolled_back_repository_makes_no_node_and_the_right_one_does_without_a_hand(bed: Bed) -> None:
    """The machine remembers the version that it took; a signed commit below it stays signed and is refused."""
    good = bed.repository.head
    bed.release(6)
    boot = bed.road.reboot("w-1")
    assert_refused(bed, "w-1", "SOURCE_ROLLED_BACK")
    bed.repository.git("reset", "--quiet", "--hard", good)
    bed.serve()
    bed.wait_until_ready("w-1", boot=boot)
    assert_lock_events(bed.road, "w-1", events=2)


def test_tampered_repositories_are_refused_before_a_working_copy_exists(bed: Bed, tmp_path: Path) -> None:
    """A machine that has taken no version yet, in one boot; in the end the signed one makes a node of it."""
    good = bed.repository.head
    boot = ""
    for code, tamper in tampers(bed, tmp_path).items():
        bed.repository.git("reset", "--quiet", "--hard", good)
        tamper()
        bed.serve()
        if boot:
            bed.road.inside("w-2", "systemctl", "restart", "--no-block", UNIT)
        boot = boot or bed.road.reboot("w-2")
        assert_refused(bed, "w-2", code)
    bed.repository.git("reset", "--quiet", "--hard", good)
    bed.serve()
    bed.wait_until_ready("w-2", boot=boot)
    assert_lock_events(bed.road, "w-2", events=2)


def tampers(bed: Bed, directory: Path) -> dict[str, Callable[[], object]]:
    """Return what an attacker who has the server may do, by the code that answers it."""
    repository = bed.repository
    changed = {"hosts.yml": "nodes: {}\n"}
    stranger = Key(directory=directory, name="stranger").made()

    def by(key: Key | None, *, signed: bool = True) -> None:
        repository.write(changed)
        repository.commit(key=key, signed=signed)

    def submodule() -> None:
        repository.git("update-index", "--add", "--cacheinfo", f"160000,{repository.head},evil")
        repository.commit()

    def touched() -> None:
        body = repository.git("cat-file", "commit", "HEAD").replace("Change the site", "Trust the site")
        forged = repository.git("hash-object", "-t", "commit", "-w", "--stdin", stdin=f"{body}\n".encode())
        repository.git("update-ref", "refs/heads/main", forged)

    return {
        "SOURCE_SIGNER_UNKNOWN": lambda: by(stranger),
        "SOURCE_UNSIGNED": lambda: by(None, signed=False),
        "SOURCE_SIGNATURE": touched,
        "SOURCE_TREE_REFUSED": submodule,
        "SOURCE_COLLECTION_DIFFERS": lambda: repository.release(8, **{**bed.pin, "collection": "9.9.9"}),
    }


def assert_refused(bed: Bed, machine: str, code: str) -> None:
    """The unit says why; there is no working copy, no record in the register, no lock and no kubelet."""
    wait_for(lambda: code in bed.journal(machine), seconds=SECONDS)
    assert bed.road.inside(machine, "find", COPY, LOG, "/run/attested/locked", check=False) == ""
    assert bed.road.inside(machine, "systemctl", "is-active", "kubelet", check=False).strip() != "active"
    systemd = records_of(bed.road.inside(machine, "cat", "/srv/boot/userspace.json"))
    value = bytes(32)
    for digest in systemd:
        value = hashlib.sha256(value + bytes.fromhex(digest)).digest()
    assert bed.road.lab.registers(machine)[LOCK_REGISTER] == value.hex().upper()


def measured_text(road: Road, machine: str) -> str:
    """Return the text that was extended in front of the lock."""
    first = json.loads(road.inside(machine, "cat", LOG).split("\x1e")[1])
    return str(first["content"]["string"])
