# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan which hosts of a site a list of machines enrolls, without contacting the machines. Pure.

A host is found by its serial number, or by its name. The admin vouches for the list; a machine still has to prove its
key before it gets a ticket.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..errors import AttestedError, Refusal, SiteError
from ..reasons import Reason
from .identities import enrolled_identities

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from .enrolment import Delivered, DeliveryList
    from .identities import InventoryNode

_MAX_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPlan:
    """The result of a list: the nodes that get an identity, with it, and the names of the others.

    ``known`` have their key already, ``absent`` have no key and no entry. ``spare`` are entries (serial numbers) that
    belong to no host of the site.
    """

    enrolled: tuple[InventoryNode, ...]
    known: tuple[str, ...]
    absent: tuple[str, ...]
    spare: tuple[str, ...]


def plan_list(
    listed: DeliveryList, nodes: Iterable[InventoryNode], *, serials: Mapping[str, str], chosen: Collection[str]
) -> ListPlan:
    """Return the plan for the ``chosen`` ones of all ``nodes``; ``serials``: node to its serial number.

    Raises EK_SOURCE_UNUSABLE for entries that cannot be read, EK_CHANGED if the site has another key,
    IDENTITY_REVOKED for a machine that was replaced, and IDENTITY_AMBIGUOUS or EK_ALIAS_TAKEN for a key of another
    node.
    """
    every = tuple(nodes)
    names = {one.name: serials.get(one.name) or one.name for one in every}
    hosts = frozenset(names.values())
    wanted = [one for one in every if one.name in chosen]
    found = _found(listed, {one.name: names[one.name] for one in wanted if names[one.name] in listed.entries})
    _require_unreplaced(wanted, found)
    _require_unchanged(wanted, found)
    new = {
        one.name: replace(one, ek_sha256=found[one.name].ek_sha256, known_by=found[one.name].label)
        for one in wanted
        if one.ek_sha256 is None and one.name in found
    }
    enrolled_identities(new.get(one.name, one) for one in every)
    return ListPlan(
        enrolled=tuple(new.values()),
        known=tuple(one.name for one in wanted if one.name in found and one.name not in new),
        absent=tuple(one.name for one in wanted if one.ek_sha256 is None and one.name not in found),
        spare=tuple(one for one in listed.entries if one not in hosts),
    )


def _found(listed: DeliveryList, serials: Mapping[str, str]) -> dict[str, Delivered]:
    found: dict[str, Delivered] = {}
    problems: list[str] = []
    for node, serial in serials.items():
        try:
            found[node] = listed.find(serial)
        except AttestedError as error:
            problems.append(f"{node}: {error.message}")
    if problems:
        raise SiteError(_joined(problems), reason=Reason.EK_SOURCE_UNUSABLE)
    return found


def _require_unreplaced(nodes: Iterable[InventoryNode], found: Mapping[str, Delivered]) -> None:
    problems = [
        f"expected another TPM in {one.name}, {found[one.name].ek_sha256} was replaced before"
        for one in nodes
        if one.name in found and found[one.name].ek_sha256 in one.keys_before
    ]
    if problems:
        raise Refusal(_joined(problems), reason=Reason.IDENTITY_REVOKED)


def _require_unchanged(nodes: Iterable[InventoryNode], found: Mapping[str, Delivered]) -> None:
    problems = [
        f"expected the TPM {one.ek_sha256} in {one.name}, found {found[one.name].ek_sha256} in the list"
        for one in nodes
        if one.name in found
        and one.ek_sha256 is not None
        and found[one.name].ek_sha256 not in {one.ek_sha256, one.ek_alias}
    ]
    if problems:
        raise Refusal(_joined(problems), reason=Reason.EK_CHANGED)


def _joined(problems: Sequence[str]) -> str:
    more = len(problems) - _MAX_SHOWN
    return "; ".join([*problems[:_MAX_SHOWN], *([f"and {more} more"] if more > 0 else [])])
