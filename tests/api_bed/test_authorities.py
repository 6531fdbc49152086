# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Three control planes of kubeadm's making get new authorities; their members of etcd take what is written all along.

Real members of etcd, started anew one at a time, and the real kubeadm. At the end the key of etcd's CA that a lost
control plane held is tried, as whoever has that machine would.
"""

from __future__ import annotations

import http.client
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.authorities import (
    TOKEN_LIFE,
    AuthorityPhase,
    split,
)
from ansible_collections.attested.kubernetes.tests.support.api_bed import certificate_builder, why_not
from ansible_collections.attested.kubernetes.tests.support.authority_bed import (
    ETCD,
    AuthorityBed,
    AuthorityRotation,
    BedKubelet,
    BedPlane,
    Client,
    Worker,
    authority_bed,
)
from ansible_collections.attested.kubernetes.tests.support.kubeadm import why_no_kubeadm
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ansible_collections.attested.kubernetes.plugins.module_utils.authorities import AuthorityPlan

OK = http.client.OK
REFUSED = 0  # in the handshake
MAKE, SHARE, TRUST, ISSUE, RETIRE, FORGET = AuthorityPhase


@pytest.fixture
def members(tmp_path: Path) -> Iterator[AuthorityBed]:
    """Three control planes with nothing but their members of etcd."""
    if reason := why_not() or why_no_kubeadm():
        pytest.skip(reason)
    with authority_bed(tmp_path / "members", "cp-1", "cp-2", "cp-3", api_servers=0) as started:
        yield started


@dataclass(frozen=True, slots=True, kw_only=True)
class Thief:
    """Somebody with a copy of the key of etcd's CA; ``keys`` is the directory of the copy."""

    keys: Path

    def client(self, plane: BedPlane) -> Client:
        """Return a client with a certificate that was minted just now."""
        return Client(believes=plane.pki / "etcd/ca.crt", certificate=self.mint("etcd/ca"))

    def mint(self, stem: str) -> Path:
        """Return the stem of a new client certificate of one CA."""
        ca = x509.load_pem_x509_certificate((self.keys / f"{stem}.crt").read_bytes())
        signing: Any = serialization.load_pem_private_key((self.keys / f"{stem}.key").read_bytes(), None)
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "thief")])
        made = (
            certificate_builder(subject, ca.subject, key.public_key())
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca.public_key()), critical=False)
            .sign(signing, hashes.SHA256())
        )
        target = self.keys / "minted"
        target.with_suffix(".crt").write_bytes(made.public_bytes(serialization.Encoding.PEM))
        target.with_suffix(".key").write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return target


def answers(bed: AuthorityBed, thief: Thief) -> dict[str, int]:
    """Return what each member says to whoever has that key."""
    return {
        plane.name: thief.client(plane).ask(plane.ports["client"], "GET", "/health") for plane in bed.planes.values()
    }


def rotate(bed: AuthorityBed, directory: Path) -> list[AuthorityPhase]:
    """Go the whole way, asking with the old key and with the new one; return the phases."""
    first = bed.planes["cp-1"]
    (old,) = split(first.paths.ca.read_bytes())
    shutil.copytree(first.pki, directory / "before")
    before, after = Thief(keys=directory / "before"), None
    good = dict.fromkeys(bed.planes, OK)
    kubelet = BedKubelet(name="w-1", root=directory / "w-1")
    kubelet.take_ticket(first)
    rotation, now = AuthorityRotation(bed=bed, old=old, kubelets={"w-1": kubelet}), datetime.now(UTC)
    while (plan := rotation.plan(now)).phases:
        phase = plan.phases[0]
        if phase is RETIRE and RETIRE not in rotation.phases:
            assert answers(bed, before) == good
            now = waited(plan, now)
        if phase in (ISSUE, RETIRE, FORGET):
            assert after is not None
            assert answers(bed, after) == good, phase
        rotation.step(plan)
        if phase is MAKE:
            after = copied_successor(first, directory / "after")
        if phase in (TRUST, ISSUE):
            assert answers(bed, before) == good, phase
    assert answers(bed, before) == dict.fromkeys(bed.planes, REFUSED)
    assert rotation.plan(now).phases == (), "a second run finds nothing to do"
    return rotation.phases


def waited(plan: AuthorityPlan, now: datetime) -> datetime:
    """Return when a rotation goes on that may not be ended yet: tokens of the key before are good for an hour."""
    assert plan.waits_until is not None
    assert now < plan.waits_until <= datetime.now(UTC) + TOKEN_LIFE
    return plan.waits_until


def copied_successor(plane: BedPlane, directory: Path) -> Thief:
    """Return somebody with the new key, which lies beside the files and signs nothing yet."""
    (directory / "etcd").mkdir(parents=True)
    successor = plane.files.staged()["etcd"]
    (directory / "etcd/ca.key").write_bytes(successor.private)
    (directory / "etcd/ca.crt").write_bytes(successor.public)
    return Thief(keys=directory)


def test_three_members_of_etcd_get_another_ca_and_never_stop_taking_what_is_written(
    members: AuthorityBed, tmp_path: Path
) -> None:
    with Worker(members) as worker:
        phases = rotate(members, tmp_path)
    assert phases == [MAKE, *[SHARE] * 2, *[TRUST] * 4, *[ISSUE] * 4, *[RETIRE] * 4, *[FORGET] * 3]
    assert (worker.lost, worker.taken > 0) == ([], True)
    stopped = [(name, component) for name, component in members.restarts if component == ETCD]
    assert stopped == [("cp-1", ETCD), ("cp-2", ETCD), ("cp-3", ETCD)] * 3
