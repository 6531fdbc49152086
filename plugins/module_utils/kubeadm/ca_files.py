# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of one control plane's authorities: looked at, believed, and given successors that first lie beside them.

    /etc/kubernetes/pki                     what is in force; each file is written by one rename
    /etc/kubernetes/attested-authorities    the successors, and the mark of what the components run with; root's alone

Whom a file believes it names before anything is signed by him, so a kill between two files refuses nobody.
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
    """One control plane's files, of the phases of `AuthorityPhase`."""

    def __init__(self, paths: KubernetesPaths, *, clock: Clock) -> None:
        """Keep where they lie."""
        self._paths = paths
        self._beside = paths.kubernetes / _NAME
        self._clock = clock

    def observe(self, *, name: str) -> PlaneAuthorities:
        """Return what is there, of the control plane ``name``; raises AUTHORITY_UNUSABLE, FILE_UNUSABLE."""
        staged = self.staged()
        return PlaneAuthorities(
            name=name,
            signers={one.name: private_name(self._read(one.private)) for one in AUTHORITIES},
            trusted={one.name: tuple(self._halves(one)) for one in AUTHORITIES},
            issued={one.name: frozenset(self._issued(one)) for one in CERTIFYING},
            staged={name: require_pair(one, certified=_certified(name)) for name, one in staged.items()},
            taken=not self._beside.exists() or self._mark() == self._seen(),
            since=datetime.fromtimestamp((self._paths.root / SERVICE_ACCOUNTS.private).stat().st_mtime, tz=UTC),
        )

    def known(self) -> dict[str, bytes]:
        """Return every public half that lies here, by name; nothing of it is secret."""
        believed = {name: pem for one in AUTHORITIES for name, pem in self._halves(one).items()}
        return believed | {name: pem for one in self.staged().values() for name, pem in split(one.public).items()}

    def staged(self) -> dict[str, Successor]:
        """Return the successors that lie beside the files, by authority; to be sealed before they go anywhere."""
        return {one.name: self._staged_one(one) for one in AUTHORITIES} if self._beside.exists() else {}

    def make(self) -> None:
        """Make a successor of each authority where none lies here; nothing uses it."""
        now = self._clock.now()
        if not self._beside.exists():
            self.stage({one.name: make_successor(self._read(one.public), now=now) for one in AUTHORITIES})

    def stage(self, successors: Mapping[str, Successor]) -> bool:
        """Lay successors beside the files, all of them or none; return whether that changed anything.

        Raises AUTHORITY_UNUSABLE, FILE_UNUSABLE.
        """
        if set(successors) != {one.name for one in AUTHORITIES}:
            raise unusable(f"expected a successor of each authority, got those of {', '.join(sorted(successors))}")
        for name, successor in successors.items():
            require_pair(successor, certified=_certified(name))
        if self.staged() == dict(successors):
            return False
        fresh = self._beside.with_name(f".{_NAME}")
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(mode=0o700, parents=True)
        for one in AUTHORITIES:
            write_atomic(fresh / f"{one.name}.pub", successors[one.name].public, mode=_PUBLIC)
            write_atomic(fresh / f"{one.name}.key", successors[one.name].private, mode=_PRIVATE)
        shutil.rmtree(self._beside, ignore_errors=True)
        fresh.rename(self._beside)
        return True

    def trust(self, bundles: Mapping[str, tuple[str, ...]], known: Mapping[str, bytes]) -> None:
        """Name in each file whom it believes, the first of them whoever signs here; raises AUTHORITY_UNUSABLE."""
        contents = {one: join(bundles[one.name], known) for one in AUTHORITIES}
        self._point_signing()
        for one, content in contents.items():
            write_atomic(self._paths.root / one.public, content, mode=_PUBLIC)
        self._write_signing()
        self._tell_kubeconfigs()

    def activate(self, bundles: Mapping[str, tuple[str, ...]], known: Mapping[str, bytes]) -> None:
        """Let the successors sign from now on; a kill in between leaves what a repetition sets right.

        Raises AUTHORITY_UNUSABLE where they do not lie here.
        """
        staged = self.staged()
        for one in AUTHORITIES:
            if one.name not in staged or bundles[one.name][0] != private_name(staged[one.name].private):
                raise unusable(f"expected the successor of {one.name} beside the files, it is not there")
        self.trust(bundles, known)
        for one in AUTHORITIES:
            write_atomic(self._paths.root / one.private, staged[one.name].private, mode=_PRIVATE)

    def mark(self) -> None:
        """Write down that every component runs with the files as they are now."""
        write_atomic(self._beside / _MARK, self._seen(), mode=_PRIVATE)

    def remove_staged(self) -> bool:
        """Remove what lies beside the files; return whether there was anything."""
        if not self._beside.exists():
            return False
        gone = self._beside.with_name(f".{_NAME}")
        shutil.rmtree(gone, ignore_errors=True)
        self._beside.rename(gone)  # what is half removed is not taken for successors
        shutil.rmtree(gone)
        return True

    def _halves(self, one: Authority) -> dict[str, bytes]:
        return split(self._read(one.public))

    def _issued(self, one: Authority) -> Iterator[str]:
        authorities = self._halves(one)
        for certificate in CERTIFICATES:
            if certificate.authority == one.public:
                yield signer_of(self._shown(certificate), authorities)

    def _shown(self, certificate: Certificate) -> bytes:
        data = self._read(certificate.path)
        if certificate.path.suffix != ".conf":
            return data
        found = embedded_credential(data)
        if found is None:
            raise unusable(f"expected a certificate inside of /{certificate.path}, it names a file")
        return found.certificate

    def _point_signing(self) -> None:
        """Let the controller manager sign with a file of its own: it does not start where that holds two CAs."""
        path = self._paths.kubernetes / "manifests/kube-controller-manager.yaml"
        manifest = read_bytes(path, limit=_LIMIT)
        before = _SIGNING_ARGUMENT + b"/etc/kubernetes/pki/ca.crt"
        after = _SIGNING_ARGUMENT + b"/etc/kubernetes/" + _SIGNING.encode()
        if before in manifest:
            self._write_signing()
            write_atomic(path, manifest.replace(before, after), mode=_PRIVATE)

    def _write_signing(self) -> None:
        first = next(iter(self._halves(CLUSTER).values()))
        write_atomic(self._paths.kubernetes / _SIGNING, first, mode=_PUBLIC)

    def _tell_kubeconfigs(self) -> None:
        authorities = read_bytes(self._paths.ca, limit=_LIMIT)
        for name in KUBECONFIGS:
            path = self._paths.kubernetes / name
            if path.exists():
                write_atomic(path, trusting(read_bytes(path, limit=_LIMIT), authorities), mode=_PRIVATE)

    def _seen(self) -> bytes:
        """Return a hash of everything that a component reads when it starts."""
        files = [path for one in AUTHORITIES for path in (one.public, one.private)]
        files += [path for one in CERTIFICATES for path in one.files]
        digest = hashlib.sha256()
        for path in files:
            digest.update(hashlib.sha256(self._read(path)).digest())
        return digest.hexdigest().encode("ascii")

    def _mark(self) -> bytes:
        path = self._beside / _MARK
        return read_bytes(path, limit=_LIMIT) if path.exists() else b""

    def _staged_one(self, one: Authority) -> Successor:
        public, private = (read_bytes(self._beside / f"{one.name}.{half}", limit=_LIMIT) for half in ("pub", "key"))
        return Successor(public=public, private=private)

    def _read(self, path: object) -> bytes:
        return read_bytes(self._paths.root / str(path), limit=_LIMIT)


def observe_kubelet(paths: KubernetesPaths, *, name: str) -> KubeletAuthorities:
    """Return whom the kubelet of node ``name`` believes as client and as server, and who signed what it shows.

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
    """Forget the certificate that the kubelet serves with where the first of ``authorities`` did not sign it.

    Returns whether it did. A kubelet that has none asks for one when it starts.
    """
    served = paths.kubelet_credential.with_name("kubelet-server-current.pem")
    (name, first), *_others = split(authorities).items()
    if not served.exists() or signer_of(read_bytes(served, limit=_LIMIT), {name: first}):
        return False
    served.unlink()
    return True


def trust_as_kubelet(paths: KubernetesPaths, authorities: bytes, *, restart: Callable[[], None]) -> bool:
    """Let this node's kubelet believe ``authorities`` (PEM) and nobody else; return whether it did not before.

    As client it reads them when it starts, as server again by itself. So ca.crt is written last: a run that is killed
    before the restart leaves the two different, and is repeated.
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


# One control plane through the phases that touch what runs: files, then its components one after the other.
#
#     turn → are all members of etcd well? → start anew → is it well? → the next component → its other services → mark
#
# The first that is not well ends it, so no second control plane is touched then. Each phase may be repeated.


class Services(Protocol):
    """What else on this machine keeps the CAs in memory: its kubelet, and its key service."""

    def restart(self) -> None:
        """Start them anew; raises where one does not come up."""


class LeafRenewal(Protocol):
    """Makes the certificates of this control plane anew, `ControlPlaneRenewal` on a machine."""

    def plan(self, *, at_once: bool = False) -> RenewalPlan:
        """Look at the machine."""

    def apply(self, todo: RenewalPlan) -> tuple[Step, ...]:
        """Renew what is planned and start each component anew."""


class PlaneRotation:
    """The phases of one control plane; what they raise besides is what `Pods`, `Members` and `Turns` raise."""

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
        """Keep the files and the surroundings."""
        self._files = files
        self._renewal = renewal
        self._pods = pods
        self._members = members
        self._turns = turns
        self._services = services

    def trust(self, bundles: Mapping[str, tuple[str, ...]], known: Mapping[str, bytes]) -> None:
        """Believe whom ``bundles`` name and nobody else: the phases `TRUST` and `RETIRE`."""
        self._files.trust(bundles, known)
        try:
            for component in ORDER:
                if component != NO_COMPONENT:
                    self._start_anew(component)
        finally:
            self._turns.free()
        self._services.restart()
        self._files.mark()

    def issue(self, bundles: Mapping[str, tuple[str, ...]], known: Mapping[str, bytes]) -> tuple[Step, ...]:
        """Let the successors sign, and make anew what the ones before signed: the phase `ISSUE`."""
        self._files.activate(bundles, known)
        steps = self._renewal.apply(self._renewal.plan(at_once=True))
        self._services.restart()
        self._files.mark()
        return steps

    def _start_anew(self, component: str) -> None:
        self._turns.take()
        if component == ETCD:
            self._members.require_healthy()
        self._pods.restart(component)
