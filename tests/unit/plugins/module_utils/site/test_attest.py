# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The admin's side of an exchange over ssh, against a machine with a recorded boot."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from ansible_collections.attested.kubernetes.plugins.module_utils.attestation import (
    BindingContext,
    ChallengeRequest,
    Demands,
    LockState,
    Purpose,
    answer,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.bootstrap.answers import AnswerStore
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError, PolicyError
from ansible_collections.attested.kubernetes.plugins.module_utils.nodelock.log import with_lock
from ansible_collections.attested.kubernetes.plugins.module_utils.policy import (
    MeasurementProfile,
    Posture,
    Preset,
    Role,
    SitePolicy,
    learn_preset,
    preset_registers,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.site.attest import Testimony as Said
from ansible_collections.attested.kubernetes.plugins.module_utils.site.attest import Verifier
from ansible_collections.attested.kubernetes.plugins.module_utils.site.enrolment import vouch
from ansible_collections.attested.kubernetes.plugins.module_utils.site.identities import (
    InventoryNode,
    render_identity_file,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.site.sources import Delivered
from ansible_collections.attested.kubernetes.plugins.module_utils.system import SystemRandom
from ansible_collections.attested.kubernetes.tests.support import boots
from ansible_collections.attested.kubernetes.tests.support.ek import Authority, der, ek_extensions
from ansible_collections.attested.kubernetes.tests.support.exchange import (
    CLUSTER_ID,
    NOW,
    identity_of,
    learned,
    logs_of,
)
from ansible_collections.attested.kubernetes.tests.support.soft_tpm import SoftTpm

if TYPE_CHECKING:
    from datetime import datetime


class Clock:
    def now(self) -> datetime:
        return NOW

    def monotonic(self) -> float:
        return 0.0

    def sleep(self, seconds: float) -> None:
        raise AssertionError(seconds)


@dataclass
class Machine:
    """A node at the other end of an ssh connection; a test changes what it says."""

    tpm: SoftTpm
    boot: boots.Boot
    nodelock: bytes = b""
    cluster_id: bytes = CLUSTER_ID
    answered: Any = None
    certificates: tuple[bytes, ...] = ()
    changes: dict[str, Any] = field(default_factory=dict)

    def identify(self, purpose: Purpose) -> bytes:
        return ChallengeRequest(
            ek_public=self.tpm.ek.public, ak_public=self.tpm.ak.public, ek_certificates=self.certificates
        ).to_bytes()

    def answer(self, purpose: Purpose, challenge: Any) -> Said:
        logs = logs_of(self.boot, nodelock=self.nodelock)
        said = self.changes.get("purpose", purpose)
        context = BindingContext(purpose=said, cluster_id=self.cluster_id, request=logs.to_bytes())
        self.answered = answer(self.tpm, challenge, context, ek=self.tpm.ek, ak=self.tpm.ak, logs=logs)
        sent = self.changes.get("logs", logs)
        return Said(binding=self.answered.bound.to_bytes(), event_logs=sent.to_bytes(), handle="h")

    def lock(self) -> None:
        self.nodelock = with_lock(b"", register=15, cluster_id=CLUSTER_ID)
        self.tpm.pcr_event(15, CLUSTER_ID)


@pytest.fixture
def machine() -> Machine:
    boot = boots.load("deb13-base")
    return Machine(tpm=SoftTpm(boot.pcrs), boot=boot)


def policy(machine: Machine, *, name: str = "cp-1", boot: str = "deb13-base") -> SitePolicy:
    identity = identity_of(machine.tpm.ek, name, Role.CONTROL_PLANE)
    return SitePolicy(profiles=[learned(boots.load(boot))], identities=[identity])


VERIFIER = Verifier(cluster_id=CLUSTER_ID, demands=Demands(), clock=Clock(), random=SystemRandom())


def test_enrolment_proves_the_tpm_and_its_boot_without_a_policy(machine: Machine) -> None:
    found = VERIFIER.enroll(machine)
    assert (found.ek_sha256, found.lock.state) == (machine.tpm.ek.public.spki_sha256(), LockState.UNLOCKED)


def machine_with(boot_name: str) -> Machine:
    boot = boots.load(boot_name)
    return Machine(tpm=SoftTpm(boot.pcrs), boot=boot)


def profile_of(machine: Machine, preset: Preset) -> MeasurementProfile:
    """Learn over the wire, as the enrolment does."""
    found = VERIFIER.enroll(machine, registers=preset_registers(preset))
    return learn_preset("p", preset, pcrs=found.quote.pcrs, events=found.events, facts=found.facts)


@pytest.mark.parametrize(
    ("boot", "preset"),
    [
        ("deb13-base", Preset.IMAGE),
        ("deb13-base", Preset.STRICT),
        ("deb13-grub-secureboot", Preset.SECURE_BOOT),
        ("deb13-secureboot", Preset.AUTO),
    ],
)
def test_a_machine_that_a_profile_was_learned_from_is_accepted_by_it(boot: str, preset: Preset) -> None:
    """Quoted are the registers of values and of facts; the node is locked as it is when it is verified."""
    machine = machine_with(boot)
    profile = profile_of(machine, preset)
    machine.lock()
    known = SitePolicy(profiles=[profile], identities=[identity_of(machine.tpm.ek, "w-1", Role.WORKER)])
    verified, _handle = VERIFIER.verify(machine, purpose=Purpose.VERIFY, node="w-1", policy=known)
    assert set(verified.machine.quote.pcrs) == {*profile.demanded_registers, 15}
    assert verified.verdict.posture is Posture.BOOT


def test_another_boot_option_on_the_same_machine_is_refused_by_its_own_code() -> None:
    """The whole chain of an assertion: wire, replay, facts, decision."""
    machine = machine_with("deb13-grub-secureboot")
    profile = profile_of(machine, Preset.SECURE_BOOT)
    fewer = replace(profile, assertions=replace(profile.assertions, boot_options=("ro",)))
    machine.lock()
    known = SitePolicy(profiles=[fewer], identities=[identity_of(machine.tpm.ek, "w-1", Role.WORKER)])
    with pytest.raises(PolicyError) as caught:
        VERIFIER.verify(machine, purpose=Purpose.VERIFY, node="w-1", policy=known)
    assert caught.value.code == "BOOT_OPTION_UNKNOWN"
    assert "got root=LABEL=root console=ttyS0 quiet systemd.show_status=auto" in caught.value.message


def test_what_was_not_quoted_is_not_read_to_a_person(machine: Machine) -> None:
    asked = VERIFIER.enroll(machine, registers=(7,))
    assert {line.pcr for line in asked.read()} == {7, 15}
    assert asked.facts.command_lines == ()


def test_what_is_sealed_for_init_opens_on_that_machine_only_once_kept(machine: Machine, tmp_path) -> None:
    verified, _handle = VERIFIER.verify(machine, purpose=Purpose.INIT, node="cp-1", policy=policy(machine))
    store = AnswerStore(tmp_path / "answers", require_memory=lambda _path: None)
    handle = store.put(machine.answered)
    box = verified.machine.seal(b"the cluster's keys")
    kept = store.take(handle)
    assert kept.open(box) == b"the cluster's keys"
    assert kept.pcrs == verified.machine.quote.pcrs
    with pytest.raises(AttestedError) as refused:
        store.take(handle)
    assert refused.value.code == "ANSWER_UNKNOWN"


def test_locked_machine_verifies_and_an_open_one_does_not(machine: Machine) -> None:
    with pytest.raises(AttestedError) as refused:
        VERIFIER.verify(machine, purpose=Purpose.VERIFY, node="cp-1", policy=policy(machine))
    assert refused.value.code == "NODELOCK_OPEN"
    machine.lock()
    verified, _handle = VERIFIER.verify(machine, purpose=Purpose.VERIFY, node="cp-1", policy=policy(machine))
    assert verified.machine.lock.state is LockState.LOCKED


def changed(machine: Machine, case: str) -> SitePolicy:
    """Change the good case in the one point that ``case`` names, and return the policy to judge it by."""
    if case == "another node's name":
        return policy(machine, name="w-9")
    if case == "another boot":
        return policy(machine, boot="deb13-cmdline")
    if case == "evidence for another purpose":
        machine.changes["purpose"] = Purpose.VERIFY
    if case == "evidence for another cluster":
        machine.cluster_id = b"d" * 32
    if case == "logs other than the bound ones":
        machine.changes["logs"] = replace(logs_of(machine.boot), userspace=b"")
    if case == "an unknown TPM":
        return SitePolicy(profiles=[learned(machine.boot)], identities=[])
    return policy(machine)


@pytest.mark.parametrize(
    ("case", "code"),
    [
        ("another node's name", "NODE_NAME_MISMATCH"),
        ("another boot", "PCR_MISMATCH"),
        ("evidence for another purpose", "BINDING_MISMATCH"),
        ("evidence for another cluster", "BINDING_MISMATCH"),
        ("logs other than the bound ones", "BINDING_MISMATCH"),
        ("an unknown TPM", "IDENTITY_UNKNOWN"),
    ],
)
def test_init_refuses(machine: Machine, case: str, code: str) -> None:
    judged_by = changed(machine, case)
    with pytest.raises(AttestedError) as refused:
        VERIFIER.verify(machine, purpose=Purpose.INIT, node="cp-1", policy=judged_by)
    assert refused.value.code == code


def node(ek: str | None, known_by: str = "") -> InventoryNode:
    return InventoryNode(name="w-1", role=Role.WORKER, ek_sha256=ek, known_by=known_by)


@pytest.mark.parametrize(
    ("before", "first_use", "expected"),
    [
        pytest.param("same", False, ("console fingerprint", False), id="a fingerprint that the admin wrote down"),
        pytest.param(None, True, ("insecure_first_use", True), id="first use, with a warning"),
    ],
)
def test_who_vouches_for_a_machine(machine: Machine, before, first_use: bool, expected) -> None:
    found = VERIFIER.enroll(machine)
    known = node(found.ek_sha256) if before else node(None)
    known_by, warning = vouch(found, before=known, insecure_first_use=first_use)
    assert (known_by, warning is not None) == expected


def test_the_maker_vouches_for_a_machine_by_name(machine: Machine) -> None:
    """What is written down names maker, model and root, and is one plain string for YAML and templates."""
    maker = Authority.root("Maker {{ x }} # Root: CA")
    certificate = der(maker.issue("", machine.tpm.ek.public.key(), ek_extensions()))
    machine.certificates = (certificate,)
    verifier = replace(VERIFIER, demands=Demands(ek_roots=(maker.certificate,)))
    known_by, warning = vouch(verifier.enroll(machine), before=None, insecure_first_use=False)
    assert (known_by, warning) == (
        "certificate chain of Infineon (IFX) SLB9670, root CN=Maker ?? x ?? ? Root: CA",
        None,
    )
    written = yaml.safe_load(render_identity_file(ek_sha256="a" * 64, known_by=known_by))
    assert written["attested_ek_known_by"] == known_by


@pytest.mark.parametrize(
    ("before", "code"),
    [
        pytest.param(node("f" * 64, "certificate chain"), "EK_CHANGED", id="another TPM under a known name"),
        pytest.param(node(None), "EK_NOT_VOUCHED_FOR", id="a TPM for which nobody vouches"),
        pytest.param(None, "EK_NOT_VOUCHED_FOR", id="a machine that the inventory does not know"),
    ],
)
def test_machine_is_not_enrolled(machine: Machine, before: InventoryNode | None, code: str) -> None:
    with pytest.raises(AttestedError) as refused:
        vouch(VERIFIER.enroll(machine), before=before, insecure_first_use=False)
    assert refused.value.code == code


@pytest.mark.parametrize(
    "handle",
    [pytest.param("0" * 32, id="no such answer"), pytest.param("../keys", id="a path"), pytest.param("", id="nothing")],
)
def test_handle_that_names_no_answer_is_refused(tmp_path, handle: str) -> None:
    with pytest.raises(AttestedError) as refused:
        AnswerStore(tmp_path, require_memory=lambda _path: None).take(handle)
    assert refused.value.code == "ANSWER_UNKNOWN"


def test_damaged_answer_is_refused_without_its_text(tmp_path) -> None:
    (tmp_path / ("0" * 32)).write_bytes(b'{"secret": "canary"}')
    with pytest.raises(AttestedError) as refused:
        AnswerStore(tmp_path, require_memory=lambda _path: None).take("0" * 32)
    assert refused.value.code == "ANSWER_UNKNOWN"
    assert "canary" not in repr(refused.value.__cause__) + str(refused.value)


def test_a_replaced_machine_needs_somebody_to_vouch_for_the_new_one(machine: Machine) -> None:
    found, old = VERIFIER.enroll(machine), node("f" * 64, "certificate chain")
    assert vouch(found, before=old, insecure_first_use=True, replacing=True)[0] == "insecure_first_use"
    with pytest.raises(AttestedError) as caught:
        vouch(found, before=old, insecure_first_use=False, replacing=True)
    assert caught.value.code == "EK_NOT_VOUCHED_FOR"


def test_a_second_run_of_a_replacement_finds_the_machine_that_is_there(machine: Machine) -> None:
    found = VERIFIER.enroll(machine)
    assert vouch(found, before=node(found.ek_sha256), insecure_first_use=False, replacing=True) == (
        "console fingerprint",
        None,
    )


def test_a_machine_that_was_replaced_does_not_come_back(machine: Machine) -> None:
    found = VERIFIER.enroll(machine)
    known = dataclasses.replace(node("f" * 64), replaced=(found.ek_sha256,))
    with pytest.raises(AttestedError) as caught:
        vouch(found, before=known, insecure_first_use=True, replacing=True)
    assert caught.value.code == "IDENTITY_REVOKED"


def test_papers_vouch_for_the_tpm_that_they_name(machine: Machine) -> None:
    found = VERIFIER.enroll(machine)
    papers = Delivered(found.ek_sha256, "EK certificate w-1.pem")
    assert vouch(found, before=node(None), insecure_first_use=False, delivered=papers) == (papers.label, None)


def test_another_tpm_than_the_papers_name_is_refused(machine: Machine) -> None:
    papers = Delivered("f" * 64, "EK certificate w-1.pem")
    with pytest.raises(AttestedError) as caught:
        vouch(VERIFIER.enroll(machine), before=node(None), insecure_first_use=True, delivered=papers)
    assert caught.value.code == "EK_NOT_AS_DELIVERED"
