# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ticket of a further control plane: sealed by an exchange with a real TPM, opened by the machine that has it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.ca import JoinCa, load_signing_key
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.derive import DiskId
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.issue import (
    ClusterFacts,
    Exchange,
    Issued,
    issue_ticket,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.key_bundle import KeyBundle
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.live_policy import Registration
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.master import SecretBytes
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.release import JoinRequest, decide_release
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.releaser import proven_by
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.identity import Role
from ansible_collections.attested.kubernetes.plugins.module_utils.proto.messages import message_class
from ansible_collections.attested.kubernetes.plugins.module_utils.services.join_client import kubelet_request
from ansible_collections.attested.kubernetes.plugins.module_utils.services.received_ticket import Expected, open_ticket
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.pins import JoinCaPins
from ansible_collections.attested.kubernetes.tests.support.control_plane import GivenControlPlane, shared_files
from ansible_collections.attested.kubernetes.tests.support.exchange import identity_of
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of
from ansible_collections.attested.kubernetes.tests.support.release_bed import make_bundle_of_test, make_cluster_ca
from ansible_collections.attested.kubernetes.tests.support.tpm_machine import booted_machine
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

if TYPE_CHECKING:
    from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.verify import VerifiedNode
    from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.commands import LoadedKey
    from ansible_collections.attested.kubernetes.tests.support.swtpm import Opened, Swtpm

BUNDLE = make_bundle_of_test()
KUBELET_KEY = SecretBytes(
    ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
)


def issued(node: VerifiedNode, ek: LoadedKey) -> Issued:
    """Return what a key service gives to this proven machine, which is registered as a control plane."""
    machine = node.machine
    asked = JoinRequest(
        disk_id="", certificate_request=kubelet_request(KUBELET_KEY, "cp-2"), is_control_plane=True, event_logs=b""
    )
    decision = decide_release(
        asked,
        proven=proven_by(node),
        registration=Registration(identity=identity_of(ek, "cp-2", Role.CONTROL_PLANE), revision="1"),
        held=None,
        fresh_disk=DiskId("22222222-2222-4222-8222-222222222222"),
        now=datetime.now(UTC),
    )
    return issue_ticket(
        decision,
        bundle=BUNDLE,
        facts=ClusterFacts(kubernetes_version="1.35.4", api_endpoint="api:6443"),
        ca=make_cluster_ca(),
        signing_key=load_signing_key(
            JoinCa(certificate=BUNDLE.join_ca_certificate, private_key=BUNDLE.join_ca_key.reveal())
        ),
        exchange=Exchange(secret=machine.secret, binding=machine.binding, recipient=machine.hpke_public),
        now=datetime.now(UTC),
        control_plane=GivenControlPlane().read(),
    )


def opened_by(ticket: Issued, **known: Any) -> Any:
    """Open it with what a machine has: ``binding``, ``secret`` and ``one_time_key``."""
    message = message_class("join.IssueJoinTicketResponse")(ticket=ticket.ticket, ticket_signature=ticket.signature)
    expected = Expected(
        cluster_id=BUNDLE.cluster_id,
        node_name="cp-2",
        disk_id="",
        binding=known.pop("binding"),
        kubelet_key=KUBELET_KEY,
        role=Role.CONTROL_PLANE,
    )
    pins = JoinCaPins.from_pem(BUNDLE.join_ca_certificate)
    return open_ticket(message.SerializeToString(), expected=expected, pins=pins, now=datetime.now(UTC), **known)


def test_it_opens_on_its_machine_and_not_after_another_boot(swtpm: Swtpm, opened: Opened) -> None:
    """The credential opens on its machine whatever that machine booted; the box needs the one-time key as well."""
    with opened(swtpm) as tpm:
        machine = booted_machine(tpm)
        policy = machine.policy()
        challenge, record = machine.challenged(policy)
        given = machine.answered(challenge)
        ticket = issued(machine.verified(given, record, policy), machine.ek)
    known = {"binding": given.binding, "secret": given.secret, "one_time_key": given.one_time_key}
    secrets = opened_by(ticket, **known).secrets
    assert {name: data.reveal() for name, data in secrets.control_plane_files.items()} == shared_files()
    assert KeyBundle.from_bytes(secrets.key_service_bundle.reveal()) == BUNDLE
    assert secrets.policy == GivenControlPlane().read().policy
    swtpm.reset()
    with opened(swtpm) as tpm:
        again = booted_machine(tpm, "deb13-cmdline").answered(challenge)
    assert again.secret == given.secret
    assert code_of(lambda: opened_by(ticket, **{**known, "one_time_key": again.one_time_key})) == "SEAL_UNOPENABLE"


def test_another_machine_cannot_learn_what_opens_it(swtpm: Swtpm, opened: Opened, swtpms: Any) -> None:
    """Its TPM refuses the credential that was made for another one."""
    with opened(swtpm) as tpm:
        machine = booted_machine(tpm)
        challenge, _record = machine.challenged(machine.policy())
    with opened(swtpms("b")) as other:
        assert code_of(lambda: booted_machine(other).answered(challenge)) == "TPM_CREDENTIAL_REFUSED"
