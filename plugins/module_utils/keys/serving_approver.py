# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Certificates that kubelets serve with: each request is approved or denied, or waits for its machine.

Every control plane looks at every request. What they decide follows from the request, which nobody can change, and from
the identity as it is in the API now; and a decision is written into the request as it was read, so that one of them
writes it and the others find it written.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from ..errors import ApiError, AttestedError
from ..kube import SERVING_SIGNER
from ..reasons import Reason
from .auditing import refusal_of
from .serving_request import check_serving_request, require_own, require_ready

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..audit import AuditTrail
    from ..kube import LivePolicy, RequestDesk
    from ..policy import NodeIdentity
    from ..serving import Log
    from ..system import Clock, TokenBuckets

WATCH_SECONDS = 10
"""How soon one that waits is looked at again; a new one is seen at once."""

PATIENCE = timedelta(minutes=10)
"""How long a request waits for what comes by itself; a kubelet asks anew after a quarter of an hour."""

COMING = frozenset(
    {
        Reason.IDENTITY_UNKNOWN,
        Reason.IDENTITY_UNSIGNED,
        Reason.SERVING_NOT_JOINED,
        Reason.SERVING_NOT_PROVEN,
    }
)
"""What is true of a good machine for a while: a cluster begins before its policy, a Node before it is seen."""

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
"""What is the machine's, or an admin's word on it. All else is trouble of our own, and decides nothing."""

_DECIDED = frozenset({"Approved", "Denied", "Failed"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Conclusion:
    """What a request comes to: approved for the machine ``about``, by identity and node, or denied for ``refusal``."""

    about: Mapping[str, str]
    refusal: AttestedError | None = None

    def condition(self) -> dict[str, str]:
        """Return the condition of the request. Every node can read it, so a denial says its code and nothing more."""
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
    """Decides about requests; `run_once` belongs into a thread of its own."""

    def __init__(
        self,
        desk: RequestDesk,
        policy: LivePolicy,
        *,
        audit: AuditTrail,
        log: Log,
        clock: Clock,
        rate: TokenBuckets,
        overdue_after: timedelta,
    ) -> None:
        """Take requests from ``desk``; ``rate`` bounds how often one user is looked at."""
        self._desk = desk
        self._policy = policy
        self._audit = audit
        self._log = log
        self._clock = clock
        self._rate = rate
        self._overdue_after = overdue_after

    def run_once(self, seconds: int = WATCH_SECONDS) -> None:
        """Look at each request that is there or appears within ``seconds``; raises the first trouble at the end.

        Trouble with one request leaves no other without its decision.
        """
        trouble: AttestedError | None = None
        for document in self._desk.serving_requests(seconds):
            try:
                self.settle(document)
            except AttestedError as error:
                trouble = trouble or error
        if trouble is not None:
            raise trouble

    def settle(self, document: Mapping[str, Any]) -> None:
        """Decide about one request, unless it is another signer's, decided already, or waits."""
        if document["spec"].get("signerName") != SERVING_SIGNER or _is_decided(document):
            return
        conclusion = self._conclusion(document)
        if conclusion is not None:
            self._conclude(document, conclusion)

    def _conclusion(self, document: Mapping[str, Any]) -> Conclusion | None:
        """Return what the request comes to, None where it waits; raises trouble of our own."""
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
        """Return the machine that may have what it asks for; raises what refuses it.

        1. Its user asks no more often than one may. IDENTITY_RATE
        2. The request is one of a node for itself (`check_serving_request`, seven steps).
        3. The machine that is this node now is approved and was never revoked (`SignedPolicy.identity_for`).
        4. It has joined, and its evidence is good and recent (`require_ready`).
        5. This machine asks, for its own name and addresses (`require_own`).
        """
        self._rate.take(str(spec.get("username")))  # 1
        asked = check_serving_request(spec)  # 2
        identity = self._policy.registration_named(asked.node_name).identity  # 3
        require_ready(identity, now=now, overdue_after=self._overdue_after)  # 4
        require_own(asked, identity)  # 5
        return identity

    def _conclude(self, document: Mapping[str, Any], conclusion: Conclusion) -> None:
        """Record the decision, then write it; where another control plane was first, its decision stands."""
        metadata, refusal = document["metadata"], conclusion.refusal
        user = str(document["spec"].get("username"))
        fields = {"request": str(metadata["name"]), "user": user, **conclusion.about}
        cause = {} if refusal is None else refusal_of(refusal)
        self._audit.decided("serving_certificate", fields, refusal=cause, source=user)
        try:
            self._desk.conclude_request(metadata["name"], conclusion.condition(), revision=metadata["resourceVersion"])
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
