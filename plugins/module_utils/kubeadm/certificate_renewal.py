# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The certificates of one control plane, renewed component by component (ADR 0029).

    turn → healthy? → copy the files → kubeadm renews each → check each → restart → healthy? → drop the copies

A failure after the copies are made restores the old files and restarts the component with them.
"""

from __future__ import annotations

import shutil
import stat
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol

from .._deps.crypto import unreadable
from ..core.files import read_bytes, write_atomic
from ..errors import AttestedError, KubeadmError, SystemFault
from ..reasons import Reason
from ..result import Step
from .certificate_table import CERTIFICATES, ETCD, NO_COMPONENT, ORDER
from .credential import KubeletCredential, trusting
from .gateway import last_lines
from .leaf_certificate import parse_leaf, split_kubeconfig, verify_renewed
from .static_pods import unhealthy

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence
    from datetime import datetime
    from pathlib import Path, PurePosixPath

    from .certificate_table import Certificate
    from .leaf_certificate import Leaf
    from .operation import Machine
    from .spec import KubernetesPaths


# Copies of the files before a renewal, readable by root only, until the component is healthy with the new files.
#
#     nothing kept ──keep──▶ kept ──drop──▶ nothing kept
#                              └──put back──▶ kept ──drop──▶
#
# The copies of a component are made complete by one rename. If a run finds copies, an earlier run was killed. The
# files in use may then be bad, so the copies are put back.

_NAME = "attested-renewal"


class KeptFiles:
    """The directory of the copies.

    It is below kubeadm's directory, so a reset of the machine removes both.
    """

    def __init__(self, paths: KubernetesPaths) -> None:
        """Store the paths."""
        self._root = paths.root
        self._directory = paths.kubernetes / _NAME

    def components(self) -> tuple[str, ...]:
        """Return the components whose renewal was interrupted."""
        return tuple(name for name in ORDER if (self._directory / name).is_dir())

    def source(self, component: str, path: PurePosixPath) -> Path:
        """Return the path of the good content of ``path``: its copy if there is one, else the file itself."""
        copy = self._directory / component / path
        return copy if copy.exists() else self._root / path

    def keep(self, component: str, files: Iterable[PurePosixPath]) -> None:
        """Copy ``files`` with their modes; raises FILE_UNUSABLE and keeps no copy then."""
        fresh = self._directory / f".{component}"
        try:
            shutil.rmtree(fresh, ignore_errors=True)
            fresh.mkdir(mode=0o700, parents=True)
            self._directory.chmod(0o700)
            for path in files:
                copy = fresh / path
                copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                _copy(self._root / path, copy)
            fresh.rename(self._directory / component)
        except OSError as error:
            raise _unusable(self._directory, error) from error

    def put_back(self, component: str) -> None:
        """Restore the files of a component from the copies; raises FILE_UNUSABLE. The copies stay."""
        kept = self._directory / component
        for copy in sorted(path for path in kept.rglob("*") if path.is_file()):
            _copy(copy, self._root / copy.relative_to(kept))

    def drop(self, component: str) -> None:
        """Remove the copies of a component; raises FILE_UNUSABLE."""
        gone = self._directory / f".{component}"
        try:
            shutil.rmtree(gone, ignore_errors=True)
            (self._directory / component).rename(gone)  # A partly removed directory must not count as copies.
            shutil.rmtree(gone)
            if not any(self._directory.iterdir()):
                self._directory.rmdir()
        except OSError as error:
            raise _unusable(self._directory, error) from error


def _copy(source: Path, target: Path) -> None:
    content = read_bytes(source, limit=_LIMIT)
    write_atomic(target, content, mode=stat.S_IMODE(source.stat().st_mode))


def _unusable(directory: Path, error: OSError) -> SystemFault:
    return SystemFault(f"cannot keep copies in {directory}: {error.strerror}", reason=Reason.FILE_UNUSABLE)


# Which certificates are due; pure.
#
# A certificate is due in the window before its end or the end of its CA, whichever comes first. If the CA ends first, a
# renewal cannot extend the certificate, so the certificate is not renewed. An admin has to replace the CA.

WINDOW = timedelta(days=60)
"""Two months of daily attempts, in which an admin can also act."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RenewalPlan:
    """The certificates to renew, and the CAs (file name, end) that an admin has to replace."""

    due: tuple[Leaf, ...]
    ending: tuple[tuple[str, datetime], ...] = ()

    def __bool__(self) -> bool:
        """Return whether there is anything to renew."""
        return bool(self.due)

    @property
    def components(self) -> tuple[str, ...]:
        """The components with certificates to renew, in order of their restart."""
        return tuple(name for name in ORDER if self.of(name))

    def of(self, component: str) -> tuple[Leaf, ...]:
        """Return the due certificates of one component."""
        return tuple(leaf for leaf in self.due if leaf.certificate.component == component)

    def require_lasting(self) -> None:
        """Raise CONTROL_PLANE_CA_ENDS if a CA ends within the renewal window of its certificates."""
        if self.ending:
            shown = ", ".join(f"{name} until {ends:%Y-%m-%dT%H:%M:%SZ}" for name, ends in self.ending)
            raise KubeadmError(
                f"expected CAs that are good beyond the renewal window, got {shown}",
                reason=Reason.CONTROL_PLANE_CA_ENDS,
            )


def window_of(leaf: Leaf) -> timedelta:
    """Return how long before its end a certificate is renewed.

    This is two months, or a third of the lifetime if that is shorter.
    """
    return min(WINDOW, (leaf.ends - leaf.begins) / 3)


def renews(leaf: Leaf) -> datetime:
    """Return the time from which a certificate is due."""
    return leaf.until - window_of(leaf)


def plan(
    leaves: Sequence[Leaf], *, now: datetime, at_once: bool = False, unfinished: Collection[str] = ()
) -> RenewalPlan:
    """Return the due certificates (all if ``at_once``) and those of the ``unfinished`` components.

    Raises CONTROL_PLANE_CERTIFICATE_EARLY if a certificate or CA is not valid yet: then the clock is wrong, and new
    certificates would have wrong dates.
    """
    _require_begun(leaves, now)
    due = tuple(leaf for leaf in leaves if at_once or leaf.certificate.component in unfinished or _is_due(leaf, now))
    ending = {
        leaf.certificate.authority.relative_to("etc/kubernetes/pki").as_posix(): leaf.authority_ends
        for leaf in leaves
        if leaf.authority_ends - window_of(leaf) <= now
    }
    return RenewalPlan(due=due, ending=tuple(sorted(ending.items())))


def first_to_end(leaves: Sequence[Leaf]) -> Leaf:
    """Return the certificate that ends first, by its own end or the end of its CA."""
    return min(leaves, key=lambda leaf: leaf.until)


def _is_due(leaf: Leaf, now: datetime) -> bool:
    return renews(leaf) <= now and leaf.ends < leaf.authority_ends


def _require_begun(leaves: Sequence[Leaf], now: datetime) -> None:
    early = [
        f"{leaf.certificate.name} from {begins:%Y-%m-%dT%H:%M:%SZ} on"
        for leaf in leaves
        if (begins := max(leaf.begins, leaf.authority_begins)) > now
    ]
    if early:
        raise KubeadmError(
            f"expected certificates that are good at {now:%Y-%m-%dT%H:%M:%SZ}, got {', '.join(early)}",
            reason=Reason.CONTROL_PLANE_CERTIFICATE_EARLY,
        )


_LIMIT = 1 << 20
_KUBEADM_SECONDS = 120.0
SETTLING_SECONDS = 60.0
_POLL_SECONDS = 1.0
_SHOWN = {NO_COMPONENT: "Renew the certificates that are read at each use"}


class Turns(Protocol):
    """The turn, which lets only one control plane at a time restart its components."""

    def take(self) -> None:
        """Take the turn or extend it; raises CONTROL_PLANE_JOIN_BUSY, `ApiError`."""

    def free(self) -> None:
        """Release the turn. If that fails, the turn expires."""


class Pods(Protocol):
    """The components of this control plane."""

    def is_healthy(self, component: str) -> bool:
        """Return whether the component is healthy."""

    def restart(self, component: str) -> None:
        """Restart the component and wait for it; raises CONTROL_PLANE_COMPONENT_UNHEALTHY."""


class Members(Protocol):
    """The members of etcd."""

    def require_healthy(self) -> None:
        """Raise ETCD_MEMBER_UNHEALTHY unless all members are healthy."""


def read_leaves(paths: KubernetesPaths) -> tuple[Leaf, ...]:
    """Return every certificate of this control plane.

    After an interrupted renewal, the copies are read instead of the files. Raises CONTROL_PLANE_CERTIFICATE_MALFORMED
    with all certificates that are missing or unreadable.
    """
    kept = KeptFiles(paths)
    found, problems = [], []
    for one in CERTIFICATES:
        try:
            authority = read_bytes(paths.root / one.authority, limit=_LIMIT)
            found.append(parse_leaf(one, _certificate(kept.source(one.component, one.path)), authority))
        except SystemFault as error:
            problems.append(error.message)
        except unreadable():
            problems.append(f"no certificate in /{one.path} or /{one.authority}")
    if problems:
        raise KubeadmError(
            f"expected the certificates of a control plane: {'; '.join(problems)}",
            reason=Reason.CONTROL_PLANE_CERTIFICATE_MALFORMED,
        )
    return tuple(found)


class ControlPlaneRenewal:
    """Renews the certificates of one control plane. The caller ensures one run at a time on this machine."""

    def __init__(
        self, machine: Machine, *, pods: Pods, members: Members, turns: Turns, say: Callable[[str], None] | None = None
    ) -> None:
        """Store the machine and its interfaces; ``say`` receives the title of each step when the step starts."""
        self._machine = machine
        self._pods = pods
        self._members = members
        self._turns = turns
        self._kept = KeptFiles(machine.paths)
        self._say = say or _discard

    def plan(self, *, at_once: bool = False) -> RenewalPlan:
        """Return the plan; raises CONTROL_PLANE_CERTIFICATE_MALFORMED and CONTROL_PLANE_CERTIFICATE_EARLY."""
        leaves = read_leaves(self._machine.paths)
        return plan(leaves, now=self._machine.clock.now(), at_once=at_once, unfinished=self._kept.components())

    def apply(self, todo: RenewalPlan) -> tuple[Step, ...]:
        """Renew the planned certificates, one component after the other; the first failure stops the run.

        Raises NODELOCK_NOT_HELD, the errors of `Turns` and `Members`, and:

        - CONTROL_PLANE_COMPONENT_UNHEALTHY: a component was unhealthy before its renewal; its files are unchanged.
        - CONTROL_PLANE_RENEWAL_FAILED: the old files are restored.
        - CONTROL_PLANE_RENEWAL_UNDONE: the old files are restored, and the component was restarted with them.
        """
        if not todo:
            return ()
        self._require_lock()
        for component in self._kept.components():  # An earlier run was killed, see `KeptFiles`.
            self._kept.put_back(component)
        steps = [self._timed(todo, NO_COMPONENT)] if todo.of(NO_COMPONENT) else []
        try:
            return (*steps, *(self._timed(todo, name) for name in todo.components if name != NO_COMPONENT))
        finally:
            if todo.components != (NO_COMPONENT,):
                self._turns.free()

    def _timed(self, todo: RenewalPlan, component: str) -> Step:
        names = ", ".join(leaf.certificate.name for leaf in todo.of(component))
        title = f"{_SHOWN.get(component, f'Renew the certificates of {component} and restart it')} ({names})"
        self._say(title)
        begun = self._machine.clock.monotonic()
        self._renew(component, tuple(leaf.certificate for leaf in todo.of(component)))
        return Step(name=component, title=title, seconds=self._machine.clock.monotonic() - begun)

    def _renew(self, component: str, certificates: tuple[Certificate, ...]) -> None:
        if component != NO_COMPONENT:
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
        if component != NO_COMPONENT:
            self._restart(component)
        self._kept.drop(component)

    def _require_fit(self, component: str) -> None:
        self._turns.take()
        if component == ETCD:
            self._members.require_healthy()
        if not self._settles(component):
            raise unhealthy(component, f"within {SETTLING_SECONDS:g} s before its certificates are renewed")

    def _settles(self, component: str) -> bool:
        """Return whether the component becomes healthy in time: an API server needs a while after etcd's restart."""
        clock = self._machine.clock
        deadline = clock.monotonic() + SETTLING_SECONDS
        while not self._pods.is_healthy(component):
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
        self._trust_all(one, authority)

    def _trust_all(self, one: Certificate, authorities: bytes) -> None:
        """Write every CA of the cluster to a kubeconfig: kubeadm writes only the first CA."""
        path = self._path(one.path)
        if path.suffix == ".conf":
            mode = stat.S_IMODE(path.stat().st_mode)
            write_atomic(path, trusting(read_bytes(path, limit=_LIMIT), authorities), mode=mode)

    def _restart(self, component: str) -> None:
        try:
            self._pods.restart(component)
        except AttestedError as error:
            self._kept.put_back(component)
            raise self._undone(component, error) from error

    def _undone(self, component: str, error: AttestedError) -> KubeadmError:
        """Restart the component with the old files and return the error to raise; the copies stay if that fails."""
        try:
            self._pods.restart(component)
        except AttestedError as worse:
            outcome = f"the old files are restored, but it is not healthy with them either: {worse.message}"
        else:
            self._kept.drop(component)
            outcome = "it runs with the old files"
        return KubeadmError(f"{error.message}; {outcome}", reason=Reason.CONTROL_PLANE_RENEWAL_UNDONE)

    def _kubeadm(self, name: str) -> None:
        """Renew one certificate by its name: ``all`` would include super-admin.conf, which does not exist."""
        try:
            result = self._machine.runner.run(
                ["kubeadm", "certs", "renew", name], timeout_seconds=_KUBEADM_SECONDS, check=False
            )
        except SystemFault as error:
            raise _failed(f"kubeadm certs renew {name}: {error.message}") from error
        if result.returncode != 0:
            raise _failed(f"kubeadm certs renew {name} ended with {result.returncode}: {last_lines(result)}")

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


def _discard(_title: str) -> None:
    """Discard the title."""
