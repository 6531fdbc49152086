# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every error of the collection, as one tree.

    AttestedError
    ├── ApiError           the Kubernetes API cannot be read or refused a write
    ├── ComponentError     a bundle, a download or an installed file does not match its hash
    ├── DependencyError    a library of the virtual environment is missing
    ├── DiskError          a disk or its header is not what it must be
    ├── EtcdError          etcd cannot be read, or a change of its members was refused
    ├── KeyServiceError    the key service cannot respond
    ├── KubeadmError       a kubeadm phase or the kubelet failed
    ├── NodeLockError      the one-way lock is taken, foreign or unreadable
    ├── PolicyError        profiles or identities are empty, malformed or ambiguous
    ├── Refusal            a check of evidence, policy or request failed
    ├── SiteError          the site directory or an option in it is unusable
    ├── SystemFault        a command, file or mount of this machine failed
    ├── TpmError           the TPM is absent, busy or refused a command
    └── TransportError     the connection or its binding failed

An error says what was expected, what came and what to do next, and has one stable reason code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .reasons import Reason

MAX_MESSAGE = 16_384
"""The limit of a message; our longest message, which lists every event that differs, has a third of it."""


def visible(text: str) -> str:
    r"""Return ``text`` in a form that is safe for a terminal, a page or a log.

    Line breaks are kept, and a tab becomes a space. Other characters that are not printable (control characters, escape
    sequences, marks of direction, lone surrogates) are written as an escape, for example ``\x1b``.
    """
    if text.isprintable():
        return text
    return "".join(_visible(one) for one in text.replace("\r\n", "\n"))


def _visible(letter: str) -> str:
    if letter.isprintable() or letter == "\n":
        return letter
    return " " if letter == "\t" else letter.encode("unicode_escape").decode("ascii")


class AttestedError(Exception):
    """The root of the tree: a message for people and a reason code for programs, both safe for a terminal.

    Arguments: ``message`` ("expected X, got Y"), ``reason`` (its stable code), ``hint`` (replaces the general hint of
    the reason if this case allows a better one), ``retry_after_seconds`` (when to retry, 0 if unknown).
    """

    def __init__(
        self, message: str, *, reason: Reason, hint: str | None = None, retry_after_seconds: float = 0.0
    ) -> None:
        """Store the message, the code and the hint."""
        self.message = visible(message if len(message) <= MAX_MESSAGE else f"{message[:MAX_MESSAGE]}…")
        super().__init__(self.message)
        self.reason = reason
        self.retry_after_seconds = retry_after_seconds
        self.hint = visible(hint) if hint else reason.value.hint

    @property
    def code(self) -> str:
        """The stable reason code, for example ``PCR_MISMATCH``."""
        return self.reason.name

    def __str__(self) -> str:
        """Return one line for a log or a terminal."""
        return f"{self.code}: {self.message} ({self.hint})"


class ApiError(AttestedError):
    """The Kubernetes API cannot be read or refused a write."""


class ComponentError(AttestedError):
    """A bundle, a download or an installed file does not match its hash."""


class DependencyError(AttestedError):
    """A library is missing from the running interpreter."""


class DiskError(AttestedError):
    """A disk or its header is not what it must be."""


class EtcdError(AttestedError):
    """etcd cannot be read, or a change of its members was refused."""


class KeyServiceError(AttestedError):
    """The key service cannot respond: it is locked, starting or unreachable."""


class KubeadmError(AttestedError):
    """A kubeadm phase or the kubelet failed."""


class NodeLockError(AttestedError):
    """The one-way lock is taken, belongs to another cluster or cannot be read."""


class PolicyError(AttestedError):
    """Profiles or identities are empty, malformed or ambiguous."""


class Refusal(AttestedError):
    """A check of evidence, policy or request failed."""


class SiteError(AttestedError):
    """The site directory or an option in it is unusable."""


class SystemFault(AttestedError):
    """A command, file or mount of this machine failed."""


class TpmError(AttestedError):
    """The TPM is absent, busy or refused a command."""


class TransportError(AttestedError):
    """The connection, its certificates or its binding failed; ``retryable``: a retry without a change may succeed."""

    def __init__(self, message: str, *, reason: Reason, hint: str | None = None, retryable: bool = False) -> None:
        """Store the message, the code, the hint and whether a retry may succeed."""
        super().__init__(message, reason=reason, hint=hint)
        self.retryable = retryable
