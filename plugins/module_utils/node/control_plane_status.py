# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a control plane says of its own certificates: which ends first, and whether a person has to renew it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from ..certificates import first_to_end, read_leaves
from ..errors import AttestedError
from ..reasons import Reason
from .renewal_record import CONTROL_PLANE_DIRECTORY, RenewalRecord

if TYPE_CHECKING:
    from datetime import datetime

    from ..kubeadm import Machine
    from .renewal_record import FailedRenewal

_MARGIN = timedelta(days=14)
"""With less left, a person looks also where nothing failed: the timer is off, or never came."""
_ENDS = "Run attested renew-control-plane: certificate {name} of this control plane ends at {ends}."


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlPlaneCertificates:
    """End and name (kubeadm's) of the certificate that ends first, None without any; ``to_do`` is empty for nothing."""

    expires: datetime | None = None
    first: str | None = None
    to_do: str = ""


NO_CONTROL_PLANE = ControlPlaneCertificates()


def look_at_control_plane(machine: Machine) -> ControlPlaneCertificates:
    """Look at the certificates; a worker has none, and one that is half made has none that can be told of."""
    if not machine.paths.ca.with_suffix(".key").exists():
        return NO_CONTROL_PLANE
    try:
        first = first_to_end(read_leaves(machine.paths))
    except AttestedError:
        return NO_CONTROL_PLANE
    failed = RenewalRecord(
        machine.paths.lock_marker.with_name(CONTROL_PLANE_DIRECTORY.name), clock=machine.clock
    ).load()
    is_near = first.until - _MARGIN <= machine.clock.now()
    to_do = _hint(failed) if failed and (is_near or not failed.passes) else ""
    if is_near and not to_do:
        to_do = _ENDS.format(name=first.certificate.name, ends=f"{first.until:%Y-%m-%dT%H:%M:%SZ}")
    return ControlPlaneCertificates(expires=first.until, first=first.certificate.name, to_do=to_do)


def _hint(failed: FailedRenewal) -> str:
    hint = Reason[failed.reason].value.hint if failed.reason in Reason.__members__ else failed.message
    return f"{failed.reason}: {hint}"
