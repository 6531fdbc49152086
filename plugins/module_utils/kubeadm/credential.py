# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kubelet's own credential: certificate and key in one PEM file, named by its kubeconfig.

The PEM file exists before the kubelet starts, so no certificate request has to wait for approval.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from .._deps.crypto import serialization, unreadable, x509
from ..core.documents import load_document
from ..core.files import make_directory, place_link, read_bytes, write_atomic
from ..errors import KubeadmError
from ..reasons import Reason
from .render import documents

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from ..core.host import Clock
    from .spec import KubernetesPaths

RENEW_BELOW = timedelta(hours=24)
LONGER_THAN_ANY_TICKETS = timedelta(days=30)
"""A ticket's certificate is valid for 72 hours, kubeadm's certificate for a year."""
KUBEADMS_IS_KEPT = timedelta(hours=48)
"""The age at which a ticket's certificate is renewed too. A revoked machine must not keep read access for a year."""

_LIMIT = 1 << 20
_STAMP = "%Y-%m-%d-%H-%M-%S"
_FILES = "kubelet-client-????-??-??-??-??-??.pem"
_NODE_GROUP = "system:nodes"
_MACHINE_GROUP = "attested:"


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletCredential:
    """A client certificate and its private key, both PEM."""

    certificate: bytes
    key: bytes

    def to_pem(self) -> bytes:
        """Return the content of the kubelet's file: certificate, then key."""
        return self.certificate.strip() + b"\n" + self.key.strip() + b"\n"

    def __repr__(self) -> str:
        """Never show the key."""
        return "KubeletCredential(…)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Validity:
    """The serial number (hex) of a certificate, and the start and end of its validity."""

    serial: str
    begins: datetime
    ends: datetime

    @property
    def is_kubeadms(self) -> bool:
        """Whether it is valid for longer than a ticket's certificate, so that kubeadm must have issued it."""
        return self.ends - self.begins > LONGER_THAN_ANY_TICKETS

    @property
    def renews(self) -> datetime:
        """When to renew the certificate.

        This is one day before its end, or a third of its lifetime if that is shorter. kubeadm's certificate is replaced
        two days after it was issued.
        """
        if self.is_kubeadms:
            return self.begins + KUBEADMS_IS_KEPT
        return self.ends - min(RENEW_BELOW, (self.ends - self.begins) / 3)


def render_kubeconfig(
    *, server: str, ca: bytes, cluster_name: str, user: str, credential: Path, tls_server_name: str = ""
) -> bytes:
    """Return a kubeconfig for ``server`` (URL) that names ``credential`` as certificate and key file.

    ``tls_server_name`` is the name in the server's certificate, if it differs from the host of the URL.
    """
    context = f"{user}@{cluster_name}"
    cluster = {"server": server, "certificate-authority-data": base64.b64encode(ca).decode()}
    if tls_server_name:
        cluster["tls-server-name"] = tls_server_name
    return documents(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": cluster_name, "cluster": cluster}],
            "users": [{"name": user, "user": {"client-certificate": str(credential), "client-key": str(credential)}}],
            "contexts": [{"name": context, "context": {"cluster": cluster_name, "user": user}}],
            "current-context": context,
        }
    )


def place(credential: KubeletCredential, paths: KubernetesPaths, *, clock: Clock) -> bool:
    """Write the PEM file and the link ``kubelet-client-current.pem`` to it.

    Returns whether anything changed. The link is replaced by rename, so the kubelet never reads a partial credential.
    Older files are removed, also those of a run that was killed before its rename.
    """
    link = paths.kubelet_credential
    content = credential.to_pem()
    if link.is_symlink() and link.exists() and read_bytes(link, limit=_LIMIT) == content:
        return False
    make_directory(link.parent, mode=0o700)
    target = link.with_name(f"kubelet-client-{clock.now():{_STAMP}}.pem")
    write_atomic(target, content)
    # The target is relative, as in the kubelet's own link: the kubelet refuses a link that leaves its directory.
    place_link(link, target.name)
    for other in link.parent.glob(_FILES):
        if other != target:
            other.unlink(missing_ok=True)
    return True


def embedded_credential(kubeconfig: bytes) -> KubeletCredential | None:
    """Return the credential embedded in a kubeconfig of kubeadm, or None if the kubeconfig names files."""
    try:
        user: dict[str, Any] = load_document(kubeconfig)["users"][0]["user"]
        if "client-certificate-data" not in user:
            return None
        return KubeletCredential(
            certificate=base64.b64decode(user["client-certificate-data"], validate=True),
            key=base64.b64decode(user["client-key-data"], validate=True),
        )
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise _malformed("one user") from error


def adopt_embedded(paths: KubernetesPaths, *, clock: Clock) -> bool:
    """Move the credential that kubeadm init embedded in kubelet.conf into the PEM file.

    Returns whether anything changed; the kubeconfig then names the link.
    """
    text = read_bytes(paths.kubelet_config, limit=_LIMIT)
    credential = embedded_credential(text)
    if credential is None:
        return False
    place(credential, paths, clock=clock)
    config = load_document(text)
    config["users"][0]["user"] = {
        "client-certificate": str(paths.kubelet_credential),
        "client-key": str(paths.kubelet_credential),
    }
    return write_atomic(paths.kubelet_config, documents(config))


def authorities_of(kubeconfig: bytes) -> bytes:
    """Return the CAs (PEM) that a kubeconfig trusts; raises KUBECONFIG_MALFORMED."""
    return base64.b64decode(_cluster(_document(kubeconfig))["certificate-authority-data"])


def trusting(kubeconfig: bytes, authorities: bytes) -> bytes:
    """Return a kubeconfig that trusts all of ``authorities`` (PEM); raises KUBECONFIG_MALFORMED.

    A renewal by kubeadm writes only the first CA, and then clients refuse an API server with a certificate of another
    CA.
    """
    document = _document(kubeconfig)
    cluster = _cluster(document)
    wanted = base64.b64encode(authorities).decode("ascii")
    if cluster["certificate-authority-data"] == wanted:
        return kubeconfig
    cluster["certificate-authority-data"] = wanted
    return documents(document)


def _document(kubeconfig: bytes) -> Any:
    try:
        return load_document(kubeconfig)
    except ValueError as error:
        raise _malformed("one cluster") from error


def _cluster(document: Any) -> dict[str, Any]:
    try:
        cluster: dict[str, Any] = document["clusters"][0]["cluster"]
        base64.b64decode(cluster["certificate-authority-data"], validate=True)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise _malformed("one cluster") from error
    return cluster


def _malformed(what: str) -> KubeadmError:
    return KubeadmError(f"expected a kubeconfig with {what}, found something else", reason=Reason.KUBECONFIG_MALFORMED)


def remaining_seconds(paths: KubernetesPaths, *, clock: Clock) -> float | None:
    """Return how long the kubelet's certificate stays valid; negative if expired, None if missing."""
    found = validity(paths)
    return None if found is None else (found.ends - clock.now()).total_seconds()


def validity(paths: KubernetesPaths) -> Validity | None:
    """Return the validity of the kubelet's certificate, or None if there is none.

    Raises KUBECONFIG_MALFORMED.
    """
    if not paths.kubelet_credential.exists():
        return None
    try:
        return validity_of(read_bytes(paths.kubelet_credential, limit=_LIMIT))
    except unreadable() as error:
        raise KubeadmError(
            f"expected a certificate in {paths.kubelet_credential}", reason=Reason.KUBECONFIG_MALFORMED
        ) from error


def validity_of(certificate: bytes) -> Validity:
    """Return the validity of the first certificate of a PEM; raises one of `unreadable`."""
    leaf = x509.load_pem_x509_certificate(certificate)
    return Validity(serial=f"{leaf.serial_number:x}", begins=leaf.not_valid_before_utc, ends=leaf.not_valid_after_utc)


def require_pair(credential: KubeletCredential, *, name: str) -> None:
    """Check that the certificate is for node ``name`` and belongs to the key.

    Raises KUBELET_CREDENTIAL_INVALID.
    """
    try:
        leaf = x509.load_pem_x509_certificate(credential.certificate)
        key = serialization.load_pem_private_key(credential.key, password=None)
    except unreadable() as error:
        raise _invalid("expected a certificate and a key in PEM") from error
    found = [(attribute.oid, str(attribute.value)) for attribute in leaf.subject]
    named = [part for part in found if part[0] != x509.NameOID.ORGANIZATION_NAME]
    groups = {value for oid, value in found if oid == x509.NameOID.ORGANIZATION_NAME}
    others = [group for group in groups - {_NODE_GROUP} if not group.startswith(_MACHINE_GROUP)]
    if named != [(x509.NameOID.COMMON_NAME, f"system:node:{name}")] or _NODE_GROUP not in groups or others:
        raise _invalid(
            f"expected the subject CN=system:node:{name},O={_NODE_GROUP} (and its machine's group), "
            f"got {leaf.subject.rfc4514_string()}"
        )
    if _spki(leaf.public_key()) != _spki(key.public_key()):
        raise _invalid("expected the certificate of this node's own key, got the certificate of another key")


def _spki(public: Any) -> bytes:
    encoded: bytes = public.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return encoded


def _invalid(message: str) -> KubeadmError:
    return KubeadmError(message, reason=Reason.KUBELET_CREDENTIAL_INVALID)
