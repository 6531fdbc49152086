# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Serving certificates of kubelets: each request is approved or denied, or waits for its machine.

Every control plane decides about every request. The decision depends only on the request, which is immutable, and on
the identity in the API. It is written by compare-and-set, so one control plane writes it and the others find it.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from .._deps.crypto import unreadable, x509
from ..errors import ApiError, AttestedError, Refusal
from ..policy.identity import Role
from ..policy.standing import require_good_standing
from ..reasons import Reason
from .auditing import refusal_of
from .kube_api import SERVING_SIGNER
from .kubelet import (
    MACHINE_GROUP,
    MAX_REQUEST_BYTES,
    NODE_GROUP,
    node_of,
    parse_request,
    require_subject,
    supported_key,
)
from .nodes import JOINED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..core.host import Clock
    from ..core.logs import Log
    from ..core.rate import TokenBuckets
    from ..policy.identity import NodeIdentity
    from .audit_log import AuditTrail
    from .kube_api import ServingRequests
    from .live_policy import LivePolicy


# The checks of a kubelet's request for a serving certificate. Pure.
#
# The signer copies subject, names, addresses and key from the request, so all of them are checked before the approval.
# The API server authenticates the requester, and the site writes its names into its identity. The content of the
# request is only compared.

_EXTENSION_REQUEST = "1.2.840.113549.1.9.14"
_PEM = re.compile(
    rb"-----BEGIN CERTIFICATE REQUEST-----\n((?:[A-Za-z0-9+/]{1,76}={0,2}\n)+)-----END CERTIFICATE REQUEST-----\n?"
)
_MAX_TEXT = 2 * MAX_REQUEST_BYTES
_USAGES = (
    ["digital signature", "server auth"],
    ["digital signature", "key encipherment", "server auth"],
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingRequest:
    """A well-formed request of a node, before the decision.

    ``node_name`` and ``machine`` identify the requester as the API server authenticated it; ``machine`` is the name of
    an identity, empty if the requester's certificate has none. ``names`` and ``addresses`` are the requested ones.
    """

    node_name: str
    machine: str
    names: frozenset[str]
    addresses: frozenset[str]


def check_serving_request(spec: Mapping[str, Any]) -> ServingRequest:
    """Return the parsed ``spec`` of a CertificateSigningRequest.

    1. The requester is a node, with the group of at most one machine. SERVING_REQUESTER_REFUSED
    2. The usages are those of the signer, each once. SERVING_USAGE_REFUSED
    3. The request is small, one PEM block and nothing else, parses, and is signed by its own key. CSR_MALFORMED
    4. Its key is P-256, Ed25519 or RSA of 2048 to 4096 bits. CSR_KEY_UNSUPPORTED
    5. Its subject is exactly that of the requester. CSR_NAME_MISMATCH
    6. It has one attribute with one extension, the alternative names. So two parsers cannot find two different lists.
       SERVING_EXTENSION_REFUSED
    7. The alternative names are DNS names and addresses only, at least one, each once. SERVING_SAN_REFUSED

    The caller must call `require_ready` and `require_own` with the identity of that node as it is now.
    """
    node_name, machine = _requester(spec)  # 1
    _require_usages(spec)  # 2
    request = parse_request(_der(spec))  # 3
    supported_key(request)  # 4
    require_subject(request, node_name=node_name)  # 5
    alternatives = _alternative_names(request)  # 6
    names, addresses = _split(alternatives)  # 7
    return ServingRequest(node_name=node_name, machine=machine, names=names, addresses=addresses)


def require_ready(identity: NodeIdentity, *, now: datetime, overdue_after: timedelta) -> None:
    """Raise unless the machine is a node whose evidence is good and recent.

    1. Its Node has appeared. SERVING_NOT_JOINED
    2. Its last evidence was not refused, and is not too old. REATTESTATION_FAILED, REATTESTATION_OVERDUE
    3. It has sent evidence at least once. SERVING_NOT_PROVEN
    """
    status = identity.status
    if status.phase != JOINED:  # 1
        raise Refusal(
            f"expected a machine that has joined, {identity.node_name} is {status.phase or 'new'}",
            reason=Reason.SERVING_NOT_JOINED,
        )
    require_good_standing(status, now=now, overdue_after=overdue_after)  # 2
    if status.attested_at is None:  # 3
        raise Refusal(
            f"expected evidence of {identity.node_name}, it has given none yet", reason=Reason.SERVING_NOT_PROVEN
        )


def require_own(requested: ServingRequest, identity: NodeIdentity) -> None:
    """Raise unless the requester is the machine of ``identity``, and the names and addresses belong to it.

    1. The requester's certificate names this machine. A certificate without a machine is one of kubeadm, which only a
       control plane can have. SERVING_REQUESTER_REFUSED
    2. Each name is the node's name, and each address is in the identity, where the site wrote it. SERVING_SAN_REFUSED
    """
    unnamed = not requested.machine and identity.role is Role.CONTROL_PLANE
    if requested.machine != identity.name and not unnamed:  # 1
        raise Refusal(
            f"expected a request of the machine {identity.name}, got one of {requested.machine or 'no machine'}",
            reason=Reason.SERVING_REQUESTER_REFUSED,
        )
    foreign = {*(requested.names - {identity.node_name}), *(requested.addresses - frozenset(identity.addresses))}
    if foreign:  # 2
        allowed = ", ".join((identity.node_name, *identity.addresses))
        raise Refusal(
            f"expected names and addresses out of {allowed}, got {', '.join(sorted(foreign))[:200]} too",
            reason=Reason.SERVING_SAN_REFUSED,
        )


def _requester(spec: Mapping[str, Any]) -> tuple[str, str]:
    """Return the node name of the requester, and the machine that its certificate names."""
    user, groups = str(spec.get("username")), [str(one) for one in spec.get("groups") or ()]
    machines = [one.removeprefix(MACHINE_GROUP) for one in groups if one.startswith(MACHINE_GROUP)]
    node_name = node_of(user)
    if not node_name or NODE_GROUP not in groups or len(machines) > 1:
        raise Refusal(
            f"expected a request of a node, with the group {NODE_GROUP} and of one machine, "
            f"got {user[:200]!r} of {', '.join(groups)[:200]}",
            reason=Reason.SERVING_REQUESTER_REFUSED,
        )
    return node_name, machines[0] if machines else ""


def _require_usages(spec: Mapping[str, Any]) -> None:
    usages = sorted(str(one) for one in spec.get("usages") or ())
    if usages not in _USAGES:
        raise Refusal(
            f"expected the usages {', '.join(_USAGES[0])}, with or without key encipherment, "
            f"got {', '.join(usages)[:200] or 'none'}",
            reason=Reason.SERVING_USAGE_REFUSED,
        )


def _der(spec: Mapping[str, Any]) -> bytes:
    """Return the DER of the request, which is base64 of PEM; the size is checked before decoding."""
    text = str(spec.get("request"))
    if len(text) > _MAX_TEXT:
        raise _malformed(f"at most {_MAX_TEXT} characters, got {len(text)}")
    pem = _PEM.fullmatch(_decoded(text))
    if pem is None:
        raise _malformed("one block of PEM and nothing else, got other content")
    return _decoded(pem[1].replace(b"\n", b""))


def _decoded(text: str | bytes) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise _malformed("base64, got something else") from error


def _malformed(what: str) -> Refusal:
    return Refusal(f"expected a certificate request of {what}", reason=Reason.CSR_MALFORMED)


def _alternative_names(request: x509.CertificateSigningRequest) -> x509.SubjectAlternativeName:
    try:
        attributes = [one.oid.dotted_string for one in request.attributes]
        extensions = [one.value for one in request.extensions]
    except unreadable():
        attributes, extensions = [], []
    found = extensions[0] if attributes == [_EXTENSION_REQUEST] and len(extensions) == 1 else None
    if not isinstance(found, x509.SubjectAlternativeName):
        raise Refusal(
            "expected a request with the extension of alternative names and no other one, got something else",
            reason=Reason.SERVING_EXTENSION_REFUSED,
        )
    return found


def _split(alternatives: x509.SubjectAlternativeName) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names and the addresses."""
    entries = list(alternatives)
    names = frozenset(one.value for one in entries if isinstance(one, x509.DNSName))
    addresses = frozenset(str(one.value) for one in entries if isinstance(one, x509.IPAddress))
    if not entries or len(names) + len(addresses) != len(entries):
        raise Refusal(
            f"expected names and addresses of a node, each once, got {len(entries)} entries of which "
            f"{len(names)} are names and {len(addresses)} addresses",
            reason=Reason.SERVING_SAN_REFUSED,
        )
    return names, addresses


WATCH_SECONDS = 10
"""How often waiting requests are checked again; new requests are seen at once."""

PATIENCE = timedelta(minutes=10)
"""How long a request waits for a condition of `COMING`; a kubelet sends a new request after 15 minutes."""

COMING = frozenset(
    {
        Reason.IDENTITY_UNKNOWN,
        Reason.IDENTITY_UNSIGNED,
        Reason.SERVING_NOT_JOINED,
        Reason.SERVING_NOT_PROVEN,
    }
)
"""Temporary reasons of a good machine: the cluster starts before its policy, and a Node before it is `Joined`."""

DENIED = COMING | frozenset(
    {
        Reason.CSR_KEY_UNSUPPORTED,
        Reason.CSR_MALFORMED,
        Reason.CSR_NAME_MISMATCH,
        Reason.EK_ALIAS_TAKEN,
        Reason.IDENTITY_AMBIGUOUS,
        Reason.IDENTITY_PENDING,
        Reason.IDENTITY_REFUSED,
        Reason.IDENTITY_REVOKED,
        Reason.REATTESTATION_FAILED,
        Reason.REATTESTATION_OVERDUE,
        Reason.SERVING_EXTENSION_REFUSED,
        Reason.SERVING_REQUESTER_REFUSED,
        Reason.SERVING_SAN_REFUSED,
        Reason.SERVING_USAGE_REFUSED,
    }
)
"""Reasons that depend on the machine or on an admin's decision. Other errors are faults of the cluster: no denial."""

_DECIDED = frozenset({"Approved", "Denied", "Failed"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Conclusion:
    """The decision: approved for the machine ``about`` (identity and node), or denied for ``refusal``."""

    about: Mapping[str, str]
    refusal: AttestedError | None = None

    def condition(self) -> dict[str, str]:
        """Return the condition of the request. Every node can read it, so a denial has the code and no details."""
        if self.refusal is None:
            return {
                "type": "Approved",
                "status": "True",
                "reason": "Attested",
                "message": f"the evidence of {self.about['identity']} is good and recent",
            }
        text = self.refusal.reason.value
        return {
            "type": "Denied",
            "status": "True",
            "reason": self.refusal.code,
            "message": f"{text.summary} Next: attested explain {self.refusal.code}",
        }


class ServingApprover:
    """Decides about requests; `run_once` needs a thread of its own."""

    def __init__(
        self,
        requests: ServingRequests,
        policy: LivePolicy,
        *,
        audit: AuditTrail,
        log: Log,
        clock: Clock,
        rate: TokenBuckets,
        overdue_after: timedelta,
    ) -> None:
        """Read and decide requests through ``requests``; ``rate`` limits the checks for one user."""
        self._requests = requests
        self._policy = policy
        self._audit = audit
        self._log = log
        self._clock = clock
        self._rate = rate
        self._overdue_after = overdue_after

    def run_once(self, seconds: int = WATCH_SECONDS) -> None:
        """Decide each request that exists or appears within ``seconds``; raises the first error at the end.

        An error at one request does not stop the others.
        """
        trouble: AttestedError | None = None
        for document in self._requests.serving_requests(seconds):
            try:
                self.settle(document)
            except AttestedError as error:
                trouble = trouble or error
        if trouble is not None:
            raise trouble

    def settle(self, document: Mapping[str, Any]) -> None:
        """Decide about one request, unless it is for another signer, is decided already, or has to wait."""
        if document["spec"].get("signerName") != SERVING_SIGNER or _is_decided(document):
            return
        conclusion = self._conclusion(document)
        if conclusion is not None:
            self._conclude(document, conclusion)

    def _conclusion(self, document: Mapping[str, Any]) -> Conclusion | None:
        """Return the decision, or None if the request has to wait; raises errors that are not in `DENIED`."""
        now = self._clock.now()
        try:
            identity = self._entitled(document["spec"], now)
        except AttestedError as error:
            if error.reason not in DENIED:
                raise
            waits = error.reason in COMING and _age(document, now) < PATIENCE
            return None if waits else Conclusion(about={}, refusal=error)
        return Conclusion(about={"identity": identity.name, "node": identity.node_name})

    def _entitled(self, spec: Mapping[str, Any], now: datetime) -> NodeIdentity:
        """Return the machine that may get the certificate; raises the refusal.

        1. Its user does not request too often. IDENTITY_RATE
        2. The request is one of a node for itself (`check_serving_request`, seven steps).
        3. The machine that is this node now is approved and was never revoked (`SignedPolicy.identity_for`).
        4. It has joined, and its evidence is good and recent (`require_ready`).
        5. This machine is the requester, for its own name and addresses (`require_own`).
        """
        self._rate.take(str(spec.get("username")))  # 1
        requested = check_serving_request(spec)  # 2
        identity = self._policy.registration_named(requested.node_name).identity  # 3
        require_ready(identity, now=now, overdue_after=self._overdue_after)  # 4
        require_own(requested, identity)  # 5
        return identity

    def _conclude(self, document: Mapping[str, Any], conclusion: Conclusion) -> None:
        """Record the decision, then write it; if another control plane was first, its decision is kept."""
        metadata, refusal = document["metadata"], conclusion.refusal
        user = str(document["spec"].get("username"))
        fields = {"request": str(metadata["name"]), "user": user, **conclusion.about}
        cause = {} if refusal is None else refusal_of(refusal)
        self._audit.decided("serving_certificate", fields, refusal=cause, source=user)
        try:
            self._requests.conclude_request(
                metadata["name"], conclusion.condition(), revision=metadata["resourceVersion"]
            )
        except ApiError as error:
            if error.reason is not Reason.API_CONFLICT:
                raise
            return
        self._log.event("serving_certificate", outcome="refused" if cause else "given", **fields, **cause)


def _is_decided(document: Mapping[str, Any]) -> bool:
    conditions = document.get("status", {}).get("conditions") or ()
    return any(one.get("type") in _DECIDED for one in conditions)


def _age(document: Mapping[str, Any], now: datetime) -> timedelta:
    return now - datetime.fromisoformat(document["metadata"]["creationTimestamp"])
