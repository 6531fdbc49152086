# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Asking a short-lived process that holds keys, and being one: a job on standard input, its outcome on standard output.

The process that asks lives on, so no key is in the job unless it is sealed, and none is ever in the outcome.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

from .. import errors
from ..errors import AttestedError, SystemFault
from ..reasons import Reason
from .guard import harden

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..system import Runner

MAX_JOB_BYTES = 1 << 17


def ask_key_process(module: str, job: Mapping[str, Any], *, runner: Runner, timeout_seconds: float) -> dict[str, Any]:
    """Return the outcome of ``job``, done by the program in ``module``; raises what it says, COMMAND_FAILED."""
    argv = [sys.executable, "-P", "-m", module]
    env = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = runner.run(argv, stdin=json.dumps(job).encode(), env=env, timeout_seconds=timeout_seconds)
    try:
        answer: dict[str, Any] = json.loads(done.stdout)
    except ValueError as error:
        raise SystemFault("expected an answer of the process that holds keys", reason=Reason.COMMAND_FAILED) from error
    if "failed" in answer:
        kind: type[AttestedError] = getattr(errors, answer["kind"], AttestedError)
        raise kind(answer["failed"], reason=Reason[answer["reason"]], hint=answer["hint"])
    return answer


def serve_key_job(perform: Callable[[Mapping[str, Any]], dict[str, Any]]) -> int:
    """Guard this process, do the job on standard input by ``perform``, and say what became of it."""
    job = json.loads(sys.stdin.buffer.read(MAX_JOB_BYTES))
    try:
        harden()
        answer = perform(job)
    except AttestedError as error:
        answer = {"failed": error.message, "reason": error.code, "hint": error.hint, "kind": type(error).__name__}
    sys.stdout.write(json.dumps(answer) + "\n")
    return 0
