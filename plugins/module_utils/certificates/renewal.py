# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The certificates of one control plane, renewed component by component (ADR 0029).

    turn → is it well? → copies of the files → kubeadm renews each → check each → start anew → is it well? → drop copies

Whatever fails between the copies and the end puts the files before in their place and starts the component with them.
"""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING, Protocol

from ..errors import AttestedError, KubeadmError, SystemFault
from ..kubeadm import KubeletCredential, believing, last_words
from ..reasons import Reason
from ..result import Step
from ..system import read_bytes, write_atomic
from .keep import KeptFiles
from .leaf import parse_leaf, split_kubeconfig, verify_renewed
from .plan import plan
from .pods import unhealthy
from .table import CERTIFICATES, ETCD, NOBODY

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path, PurePosixPath

    from ..kubeadm import KubernetesPaths, Machine
    from .leaf import Leaf
    from .plan import RenewalPlan
    from .table import Certificate

_LIMIT = 1 << 20
_KUBEADM_SECONDS = 120.0
SETTLING_SECONDS = 60.0
_POLL_SECONDS = 1.0
_SHOWN = {NOBODY: "Renew the certificates that are read at each use"}


class Turns(Protocol):
    """Only one control plane at a time is started anew."""

    def take(self) -> None:
        """Take the turn, or keep it for longer; raises CONTROL_PLANE_JOIN_BUSY, `ApiError`."""

    def free(self) -> None:
        """Let others have it; who cannot say so loses it by time."""


class Pods(Protocol):
    """The components of this control plane."""

    def is_well(self, component: str) -> bool:
        """Ask it."""

    def restart(self, component: str) -> None:
        """Start it anew and wait; raises CONTROL_PLANE_COMPONENT_UNHEALTHY."""


class Members(Protocol):
    """The members of etcd."""

    def require_healthy(self) -> None:
        """Raise ETCD_MEMBER_UNHEALTHY unless all are well."""


def read_leaves(paths: KubernetesPaths) -> tuple[Leaf, ...]:
    """Return every certificate of this control plane, of a renewal that was cut off the one before.

    Raises CONTROL_PLANE_CERTIFICATE_MALFORMED naming all that are missing or cannot be read.
    """
    kept = KeptFiles(paths)
    found, problems = [], []
    for one in CERTIFICATES:
        try:
            authority = read_bytes(paths.root / one.authority, limit=_LIMIT)
            found.append(parse_leaf(one, _certificate(kept.source(one.component, one.path)), authority))
        except SystemFault as error:
            problems.append(error.message)
        except ValueError:
            problems.append(f"no certificate in /{one.path} or /{one.authority}")
    if problems:
        raise KubeadmError(
            f"expected the certificates of a control plane: {'; '.join(problems)}",
            reason=Reason.CONTROL_PLANE_CERTIFICATE_MALFORMED,
        )
    return tuple(found)


class ControlPlaneRenewal:
    """One control plane's renewal; the caller lets one run at a time on this machine."""

    def __init__(
        self, machine: Machine, *, pods: Pods, members: Members, turns: Turns, say: Callable[[str], None] | None = None
    ) -> None:
        """Keep the machine and its surroundings; ``say`` hears each step as it begins."""
        self._machine = machine
        self._pods = pods
        self._members = members
        self._turns = turns
        self._kept = KeptFiles(machine.paths)
        self._say = say or _nobody_hears

    def plan(self, *, at_once: bool = False) -> RenewalPlan:
        """Look at the machine; raises CONTROL_PLANE_CERTIFICATE_MALFORMED and CONTROL_PLANE_CERTIFICATE_EARLY."""
        leaves = read_leaves(self._machine.paths)
        return plan(leaves, now=self._machine.clock.now(), at_once=at_once, unfinished=self._kept.components())

    def apply(self, todo: RenewalPlan) -> tuple[Step, ...]:
        """Renew what is planned, one component after the other; the first that fails ends it.

        Raises NODELOCK_NOT_HELD, what `Turns` and `Members` raise, CONTROL_PLANE_COMPONENT_UNHEALTHY (before: nothing
        was touched), CONTROL_PLANE_RENEWAL_FAILED (the files before are back), CONTROL_PLANE_RENEWAL_UNDONE (so are
        the components).
        """
        if not todo:
            return ()
        self._require_lock()
        for component in self._kept.components():  # of a run that was killed, see `KeptFiles`
            self._kept.put_back(component)
        steps = [self._timed(todo, NOBODY)] if todo.of(NOBODY) else []
        try:
            return (*steps, *(self._timed(todo, name) for name in todo.components if name != NOBODY))
        finally:
            if todo.components != (NOBODY,):
                self._turns.free()

    def _timed(self, todo: RenewalPlan, component: str) -> Step:
        names = ", ".join(leaf.certificate.name for leaf in todo.of(component))
        title = f"{_SHOWN.get(component, f'Renew the certificates of {component} and start it anew')} ({names})"
        self._say(title)
        begun = self._machine.clock.monotonic()
        self._renew(component, tuple(leaf.certificate for leaf in todo.of(component)))
        return Step(name=component, title=title, seconds=self._machine.clock.monotonic() - begun)

    def _renew(self, component: str, certificates: tuple[Certificate, ...]) -> None:
        if component != NOBODY:
            self._require_fit(component)
        if component in self._kept.components():
            self._kept.drop(component)
        self._kept.keep(component, (path for one in certificates for path in one.files))
        try:
            for one in certificates:
                self._renew_one(one)
        except AttestedError:
            self._kept.put_back(component)
            self._kept.drop(component)
            raise
        if component != NOBODY:
            self._start_anew(component)
        self._kept.drop(component)

    def _require_fit(self, component: str) -> None:
        self._turns.take()
        if component == ETCD:
            self._members.require_healthy()
        if not self._settles(component):
            raise unhealthy(component, f"within {SETTLING_SECONDS:g} s before its certificates are renewed")

    def _settles(self, component: str) -> bool:
        """Say whether it is well, soon: an API server needs a while after etcd was started anew before it."""
        clock = self._machine.clock
        deadline = clock.monotonic() + SETTLING_SECONDS
        while not self._pods.is_well(component):
            if clock.monotonic() > deadline:
                return False
            clock.sleep(_POLL_SECONDS)
        return True

    def _renew_one(self, one: Certificate) -> None:
        before = _certificate(self._path(one.path))
        self._kubeadm(one.name)
        try:
            after = self._credential(one)
        except ValueError as error:
            raise _failed(f"certificate {one.name} after its renewal: {error}") from error
        authority = read_bytes(self._path(one.authority), limit=_LIMIT)
        verify_renewed(one.name, before=before, after=after, authority=authority, now=self._machine.clock.now())
        self._believe_all(one, authority)

    def _believe_all(self, one: Certificate, authorities: bytes) -> None:
        """Name every CA of the cluster in a kubeconfig: kubeadm names the first one alone."""
        path = self._path(one.path)
        if path.suffix == ".conf":
            mode = stat.S_IMODE(path.stat().st_mode)
            write_atomic(path, believing(read_bytes(path, limit=_LIMIT), authorities), mode=mode)

    def _start_anew(self, component: str) -> None:
        try:
            self._pods.restart(component)
        except AttestedError as error:
            self._kept.put_back(component)
            raise self._undone(component, error) from error

    def _undone(self, component: str, error: AttestedError) -> KubeadmError:
        """Start the component with the files before, and say how that went; the copies stay where it went badly."""
        try:
            self._pods.restart(component)
        except AttestedError as worse:
            told = f"the files before are back, and it is not well with them either: {worse.message}"
        else:
            self._kept.drop(component)
            told = "it runs with the files before"
        return KubeadmError(f"{error.message}; {told}", reason=Reason.CONTROL_PLANE_RENEWAL_UNDONE)

    def _kubeadm(self, name: str) -> None:
        """Renew one by its name: ``all`` would ask for super-admin.conf too."""
        try:
            result = self._machine.runner.run(
                ["kubeadm", "certs", "renew", name], timeout_seconds=_KUBEADM_SECONDS, check=False
            )
        except SystemFault as error:
            raise _failed(f"kubeadm certs renew {name}: {error.message}") from error
        if result.returncode != 0:
            raise _failed(f"kubeadm certs renew {name} ended with {result.returncode}: {last_words(result)}")

    def _credential(self, one: Certificate) -> KubeletCredential:
        data = read_bytes(self._path(one.path), limit=_LIMIT)
        if one.path.suffix == ".conf":
            return split_kubeconfig(data)
        return KubeletCredential(
            certificate=data, key=read_bytes(self._path(one.path.with_suffix(".key")), limit=_LIMIT)
        )

    def _path(self, path: PurePosixPath) -> Path:
        return self._machine.paths.root / path

    def _require_lock(self) -> None:
        if not self._machine.paths.lock_marker.exists():
            raise KubeadmError(
                "expected a machine that is locked to its cluster, it is not", reason=Reason.NODELOCK_NOT_HELD
            )


def _certificate(path: Path) -> bytes:
    data = read_bytes(path, limit=_LIMIT)
    return split_kubeconfig(data).certificate if path.suffix == ".conf" else data


def _failed(message: str) -> KubeadmError:
    return KubeadmError(message, reason=Reason.CONTROL_PLANE_RENEWAL_FAILED)


def _nobody_hears(_title: str) -> None:
    """Tell nobody."""
