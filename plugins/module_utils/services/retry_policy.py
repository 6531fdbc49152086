# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide after a failed request whether to try again, how soon, and which of several errors to show. Pure."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from ..errors import DependencyError, SystemFault, TpmError
from ..reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..errors import AttestedError

_QUICK_SECONDS = 1.0
_SLOW_SECONDS = 16.0
_MAX_ERRORS = 6
_MAX_ERROR_LENGTH = 90


class Outlook(Enum):
    """The kinds of failures, from the least to the most relevant for this machine."""

    ABSENT = "no service answers"
    UNABLE = "the service, or the TPM, cannot serve now"
    STRANGER = "the peer is not a service of this cluster, or cannot be recognised"
    CLOCK = "the clocks of this machine and of the service differ"
    REFUSED = "the cluster refused, and an admin may change that"
    NEVER = "the same request gets the same answer"


_WINDOWS = {
    Outlook.ABSENT: _QUICK_SECONDS,
    Outlook.UNABLE: _QUICK_SECONDS,
    Outlook.STRANGER: _SLOW_SECONDS,
    Outlook.CLOCK: _SLOW_SECONDS,
    Outlook.REFUSED: _SLOW_SECONDS,
}
"""The seconds within which the second attempt begins; a kind that is not listed is not tried again."""

OUTLOOKS = {
    # not stated by a service of the cluster: any machine that answers at an address could otherwise end the attempts
    Reason.CONNECTION_CLOSED: Outlook.ABSENT,
    Reason.CONNECTION_TIMEOUT: Outlook.ABSENT,
    Reason.JOIN_CA_MISMATCH: Outlook.STRANGER,
    Reason.JOIN_CLUSTER_MISMATCH: Outlook.STRANGER,
    Reason.JOIN_SERVICES_UNKNOWN: Outlook.STRANGER,
    Reason.NONCE_MALFORMED: Outlook.STRANGER,
    Reason.PEER_CERTIFICATE_MALFORMED: Outlook.STRANGER,
    Reason.PEER_UNREACHABLE: Outlook.ABSENT,
    Reason.TLS_BROKEN: Outlook.ABSENT,
    Reason.TLS_HANDSHAKE_FAILED: Outlook.STRANGER,
    # time helps, or an admin; the machine cannot tell which
    Reason.CLOCK_SKEW: Outlook.CLOCK,
    Reason.EVIDENCE_REFUSED: Outlook.REFUSED,
    Reason.JOIN_CERTIFICATE_EXPIRED: Outlook.CLOCK,
    Reason.JOIN_SERVICE_BUSY: Outlook.UNABLE,
    Reason.JOIN_SERVICE_UNAVAILABLE: Outlook.UNABLE,
    Reason.TICKET_EXPIRED: Outlook.CLOCK,
    Reason.TICKET_REFUSED: Outlook.REFUSED,
    Reason.TPM_BUSY: Outlook.UNABLE,
    # a service of the cluster gave an unusable answer: of another release, for another node, or forged
    Reason.BINDING_MALFORMED: Outlook.NEVER,
    Reason.EVIDENCE_MALFORMED: Outlook.NEVER,
    Reason.JOIN_REQUEST_NOT_UNDERSTOOD: Outlook.NEVER,
    Reason.MESSAGE_MALFORMED: Outlook.NEVER,
    Reason.MESSAGE_TOO_LARGE: Outlook.NEVER,
    Reason.SEAL_UNOPENABLE: Outlook.NEVER,
    Reason.TICKET_MALFORMED: Outlook.NEVER,
    Reason.TICKET_NOT_OURS: Outlook.NEVER,
    Reason.TICKET_SIGNATURE: Outlook.NEVER,
    Reason.PROTOCOL_VERSION: Outlook.NEVER,
    Reason.TPM_CREDENTIAL_REFUSED: Outlook.NEVER,
    Reason.TPM_MALFORMED: Outlook.NEVER,
    # this machine itself
    Reason.ENDPOINT_INVALID: Outlook.NEVER,
    Reason.EVENT_LOG_TOO_LARGE: Outlook.NEVER,
    Reason.EVIDENCE_TOO_LARGE: Outlook.NEVER,
    Reason.TICKET_HANDLE_UNKNOWN: Outlook.NEVER,
}
"""Each reason that a request for a ticket can raise; a reason that is not listed is NEVER."""

_BY_THE_PEER = {Reason.TPM_CREDENTIAL_REFUSED, Reason.TPM_MALFORMED}
"""Errors of the TPM that bytes of the peer can cause."""


def outlook(error: AttestedError) -> Outlook:
    """Return the kind of ``error``."""
    return OUTLOOKS.get(error.reason, Outlook.NEVER)


def is_of_this_machine(error: AttestedError) -> bool:
    """Return whether this machine itself is at fault, so that another endpoint does not help."""
    return isinstance(error, DependencyError | SystemFault | TpmError) and error.reason not in _BY_THE_PEER


def first_window(error: AttestedError) -> float | None:
    """Return the seconds within which to try again first, None if trying again never helps."""
    return _WINDOWS.get(outlook(error))


def pause_before_retry(error: AttestedError) -> float | None:
    """Return the seconds to wait before one more attempt, None if trying again never helps.

    A caller that repeats its attempts uses `Backoff` with `first_window` instead.
    """
    window = first_window(error)
    return None if window is None else error.retry_after_seconds or window


def passes_by_itself(error: AttestedError) -> bool:
    """Return whether time alone may help: no refusal, no wrong clock and no fault of this machine."""
    return outlook(error) in (Outlook.ABSENT, Outlook.UNABLE, Outlook.STRANGER)


def most_relevant(failures: Sequence[tuple[str, AttestedError]]) -> AttestedError:
    """Return the one error to show of those of all endpoints; its message quotes the others.

    An error that may pass is preferred to NEVER: one endpoint with a wrong answer must not end the attempts at the
    others. Among those, the later kind of `Outlook` is preferred. The longest requested pause is kept.
    """
    passing = [one for one in failures if outlook(one[1]) is not Outlook.NEVER] or failures
    kinds = list(Outlook)
    winner = max(passing, key=lambda one: kinds.index(outlook(one[1])))
    where, error = winner
    error.retry_after_seconds = max(one.retry_after_seconds for _where, one in failures)
    error.message = "; ".join(
        [f"{where}: {error.message}", *_other_errors([one for one in failures if one is not winner])]
    )
    return error


def _other_errors(failures: Sequence[tuple[str, AttestedError]]) -> list[str]:
    shown = [f"{where} {error.code}: {_short(error)}" for where, error in failures[:_MAX_ERRORS]]
    left = len(failures) - _MAX_ERRORS
    return shown + ([f"and {left} more"] if left > 0 else [])


def _short(error: AttestedError) -> str:
    """Return the part of the message that says what came, shortened."""
    _expected, _got, came = error.message.partition(", got")
    text = came.lstrip(": ") or error.message
    return text if len(text) <= _MAX_ERROR_LENGTH else f"{text[: _MAX_ERROR_LENGTH - 1]}…"
