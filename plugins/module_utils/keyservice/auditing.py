# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sync the audit log in the background, sign and publish its head, and record the heads of other control planes.

A signed head is written into the status of this control plane's own identity. Every other key service watches
identities and writes the head into its own log, so a forged log would need a change of all logs. A head that cannot be
published is kept until it can, or until the next head replaces it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from .kube_api import IDENTITIES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..core.host import Clock
    from ..errors import AttestedError
    from .audit_log import Head
    from .audit_trail import AuditTrail
    from .cached_policy import ObjectCache
    from .kube_api import Gateway

TICK_SECONDS = 1.0
LOOK_TICKS = 30
RETRY_TICKS = 60


class Signer(Protocol):
    """Signs a head of the log."""

    def sign(self, head: Head) -> str:
        """Return evidence over ``head``, as base64."""


class HeadKeeper:
    """Syncs and signs one log; `run_once` needs a thread of its own."""

    def __init__(
        self,
        audit: AuditTrail,
        *,
        node: str,
        signer: Signer | None,
        gateway: Gateway,
        identities: ObjectCache,
        clock: Clock,
    ) -> None:
        """Sign with ``signer``, if there is one; publish heads in this node's ``identities`` through ``gateway``."""
        self._audit = audit
        self._node = node
        self._signer = signer
        self._gateway = gateway
        self._identities = identities
        self._clock = clock
        self._noted: dict[str, int] = {}
        self._ticks = 0
        self._sign_at = 0
        self._unpublished: dict[str, Any] | None = None
        self._publish_at = 0

    def run_once(self) -> None:
        """Call `tick` each second for ever; after an error it may be called again."""
        while True:
            self.tick()
            self._clock.sleep(TICK_SECONDS)

    def tick(self) -> None:
        """Sync the log, and sign, publish and record heads that are due."""
        self._ticks += 1
        self._audit.sync()
        if self._ticks >= self._sign_at:
            self._sign()
        if self._ticks % LOOK_TICKS == 0:
            self.note_others()
        if self._unpublished is not None and self._ticks >= self._publish_at:
            self._publish(self._unpublished)

    def note_others(self) -> None:
        """Write the heads of other control planes into this log, each once; raises API_UNAVAILABLE."""
        for document in self._identities.objects({}):
            node, known = document["spec"]["nodeName"], document.get("status", {}).get("auditHead")
            if node == self._node or not known or self._noted.get(node) == known.get("sequence"):
                continue
            self._noted[node] = known.get("sequence")
            self._audit.append(
                "head_of", node=node, log=known.get("log"), head=known.get("sequence"), sha256=known.get("sha256")
            )

    def _sign(self) -> None:
        if self._signer is None:
            return
        head = self._audit.due()
        if head is None:
            return
        self._sign_at = self._ticks + RETRY_TICKS  # do not call an unreachable TPM each second
        evidence = self._signer.sign(head)
        self._audit.signed(head, evidence)
        self._sign_at = 0
        self._unpublished = _head_status(head, evidence, time=self._clock.now().isoformat(timespec="seconds"))
        self._publish_at = self._ticks

    def _publish(self, head: dict[str, Any]) -> None:
        """Write a head into this node's identities; without an identity, or after a failed write, try again later."""
        self._publish_at = self._ticks + RETRY_TICKS  # do not call an unreachable API each second
        own = self._identities.objects({"spec.nodeName": self._node})
        for one in own:
            metadata: Mapping[str, Any] = one["metadata"]
            self._gateway.patch_status(
                IDENTITIES, metadata["name"], status={"auditHead": head}, revision=metadata["resourceVersion"]
            )
        if own:
            self._unpublished = None


def refusal_of(error: AttestedError) -> dict[str, str]:
    """Return the fields ``reason`` and ``detail`` of the record of a refusal."""
    return {"reason": error.code, "detail": error.message}


def _head_status(head: Head, evidence: str, *, time: str) -> dict[str, Any]:
    return {
        "log": head.log,
        "sequence": head.sequence,
        "sha256": head.sha256.hex(),
        "evidence": evidence,
        "time": time.replace("+00:00", "Z"),
    }
