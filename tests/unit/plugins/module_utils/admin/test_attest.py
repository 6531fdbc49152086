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
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.attest import Testimony as Said
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.attest import Verifier
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.enrolment import (
    Delivered,
    chip_keys,
    known_first,
    vouch,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.identities import (
    InventoryNode,
    render_identity_file,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemRandom
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError, PolicyError
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.challenge import (
    BindingContext,
    ChallengeRequest,
    answer,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.nodelock import LockState
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.node_lock import with_lock
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.verify import Demands
from ansible_collections.attested.kubernetes.plugins.module_utils.node.answers import AnswerStore
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.identity import Role
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.in_force import SitePolicy
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.learning import (
    Preset,
    learn_preset,
    preset_registers,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.profile import MeasurementProfile, Posture
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.binding import Purpose
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

    from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.verify import VerifiedMachine


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
    ek: Any = None

    def identify(self, purpose: Purpose) -> bytes:
        ek = self.ek or self.tpm.ek
        return ChallengeRequest(
            ek_public=ek.public, ak_public=self.tpm.ak.public, ek_certificates=self.certificates
        ).to_bytes()

    def answer(self, purpose: Purpose, challenge: Any) -> Said:
        logs = logs_of(self.boot, nodelock=self.nodelock)
        said = self.changes.get("purpose", purpose)
        context = BindingContext(purpose=said, cluster_id=self.cluster_id, request=logs.to_bytes())
        self.answered = answer(self.tpm, challenge, context, ek=self.ek or self.tpm.ek, ak=self.tpm.ak, logs=logs)
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
        ("deb13-grub-secureboot", Preset.AUTO),
        ("deb13-secureboot", Preset.AUTO),
        ("deb13-secureboot", Preset.SECURE_BOOT),
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
    assert verified.verdict.posture is (Posture.KEYS if preset is Preset.SECURE_BOOT else Posture.BOOT)


def test_another_boot_option_on_the_same_machine_is_refused_by_its_own_code() -> None:
    """The whole chain of an assertion: wire, replay, facts, decision."""
    machine = machine_with("deb13-grub-secureboot")
    profile = profile_of(machine, Preset.AUTO)
    kept = {pcr: values for pcr, values in profile.registers.items() if pcr in {4, 7}}
    fewer = replace(profile, registers=kept, assertions=replace(profile.assertions, boot_options=("ro",)))
    machine.lock()
    known = SitePolicy(profiles=[fewer], identities=[identity_of(machine.tpm.ek, "w-1", Role.WORKER)])
    with pytest.raises(PolicyError) as caught:
        VERIFIER.verify(machine, purpose=Purpose.VERIFY, node="w-1", policy=known)
    assert caught.value.code == "BOOT_OPTION_UNKNOWN"
    assert "got root=LABEL=root console=ttyS0 quiet systemd.show_status=auto" in caught.value.message


def test_what_was_not_quoted_is_not_read_to_a_person(machine: Machine) -> None:
    asked = VERIFIER.enroll(machine, registers=(7,))
    assert {line.pcr for line in asked.read()} == {7, 15}
    assert asked.facts.command_lines == {}


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


# ---- the second key of the chip


def second_of(machine: Machine, *, certificates: tuple[bytes, ...] = ()) -> Machine:
    """Return the same machine as it speaks by the other endorsement key of its TPM."""
    found = Machine(tpm=machine.tpm, boot=machine.boot, certificates=certificates)
    found.ek = machine.tpm.another_ek()
    return found


def both(machine: Machine, second: Machine, verifier: Verifier = VERIFIER) -> tuple[VerifiedMachine, VerifiedMachine]:
    found = verifier.enroll(machine)
    return found, verifier.second_key(second, found)


def test_one_attestation_key_proves_both_keys_of_its_chip(machine: Machine) -> None:
    second = second_of(machine)
    found, other = both(machine, second)
    assert (found.ek_sha256, other.ek_sha256) == (sha_of(machine), sha_of(second))
    assert found.quote.ak_name == other.quote.ak_name
    keys = chip_keys(found, other, before=None, insecure_first_use=True)
    assert (keys.ek_sha256, keys.alias) == (sha_of(machine), sha_of(second))


def sha_of(machine: Machine) -> str:
    return (machine.ek or machine.tpm.ek).public.spki_sha256()


def rebooted(machine: Machine) -> Machine:
    machine.tpm.reset()
    return second_of(machine)


def of_another_tpm(machine: Machine) -> Machine:
    return Machine(tpm=SoftTpm(machine.boot.pcrs), boot=machine.boot)


def shown_for_another(machine: Machine) -> Machine:
    """The machine shows the endorsement key of another TPM, and its own attestation key."""
    found = Machine(tpm=machine.tpm, boot=machine.boot)
    found.ek = SoftTpm().ek
    return found


@pytest.mark.parametrize(
    ("second", "code"),
    [
        pytest.param(of_another_tpm, "AK_MISMATCH", id="a key of another TPM, with that TPM's attestation key"),
        pytest.param(shown_for_another, "TPM_CREDENTIAL_REFUSED", id="another TPM's key shown beside the own AK"),
        pytest.param(rebooted, "TPM_RESET_BETWEEN", id="a reboot in between"),
        pytest.param(lambda machine: machine, "EK_SECOND_REPEATED", id="the first key again"),
    ],
)
def test_a_second_key_is_not_proven_by(machine: Machine, second: Any, code: str) -> None:
    found = VERIFIER.enroll(machine)
    with pytest.raises(AttestedError) as refused:
        VERIFIER.second_key(second(machine), found)
    assert refused.value.code == code


def test_a_second_key_needs_a_certificate_where_authorities_are_configured(machine: Machine) -> None:
    """A key of software would open its own challenges, so the attestation key alone proves nothing of it."""
    maker = Authority.root("Maker Root CA")
    machine.certificates = (der(maker.issue("", machine.tpm.ek.public.key(), ek_extensions())),)
    verifier = replace(VERIFIER, demands=Demands(ek_roots=(maker.certificate,)))
    second = second_of(machine)
    with pytest.raises(AttestedError) as refused:
        both(machine, second, verifier)
    assert refused.value.code == "EK_CERTIFICATE_MISSING"
    second.certificates = (der(maker.issue("", second.ek.public.key(), ek_extensions())),)
    found, other = both(machine, second, verifier)
    assert chip_keys(found, other, before=None).alias == sha_of(second)


def enrolled(machine: Machine, alias: str = "", **changes: Any) -> InventoryNode:
    ek = sha_of(machine)
    return dataclasses.replace(node(ek), **{"aliases": {ek: alias} if alias else {}, **changes})


def test_a_machine_that_shows_its_second_key_first_keeps_its_name(machine: Machine) -> None:
    """As after an update that put a certificate for the other key into the TPM."""
    second = second_of(machine)
    before = enrolled(machine, sha_of(second))
    shown = VERIFIER.enroll(second)
    assert vouch(shown, before=before, insecure_first_use=False) == ("console fingerprint", None)
    for asked in (None, VERIFIER.second_key(machine, shown)):
        keys = chip_keys(shown, asked, before=before)
        assert (keys.ek_sha256, keys.alias) == (sha_of(machine), sha_of(second))


def test_a_machine_that_shows_a_new_key_first_is_known_by_its_old_one(machine: Machine) -> None:
    """Both are proven to be of one chip, so the new one is its alias, if somebody vouches for that."""
    second = second_of(machine)
    before = enrolled(machine)
    shown = VERIFIER.enroll(second)
    with pytest.raises(AttestedError) as refused:
        vouch(known_first(shown, None, before=before)[0], before=before, insecure_first_use=True)
    assert refused.value.code == "EK_CHANGED"
    first, other = known_first(shown, VERIFIER.second_key(machine, shown), before=before)
    assert vouch(first, before=before, insecure_first_use=False)[0] == "console fingerprint"
    keys = chip_keys(first, other, before=before, insecure_first_use=True)
    assert (keys.ek_sha256, keys.alias) == (sha_of(machine), sha_of(second))
    with pytest.raises(AttestedError) as refused:
        chip_keys(first, other, before=before)
    assert refused.value.code == "EK_NOT_VOUCHED_FOR"


def test_what_the_site_knows_stays_when_nobody_asks_for_the_second_key(machine: Machine) -> None:
    found = VERIFIER.enroll(machine)
    assert chip_keys(found, None, before=enrolled(machine, "e" * 64)).alias == "e" * 64
    assert chip_keys(found, None, before=enrolled(machine)).alias == ""
    assert chip_keys(found, None, before=None).alias == ""


def test_another_machine_in_its_place_takes_no_second_key_over(machine: Machine) -> None:
    before = dataclasses.replace(node("f" * 64), aliases={"f" * 64: "e" * 64})
    keys = chip_keys(VERIFIER.enroll(machine), None, before=before)
    assert (keys.ek_sha256, keys.alias) == (sha_of(machine), "")


def test_a_second_key_that_the_admin_wrote_down_needs_nobody_else(machine: Machine) -> None:
    second = second_of(machine)
    found, other = both(machine, second)
    assert chip_keys(found, other, before=enrolled(machine, sha_of(second))).alias == sha_of(second)


@pytest.mark.parametrize(
    ("before", "others", "code"),
    [
        pytest.param({}, {}, "EK_NOT_VOUCHED_FOR", id="nobody vouches for it"),
        pytest.param({"alias": "e" * 64, "first_use": True}, {}, "EK_CHANGED", id="the site names another one"),
        pytest.param({"replaced": True, "first_use": True}, {}, "IDENTITY_REVOKED", id="it was replaced before"),
        pytest.param({"first_use": True}, {"ek": True}, "EK_ALIAS_TAKEN", id="it is another node's key"),
        pytest.param({"first_use": True}, {"alias": True}, "EK_ALIAS_TAKEN", id="it is another node's second key"),
        pytest.param({"first_use": True}, {"replaced": True}, "EK_ALIAS_TAKEN", id="another node replaced it"),
    ],
)
def test_a_second_key_that_is_proven_is_refused(machine: Machine, before: Any, others: Any, code: str) -> None:
    second = second_of(machine)
    found, other = both(machine, second)
    mine, its = sha_of(second), "d" * 64
    known = enrolled(machine, before.get("alias", ""), replaced=(mine,) if before.get("replaced") else ())
    neighbour = dataclasses.replace(
        node(mine if others.get("ek") else its),
        name="w-2",
        aliases={its: mine} if others.get("alias") else {},
        replaced=(mine,) if others.get("replaced") else (),
    )
    with pytest.raises(AttestedError) as refused:
        chip_keys(found, other, before=known, others=[neighbour], insecure_first_use=bool(before.get("first_use")))
    assert refused.value.code == code


def test_a_second_key_of_a_machine_that_was_replaced_does_not_come_back(machine: Machine) -> None:
    known = dataclasses.replace(node("f" * 64), replaced=("c" * 64,), aliases={"c" * 64: sha_of(machine)})
    with pytest.raises(AttestedError) as caught:
        vouch(VERIFIER.enroll(machine), before=known, insecure_first_use=True, replacing=True)
    assert caught.value.code == "IDENTITY_REVOKED"
