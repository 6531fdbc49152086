# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every reason code: what a stranger hears, what it means, what to do and the next command.

The table is alphabetical; `docs/reason-codes.md` and `attested explain CODE` are made from it.
A code never changes its meaning and is never used for two causes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Coarse(Enum):
    """What the other side of a connection may know of a refusal."""

    INVALID = "request not understood"
    LOCAL = "not sent to a peer"
    REFUSED = "attestation refused"
    UNAVAILABLE = "service not ready, try again"


@dataclass(frozen=True, slots=True)
class ReasonText:
    """The texts of one reason: ``summary`` (what happened), ``hint`` (what to do), ``command`` (next command)."""

    coarse: Coarse
    summary: str
    hint: str
    command: str


def _row(coarse: Coarse, summary: str, hint: str, command: str = "attested status") -> ReasonText:
    return ReasonText(coarse, summary, hint, command)


class Reason(Enum):
    """The stable codes; the member's name is the code, its value the texts."""

    COMMAND_FAILED = _row(
        Coarse.LOCAL,
        "A command of this machine ended with an error.",
        "Read the command's own message; repair its cause and run again.",
    )
    COMMAND_MISSING = _row(
        Coarse.LOCAL,
        "A program that is needed is not installed.",
        "Install the package that holds it, then run again.",
        "ansible-playbook attested.kubernetes.prepare",
    )
    COMMAND_TIMEOUT = _row(
        Coarse.LOCAL,
        "A command did not end within its time.",
        "Look at what it waits for; running again is safe.",
    )
    CSR_MALFORMED = _row(
        Coarse.INVALID,
        "A certificate request cannot be used: it is malformed, not signed by its key, or its key has another type.",
        "Run the step again; it makes a new key and request.",
    )
    DEPENDENCY_MISSING = _row(
        Coarse.LOCAL,
        "A Python library is missing from the interpreter that runs this.",
        "Use the virtual environment that prepare makes as ansible_python_interpreter.",
        "ansible-playbook attested.kubernetes.prepare",
    )
    FILE_UNUSABLE = _row(
        Coarse.LOCAL,
        "A file cannot be read or written.",
        "Check that the path exists and who may use it.",
    )
    INTERNAL = _row(
        Coarse.UNAVAILABLE,
        "An unexpected error; the decision is no.",
        "Read the service's log at the correlation id and report it.",
        "journalctl -u attested-join-service -u attested-key-service",
    )
    JOIN_CA_UNUSABLE = _row(
        Coarse.LOCAL,
        "The join CA's certificate and key do not belong together or cannot be read.",
        "Restore .secrets/ of the site from its backup; do not make a new join CA for a running cluster.",
    )
    MESSAGE_MALFORMED = _row(
        Coarse.INVALID,
        "A message on the wire cannot be parsed.",
        "Check that both sides run the same version and that nothing between them changes bytes.",
    )
    MESSAGE_TOO_LARGE = _row(
        Coarse.INVALID,
        "A message on the wire is larger than the limit.",
        "Check the size of the event logs on the machine that sent it.",
    )
    NOT_TMPFS = _row(
        Coarse.LOCAL,
        "A secret would be written to a file system that is not in memory.",
        "Use a directory on tmpfs, for example below /run or /dev/shm.",
    )
    SWAP_ACTIVE = _row(
        Coarse.LOCAL,
        "Swap is on: a secret in memory could reach a disk.",
        "Turn swap off (swapoff -a) and keep it off, or let prepare do it.",
        "ansible-playbook attested.kubernetes.prepare",
    )
