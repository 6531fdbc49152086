# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan and run the phases of kubeadm; a journal records each completed phase."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..core.files import make_directory, read_bytes, remove, write_atomic
from ..errors import KubeadmError
from ..reasons import Reason
from ..result import Step
from .credential import adopt_embedded
from .gateway import Kubeadm, KubeletUnit
from .phases import SKIPPED_ON_REPEAT, STARTS_KUBELET, Executor, Phase

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path, PurePosixPath

    from ..core.command import Runner
    from ..core.host import Clock
    from .spec import KubernetesPaths


# The completed phases, stored with the other state of the node.

_VERSION = 1
_LIMIT = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The operation ("init", "join" ...), the SHA-256 of its configuration, and the completed phases."""

    operation: str
    config_sha256: str
    done: tuple[str, ...] = ()

    def with_done(self, name: str) -> Progress:
        """Return the progress after phase ``name``."""
        done = self.done if name in self.done else (*self.done, name)
        return Progress(operation=self.operation, config_sha256=self.config_sha256, done=done)


class Journal:
    """The file of the progress. It is written by rename, so a kill leaves the old or the new file."""

    def __init__(self, directory: Path) -> None:
        """Store the path of the file."""
        self._path = directory / "progress.json"

    def load(self) -> Progress | None:
        """Return the progress, or None if no operation has begun; raises NODE_JOURNAL_MALFORMED."""
        if not self._path.exists():
            return None
        try:
            body = json.loads(read_bytes(self._path, limit=_LIMIT))
            if body["version"] != _VERSION:
                raise _malformed(f"expected the progress of kubeadm in version {_VERSION}, found {body['version']!r}")
            return Progress(
                operation=str(body["operation"]),
                config_sha256=str(body["config_sha256"]),
                done=tuple(str(name) for name in body["done"]),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise _malformed(f"expected the progress of kubeadm in {self._path}") from error

    def save(self, progress: Progress) -> None:
        """Write the progress."""
        make_directory(self._path.parent, mode=0o700)
        body = {
            "version": _VERSION,
            "operation": progress.operation,
            "config_sha256": progress.config_sha256,
            "done": list(progress.done),
        }
        write_atomic(self._path, json.dumps(body, indent=2).encode() + b"\n")

    def forget(self) -> bool:
        """Remove the file; return whether it existed."""
        return remove(self._path)


def _malformed(message: str) -> KubeadmError:
    return KubeadmError(message, reason=Reason.NODE_JOURNAL_MALFORMED)


# Which phases are still to run. Pure.


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """The state of the machine: the journal, existing files of `witnesses`, whether the kubelet runs."""

    progress: Progress | None
    files: frozenset[PurePosixPath]
    kubelet_active: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The ``phases`` of ``table`` to run, in order.

    ``start_kubelet``: the kubelet was started before and does not run now. ``drifted``: all phases are complete, but
    ran with another configuration. This is only reported, because kubeadm changes a running cluster only by an upgrade.
    """

    table: tuple[Phase, ...]
    phases: tuple[Phase, ...] = ()
    start_kubelet: bool = False
    drifted: bool = False

    def __bool__(self) -> bool:
        """Return whether there is anything to do."""
        return bool(self.phases) or self.start_kubelet

    def up_to(self, until: str | None) -> tuple[Phase, ...]:
        """Return the phases up to and including phase ``until`` (None: all phases)."""
        if until is None:
            return self.phases
        names = [phase.name for phase in self.table]
        return tuple(phase for phase in self.phases if names.index(phase.name) <= names.index(until))


def plan(table: Sequence[Phase], observed: Observed, *, config_sha256: str) -> Plan:
    """Return the phases of ``table`` to run.

    A phase is complete if the journal lists it, its witnesses exist and its absent files do not. All phases from the
    first incomplete phase on are run: each phase of kubeadm may run twice, and a later phase may depend on an earlier
    one. If the operation is incomplete and the configuration changed, all phases are run.

    The kubelet is started if it was started before, does not run, and no remaining phase starts it.
    """
    done = _done(table, observed)
    complete = len(done) == len(table)
    same = observed.progress is not None and observed.progress.config_sha256 == config_sha256
    if complete:
        return Plan(table=tuple(table), start_kubelet=not observed.kubelet_active, drifted=not same)
    first = _first_undone(table, done) if same else 0
    begun = bool(done)
    left = tuple(phase for phase in table[first:] if not (begun and phase.name in SKIPPED_ON_REPEAT))
    once = STARTS_KUBELET in done and all(phase.name != STARTS_KUBELET for phase in left)
    return Plan(table=tuple(table), phases=left, start_kubelet=once and not observed.kubelet_active)


def witnesses(table: Sequence[Phase]) -> tuple[PurePosixPath, ...]:
    """Return every file whose presence or absence shows that a phase of ``table`` is complete."""
    return tuple(path for phase in table for path in (*phase.witnesses, *phase.absent))


def _done(table: Sequence[Phase], observed: Observed) -> tuple[str, ...]:
    listed = observed.progress.done if observed.progress else ()
    return tuple(phase.name for phase in table if phase.name in listed and _is_witnessed(phase, observed))


def _is_witnessed(phase: Phase, observed: Observed) -> bool:
    return observed.files.issuperset(phase.witnesses) and observed.files.isdisjoint(phase.absent)


def _first_undone(table: Sequence[Phase], done: Sequence[str]) -> int:
    return next(position for position, phase in enumerate(table) if phase.name not in done)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The interfaces of an operation to the machine: programs, clock and paths."""

    runner: Runner
    clock: Clock
    paths: KubernetesPaths

    @property
    def kubelet(self) -> KubeletUnit:
        """The kubelet's unit."""
        return KubeletUnit(self.runner, clock=self.clock)

    @property
    def journal(self) -> Journal:
        """The journal of the completed phases."""
        return Journal(self.paths.state)


MEMBER_OPERATION = "join-control-plane"
"""Separate from "join" and "init" in the journal, so that a machine cannot continue in another role."""


def is_control_plane(machine: Machine) -> bool:
    """Return whether this machine began an init or a join as control plane.

    Raises NODE_JOURNAL_MALFORMED.
    """
    progress = machine.journal.load()
    return progress is not None and progress.operation in ("init", MEMBER_OPERATION)


def _nothing_to_wait_for() -> None:
    """Return at once: a worker joins a cluster whose API server runs."""


class Operation:
    """Runs ``kubeadm init`` or ``kubeadm join`` as phases: plan, then apply.

    A run after a kill continues.
    """

    def __init__(
        self,
        machine: Machine,
        *,
        name: str,
        table: Sequence[Phase],
        config: bytes,
        ignored: Sequence[str],
        verb: str | None = None,
        wait_ready: Callable[[], None] = _nothing_to_wait_for,
    ) -> None:
        """Store the table of phases, the rendered configuration, and the wait for the API server.

        ``name`` identifies the role in the journal. ``verb`` is kubeadm's command if it differs from ``name``.
        """
        self._machine = machine
        self._name = name
        self._verb = verb or name
        self._table = tuple(table)
        self._config = config
        self._ignored = tuple(ignored)
        self._wait_ready = wait_ready

    @property
    def config_sha256(self) -> str:
        """SHA-256 (hex) of the configuration."""
        return hashlib.sha256(self._config).hexdigest()

    def plan(self) -> Plan:
        """Return the plan; raises NODE_JOURNAL_MALFORMED, KUBEADM_OTHER_ROLE."""
        progress = self._machine.journal.load()
        if progress is not None and progress.operation != self._name:
            raise KubeadmError(
                f"expected a machine for {self._name}, it has run {progress.operation}",
                reason=Reason.KUBEADM_OTHER_ROLE,
            )
        root = self._machine.paths.root
        found = frozenset(path for path in witnesses(self._table) if (root / path).exists())
        observed = Observed(progress=progress, files=found, kubelet_active=self._machine.kubelet.is_active())
        return plan(self._table, observed, config_sha256=self.config_sha256)

    def apply(self, todo: Plan, *, until: str | None = None) -> tuple[Step, ...]:
        """Run ``todo`` up to and including phase ``until``.

        Raises NODELOCK_NOT_HELD unless the machine is locked.
        """
        self._require_known(until)
        if not todo:
            return ()
        self.require_lock()
        self.prepare()
        steps = [self._start_kubelet()] if todo.start_kubelet else []
        return (*steps, *(self._perform(phase) for phase in todo.up_to(until)))

    def prepare(self) -> None:
        """Write the configuration and enable the kubelet, because kubeadm only starts it."""
        state = self._machine.paths.state
        make_directory(state, mode=0o700)
        write_atomic(self._config_path(), self._config)
        self._machine.kubelet.enable()

    def _start_kubelet(self) -> Step:
        return self._timed("kubelet", "Start the kubelet", self._machine.kubelet.start)

    def _perform(self, phase: Phase) -> Step:
        step = self._timed(phase.name, phase.title, lambda: self._do(phase))
        journal = self._machine.journal
        progress = journal.load()
        if progress is None or progress.config_sha256 != self.config_sha256:
            progress = Progress(operation=self._name, config_sha256=self.config_sha256, done=_kept(progress))
        journal.save(progress.with_done(phase.name))
        return step

    def _do(self, phase: Phase) -> None:
        if phase.executor is Executor.KUBEADM:
            self._kubeadm().run(phase)
        elif phase.executor is Executor.CREDENTIAL:
            adopt_embedded(self._machine.paths, clock=self._machine.clock)
        elif phase.executor is Executor.READINESS:
            self._wait_ready()
        else:
            for path in phase.absent:
                remove(self._machine.paths.root / path)

    def _kubeadm(self) -> Kubeadm:
        return Kubeadm(self._machine.runner, operation=self._verb, config=self._config_path(), ignored=self._ignored)

    def _timed(self, name: str, title: str, action: Callable[[], None]) -> Step:
        begun = self._machine.clock.monotonic()
        action()
        return Step(name=name, title=title, seconds=self._machine.clock.monotonic() - begun)

    def _require_known(self, until: str | None) -> None:
        order = [phase.name for phase in self._table]
        if until is not None and until not in order:
            raise KubeadmError(
                f"until: expected one of {', '.join(order)}, got {until!r}", reason=Reason.OPTION_INVALID
            )

    def require_lock(self) -> None:
        """Raise NODELOCK_NOT_HELD unless the machine is locked to its cluster."""
        if not self._machine.paths.lock_marker.exists():
            raise KubeadmError(
                "expected a machine that is locked to its cluster, it is not", reason=Reason.NODELOCK_NOT_HELD
            )

    def _config_path(self) -> Path:
        return self._machine.paths.state / f"{self._name}.yaml"


def _kept(progress: Progress | None) -> tuple[str, ...]:
    """Return the phases that stay complete under a changed configuration: only the preflight checks."""
    return tuple(name for name in progress.done if name == "preflight") if progress else ()
