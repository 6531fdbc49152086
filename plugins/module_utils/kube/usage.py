# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which machines a profile let in last, in the profile's status: for a person who retires one, nothing decides by it.

Written beside the calls, from what the watches have brought and only where it changed: no ticket waits for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import ApiError
from ..policy import Admission
from ..reasons import Reason
from .gateway import IDENTITIES, PROFILES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ..system import Clock
    from .gateway import Gateway, Reader

MAX_NAMED = 20
ROUND_SECONDS = 10.0
_WRITES_A_ROUND = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageWrite:
    """The status that the profile ``name``, as it is at ``revision``, shall get."""

    name: str
    revision: str
    status: Mapping[str, Any]


def plan_usage(
    profiles: Iterable[Mapping[str, Any]], identities: Iterable[Mapping[str, Any]]
) -> tuple[UsageWrite, ...]:
    """Return what is to be written so that each profile says by whom it is used; nothing where it does already.

    A machine uses the profile that allowed its last good evidence, as long as it is approved; ``nodes`` names the
    first `MAX_NAMED` of them, ``inUseBy`` counts all.
    """
    users = _users(identities)
    writes = []
    for one in profiles:
        metadata, nodes = one["metadata"], sorted(users.get(one["metadata"]["name"], ()))
        wanted = {"inUseBy": len(nodes), "nodes": nodes[:MAX_NAMED]}
        said = one.get("status", {})
        if any(said.get(field) != value for field, value in wanted.items()):
            writes.append(UsageWrite(name=metadata["name"], revision=metadata["resourceVersion"], status=wanted))
    return tuple(writes)


def _users(identities: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return the nodes by the profile that they use."""
    users: dict[str, list[str]] = {}
    for one in identities:
        profile = one.get("status", {}).get("lastAttestation", {}).get("profile")
        if profile and one["spec"]["admission"] == Admission.APPROVED.value:
            users.setdefault(profile, []).append(one["spec"]["nodeName"])
    return users


class UsageWatcher:
    """The one writer of profiles' status; `run_once` belongs into a thread of its own."""

    def __init__(self, reader: Reader, gateway: Gateway, *, clock: Clock) -> None:
        """Count in ``reader``, which may be a memory of what was heard, and write through ``gateway``."""
        self._reader = reader
        self._gateway = gateway
        self._clock = clock

    def run_once(self) -> None:
        """Rest, then look; raises `ApiError`."""
        self._clock.sleep(ROUND_SECONDS)
        self.look()

    def look(self) -> None:
        """Write what changed, a bounded part of it; what another control plane wrote meanwhile is looked at again."""
        planned = plan_usage(self._reader.objects(PROFILES), self._reader.objects(IDENTITIES))
        for write in planned[:_WRITES_A_ROUND]:
            try:
                self._gateway.patch_status(PROFILES, write.name, status=write.status, revision=write.revision)
            except ApiError as error:
                if error.reason is not Reason.API_CONFLICT:
                    raise
