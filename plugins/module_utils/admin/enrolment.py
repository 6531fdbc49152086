# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a machine became known: by what an admin said before, by its TPM maker's chain, or on first use (insecure)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import Refusal
from ..reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..evidence.verify import VerifiedMachine
    from .ek_sources import Delivered
    from .identities import InventoryNode

BY_CHAIN = "certificate chain"
BY_CONSOLE = "console fingerprint"
FIRST_USE = "insecure_first_use"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChipKeys:
    """The endorsement keys of one chip (hex): the one that names the machine, and the other where it is known."""

    ek_sha256: str
    alias: str


def known_first(
    machine: VerifiedMachine, second: VerifiedMachine | None, *, before: InventoryNode | None
) -> tuple[VerifiedMachine, VerifiedMachine | None]:
    """Return both, the one that the site names first: a TPM may show another key than it did when it was enrolled."""
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
    """Return the keys of a machine for which somebody vouches (`vouch`); ``second`` proved the other, None: unasked.

    A machine that the site names keeps that name, whichever key it showed first. A second key must be the one that the
    site names, if it names one (EK_CHANGED), was never replaced (IDENTITY_REVOKED) and is no key of the ``others``
    (EK_ALIAS_TAKEN). A new one must be certified by itself, or ``insecure_first_use`` is set (EK_NOT_VOUCHED_FOR): a
    key that is made in software opens its own challenges, for whatever attestation key.
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
    """Return how ``machine`` is known, and a warning to show if that is weak.

    A TPM that the site names already, by either of its keys, must be this one (EK_CHANGED), unless the admin is
    ``replacing`` the machine, and one that was replaced before never comes back (IDENTITY_REVOKED). Otherwise its
    certificate chained to a configured authority, or ``insecure_first_use`` is set, or it is refused
    (EK_NOT_VOUCHED_FOR). Where a file says which TPM was ``delivered``, it must be that one (EK_NOT_AS_DELIVERED), and
    the file vouches for it.
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
    if machine.ek_sha256 in before.keys_before:
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


def _known_keys(before: InventoryNode | None) -> tuple[str, str]:
    """Return the two keys that the site names for a host, empty where it names none."""
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
            f"expected a certificate for the second key {second.ek_sha256}, or that the site names it in "
            "attested_ek_aliases, found neither",
            reason=Reason.EK_NOT_VOUCHED_FOR,
        )
