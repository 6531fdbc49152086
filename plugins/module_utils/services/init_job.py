# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The job of one init: it continues without a connection, and the same request finds it again."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

from ..core.redaction import MAX_LINES, redact
from ..errors import AttestedError, Refusal, SystemFault
from ..reasons import Reason
from .init_messages import Failure, Progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ..core.host import Clock
    from .init_messages import Success

    Work = Callable[["JobReporter"], Success]

MAX_PROGRESS = 4096
"""The init of a control plane has some hundred tasks."""


class JobReporter:
    """Reports the progress of the work to the job."""

    def __init__(self, job: Job, *, clock: Clock, secrets: Iterable[bytes] = ()) -> None:
        """Report to ``job``; ``secrets`` are redacted in every text."""
        self._job = job
        self._clock = clock
        self._secrets = tuple(secrets)
        self._begun = clock.monotonic()
        self._lines: deque[str] = deque(maxlen=4 * MAX_LINES)
        self.stage = ""
        self.task = ""

    def step(self, stage: str, task: str) -> None:
        """Report the task that begins, and drop the lines of the previous one."""
        self._lines.clear()
        self.stage, self.task = self._clean(stage), self._clean(task)
        elapsed = self._clock.monotonic() - self._begun
        self._job.add(Progress(stage=self.stage, task=self.task, elapsed_seconds=elapsed).to_bytes())

    def line(self, text: str) -> None:
        """Keep a line of the step; it is shown only if the step fails."""
        self._lines.append(text)

    def failed(self, error: AttestedError) -> Failure:
        """Return the failure of this step with its last lines."""
        return Failure(
            code=error.code,
            message=self._clean(error.message),
            hint=error.hint,
            stage=self.stage,
            task=self.task,
            log=redact(self._lines, secrets=self._secrets),
        )

    def _clean(self, text: str) -> str:
        return redact([text], secrets=self._secrets)


class Job:
    """One work and all its messages so far; several threads may follow it."""

    def __init__(self, digest: str) -> None:
        """Begin the job of the request ``digest`` (64 hex digits)."""
        self.digest = digest
        self._answers: list[bytes] = []
        self._ended = False
        self._failed = False
        self._changed = threading.Condition()

    @property
    def running(self) -> bool:
        """Whether the work is running."""
        with self._changed:
            return not self._ended

    @property
    def succeeded(self) -> bool:
        """Whether the work has succeeded."""
        with self._changed:
            return self._ended and not self._failed

    def add(self, answer: bytes) -> None:
        """Add a message; after `MAX_PROGRESS` messages further ones are dropped."""
        with self._changed:
            if len(self._answers) < MAX_PROGRESS:
                self._answers.append(answer)
                self._changed.notify_all()

    def end(self, *answers: bytes, failed: bool) -> None:
        """Add the last messages and end the job."""
        with self._changed:
            self._answers += answers
            self._ended, self._failed = True, failed
            self._changed.notify_all()

    def follow(self, seen: int, *, wait_seconds: float) -> tuple[tuple[bytes, ...], bool]:
        """Wait for messages after the first ``seen`` ones; return them and whether the job has ended."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended or len(self._answers) > seen, timeout=wait_seconds)
            return tuple(self._answers[seen:]), self._ended


class Jobs:
    """The one init of this machine: one work at a time, and the same request finds the existing job."""

    def __init__(self, *, clock: Clock) -> None:
        """Begin without a job."""
        self._clock = clock
        self._lock = threading.Lock()
        self._current: Job | None = None

    def begin(self, digest: str, work: Work, *, secrets: Iterable[bytes] = ()) -> Job:
        """Return the job of ``digest``: the running or successful one, else a new one.

        ``work`` runs in a thread of its own and raises an `AttestedError` if it fails.
        Raises INIT_REQUEST_DIFFERS while another request is running. After that, the node lock decides whether another
        request may begin.
        """
        with self._lock:
            current = self._current
            if current is not None and current.digest == digest and (current.running or current.succeeded):
                return current
            if current is not None and current.running:
                raise Refusal(
                    f"expected the init request {current.digest[:16]}… that is running, got {digest[:16]}…",
                    reason=Reason.INIT_REQUEST_DIFFERS,
                )
            job = self._current = Job(digest)
        reporter = JobReporter(job, clock=self._clock, secrets=secrets)
        threading.Thread(target=_run, args=(job, work, reporter), name="init", daemon=True).start()
        return job


def ended(digest: str, error: AttestedError) -> Job:
    """Return a job that failed before it began, for an authenticated admin."""
    job = Job(digest)
    job.end(*Failure.of(error).to_messages(), failed=True)
    return job


def _run(job: Job, work: Work, reporter: JobReporter) -> None:
    try:
        success = work(reporter)
    except AttestedError as error:
        job.end(*reporter.failed(error).to_messages(), failed=True)
    except Exception as error:  # noqa: BLE001 - the followers must receive every failure
        fault = SystemFault(f"expected init to end, got {type(error).__name__}", reason=Reason.INTERNAL)
        job.end(*reporter.failed(fault).to_messages(), failed=True)
    else:
        job.end(success.to_bytes(), failed=False)
