# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbook `recover`: a cluster that was powered off, its nodes behind real sockets, one with a real TPM."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.services.handshake_evidence import Attester
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.keys import (
    load_attestation_key,
    load_endorsement_key,
)
from ansible_collections.attested.kubernetes.tests.support import boots
from ansible_collections.attested.kubernetes.tests.support.canary import ProcessWatch
from ansible_collections.attested.kubernetes.tests.support.ports import free_port
from ansible_collections.attested.kubernetes.tests.support.recovery_bed import running
from ansible_collections.attested.kubernetes.tests.support.recovery_site import ADDRESSES, NAMES, RecoverySite
from ansible_collections.attested.kubernetes.tests.support.replay import replay

if TYPE_CHECKING:
    import subprocess
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from ansible_collections.attested.kubernetes.tests.support.swtpm import Opened, Swtpm

VAULT = ("--vault-password-file", "password")


@pytest.fixture
def soft(tmp_path: Path) -> RecoverySite:
    """A cluster whose TPMs are in memory."""
    return RecoverySite(tmp_path)


@pytest.fixture
def real(tmp_path: Path, swtpm: Swtpm, opened: Opened) -> RecoverySite:
    """A cluster of which cp-1 has a real TPM that has booted."""
    recorded = boots.load("deb13-base")
    with opened(swtpm) as tpm:
        replay(tpm, firmware=recorded.firmware, userspace=recorded.userspace)

    @contextmanager
    def attester() -> Iterator[Attester]:
        with opened(swtpm) as tpm:
            yield Attester(tpm=tpm, ek=load_endorsement_key(tpm), ak=load_attestation_key(tpm))

    return RecoverySite(tmp_path, attesters={"cp-1": attester})


@asynccontextmanager
async def powered_on(site: RecoverySite, *names: str) -> AsyncIterator[int]:
    """Have the machines wait, each at an address of its own; yields the port."""
    port = free_port()
    async with AsyncExitStack() as stack:
        for name in names or NAMES:
            await stack.enter_async_context(running(site.beds[name], listen_address=ADDRESSES[name], listen_port=port))
        yield port


async def play(site: RecoverySite, *words: str, port: int, **env: str) -> subprocess.CompletedProcess[str]:
    return await asyncio.to_thread(site.play, *words, port=port, **env)


def opened_disks(site: RecoverySite) -> dict[str, list[bytes]]:
    return {name: bed.opening.opened for name, bed in site.beds.items()}


def each_once(site: RecoverySite) -> dict[str, list[bytes]]:
    return {name: [bed.right.disk_key.reveal()] for name, bed in site.beds.items()}


async def test_a_whole_cluster_comes_back_from_power_off_with_the_kit_alone(real: RecoverySite, tmp_path: Path) -> None:
    """All secrets of the site are gone; nothing secret shows at full verbosity, and a planted one would be found."""
    canaries = real.canaries()
    shutil.rmtree(real.root / ".secrets")
    order: list[str] = []
    for name, bed in real.beds.items():
        bed.opening.acts = [lambda name=name: order.append(name)]
    home, log = tmp_path / "home", tmp_path / "log"
    quiet = {"HOME": str(home), "ANSIBLE_HOME": str(home / ".ansible"), "ANSIBLE_LOG_PATH": str(log)}
    with ProcessWatch() as watch:
        async with powered_on(real) as port:
            done = await play(real, "-vvvv", "--diff", *real.with_kit, port=port, **quiet)
        seen = b"\n".join(data for _channel, data in watch.seen())
    assert done.returncode == 0, done.stdout + done.stderr
    assert opened_disks(real) == each_once(real)
    assert (set(order[:2]), order[2:]) == ({"cp-1", "cp-2"}, ["a-1"])
    assert "3 nodes: 3 recovered" in done.stdout
    said = [done.stdout.encode(), done.stderr.encode(), log.read_bytes(), seen]
    said += [path.read_bytes() for folder in (home, real.root) for path in folder.rglob("*") if path.is_file()]
    assert len(seen) > 1000  # the watch has seen processes
    assert [one for one in canaries if any(one in text for text in said)] == []
    assert [one for one in canaries if one in said[0] + canaries[0]] == [canaries[0]]


async def test_a_second_run_hears_that_another_was_first(soft: RecoverySite) -> None:
    async with powered_on(soft) as port:
        first = await play(soft, *VAULT, port=port)
        again = await play(soft, *VAULT, port=port)
    assert (first.returncode, again.returncode) == (0, 0), first.stdout + again.stdout
    assert "3 nodes: 3 another was first" in again.stdout
    assert "changed=1" in first.stdout
    assert "changed=1" not in again.stdout
    assert opened_disks(soft) == each_once(soft)


async def test_check_mode_says_who_could_be_recovered_and_opens_nothing(soft: RecoverySite) -> None:
    async with powered_on(soft) as port:
        done = await play(soft, *VAULT, "--check", port=port)
    assert done.returncode == 0, done.stdout
    assert "3 nodes: 3 can be recovered" in done.stdout
    assert opened_disks(soft) == {name: [] for name in NAMES}
    assert [bed.records.told for bed in soft.beds.values()] == [[], [], []]


async def test_what_stays_locked_fails_the_run_and_is_named(soft: RecoverySite) -> None:
    """One has booted something else, one does not answer; the third is recovered all the same."""
    soft.beds["cp-2"].boot = boots.load("deb13-cmdline")
    async with powered_on(soft, "cp-2", "a-1") as port:
        done = await play(soft, *VAULT, "-e", "attested_wait_seconds=1", port=port)
    assert done.returncode != 0
    assert "RECOVERY_INCOMPLETE" in done.stdout
    assert "3 nodes: 1 recovered, 1 does not answer, 1 failed" in done.stdout
    assert {name: len(opened) for name, opened in opened_disks(soft).items()} == {"cp-1": 0, "cp-2": 0, "a-1": 1}


async def test_only_those_within_the_limit_are_recovered(soft: RecoverySite) -> None:
    async with powered_on(soft) as port:
        done = await play(soft, *VAULT, "--limit", "control_planes", port=port)
    assert done.returncode == 0, done.stdout
    assert {name: len(opened) for name, opened in opened_disks(soft).items()} == {"cp-1": 1, "cp-2": 1, "a-1": 0}


@pytest.mark.parametrize("words", [("--limit", "localhost"), ("--limit", "nobody"), ("-i", "empty.yml")])
async def test_a_run_that_finds_no_node_is_an_error(soft: RecoverySite, words: tuple[str, ...]) -> None:
    (soft.root / "empty.yml").write_text("nodes: {children: {control_planes: {}, workers: {}}}\n", encoding="utf-8")
    if "-i" in words:
        shutil.copy(soft.root / "empty.yml", soft.root / "hosts.yml")
    done = await play(soft, *VAULT, *words, port=free_port())
    assert done.returncode != 0, done.stdout


@pytest.fixture
def swapped(soft: RecoverySite) -> dict[str, Any]:
    """The site says of a-1 the disk that lies in cp-1, and of cp-1 that of a-1."""
    names = ("a-1", "cp-1")
    for name, other in zip(names, reversed(names), strict=True):
        soft.enroll(name, soft.beds[name], disk=soft.beds[other].disk.uuid)
    return {name: soft.beds[name] for name in names}


async def test_a_key_of_another_disk_opens_nothing(soft: RecoverySite, swapped: dict[str, Any]) -> None:
    async with powered_on(soft) as port:
        done = await play(soft, *VAULT, port=port)
    assert done.returncode != 0
    assert "RECOVERY_DISK_DIFFERS" in done.stdout
    assert [bed.opening.opened for bed in swapped.values()] == [[], []]
    assert len(soft.beds["cp-2"].opening.opened) == 1
