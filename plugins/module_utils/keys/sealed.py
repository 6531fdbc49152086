# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A ticket's secrets while they are closed. Who lives on hands them over so; a process that ends soon opens them."""

from __future__ import annotations

from base64 import b64decode, b64encode
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..errors import Refusal
from ..policy import Role
from ..reasons import Reason
from ..sealing import OneTimeKey, open_sealed
from .bundle import KeyBundle
from .derive import cluster_id
from .ticket import TicketSecrets

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedSecrets:
    """A box, and what opens it: of no use to whoever has not all of it.

    ``secret`` is the activation secret s and ``binding`` B of the exchange; ``cluster_id`` and ``role`` are what the
    secrets have to fit.
    """

    box: bytes = field(repr=False)
    secret: bytes = field(repr=False)
    binding: bytes
    one_time_key: OneTimeKey
    cluster_id: bytes
    role: Role

    def opened(self) -> TicketSecrets:
        """Return the secrets; raises `Refusal`.

        1. The box opens with this exchange's secret and one-time key. SEAL_UNOPENABLE, SEAL_VERSION, MESSAGE_MALFORMED
        2. What is in it derives the cluster id. TICKET_NOT_OURS
        3. It is what the role gets, and a control plane's bundle is of this cluster. TICKET_MALFORMED,
           CLUSTER_ID_MISMATCH, KEY_BUNDLE_VERSION_UNKNOWN, MESSAGE_MALFORMED, TICKET_NOT_OURS
        """
        plain = open_sealed(self.box, secret=self.secret, binding=self.binding, one_time_key=self.one_time_key)  # 1
        secrets = TicketSecrets.from_bytes(plain)
        self._require("cluster id", cluster_id(secrets.measurement_secret, secrets.measurement_salt))  # 2
        secrets.require_role(self.role)  # 3
        if self.role is Role.CONTROL_PLANE:
            bundle = KeyBundle.from_bytes(secrets.key_service_bundle.reveal())
            self._require("cluster id of the key service", bundle.cluster_id)
        return secrets

    def to_job(self) -> dict[str, str]:
        """Return it as text, for the standard input of the process that opens it, and for nothing else."""
        return {
            "box": _text(self.box),
            "secret": _text(self.secret),
            "binding": _text(self.binding),
            "one_time_key": _text(self.one_time_key.export()),
            "cluster_id": _text(self.cluster_id),
            "role": self.role.value,
        }

    @classmethod
    def from_job(cls, job: Mapping[str, str]) -> SealedSecrets:
        """Return what `to_job` gave."""
        return cls(
            box=_bytes(job, "box"),
            secret=_bytes(job, "secret"),
            binding=_bytes(job, "binding"),
            one_time_key=OneTimeKey.restore(_bytes(job, "one_time_key")),
            cluster_id=_bytes(job, "cluster_id"),
            role=Role(job["role"]),
        )

    def _require(self, what: str, got: bytes) -> None:
        if got != self.cluster_id:
            raise Refusal(
                f"expected the {what} {self.cluster_id.hex()} in the ticket, got {got.hex()}",
                reason=Reason.TICKET_NOT_OURS,
            )


def _text(data: bytes) -> str:
    return b64encode(data).decode("ascii")


def _bytes(job: Mapping[str, str], name: str) -> bytes:
    return b64decode(job[name], validate=True)
