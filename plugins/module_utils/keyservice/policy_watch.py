# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Record revocations as soon as they happen, and serve the socket for root (`client`)."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ..core.documents import load_json
from ..errors import ApiError, AttestedError, KeyServiceError, SystemFault
from ..policy.cluster import POLICY_NAME
from ..policy.identity import Admission
from ..proto.messages import message_class, parse
from ..reasons import Reason
from .client import POLICY_REQUEST, POLICY_RESPONSE
from .kube_api import IDENTITIES, POLICIES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..core.host import Clock
    from ..core.logs import Log
    from .cached_policy import CachedPolicy
    from .kube_api import Gateway
    from .live_policy import LivePolicy
    from .record import PolicyAuthority, PolicyRecord

WATCH_SECONDS = 60
_MAX_NAMED = 16
_MAX_WHY = 512


class PolicyWatch:
    """Records the API's revocations whenever one appears, and each minute."""

    def __init__(
        self, gateway: Gateway, policy: LivePolicy, *, cached: CachedPolicy, node_name: str, clock: Clock, log: Log
    ) -> None:
        """Record through ``policy`` each minute, and whenever ``cached`` receives a revocation.

        ``node_name`` is this control plane's name in the policy's status.
        """
        self._cached = cached
        self._revoked = threading.Event()
        cached.caches[IDENTITIES].observed_by(self._notice_revoked)
        self._gateway = gateway
        self._policy = policy
        self._node_name = node_name
        self._clock = clock
        self._log = log
        self._unreadable: tuple[str, ...] = ()

    def run_once(self, seconds: int = WATCH_SECONDS) -> None:
        """Call `settle`, then record revocations that appear within ``seconds``; raises as the policy and the API."""
        self._revoked.clear()
        self.settle()
        ends = self._clock.monotonic() + seconds
        while (left := ends - self._clock.monotonic()) > 0 and self._revoked.wait(left):
            self._revoked.clear()
            self._policy.settle_revocations()

    def _notice_revoked(self, document: Mapping[str, Any]) -> None:
        spec = document.get("spec")
        if isinstance(spec, dict) and spec.get("admission") == Admission.REVOKED.value:
            self._revoked.set()

    def settle(self) -> None:
        """Record the API's revocations, and write the recorded generation and unreadable objects into the status."""
        generation = self._policy.settle_revocations().generation
        unreadable = self._unreadable_now()
        for one in sorted(set(unreadable) - set(self._unreadable))[:_MAX_NAMED]:
            self._log.event("object_unreadable", reason=Reason.MANIFEST_INVALID.name, detail=one)
        self._unreadable = unreadable
        self._write_seen({"generation": generation, "unreadable": [one[:_MAX_WHY] for one in unreadable[:_MAX_NAMED]]})

    def _unreadable_now(self) -> tuple[str, ...]:
        with suppress(ApiError):
            return self._cached.unreadable()
        return self._policy.unreadable()

    def _write_seen(self, seen: dict[str, Any]) -> None:
        """Write what this control plane has seen into the policy's status; a conflict is left for the next round."""
        for one in self._gateway.objects(POLICIES):
            written = one.get("status", {}).get("seenBy", {}).get(self._node_name, {})
            known = {"generation": written.get("generation", 0), "unreadable": written.get("unreadable", [])}
            if one["metadata"]["name"] != POLICY_NAME or known == seen:
                continue
            time = self._clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
            status = {"seenBy": {self._node_name: {**seen, "time": time}}}
            revision = one["metadata"]["resourceVersion"]
            try:
                self._gateway.patch_status(POLICIES, POLICY_NAME, status=status, revision=revision)
            except AttestedError as error:
                if error.reason is not Reason.API_CONFLICT:
                    raise


class PolicyHandler:
    """Serves the socket for root: returns the record, and adopts a policy from the site."""

    def __init__(self, record: PolicyRecord, authority: PolicyAuthority, *, log: Log) -> None:
        """Read ``record``, and adopt policies through ``authority``."""
        self._record = record
        self._authority = authority
        self._log = log

    def answer(self, data: bytes) -> bytes:
        """Answer one message; errors are part of the answer, because no answer would mean that no service runs."""
        response = message_class(POLICY_RESPONSE)()
        try:
            try:
                self._decide(parse(POLICY_REQUEST, data), response)
            finally:
                response.revoked.extend(sorted(self._record.all_revoked()))
        except AttestedError as error:
            _refuse(response, error)
        except Exception as error:  # noqa: BLE001 - logged here, and answered as INTERNAL
            detail = f"{type(error).__name__}: {error}"
            self._log.event("policy_question", outcome="failed", reason=Reason.INTERNAL.name, detail=detail)
            _refuse(response, SystemFault(type(error).__name__, reason=Reason.INTERNAL))
        return bytes(response.SerializeToString())

    def _decide(self, request: Any, response: Any) -> None:
        if request.adopt:
            response.changed = self._adopt(request.adopt)
        response.generation = self._authority.seen().generation

    def _adopt(self, document: bytes) -> bool:
        try:
            parsed = load_json(document)
        except ValueError as error:
            raise KeyServiceError("expected a policy in JSON", reason=Reason.MESSAGE_MALFORMED) from error
        if not isinstance(parsed, dict):
            raise KeyServiceError("expected a policy in JSON", reason=Reason.MESSAGE_MALFORMED)
        before = self._record.state()
        seen = self._authority.adopt(parsed)
        if before != seen:
            self._log.event("policy_adopted", generation=seen.generation, revoked=len(seen.revoked))
        return before != seen


def _refuse(response: Any, error: AttestedError) -> None:
    response.refusal.code = error.code
    response.refusal.message = error.message
    response.refusal.coarse = error.reason.value.coarse.value
