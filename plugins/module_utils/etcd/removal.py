# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Taking a member out: decided from what the members say now, done, and looked at again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import EtcdError
from ..reasons import Reason
from .members import RemovalPlan, plan_removal

if TYPE_CHECKING:
    from ..system import Clock
    from .gateway import EtcdApi
    from .members import Member


_SETTLED_SECONDS = 30.0
"""Members that have only just connected do so within five."""


def remove_member(api: EtcdApi, *, name: str, address: str = "", check_mode: bool = False, clock: Clock) -> RemovalPlan:
    """Take the member ``name`` out and return what was decided; raises as `plan_removal` and the API do.

    Where etcd says that it may be asked again, it is, for half a minute. The list is read again afterwards: a member
    that is still in it raises ETCD_REFUSED.
    """
    plan = plan_removal(api.members(), name=name, address=address)
    if plan.member is None or check_mode:
        return plan
    _remove(api, plan.member, clock)
    if plan.member.member_id in {one.member_id for one in api.members()}:
        raise EtcdError(f"expected etcd without {plan.member.shown}, it is still there", reason=Reason.ETCD_REFUSED)
    return plan


def _remove(api: EtcdApi, member: Member, clock: Clock) -> None:
    deadline = clock.monotonic() + _SETTLED_SECONDS
    while True:
        try:
            api.remove(member)
        except EtcdError as error:
            if not error.retry_after_seconds or clock.monotonic() >= deadline:
                raise
            clock.sleep(error.retry_after_seconds)
        else:
            return
