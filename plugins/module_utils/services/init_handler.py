# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The machine's side of init, in the process that holds the TPM: identity, evidence, verification of requests."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Protocol

from ..core.logs import MAX_LINES, redact
from ..errors import AttestedError, KeyServiceError, Refusal, SystemFault
from ..keyservice.key_bundle import KeyBundle
from ..reasons import Reason
from ..transport.binding import Purpose
from ..transport.sealed_box import open_sealed
from .exchanges import Exchanges
from .init_admin import verify_admin
from .init_messages import Failure, InitOrder, Progress, digest_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from contextlib import AbstractContextManager

    from ..core.host import Clock, Random
    from ..evidence.challenge import Answer
    from ..transport.pins import JoinCaPins
    from .handshake_evidence import Attester
    from .init_messages import Success
    from .machine_socket import Begin
    from .witness import Facts

    Work = Callable[["JobReporter"], Success]


# The job of one init: it continues without a connection, and the same request finds it again.

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


_MAX_HANDLES = 64
_HANDLE_BYTES = 16


class Founder(Protocol):
    """Makes the cluster on this machine; the package `node` has the real one."""

    def found(
        self, order: InitOrder, bundle: KeyBundle, *, digest: str, judged: Mapping[int, bytes], reporter: JobReporter
    ) -> Success:
        """Take the node lock for the request ``digest``, seal the keys to the ``judged`` registers, make the cluster.

        A repeated request continues at the step where the last one stopped. Raises RACE_LOST, INIT_REQUEST_DIFFERS,
        and what a step raises.
        """


class Desk:
    """Answers the four calls of init; only `follow` may run in several threads."""

    def __init__(
        self,
        *,
        attester: Callable[[], AbstractContextManager[Attester]],
        facts: Callable[[], Facts],
        pins: JoinCaPins,
        founder: Founder,
        clock: Clock,
        random: Random,
    ) -> None:
        """Store the collaborators: each answer opens the TPM by ``attester`` and reads ``facts`` again.

        ``pins`` are the join CAs that certify admins.
        """
        self._exchanges = Exchanges(purpose=Purpose.INIT, attester=attester, facts=facts, clock=clock)
        self._facts = facts
        self._pins = pins
        self._founder = founder
        self._clock = clock
        self._random = random
        self._jobs = Jobs(clock=clock)
        self._handles: OrderedDict[bytes, Job] = OrderedDict()

    def identity(self) -> bytes:
        """Return the serialised `ChallengeRequest` of this machine; raises `TpmError`."""
        return self._exchanges.identity()

    def testimony(self, challenge: bytes, *, exporter: bytes, spki_sha256: bytes, source: str = "") -> bytes:
        """Return the serialised `Testimony` for a challenge, for the purpose `init`; raises as `Exchanges` does."""
        return self._exchanges.testimony(challenge, exporter=exporter, spki_sha256=spki_sha256, source=source)

    def begin(self, begin: Begin) -> bytes:
        """Return the handle of the job of a request; raises `Refusal` if the admin is not authenticated.

        1. It is a request, its secrets sealed. MESSAGE_MALFORMED, MESSAGE_TOO_LARGE, SECRETS_IN_CLEAR
        2. It belongs to an open exchange of this channel. CHALLENGE_UNKNOWN, CHANNEL_NOT_BOUND
        3. An admin of this cluster has signed it for this exchange. ADMIN_...
        4. The exchange is used up; the box that was sealed to it opens. SEAL_UNOPENABLE
        5. It holds the keys of the cluster that this machine is configured for. CLUSTER_ID_MISMATCH
        6. No other request is running, or has taken the lock. INIT_REQUEST_DIFFERS, RACE_LOST

        After step 3 the admin is authenticated, so a failure from step 4 on is reported by the job, with its code.
        """
        with self._exchanges.turn:
            order = InitOrder.parse(begin.request)  # 1
            given = self._exchanges.of(  # 2
                order.challenge_id, exporter=begin.exporter, spki_sha256=begin.spki_sha256
            )
            self._require_admin(given, begin)  # 3
            digest = ""
            try:
                bundle = self._opened(order, given)  # 4, 5
                digest = digest_of(begin.request, cluster_id=bundle.cluster_id)
                job = self._jobs.begin(digest, self._work(order, bundle, digest, given), secrets=_secrets(bundle))  # 6
            except AttestedError as error:
                job = ended(digest, error)
            return self._handle(job)

    def follow(self, handle: bytes, seen: int, *, wait_seconds: float) -> tuple[tuple[bytes, ...], bool]:
        """Return the job's messages after the first ``seen`` ones, and whether the job has ended.

        Raises INIT_HANDLE_UNKNOWN.
        """
        job = self._handles.get(handle)
        if job is None:
            raise Refusal("expected the handle of an init, got another", reason=Reason.INIT_HANDLE_UNKNOWN)
        return job.follow(seen, wait_seconds=wait_seconds)

    # ---- the steps

    def _require_admin(self, given: Answer, begin: Begin) -> None:
        if not begin.admin_proof:
            raise Refusal("expected an admin's proof, got none", reason=Reason.ADMIN_UNAUTHENTICATED)
        verify_admin(
            begin.admin_proof,
            pins=self._pins,
            cluster_id=self._facts().cluster_id,
            binding=given.binding,
            request=begin.request,
            now=self._clock.now(),
        )

    def _opened(self, order: InitOrder, given: Answer) -> KeyBundle:
        self._exchanges.use_up(order.challenge_id)
        data = open_sealed(order.sealed, secret=given.secret, binding=given.binding, one_time_key=given.one_time_key)
        bundle, ours = KeyBundle.from_bytes(data), self._facts().cluster_id
        if bundle.cluster_id != ours:
            raise KeyServiceError(
                f"expected the keys of cluster {ours.hex()}, got those of {bundle.cluster_id.hex()}",
                reason=Reason.CLUSTER_ID_MISMATCH,
            )
        return bundle

    def _work(
        self, order: InitOrder, bundle: KeyBundle, digest: str, given: Answer
    ) -> Callable[[JobReporter], Success]:
        judged = dict(given.bound.evidence.pcrs)

        def work(reporter: JobReporter) -> Success:
            return self._founder.found(order, bundle, digest=digest, judged=judged, reporter=reporter)

        return work

    def _handle(self, job: Job) -> bytes:
        handle = self._random.token(_HANDLE_BYTES)
        self._handles[handle] = job
        while len(self._handles) > _MAX_HANDLES:
            self._handles.popitem(last=False)
        return handle


def _secrets(bundle: KeyBundle) -> tuple[bytes, ...]:
    return (*(one.reveal() for one in bundle.ring.secrets()), bundle.join_ca_key.reveal())
