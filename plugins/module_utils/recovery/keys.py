# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an admin derives for one node, from a site's secrets or a recovery kit: its own disk key, and no other's."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..errors import KeyServiceError
from ..keys import cluster_id
from ..reasons import Reason
from .messages import RecoverySecrets

if TYPE_CHECKING:
    from ..keys import DiskId, KeyBundle, MasterRing
    from ..offline import Kit


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterKeys:
    """The secrets of a cluster on the admin's side; they stay there. Raises CLUSTER_ID_MISMATCH."""

    ring: MasterRing = field(repr=False)
    measurement_salt: bytes
    cluster_id: bytes

    def __post_init__(self) -> None:
        """Refuse parts of two clusters before any node is asked."""
        derived = cluster_id(self.ring.carried.measurement_secret, self.measurement_salt)
        if derived != self.cluster_id:
            raise KeyServiceError(
                f"expected the secrets of cluster {self.cluster_id.hex()}, got those of {derived.hex()}",
                reason=Reason.CLUSTER_ID_MISMATCH,
            )

    @classmethod
    def of_kit(cls, kit: Kit) -> ClusterKeys:
        """Return those of an opened recovery kit."""
        return cls(
            ring=kit.ring,
            measurement_salt=kit.measurement_salt,
            cluster_id=kit.cluster_id,
        )

    @classmethod
    def of_bundle(cls, bundle: KeyBundle) -> ClusterKeys:
        """Return those of a site."""
        return cls(
            ring=bundle.ring,
            measurement_salt=bundle.measurement_salt,
            cluster_id=bundle.cluster_id,
        )

    def of_node(self, disk: DiskId) -> RecoverySecrets:
        """Return what may leave the admin's side for the node with ``disk``, sealed to it."""
        lead, *others = self.ring.disk_keys(disk)
        return RecoverySecrets(
            disk=disk,
            disk_key=lead.key,
            measurement_secret=self.ring.carried.measurement_secret,
            other_disk_keys=tuple(one.key for one in others),
        )
