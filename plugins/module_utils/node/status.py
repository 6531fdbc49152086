# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The status of a node: phase with timestamp, reason for a wait, next step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ..errors import AttestedError
from ..kubeadm.certificate_renewal import first_to_end, read_leaves
from ..kubeadm.credential import validity
from ..kubeadm.gateway import KubeletUnit
from ..kubeadm.operation import Machine, is_control_plane
from ..kubeadm.phases import INIT_PHASES
from ..reasons import Reason
from .disk_record import PATH as DISK_PATH
from .disk_record import DiskRecord
from .journal import NodeJournal, NodePhase
from .renewal_record import CONTROL_PLANE_DIRECTORY, DIRECTORY, RenewalRecord
from .run_record import REATTEST, RunRecord

if TYPE_CHECKING:
    from datetime import datetime

    from ..kubeadm.credential import Validity
    from .journal import NodeState
    from .renewal_record import FailedRenewal


# The certificates of a control plane: the first to expire, and whether an admin has to renew it.

_MARGIN = timedelta(days=14)
"""With less time left, an admin must act even without a failed renewal: the timer may be off."""
_ENDS = "Run attested renew-control-plane: certificate {name} of this control plane ends at {ends}."


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlPlaneCertificates:
    """Expiry and name (kubeadm's) of the certificate that expires first, or None; ``to_do``: next step or empty."""

    expires: datetime | None = None
    first: str | None = None
    to_do: str = ""


NO_CONTROL_PLANE = ControlPlaneCertificates()


def look_at_control_plane(machine: Machine) -> ControlPlaneCertificates:
    """Return the status of the certificates; empty for a worker or with unreadable certificates."""
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


_NEXT_STEP = {
    NodePhase.FRESH: "Run the playbook node (any machine but the first control plane) or init (that one).",
    NodePhase.ASKING: "Run the playbook node again.",
    NodePhase.LOCKED: "Run the playbook node again: it goes on where it stopped.",
    NodePhase.JOINING: "Run the same playbook again (node or init): it goes on where it stopped.",
    NodePhase.JOINED: "Nothing.",
}
_OVERDUE = timedelta(minutes=10)
"""A round over many unreachable endpoints takes minutes; a next try further away is not expected."""
_RENEWAL_MARGIN = timedelta(hours=12)
"""With less time left, an admin must act even if the cause of failed renewals is temporary."""
_CLOSED = (
    "Read journalctl -u attested-unlock: a boot that is not the judged one stays closed. Run the playbook that made it "
    "(init or node) after a check."
)
_AT_WORK = "Nothing yet: attested-bootstrapper is at work. A first control plane waits for the playbook init."
_UNIT = "attested-bootstrapper.service"
_PROXY = "attested-api-endpoint.service"
_ENDED = "Run attested renew: the kubelet's certificate has ended. Where that is refused, its code says what to do."
_REBOOTED = "Run the playbook node: after a reboot the machine fetches its ticket again, then it locks itself."


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatus:
    """The status of one node; ``needs_person``: an admin has to act, ``to_do``: the next step.

    ``bootstrapper_active``: the unit runs or waits for its next start. ``certificate_renews``: start of automatic
    renewal of the kubelet's certificate, or None without certificate. ``control_plane``: its certificate that expires
    first. ``api``: status text of the proxy by which the kubelet reaches the API, or None without the proxy.
    """

    state: NodeState
    locked: bool
    kubelet_active: bool
    bootstrapper_active: bool
    certificate_expires: datetime | None
    certificate_renews: datetime | None = None
    control_plane: ControlPlaneCertificates = NO_CONTROL_PLANE
    api: str | None = None
    to_do: str
    needs_person: bool

    def as_result(self) -> dict[str, Any]:
        """Return plain values for a module's result and for ``--json``."""
        return {
            "phase": self.state.phase.value,
            "since": _stamp(self.state.since),
            "reason": self.state.reason,
            "message": self.state.message,
            "next_try": _stamp(self.state.next_try),
            "locked": self.locked,
            "kubelet_active": self.kubelet_active,
            "bootstrapper_active": self.bootstrapper_active,
            "certificate_expires": _stamp(self.certificate_expires),
            "certificate_renews": _stamp(self.certificate_renews),
            "control_plane_expires": _stamp(self.control_plane.expires),
            "control_plane_first": self.control_plane.first,
            "api": self.api,
            "kubernetes_version": self.state.kubernetes_version,
            "disk_id": self.state.disk_id,
            "to_do": self.to_do,
            "needs_person": self.needs_person,
        }


def read_status(machine: Machine, journal: NodeJournal) -> NodeStatus:
    """Return the status of this machine; changes nothing; raises NODE_JOURNAL_MALFORMED."""
    now = machine.clock.now()
    certificate = validity(machine.paths)
    renewal = _failed_renewal(machine)
    state = _with_renewal(_with_disk(_with_pushed(_with_init(journal.load(), machine), machine), machine), renewal)
    locked = machine.paths.lock_marker.exists()
    active = KubeletUnit(machine.runner, clock=machine.clock).is_active()
    at_work = _bootstrapper_is_active(machine)
    to_do = _to_do(state, locked=locked, active=active, ended=certificate is not None and certificate.ends <= now)
    if to_do == _REBOOTED and is_control_plane(machine):
        to_do = _CLOSED
    needs_person = to_do != _NEXT_STEP[NodePhase.JOINED] and not (
        _goes_on(state, now) or _renews_later(state, renewal, certificate, now)
    )
    if at_work and needs_person and state.reason is None:  # a permanent failure repeats
        to_do, needs_person = _AT_WORK, False
    control_plane = look_at_control_plane(machine)
    if not needs_person and control_plane.to_do:
        to_do, needs_person = control_plane.to_do, True
    return NodeStatus(
        state=state,
        locked=locked,
        kubelet_active=active,
        bootstrapper_active=at_work,
        certificate_expires=None if certificate is None else certificate.ends,
        certificate_renews=None if certificate is None else certificate.renews,
        control_plane=control_plane,
        api=_api(machine),
        to_do=to_do,
        needs_person=needs_person,
    )


def _with_init(state: NodeState, machine: Machine) -> NodeState:
    """Return the state of a machine after init, which writes only kubeadm's journal."""
    progress = machine.journal.load()
    if state.phase is not NodePhase.FRESH or progress is None or progress.operation != "init":
        return state
    complete = set(progress.done) >= {phase.name for phase in INIT_PHASES}
    return replace(state, phase=NodePhase.JOINED if complete else NodePhase.JOINING)


def _with_pushed(state: NodeState, machine: Machine) -> NodeState:
    """Return the state with the reason if the cluster refused pushed evidence; the node continues to run."""
    if state.phase is not NodePhase.JOINED or state.reason is not None:
        return state
    pushed = RunRecord(REATTEST, machine.paths.lock_marker.parent, clock=machine.clock).load()
    if pushed.failed_at is None or pushed.reason != Reason.EVIDENCE_REFUSED.name:
        return state
    return replace(state, reason=pushed.reason, message=f"at {_stamp(pushed.failed_at)}: {pushed.message}")


def _with_disk(state: NodeState, machine: Machine) -> NodeState:
    """Return the state with the reason if sectors of the state disk are unreadable; the node continues to run."""
    if state.phase is not NodePhase.JOINED or state.reason is not None:
        return state
    found = DiskRecord(machine.paths.lock_marker.with_name(DISK_PATH.name)).load()
    error = found.error()
    if error is None:
        return state
    return replace(state, reason=error.code, message=f"at {_stamp(found.found_at)}: {error.message}")


def _failed_renewal(machine: Machine) -> FailedRenewal | None:
    return RenewalRecord(machine.paths.lock_marker.with_name(DIRECTORY.name), clock=machine.clock).load()


def _with_renewal(state: NodeState, renewal: FailedRenewal | None) -> NodeState:
    """Return the state with the reason of a failed renewal; the node runs until its certificate expires."""
    if state.phase is not NodePhase.JOINED or state.reason is not None or renewal is None:
        return state
    message = f"renewal of the kubelet's certificate at {_stamp(renewal.at)}: {renewal.message}"
    return replace(state, reason=renewal.reason, message=message, next_try=renewal.next_try)


def _renews_later(state: NodeState, renewal: FailedRenewal | None, certificate: Validity | None, now: datetime) -> bool:
    """Return whether the only problem is a renewal with a temporary failure and enough time left."""
    if renewal is None or certificate is None or state.reason != renewal.reason:
        return False
    return renewal.passes and now < certificate.ends - _RENEWAL_MARGIN


def _bootstrapper_is_active(machine: Machine) -> bool:
    """Return whether the unit runs or waits for its next start; False without the unit."""
    shown = machine.runner.run(["systemctl", "is-active", _UNIT], check=False).stdout.strip()
    return shown in (b"active", b"activating")


def _api(machine: Machine) -> str | None:
    """Return the status text of the API proxy from systemd, or None without the proxy."""
    if not machine.paths.api_endpoint.exists():
        return None
    shown = machine.runner.run(["systemctl", "show", "--property=ActiveState,StatusText", _PROXY], check=False).stdout
    said = dict(line.partition("=")[::2] for line in shown.decode("utf-8", "replace").splitlines())
    if said.get("ActiveState") != "active":
        return f"{_PROXY} is {said.get('ActiveState') or 'not there'}; read journalctl -u attested-api-endpoint"
    return said.get("StatusText") or "running"


def _to_do(state: NodeState, *, locked: bool, active: bool, ended: bool) -> str:
    if state.reason is not None and state.reason in Reason.__members__:
        return Reason[state.reason].value.hint
    if state.phase is not NodePhase.JOINED:
        return _NEXT_STEP[state.phase]
    if not locked:
        return _REBOOTED
    if not active:
        return Reason.KUBELET_NOT_RUNNING.value.hint
    if ended:
        return _ENDED
    return _NEXT_STEP[NodePhase.JOINED]


def _goes_on(state: NodeState, now: datetime) -> bool:
    """Return whether a retry is expected; a killed process leaves an old time of its next try."""
    return state.next_try is not None and abs(now - state.next_try) < _OVERDUE


def _stamp(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat(timespec="seconds")
