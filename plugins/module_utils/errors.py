# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every error of the collection, as one tree.

    AttestedError
    ├── ApiError           the Kubernetes API cannot be read or refused a write
    ├── ComponentError     a bundle, a download or an installed file is not what its hash says
    ├── DependencyError    a library of the virtual environment is missing
    ├── DiskError          a disk or its header is not what it must be
    ├── EtcdError          etcd cannot be asked, or a change of its members was refused
    ├── KeyServiceError    the key service cannot answer
    ├── KubeadmError       a kubeadm phase or the kubelet failed
    ├── NodeLockError      the one-way lock is taken, foreign or unreadable
    ├── PolicyError        profiles or identities are empty, malformed or ambiguous
    ├── Refusal            a check of evidence, policy or request said no
    ├── SiteError          the site directory or an option in it is unusable
    ├── SystemFault        a command, file or mount of this machine failed
    ├── TpmError           the TPM is absent, busy or refused a command
    └── TransportError     the connection or its binding failed

An error says what was expected, what came and what to do next, and carries one stable reason code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .reasons import Reason

MAX_MESSAGE = 16_384
"""How long a message may be; the longest of ours, which lists every event that differs, has a third of that."""


def visible(text: str) -> str:
    r"""Return ``text`` as a terminal, a page or a log may show it; every text of a machine goes through here.

    Lines stay lines and a tab becomes a space. What moves, colours, hides or turns round (control characters, escape
    sequences, marks of direction, halves of letters) is written as an escape, for example ``\x1b``.
    """
    if text.isprintable():
        return text
    return "".join(_visible(one) for one in text.replace("\r\n", "\n"))


def _visible(letter: str) -> str:
    if letter.isprintable() or letter == "\n":
        return letter
    return " " if letter == "\t" else letter.encode("unicode_escape").decode("ascii")


class AttestedError(Exception):
    """Root of the tree: a sentence for a person and a reason code for a program, both fit for a terminal.

    Arguments: ``message`` ("expected X, got Y"), ``reason`` (its stable code), ``hint`` (replaces the
    general hint of the reason where this very case allows a better one), ``retry_after_seconds`` (when asking again
    makes sense, 0 where nobody knows).
    """

    def __init__(
        self, message: str, *, reason: Reason, hint: str | None = None, retry_after_seconds: float = 0.0
    ) -> None:
        """Keep the sentence, the code and the hint."""
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
        """One line for a log or a terminal."""
        return f"{self.code}: {self.message} ({self.hint})"


class ApiError(AttestedError):
    """The Kubernetes API cannot be read or refused a write."""


class ComponentError(AttestedError):
    """A bundle, a download or an installed file is not what its hash says."""


class DependencyError(AttestedError):
    """A library that this part needs is missing from the running interpreter."""


class DiskError(AttestedError):
    """A disk or its header is not what it must be."""


class EtcdError(AttestedError):
    """etcd cannot be asked, or a change of its members was refused."""


class KeyServiceError(AttestedError):
    """The key service cannot answer: it is locked, starting or out of reach."""


class KubeadmError(AttestedError):
    """A kubeadm phase or the kubelet failed."""


class NodeLockError(AttestedError):
    """The one-way lock is taken, belongs to another cluster or cannot be read."""


class PolicyError(AttestedError):
    """Profiles or identities are empty, malformed or ambiguous."""


class Refusal(AttestedError):
    """A check of evidence, policy or request said no."""


class SiteError(AttestedError):
    """The site directory or an option in it is unusable."""


class SystemFault(AttestedError):
    """A command, file or mount of this machine failed."""


class TpmError(AttestedError):
    """The TPM is absent, busy or refused a command."""


class TransportError(AttestedError):
    """The connection, its certificates or its binding failed; ``retryable`` says whether time alone may help."""

    def __init__(self, message: str, *, reason: Reason, hint: str | None = None, retryable: bool = False) -> None:
        """Keep the sentence, the code, the hint and whether to try again."""
        super().__init__(message, reason=reason, hint=hint)
        self.retryable = retryable
