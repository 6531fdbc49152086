# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The CA files of one control plane: read them, then stage, trust and activate successors.

    /etc/kubernetes/pki                     the files in use; each file is written by one rename
    /etc/kubernetes/attested-authorities    the staged successors, and a hash of the files that the components run
                                            with; readable by root only

Every file trusts a new CA before that CA signs anything, so a process killed between two files breaks no connection.
"""

from __future__ import annotations

import hashlib
import shutil
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

from ..core.files import read_bytes, write_atomic
from ..rotation.authorities import (
    AUTHORITIES,
    CERTIFYING,
    CLUSTER,
    SERVICE_ACCOUNTS,
    KubeletAuthorities,
    PlaneAuthorities,
)
from .ca_keypairs import Successor, join, make_successor, private_name, require_pair, signer_of, split, unusable
from .certificate_table import CERTIFICATES, ETCD, NO_COMPONENT, ORDER
from .credential import authorities_of, embedded_credential, trusting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ..core.host import Clock
    from ..result import Step
    from ..rotation.authorities import Authority
    from .certificate_renewal import Members, Pods, RenewalPlan, Turns
    from .certificate_table import Certificate
    from .spec import KubernetesPaths


KUBECONFIGS = ("admin.conf", "controller-manager.conf", "kubelet.conf", "scheduler.conf")

_LIMIT = 1 << 20
_PUBLIC, _PRIVATE = 0o644, 0o600
_NAME = "attested-authorities"
_MARK = "taken"
_SIGNING = "pki/ca-signing.crt"
_SIGNING_ARGUMENT = b"--cluster-signing-cert-file="


class AuthorityFiles:
    """The CA files of one control plane, in the phases of `AuthorityPhase`."""

    def __init__(self, paths: KubernetesPaths, *, clock: Clock) -> None:
        """Store the paths and the clock."""
        self._paths = paths
        self._staging = paths.kubernetes / _NAME
        self._clock = clock

    def observe(self, *, name: str) -> PlaneAuthorities:
        """Return the state of the control plane ``name``; raises AUTHORITY_UNUSABLE, FILE_UNUSABLE."""
        staged = self.staged()
        return PlaneAuthorities(
            name=name,
            signers={one.name: private_name(self._read(one.private)) for one in AUTHORITIES},
            trusted={one.name: tuple(self._public_keys(one)) for one in AUTHORITIES},
            issued={one.name: frozenset(self._issued(one)) for one in CERTIFYING},
            staged={name: require_pair(one, certified=_certified(name)) for name, one in staged.items()},
            taken=not self._staging.exists() or self._mark() == self._seen(),
            since=datetime.fromtimestamp((self._paths.root / SERVICE_ACCOUNTS.private).stat().st_mtime, tz=UTC),
        )

    def known(self) -> dict[str, bytes]:
        """Return the certificates and public keys (PEM) on this machine by key name; none of them is secret."""
        trusted = {name: pem for one in AUTHORITIES for name, pem in self._public_keys(one).items()}
        return trusted | {name: pem for one in self.staged().values() for name, pem in split(one.public).items()}

    def staged(self) -> dict[str, Successor]:
        """Return the staged successors by authority; seal them before they leave the machine."""
        return {one.name: self._staged_one(one) for one in AUTHORITIES} if self._staging.exists() else {}

    def make(self) -> None:
        """Make and stage a successor of each authority unless successors are staged.

        No component uses them yet.
        """
        now = self._clock.now()
        if not self._staging.exists():
            self.stage({one.name: make_successor(self._read(one.public), now=now) for one in AUTHORITIES})

    def stage(self, successors: Mapping[str, Successor]) -> bool:
        """Write all successors to the staging directory by one rename; return whether that changed anything.

        Raises AUTHORITY_UNUSABLE, FILE_UNUSABLE.
        """
        if set(successors) != {one.name for one in AUTHORITIES}:
            raise unusable(f"expected a successor of each authority, got those of {', '.join(sorted(successors))}")
        for name, successor in successors.items():
            require_pair(successor, certified=_certified(name))
        if self.staged() == dict(successors):
            return False
        fresh = self._staging.with_name(f".{_NAME}")
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(mode=0o700, parents=True)
        for one in AUTHORITIES:
            write_atomic(fresh / f"{one.name}.pub", successors[one.name].public, mode=_PUBLIC)
            write_atomic(fresh / f"{one.name}.key", successors[one.name].private, mode=_PRIVATE)
        shutil.rmtree(self._staging, ignore_errors=True)
        fresh.rename(self._staging)
        return True

    def trust(self, bundles: Mapping[str, tuple[str, ...]], known: Mapping[str, bytes]) -> None:
        """Write the CAs of ``bundles`` to each file, the signing CA first; raises AUTHORITY_UNUSABLE."""
        contents = {one: join(bundles[one.name], known) for one in AUTHORITIES}
        self._point_signing()
        for one, content in contents.items():
            write_atomic(self._paths.root / one.public, content, mode=_PUBLIC)
        self._write_signing()
        self._write_kubeconfigs()

    def activate(self, bundles: Mapping[str, tuple[str, ...]], known: Mapping[str, bytes]) -> None:
        """Sign with the successors from now on. A repetition repairs the files after a kill.

        Raises AUTHORITY_UNUSABLE if the successors are not staged.
        """
        staged = self.staged()
        for one in AUTHORITIES:
            if one.name not in staged or bundles[one.name][0] != private_name(staged[one.name].private):
                raise unusable(f"expected the successor of {one.name} in {self._staging}, found none")
        self.trust(bundles, known)
        for one in AUTHORITIES:
            write_atomic(self._paths.root / one.private, staged[one.name].private, mode=_PRIVATE)

    def mark(self) -> None:
        """Record that every component runs with the current files."""
        write_atomic(self._staging / _MARK, self._seen(), mode=_PRIVATE)

    def remove_staged(self) -> bool:
        """Remove the staging directory; return whether it existed."""
        if not self._staging.exists():
            return False
        gone = self._staging.with_name(f".{_NAME}")
        shutil.rmtree(gone, ignore_errors=True)
        self._staging.rename(gone)  # A partly removed directory must not count as staged successors.
        shutil.rmtree(gone)
        return True

    def _public_keys(self, one: Authority) -> dict[str, bytes]:
        return split(self._read(one.public))

    def _issued(self, one: Authority) -> Iterator[str]:
        authorities = self._public_keys(one)
        for certificate in CERTIFICATES:
            if certificate.authority == one.public:
                yield signer_of(self._shown(certificate), authorities)

    def _shown(self, certificate: Certificate) -> bytes:
        data = self._read(certificate.path)
        if certificate.path.suffix != ".conf":
            return data
        found = embedded_credential(data)
        if found is None:
            raise unusable(f"expected an embedded certificate in /{certificate.path}, it names a file")
        return found.certificate

    def _point_signing(self) -> None:
        """Give the controller manager its own signing file: it does not start if the file holds two CAs."""
        path = self._paths.kubernetes / "manifests/kube-controller-manager.yaml"
        manifest = read_bytes(path, limit=_LIMIT)
        before = _SIGNING_ARGUMENT + b"/etc/kubernetes/pki/ca.crt"
        after = _SIGNING_ARGUMENT + b"/etc/kubernetes/" + _SIGNING.encode()
        if before in manifest:
            self._write_signing()
            write_atomic(path, manifest.replace(before, after), mode=_PRIVATE)

    def _write_signing(self) -> None:
        first = next(iter(self._public_keys(CLUSTER).values()))
        write_atomic(self._paths.kubernetes / _SIGNING, first, mode=_PUBLIC)

    def _write_kubeconfigs(self) -> None:
        authorities = read_bytes(self._paths.ca, limit=_LIMIT)
        for name in KUBECONFIGS:
            path = self._paths.kubernetes / name
            if path.exists():
                write_atomic(path, trusting(read_bytes(path, limit=_LIMIT), authorities), mode=_PRIVATE)

    def _seen(self) -> bytes:
        """Return a hash of all files that a component reads when it starts."""
        files = [path for one in AUTHORITIES for path in (one.public, one.private)]
        files += [path for one in CERTIFICATES for path in one.files]
        digest = hashlib.sha256()
        for path in files:
            digest.update(hashlib.sha256(self._read(path)).digest())
        return digest.hexdigest().encode("ascii")

    def _mark(self) -> bytes:
        path = self._staging / _MARK
        return read_bytes(path, limit=_LIMIT) if path.exists() else b""

    def _staged_one(self, one: Authority) -> Successor:
        public, private = (read_bytes(self._staging / f"{one.name}.{end}", limit=_LIMIT) for end in ("pub", "key"))
        return Successor(public=public, private=private)

    def _read(self, path: object) -> bytes:
        return read_bytes(self._paths.root / str(path), limit=_LIMIT)


def observe_kubelet(paths: KubernetesPaths, *, name: str) -> KubeletAuthorities:
    """Return the CAs that the kubelet of node ``name`` trusts, and the CA of its client certificate.

    Raises AUTHORITY_UNUSABLE, FILE_UNUSABLE, KUBECONFIG_MALFORMED.
    """
    as_server = split(read_bytes(paths.ca, limit=_LIMIT))
    as_client = split(authorities_of(read_bytes(paths.kubelet_config, limit=_LIMIT)))
    return KubeletAuthorities(
        name=name,
        trusted=frozenset(as_server) & frozenset(as_client),
        named=frozenset(as_server) | frozenset(as_client),
        issued=signer_of(read_bytes(paths.kubelet_credential, limit=_LIMIT), as_server),
    )


def remove_serving_certificate(paths: KubernetesPaths, authorities: bytes) -> bool:
    """Remove the kubelet's serving certificate if the first CA of ``authorities`` (PEM) did not sign it.

    Returns whether the certificate was removed. A kubelet without a serving certificate requests one when it starts.
    """
    served = paths.kubelet_credential.with_name("kubelet-server-current.pem")
    (name, first), *_others = split(authorities).items()
    if not served.exists() or signer_of(read_bytes(served, limit=_LIMIT), {name: first}):
        return False
    served.unlink()
    return True


def trust_as_kubelet(paths: KubernetesPaths, authorities: bytes, *, restart: Callable[[], None]) -> bool:
    """Make this node's kubelet trust exactly ``authorities`` (PEM); return whether that changed anything.

    The kubelet reads the CAs of its kubeconfig only when it starts, and ca.crt again while it runs. So ca.crt is
    written last: if the run is killed before the restart, the two files differ and the next run repeats it.
    """
    config = read_bytes(paths.kubelet_config, limit=_LIMIT)
    wanted = trusting(config, authorities)
    if wanted == config and read_bytes(paths.ca, limit=_LIMIT) == authorities:
        return False
    write_atomic(paths.kubelet_config, wanted, mode=_PRIVATE)
    restart()
    write_atomic(paths.ca, authorities, mode=_PUBLIC)
    return True


def _certified(name: str) -> bool:
    return name in {one.name for one in CERTIFYING}


# One control plane in the phases that restart components: first the files, then each component.
#
#     turn → all etcd members healthy? → restart → healthy? → next component → kubelet and key service → mark
#
# The first unhealthy component stops the phase, so no second control plane is touched. Each phase can be repeated.


class Services(Protocol):
    """The other services that read the CAs only when they start: the kubelet and the key service."""

    def restart(self) -> None:
        """Restart the services; raises if one does not start."""


class LeafRenewal(Protocol):
    """Renews the certificates of this control plane; `ControlPlaneRenewal` on a machine."""

    def plan(self, *, at_once: bool = False) -> RenewalPlan:
        """Return the certificates to renew."""

    def apply(self, todo: RenewalPlan) -> tuple[Step, ...]:
        """Renew the planned certificates and restart each component that uses them."""


class PlaneRotation:
    """Runs the phases of one control plane; also raises the errors of `Pods`, `Members` and `Turns`."""

    def __init__(
        self,
        files: AuthorityFiles,
        *,
        renewal: LeafRenewal,
        pods: Pods,
        members: Members,
        turns: Turns,
        services: Services,
    ) -> None:
        """Store the files and the interfaces to the machine and the cluster."""
        self._files = files
        self._renewal = renewal
        self._pods = pods
        self._members = members
        self._turns = turns
        self._services = services

    def trust(self, bundles: Mapping[str, tuple[str, ...]], known: Mapping[str, bytes]) -> None:
        """Trust exactly the CAs of ``bundles``: the phases `TRUST` and `RETIRE`."""
        self._files.trust(bundles, known)
        try:
            for component in ORDER:
                if component != NO_COMPONENT:
                    self._restart(component)
        finally:
            self._turns.free()
        self._services.restart()
        self._files.mark()

    def issue(self, bundles: Mapping[str, tuple[str, ...]], known: Mapping[str, bytes]) -> tuple[Step, ...]:
        """Sign with the successors, and renew every certificate of this control plane: the phase `ISSUE`."""
        self._files.activate(bundles, known)
        steps = self._renewal.apply(self._renewal.plan(at_once=True))
        self._services.restart()
        self._files.mark()
        return steps

    def _restart(self, component: str) -> None:
        self._turns.take()
        if component == ETCD:
            self._members.require_healthy()
        self._pods.restart(component)
