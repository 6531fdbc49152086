# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run programs: argv lists, C locale, a time limit, secrets on stdin only.

This is the only file of the collection that starts processes.
"""

from __future__ import annotations

import contextlib
import os
import subprocess  # pylint: disable=ansible-bad-import
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ..errors import SystemFault
from ..reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

_TAIL = 2000
_STOP_SECONDS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """The result of a program: its argv, exit code and output."""

    argv: tuple[str, ...]
    returncode: int
    stdout: bytes
    stderr: bytes


class Runner(Protocol):
    """Runs programs: `SystemRunner`, or a recorder in unit tests."""

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes | None = None,
        timeout_seconds: float = 60,
        env: Mapping[str, str] | None = None,
        check: bool = True,
    ) -> CommandResult:
        """Run ``argv``; with ``check`` an exit code other than 0 raises `SystemFault`."""


class Follower(Protocol):
    """Runs a long program and passes on its output line by line: `SystemRunner`, or a fake in unit tests."""

    def follow(
        self, argv: Sequence[str], *, stdin: bytes, on_line: Callable[[str], None], timeout_seconds: float
    ) -> None:
        """Run ``argv`` and call ``on_line`` for each line of output; a non-zero exit code raises `SystemFault`."""


class Starter(Protocol):
    """Keeps a program running during a ``with`` block: `SystemRunner`, or a fake in unit tests."""

    def started(self, argv: Sequence[str]) -> contextlib.AbstractContextManager[None]:
        """Start ``argv``, and stop it at the end of the block."""


class SystemRunner:
    """Starts real processes with a fixed locale and without the caller's standard input."""

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes | None = None,
        timeout_seconds: float = 60,
        env: Mapping[str, str] | None = None,
        check: bool = True,
    ) -> CommandResult:
        """Run ``argv`` and return its result; raises COMMAND_MISSING, COMMAND_TIMEOUT, COMMAND_FAILED."""
        words = tuple(argv)
        try:
            done = subprocess.run(  # pylint: disable=ansible-bad-function
                words,
                input=stdin if stdin is not None else b"",
                capture_output=True,
                timeout=timeout_seconds,
                env={**os.environ, "LC_ALL": "C.UTF-8", **(env or {})},
                check=False,
            )
        except FileNotFoundError as error:
            raise SystemFault(f"expected the program {words[0]}, found none", reason=Reason.COMMAND_MISSING) from error
        except OSError as error:
            raise SystemFault(f"cannot start {words[0]}: {error.strerror}", reason=Reason.COMMAND_MISSING) from error
        except subprocess.TimeoutExpired as error:
            raise SystemFault(
                f"{words[0]} did not end within {timeout_seconds:g} s", reason=Reason.COMMAND_TIMEOUT
            ) from error
        result = CommandResult(argv=words, returncode=done.returncode, stdout=done.stdout, stderr=done.stderr)
        return _checked(result) if check else result

    def follow(
        self, argv: Sequence[str], *, stdin: bytes, on_line: Callable[[str], None], timeout_seconds: float
    ) -> None:
        """Run ``argv`` and call ``on_line`` for each line of its output at once.

        ``stdin`` must fit into a pipe's buffer. Raises COMMAND_MISSING, COMMAND_TIMEOUT, COMMAND_FAILED.
        """
        words = tuple(argv)
        try:
            process = subprocess.Popen(  # pylint: disable=ansible-bad-function
                words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={**os.environ, "LC_ALL": "C.UTF-8"},
            )
        except OSError as error:
            raise SystemFault(f"cannot start {words[0]}: {error.strerror}", reason=Reason.COMMAND_MISSING) from error
        output, late = _followed(process, stdin, on_line, timeout_seconds)
        if late:
            raise SystemFault(f"{words[0]} did not end within {timeout_seconds:g} s", reason=Reason.COMMAND_TIMEOUT)
        _checked(CommandResult(argv=words, returncode=process.returncode, stdout=output, stderr=b""))

    @contextlib.contextmanager
    def started(self, argv: Sequence[str]) -> Iterator[None]:
        """Start ``argv`` without its output, and stop it at the end of the block; raises COMMAND_MISSING."""
        words, silent = tuple(argv), subprocess.DEVNULL
        try:
            process = subprocess.Popen(words, stdin=silent, stdout=silent, stderr=silent)
        except OSError as error:
            raise SystemFault(f"cannot start {words[0]}: {error.strerror}", reason=Reason.COMMAND_MISSING) from error
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(timeout=_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _followed(
    process: subprocess.Popen[bytes], stdin: bytes, on_line: Callable[[str], None], timeout_seconds: float
) -> tuple[bytes, bool]:
    """Return the last output of ``process`` after its end, and whether it was killed at the time limit."""
    late = threading.Event()

    def end() -> None:
        late.set()
        process.kill()

    timer = threading.Timer(timeout_seconds, end)
    timer.daemon = True
    timer.start()
    output = b""
    try:
        with process, contextlib.suppress(BrokenPipeError):
            stdin_pipe, stdout_pipe = process.stdin, process.stdout
            if stdin_pipe is not None:
                stdin_pipe.write(stdin)
                stdin_pipe.close()
            for line in stdout_pipe or ():
                output = (output + line)[-_TAIL:]
                on_line(line.decode("utf-8", "replace").rstrip("\n"))
    finally:
        timer.cancel()
    return output, late.is_set()


def _checked(result: CommandResult) -> CommandResult:
    if result.returncode == 0:
        return result
    output = (result.stderr or result.stdout).decode("utf-8", "replace").strip()[-_TAIL:]
    raise SystemFault(
        f"expected {' '.join(result.argv[:3])} to succeed, it ended with {result.returncode}: {output or 'no output'}",
        reason=Reason.COMMAND_FAILED,
    )
