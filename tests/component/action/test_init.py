# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The action `init` against a machine's init service over real sockets and TLS: good, broken off, refused, repeated."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from ansible.parsing.vault import VaultSecretsContext
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import KubeadmError
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.services.handshake_evidence import Attester
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.keys import (
    load_attestation_key,
    load_endorsement_key,
)
from ansible_collections.attested.kubernetes.tests.support import boots
from ansible_collections.attested.kubernetes.tests.support.cluster_ca import ClusterCa, dump, request_of, text
from ansible_collections.attested.kubernetes.tests.support.init_bed import Founding, InitBed, Waiting, failing, running
from ansible_collections.attested.kubernetes.tests.support.init_site import SECRETS, InitSite, Lines
from ansible_collections.attested.kubernetes.tests.support.replay import replay

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.key_bundle import KeyBundle
    from ansible_collections.attested.kubernetes.plugins.module_utils.services.init_messages import InitOrder, Success
    from ansible_collections.attested.kubernetes.tests.support.swtpm import Opened, Swtpm
    from ansible_collections.attested.kubernetes.tests.support.two_processes import Running

STAGE, TASK = "Make the cluster", "Set up the control plane"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InitSite:
    """A site whose vault password this run was given."""
    monkeypatch.setattr(VaultSecretsContext, "_current", VaultSecretsContext(SECRETS))
    return InitSite(tmp_path / "prod")


@pytest.fixture
def cluster_ca(tmp_path: Path) -> ClusterCa:
    return ClusterCa(tmp_path / "machine")


def enrolled(site: InitSite, bed: InitBed) -> InitBed:
    with bed.attester() as one:
        site.enroll(one.ek)
    return bed


@pytest.fixture
def bed(site: InitSite, cluster_ca: ClusterCa) -> InitBed:
    """The machine of cp-1, prepared from the site; its cluster signs what the admin asks for."""
    founding = Founding(kubeconfig=lambda order: cluster_ca.kubeconfig(order.admin_request))
    return enrolled(site, InitBed(founding=founding, keys=site.keys))


@pytest.fixture
def real(site: InitSite, cluster_ca: ClusterCa, swtpm: Swtpm, opened: Opened) -> InitBed:
    """The same with a real TPM that has booted."""
    recorded = boots.load("deb13-base")
    with opened(swtpm) as tpm:
        replay(tpm, firmware=recorded.firmware, userspace=recorded.userspace)

    @contextmanager
    def attester() -> Iterator[Attester]:
        with opened(swtpm) as tpm:
            yield Attester(tpm=tpm, ek=load_endorsement_key(tpm), ak=load_attestation_key(tpm))

    founding = Founding(kubeconfig=lambda order: cluster_ca.kubeconfig(order.admin_request))
    return enrolled(site, InitBed(founding=founding, keys=site.keys, attester=attester))


def port_of(machine: Running) -> int:
    return int(machine.endpoint.rpartition(":")[2])


async def act(site: InitSite, machine: Running, lines: Lines | None = None, **changes: Any) -> dict[str, Any]:
    return await asyncio.to_thread(site.act, port_of(machine), lines=lines, **changes)


def kubeconfig(site: InitSite) -> dict[str, Any]:
    body: dict[str, Any] = yaml.safe_load(site.vault.decrypt(site.site.admin_kubeconfig.read_bytes()))
    return body


def leaked(site: InitSite, *outputs: object) -> list[bytes]:
    said = "\n".join(one if isinstance(one, str) else json.dumps(one) for one in outputs).encode()
    return [canary for canary in site.canaries() if canary in said]


# ---- the good road


async def test_a_cluster_is_made_and_the_admin_gets_access(
    real: InitBed, site: InitSite, cluster_ca: ClusterCa
) -> None:
    lines = Lines()
    async with running(real) as machine:
        answer = await act(site, machine, lines, extra_sans=["api.example.org"])
    assert not answer.get("failed"), answer
    assert (answer["changed"], answer["cluster_id"]) == (True, site.bundle.cluster_id.hex())
    assert (answer["profile"], answer["posture"], answer["ek_sha256"]) == ("machines", "boot", site.ek)
    assert [(one["name"], one["changed"]) for one in answer["steps"]] == [(STAGE, True)]
    assert [(one["stage"], one["task"]) for one in answer["tasks"]] == [(STAGE, TASK)]
    (order, bundle, _digest, _judged), *others = real.founding.founded
    assert (bundle, others) == (site.bundle, [])
    assert (order.cluster_name, order.kubernetes_version) == ("prod", "1.35.4")
    assert (order.service_cidr, order.extra_sans) == ("10.96.0.0/16", ("api.example.org",))
    body = kubeconfig(site)
    assert body["clusters"][0]["cluster"] == {
        "server": "https://api.prod.example:6443",
        "tls-server-name": "api.prod.example",
        "certificate-authority-data": text(cluster_ca.certificate),
    }
    assert body["users"][0]["user"]["client-key-data"] == text(site.vault.decrypt(site.site.admin_key.read_bytes()))


async def test_what_happens_is_shown_line_by_line_while_it_happens(bed: InitBed, site: InitSite) -> None:
    waiting, lines = Waiting(), Lines()
    bed.founding.acts = [waiting]
    async with running(bed) as machine:
        acting = asyncio.create_task(act(site, machine, lines))
        await asyncio.to_thread(lines.shown, TASK)
        assert not acting.done()
        waiting.go_on.set()
        await acting
    asked, judged, stage, task = lines.all
    assert asked == f"  cp-1: requesting evidence from {machine.endpoint}"
    assert judged == "  cp-1: is the enrolled machine, booted as machines (posture boot)"
    assert stage == f"  cp-1: {STAGE}"
    *words, seconds, unit = task.split()
    assert (words, unit) == (["-", "Set", "up", "the", "control", "plane"], "s")
    assert re.fullmatch(r"[0-9]+\.[0-9]", seconds)


async def test_no_secret_is_shown_and_a_planted_one_would_be_found(bed: InitBed, site: InitSite) -> None:
    lines = Lines()
    async with running(bed) as machine:
        answer = await act(site, machine, lines)
        log = machine.stream.getvalue()
    assert answer["changed"]
    assert leaked(site, answer, *lines.all, log) == []
    key = site.bundle.master.key.reveal()
    assert leaked(site, {"planted": key.hex()}) == [key.hex().encode()]


async def test_the_second_run_asks_nobody(bed: InitBed, site: InitSite) -> None:
    lines = Lines()
    async with running(bed) as machine:
        await act(site, machine)
        before = site.site.admin_kubeconfig.read_bytes()
    answer = await act(site, machine, lines, wait_seconds=0)
    assert not answer.get("failed"), answer
    assert (answer["changed"], answer["cluster_id"]) == (False, site.bundle.cluster_id.hex())
    assert (lines.all, site.site.admin_kubeconfig.read_bytes()) == ([], before)


async def test_check_mode_asks_nobody_and_writes_nothing(bed: InitBed, site: InitSite) -> None:
    async with running(bed) as machine:
        answer = await act(site, machine, check_mode=True)
    assert (answer["changed"], bed.founding.founded) == (True, [])
    assert not site.site.admin_key.exists()


# ---- broken off


async def test_broken_off_it_says_so_and_follows_the_same_work_to_its_end(bed: InitBed, site: InitSite) -> None:
    waiting, lines = Waiting(), Lines()
    bed.founding.acts = [waiting]
    async with running(bed) as machine:
        acting = asyncio.create_task(act(site, machine, lines))
        await asyncio.to_thread(lines.shown, TASK)
        await machine.close()
        await asyncio.to_thread(lines.shown, "trying again in 1.0 s")
        await machine.open_again()
        waiting.go_on.set()
        answer = await acting
    assert not answer.get("failed"), answer
    assert (answer["changed"], len(bed.founding.founded)) == (True, 1)
    assert len([line for line in lines.all if TASK in line]) == 1


async def test_after_a_failure_the_next_run_goes_on(bed: InitBed, site: InitSite) -> None:
    failed = KubeadmError("expected phase certs to end well", reason=Reason.KUBEADM_PHASE_FAILED)
    bed.founding.acts = [failing(failed), lambda _reporter: None]
    async with running(bed) as machine:
        assert (await act(site, machine))["reason"] == "KUBEADM_PHASE_FAILED"
        assert (await act(site, machine))["changed"]
    (first, _keys, digest, _judged), (second, _same, again, _too) = bed.founding.founded
    assert (first.admin_request, digest) != (b"", "")
    assert (again, second.cluster_name) == (digest, "prod")


async def test_another_request_is_refused_by_name_while_one_is_at_work(bed: InitBed, site: InitSite) -> None:
    waiting, lines = Waiting(), Lines()
    bed.founding.acts = [waiting]
    async with running(bed) as machine:
        first = asyncio.create_task(act(site, machine, lines))
        await asyncio.to_thread(lines.shown, TASK)
        other = await act(site, machine, kubernetes_version="1.36.0")
        waiting.go_on.set()
        assert (await first)["changed"]
    assert other["reason"] == "INIT_REQUEST_DIFFERS"


# ---- refused, failed


async def test_a_machine_of_another_boot_gets_nothing(real: InitBed, site: InitSite) -> None:
    site.write_profile("deb13-cmdline")
    async with running(real) as machine:
        answer = await act(site, machine)
        events = {json.loads(line)["event"] for line in machine.stream.getvalue().splitlines()}
    assert (answer["failed"], answer["reason"], real.founding.founded) == (True, "PCR_MISMATCH", [])
    assert events & {"init_testify", "init_begin"} == {"init_testify"}, "no request has reached the machine"
    assert not site.site.admin_kubeconfig.exists()


async def test_a_machine_that_nobody_enrolled_gets_nothing(bed: InitBed, site: InitSite) -> None:
    with InitBed().attester() as other:
        site.enroll(other.ek)
    async with running(bed) as machine:
        answer = await act(site, machine)
    assert (answer["reason"], bed.founding.founded) == ("IDENTITY_UNKNOWN", [])


async def test_a_failing_step_is_told_with_its_last_lines_and_no_secret(bed: InitBed, site: InitSite) -> None:
    failed = KubeadmError("expected phase certs to end well", reason=Reason.KUBEADM_PHASE_FAILED, hint="Look at it.")
    secret, lines = site.bundle.master.key.reveal().hex(), Lines()
    bed.founding.acts = [failing(failed, "no space left on device", f"key {secret}", "\x1b[2Jgone")]
    async with running(bed) as machine:
        answer = await act(site, machine, lines)
    assert answer["failed"]
    assert (answer["msg"], answer["hint"]) == ("expected phase certs to end well", "Look at it.")
    assert (answer["stage"], answer["task"]) == (STAGE, TASK)
    assert answer["log"] == ["no space left on device", "key [redacted]", "\\x1b[2Jgone"]
    assert leaked(site, answer, *lines.all) == []


def foreign(ca: ClusterCa, _order: InitOrder) -> bytes:
    return ca.kubeconfig(request_of())


def with_key(ca: ClusterCa, order: InitOrder) -> bytes:
    body = ca.body(order.admin_request)
    body["users"][0]["user"]["client-key-data"] = text(b"a key")
    return dump(body)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        pytest.param(foreign, "INIT_CERTIFICATE_FOREIGN", id="a certificate for another key"),
        pytest.param(with_key, "INIT_KUBECONFIG_HOLDS_KEY", id="a key"),
        pytest.param(lambda _ca, _order: b"{}", "INIT_KUBECONFIG_MALFORMED", id="no kubeconfig"),
    ],
)
async def test_what_is_not_the_admins_own_is_not_written(
    bed: InitBed, site: InitSite, cluster_ca: ClusterCa, given: Callable[[ClusterCa, InitOrder], bytes], reason: str
) -> None:
    bed.founding.kubeconfig = lambda order: given(cluster_ca, order)
    async with running(bed) as machine:
        answer = await act(site, machine)
    assert (answer["failed"], answer["reason"]) == (True, reason)
    assert not site.site.admin_kubeconfig.exists()


async def test_a_machine_that_made_another_cluster_is_not_believed(bed: InitBed, site: InitSite) -> None:
    class Elsewhere(Founding):
        def found(self, order: InitOrder, bundle: KeyBundle, *, digest: str, judged: Any, reporter: Any) -> Success:
            made = super().found(order, bundle, digest=digest, judged=judged, reporter=reporter)
            return replace(made, cluster_id=b"x" * 32)

    bed.desk._founder = Elsewhere(kubeconfig=bed.founding.kubeconfig)
    async with running(bed) as machine:
        answer = await act(site, machine)
    assert answer["reason"] == "CLUSTER_ID_MISMATCH"
    assert not site.site.admin_kubeconfig.exists()


async def test_where_nobody_listens_it_says_what_to_look_at(site: InitSite, bed: InitBed) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        answer = await asyncio.to_thread(site.act, held.getsockname()[1], wait_seconds=0)
    assert (answer["failed"], answer["reason"]) == (True, "PEER_UNREACHABLE")
    assert "systemctl status attested-bootstrapper" in answer["hint"]
    assert bed.founding.founded == []
