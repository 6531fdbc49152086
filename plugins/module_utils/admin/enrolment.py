# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide who vouches for a machine's TPM: the admin, the TPM maker's certificates, or (insecure) its first use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import Refusal
from ..reasons import Reason
from .identities import BY_CONSOLE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..evidence.verify import VerifiedMachine
    from .ek_sources import Delivered
    from .identities import InventoryNode

BY_CHAIN = "certificate chain"
FIRST_USE = "insecure_first_use"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChipKeys:
    """The endorsement keys of one TPM (hex): the one that names the machine, and the other if it is known."""

    ek_sha256: str
    alias: str


def known_first(
    machine: VerifiedMachine, second: VerifiedMachine | None, *, before: InventoryNode | None
) -> tuple[VerifiedMachine, VerifiedMachine | None]:
    """Return both, with the site's key of the machine first: a TPM may show another key than at the enrolment."""
    keys = _known_keys(before)
    if second is not None and second.ek_sha256 in keys and machine.ek_sha256 not in keys:
        return second, machine
    return machine, second


def chip_keys(
    machine: VerifiedMachine,
    second: VerifiedMachine | None,
    *,
    before: InventoryNode | None,
    others: Iterable[InventoryNode] = (),
    insecure_first_use: bool = False,
) -> ChipKeys:
    """Return the keys of a machine that `vouch` accepted; ``second`` proved the other key, None: not requested.

    A machine of the site keeps its name, whichever key it showed first. A second key must be the one that the site
    has, if it has one (EK_CHANGED). A new second key must never have been replaced (IDENTITY_REVOKED), and must be no
    key of the ``others`` (EK_ALIAS_TAKEN). It needs a certificate of its own, or ``insecure_first_use``
    (EK_NOT_VOUCHED_FOR), because a software key can activate credentials for any attestation key.
    """
    keys = _known_keys(before)
    name = keys[0] if machine.ek_sha256 in keys else machine.ek_sha256
    known = keys[1] if machine.ek_sha256 in keys else ""
    if second is None:
        return ChipKeys(ek_sha256=name, alias=known)
    alias = second.ek_sha256 if name == machine.ek_sha256 else machine.ek_sha256
    if {machine.ek_sha256, second.ek_sha256} != {name, known or alias}:
        raise Refusal(
            f"expected the TPM with the keys {name} and {known}, found {machine.ek_sha256} and {second.ek_sha256}",
            reason=Reason.EK_CHANGED,
        )
    if not known:
        _require_new(second, before=before, others=others)
        _require_certified(second, insecure_first_use=insecure_first_use)
    return ChipKeys(ek_sha256=name, alias=alias)


def vouch(
    machine: VerifiedMachine,
    *,
    before: InventoryNode | None,
    insecure_first_use: bool,
    replacing: bool = False,
    delivered: Delivered | None = None,
) -> tuple[str, str | None]:
    """Return by what ``machine`` is vouched for, and a warning if that is insecure.

    If the site already has a TPM for this host, it must be this one, by either of its keys (EK_CHANGED), unless the
    admin is ``replacing`` the machine. A TPM that was replaced is never accepted again (IDENTITY_REVOKED). A new TPM
    needs a certificate chain to a configured authority, or ``insecure_first_use`` (EK_NOT_VOUCHED_FOR). If a file says
    which TPM was ``delivered``, it must be this one (EK_NOT_AS_DELIVERED), and the file vouches for it.
    """
    if delivered is not None:
        _require_delivered(machine, delivered)
    if before is not None:
        _require_never_replaced(machine, before)
        if machine.ek_sha256 in _known_keys(before):
            return before.known_by or BY_CONSOLE, None
        if not replacing:
            _require_unknown(machine, before)
    if delivered is not None:
        return delivered.label, None
    if machine.certified is not None:
        return f"{BY_CHAIN} of {machine.certified.label}", None
    if insecure_first_use:
        return FIRST_USE, f"{machine.ek_sha256} is trusted on first use: no authority vouches for this TPM"
    raise Refusal(
        f"expected an authority that vouches for the TPM {machine.ek_sha256}, got none",
        reason=Reason.EK_NOT_VOUCHED_FOR,
    )


def _require_delivered(machine: VerifiedMachine, delivered: Delivered) -> None:
    if delivered.ek_sha256 != machine.ek_sha256:
        raise Refusal(
            f"expected the TPM {delivered.ek_sha256} ({delivered.label}), found {machine.ek_sha256}",
            reason=Reason.EK_NOT_AS_DELIVERED,
        )


def _require_never_replaced(machine: VerifiedMachine, before: InventoryNode) -> None:
    if machine.ek_sha256 in before.keys_before:
        raise Refusal(
            f"expected another TPM in {before.name}, {machine.ek_sha256} was replaced before",
            reason=Reason.IDENTITY_REVOKED,
        )


def _require_unknown(machine: VerifiedMachine, before: InventoryNode) -> None:
    """Refuse the TPM if the site already has another one for this host."""
    if before.ek_sha256 is not None:
        raise Refusal(
            f"expected the TPM {before.ek_sha256} in {before.name}, found {machine.ek_sha256}",
            reason=Reason.EK_CHANGED,
        )


def _known_keys(before: InventoryNode | None) -> tuple[str, str]:
    """Return the two keys that the site has for a host, empty if it has none."""
    return (before.ek_sha256 or "", before.ek_alias) if before is not None else ("", "")


def _require_new(second: VerifiedMachine, *, before: InventoryNode | None, others: Iterable[InventoryNode]) -> None:
    if before is not None:
        _require_never_replaced(second, before)
    for one in others:
        if second.ek_sha256 in {*_known_keys(one), *one.keys_before}:
            raise Refusal(
                f"expected a second key that no other machine has, {second.ek_sha256} is one of {one.name}",
                reason=Reason.EK_ALIAS_TAKEN,
            )


def _require_certified(second: VerifiedMachine, *, insecure_first_use: bool) -> None:
    if second.certified is None and not insecure_first_use:
        raise Refusal(
            f"expected a certificate for the second key {second.ek_sha256}, or its entry in "
            "attested_ek_aliases of the site, found neither",
            reason=Reason.EK_NOT_VOUCHED_FOR,
        )
