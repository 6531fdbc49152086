# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The machine's side of init, in the process that holds the TPM: identity, evidence, verification of requests."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Protocol

from ..errors import AttestedError, KeyServiceError, Refusal
from ..keyservice.key_bundle import KeyBundle
from ..reasons import Reason
from ..transport.binding import Purpose
from ..transport.sealed_box import open_sealed
from .exchanges import Exchanges
from .init_admin import verify_admin
from .init_job import Jobs, ended
from .init_messages import InitOrder, digest_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from ..core.host import Clock, Random
    from ..evidence.challenge import Answer
    from ..transport.pins import JoinCaPins
    from .handshake_evidence import Attester
    from .init_job import Job, JobReporter
    from .init_messages import Success
    from .machine_socket import Begin
    from .witness import Facts

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
