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
import json
import re
import shutil
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol

from .._deps.crypto import ec, exceptions, hashes, rsa, serialization, unreadable, x509
from ..core.documents import load_json
from ..core.files import read_bytes, write_atomic
from ..errors import KubeadmError
from ..key_kinds import KeyUse, is_accepted, kind_of
from ..reasons import Reason
from ..rotation.authorities import (
    AUTHORITIES,
    CERTIFYING,
    CLUSTER,
    SERVICE_ACCOUNTS,
    KubeletAuthorities,
    PlaneAuthorities,
)
from .certificate_table import CERTIFICATES, ETCD, NO_COMPONENT, ORDER
from .credential import authorities_of, embedded_credential, trusting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from ..core.host import Clock
    from ..result import Step
    from ..rotation.authorities import Authority
    from .certificate_renewal import Members, Pods, RenewalPlan, Turns
    from .certificate_table import Certificate
    from .spec import KubernetesPaths


# CA certificates and keys as PEM: name them, split and join files, and make successors.

_BLOCK = re.compile(rb"-----BEGIN (?P<kind>[A-Z ]+)-----\n.*?\n-----END (?P=kind)-----", re.DOTALL)
_CERTIFICATE = b"CERTIFICATE"
_DIGITS = 16
_LIFE = timedelta(days=3650)
_CLOCK_SKEW = timedelta(minutes=5)
_PEM = serialization.Encoding.PEM


@dataclass(frozen=True, slots=True, kw_only=True)
class Successor:
    """A new key of one authority, in PEM.

    ``public`` is a CA certificate or a bare public key, ``private`` is the private key.
    """

    public: bytes
    private: bytes = field(repr=False)


def split(data: bytes) -> dict[str, bytes]:
    """Return the certificates or public keys of a PEM file by key name, in order.

    Raises AUTHORITY_UNUSABLE if there is none.
    """
    blocks = [match[0] + b"\n" for match in _BLOCK.finditer(data)]
    if not blocks:
        raise unusable("expected a certificate or a public key in PEM, found none")
    return {key_name(public_key(block)): block for block in blocks}


def join(names: Iterable[str], known: Mapping[str, bytes]) -> bytes:
    """Return one PEM file with the named certificates or keys in order.

    Raises AUTHORITY_UNUSABLE if one is unknown.
    """
    wanted = tuple(names)
    missing = [name for name in wanted if name not in known]
    if missing or not wanted:
        raise unusable(f"expected the public keys {', '.join(wanted) or '(none)'}, {', '.join(missing)} is unknown")
    return b"".join(known[name] for name in wanted)


def key_name(public: Any) -> str:
    """Return the name of a key: 16 digits of the hash of its SubjectPublicKeyInfo."""
    der = public.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(der).hexdigest()[:_DIGITS]


def public_key(block: bytes) -> Any:
    """Return the public key of one PEM block (certificate or key); raises AUTHORITY_UNUSABLE."""
    try:
        if _CERTIFICATE in block:
            return x509.load_pem_x509_certificate(block).public_key()
        return serialization.load_pem_public_key(block)
    except unreadable():
        raise unusable("expected a certificate or a public key in PEM, found something else") from None


def private_name(data: bytes) -> str:
    """Return the name of a private key in PEM.

    Raises AUTHORITY_UNUSABLE with a message that never quotes the key.
    """
    return key_name(_private(data).public_key())


def signer_of(certificate: bytes, authorities: Mapping[str, bytes]) -> str:
    """Return the name of the CA that signed the first certificate of a PEM, or "" if none did."""
    leaf = _certificate(certificate)
    for name, pem in authorities.items():
        try:
            leaf.verify_directly_issued_by(_certificate(pem))
        except (ValueError, TypeError, exceptions.InvalidSignature):
            continue
        return name
    return ""


def require_pair(successor: Successor, *, certified: bool) -> str:
    """Return the key name of a successor; raises AUTHORITY_UNUSABLE.

    The public key must belong to the private key. ``certified`` requires a self-signed certificate, else a bare key.
    """
    found = split(successor.public)
    is_certificate = _CERTIFICATE in successor.public
    if list(found) != [private_name(successor.private)] or is_certificate != certified:
        wanted = "a certificate" if certified else "a public key"
        raise unusable(f"expected {wanted} and the private key that belongs to it, got something else")
    (name,) = found
    key = public_key(successor.public)
    if not is_accepted(KeyUse.CLUSTER_AUTHORITY, key):
        raise unusable(f"expected a key of {KeyUse.CLUSTER_AUTHORITY.wanted}, got {kind_of(key)}")
    if certified and signer_of(successor.public, found) != name:
        raise unusable("expected a self-signed CA certificate, got another certificate")
    return name


def make_successor(before: bytes, *, now: datetime) -> Successor:
    """Return a new key of the same kind as the first key in ``before``.

    If ``before`` is a certificate, the successor has a certificate too. The name of the key is added to a CA's subject,
    so that the subjects of the old and the new CA differ.
    """
    (block, *_others) = split(before).values()
    key = _make_key(public_key(block))
    private = key.private_bytes(_PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption())
    if _CERTIFICATE not in block:
        public = key.public_key().public_bytes(_PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        return Successor(public=public, private=private)
    made = _self_signed(key, _certificate(block), now=now)
    return Successor(public=made.public_bytes(_PEM), private=private)


def _make_key(like: Any) -> Any:
    if isinstance(like, rsa.RSAPublicKey):
        return rsa.generate_private_key(65537, like.key_size)
    if isinstance(like, ec.EllipticCurvePublicKey):
        return ec.generate_private_key(like.curve)
    raise unusable(f"expected an RSA or an EC key, found {type(like).__name__}")


def _self_signed(key: Any, before: Any, *, now: datetime) -> Any:
    name = _renamed(before.subject, key_name(key.public_key()))
    usages = dict.fromkeys(_USAGES, False) | {
        "digital_signature": True,
        "key_cert_sign": True,
        "key_encipherment": True,
    }
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + _LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.KeyUsage(**usages), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )


_USAGES = (
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "key_cert_sign",
    "crl_sign",
    "encipher_only",
    "decipher_only",
)


def _renamed(subject: Any, name: str) -> Any:
    """Return the subject with the key's name as suffix of the common name; a previous key name is replaced."""
    common = x509.NameOID.COMMON_NAME
    attributes = [
        x509.NameAttribute(one.oid, f"{re.sub(r'-[0-9a-f]{16}$', '', str(one.value))}-{name}")
        if one.oid == common
        else one
        for one in subject
    ]
    return x509.Name(attributes)


def _certificate(pem: bytes) -> Any:
    try:
        return x509.load_pem_x509_certificate(pem)
    except unreadable():
        raise unusable("expected a certificate in PEM, found something else") from None


def _private(data: bytes) -> Any:
    try:
        return serialization.load_pem_private_key(data, password=None)
    except (ValueError, TypeError, exceptions.UnsupportedAlgorithm):
        raise unusable("expected a private key in PEM, found something else") from None


def unusable(message: str) -> KubeadmError:
    """Return the error AUTHORITY_UNUSABLE with this message."""
    return KubeadmError(message, reason=Reason.AUTHORITY_UNUSABLE)


# Successors as bytes. They leave a control plane only inside a box that is sealed to another control plane.


def render_successors(successors: Mapping[str, Successor]) -> bytes:
    """Return successors by authority as bytes. The bytes hold private keys: the caller must seal them."""
    pairs = {name: [one.public.decode("ascii"), one.private.decode("ascii")] for name, one in successors.items()}
    return json.dumps(pairs).encode("ascii")


def parse_successors(data: bytes) -> dict[str, Successor]:
    """Return successors by authority as `render_successors` wrote them; raises AUTHORITY_UNUSABLE.

    `AuthorityFiles.stage` checks that the public and the private key of each successor belong together.
    """
    try:
        return {
            str(name): Successor(public=public.encode("ascii"), private=private.encode("ascii"))
            for name, (public, private) in load_json(data).items()
        }
    except (ValueError, TypeError, AttributeError):
        raise unusable("expected successors by authority, got something else") from None  # the cause may quote a key


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
