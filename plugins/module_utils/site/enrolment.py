# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a machine became known: by what an admin said before, by its TPM maker's chain, or on first use (insecure)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import Refusal
from ..reasons import Reason

if TYPE_CHECKING:
    from ..attestation import VerifiedMachine
    from .identities import InventoryNode
    from .sources import Delivered

BY_CHAIN = "certificate chain"
BY_CONSOLE = "console fingerprint"
FIRST_USE = "insecure_first_use"


def vouch(
    machine: VerifiedMachine,
    *,
    before: InventoryNode | None,
    insecure_first_use: bool,
    replacing: bool = False,
    delivered: Delivered | None = None,
) -> tuple[str, str | None]:
    """Return how ``machine`` is known, and a warning to show if that is weak.

    A TPM that the site names already must be this one (EK_CHANGED), unless the admin is ``replacing`` the machine, and
    one that was replaced before never comes back (IDENTITY_REVOKED). Otherwise its certificate chained to a configured
    authority, or ``insecure_first_use`` is set, or it is refused (EK_NOT_VOUCHED_FOR). Where a file says which TPM was
    ``delivered``, it must be that one (EK_NOT_AS_DELIVERED), and the file vouches for it.
    """
    if delivered is not None:
        _require_delivered(machine, delivered)
    if before is not None:
        _require_never_replaced(machine, before)
        if before.ek_sha256 == machine.ek_sha256:
            return before.known_by or BY_CONSOLE, None
        if not replacing:
            _require_unknown(machine, before)
    if delivered is not None:
        return delivered.label, None
    if machine.certified is not None:
        return f"{BY_CHAIN} of {machine.certified.label}", None
    if insecure_first_use:
        return FIRST_USE, f"{machine.ek_sha256} is believed on first use: nobody vouches for this TPM"
    raise Refusal(
        f"expected somebody to vouch for the TPM {machine.ek_sha256}, nobody does", reason=Reason.EK_NOT_VOUCHED_FOR
    )


def _require_delivered(machine: VerifiedMachine, delivered: Delivered) -> None:
    if delivered.ek_sha256 != machine.ek_sha256:
        raise Refusal(
            f"expected the TPM {delivered.ek_sha256} ({delivered.label}), found {machine.ek_sha256}",
            reason=Reason.EK_NOT_AS_DELIVERED,
        )


def _require_never_replaced(machine: VerifiedMachine, before: InventoryNode) -> None:
    if machine.ek_sha256 in before.replaced:
        raise Refusal(
            f"expected another TPM in {before.name}, {machine.ek_sha256} was replaced before",
            reason=Reason.IDENTITY_REVOKED,
        )


def _require_unknown(machine: VerifiedMachine, before: InventoryNode) -> None:
    """Refuse a TPM where the site names another one already."""
    if before.ek_sha256 is not None:
        raise Refusal(
            f"expected the TPM {before.ek_sha256} in {before.name}, found {machine.ek_sha256}",
            reason=Reason.EK_CHANGED,
        )
