# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fault injection at every step: which functions of ours an operation calls, and its result if one of them fails.

The steps are not listed by hand: the operation runs once under trace, and then once for each function that it called,
with an exception at the start or at the end of that function.
"""

from __future__ import annotations

import gc
import os
import sys
from dataclasses import dataclass
from dis import opmap
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError, Refusal
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm import structures
from ansible_collections.attested.kubernetes.tests.support.house import UTILS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import CodeType, FrameType

_Result = TypeVar("_Result")
BEGIN, END = "begins", "ends"
FAULT = "a fault of this step"


class InjectedError(Exception):
    """An error that our code cannot expect."""


class NotReachedError(Exception):
    """The operation succeeded without the step, because of cached data."""


@dataclass(frozen=True, slots=True)
class Step:
    """A function of ours, and the place of the fault: at its start or at its end."""

    code: CodeType
    when: str

    def __str__(self) -> str:
        """Return file and name."""
        return f"{self.file}:{self.code.co_qualname} {self.when}"

    @property
    def file(self) -> str:
        """The file, relative to module_utils."""
        return _place(self.code.co_filename).removeprefix(f"{UTILS}/")


@cache
def _place(file: str) -> str:
    """Return the resolved path of a file: the collection may be imported through a link."""
    return os.path.realpath(file)


def steps_of(work: Callable[[], object], *, packages: Iterable[str] = ()) -> list[Step]:
    """Run ``work`` and return its steps in order, optionally only those of ``packages``."""
    seen: dict[Step, None] = {}
    prefixes = tuple(f"{UTILS}/{name}" for name in packages) or (str(UTILS),)

    def watch(frame: FrameType, _event: str, _argument: Any) -> Any:
        known = Step(frame.f_code, END) in seen or not _place(frame.f_code.co_filename).startswith(prefixes)
        return None if known else inside

    def inside(frame: FrameType, event: str, _argument: Any) -> Any:
        if event == "line":  # a generator that is never started runs no line
            seen.setdefault(Step(frame.f_code, BEGIN))
        if event == "return" and Step(frame.f_code, BEGIN) in seen and not _yields(frame):
            seen.setdefault(Step(frame.f_code, END))
        return inside

    _traced(watch, work)
    return list(seen)


def with_fault(step: Step, work: Callable[[], _Result], error: Exception) -> _Result:
    """Run ``work`` with ``error`` when ``step`` is reached first; raises `NotReachedError` if it is not reached."""
    done: list[bool] = []

    def fail(frame: FrameType, event: str, _argument: Any) -> Any:
        if frame.f_code is not step.code or done:
            return None
        if step.when == BEGIN:
            done.append(True)
            raise error
        return at_end

    def at_end(frame: FrameType, event: str, _argument: Any) -> Any:
        if event == "return" and not done and not _yields(frame):
            done.append(True)
            raise error
        return at_end

    result = _traced(fail, work)
    if not done:
        raise NotReachedError(str(step))
    return result


def raised(step: Step, work: Callable[[], object], error: Exception | None = None) -> str:
    """Return "" if ``work`` raised the fault or a refusal caused by it, else a description of the result."""
    fault = error or InjectedError(FAULT)
    try:
        result = with_fault(step, work, fault)
    except NotReachedError:
        raise
    except Exception as caught:  # noqa: BLE001 - which one it is, is what is asked
        # a library that calls our code may keep only the message of an error
        told = isinstance(caught, AttestedError) and f"{fault}" in caught.message
        return "" if told or fault in _causes(caught) else f"{step}: {type(caught).__name__} {caught}"
    return f"{step}: passed with {type(result).__name__}"


def passed(step: Step, work: Callable[[], object]) -> list[str]:
    """Return the kinds of expected errors with which ``work`` still has a result."""
    kinds = (ValueError(FAULT), Refusal(FAULT, reason=Reason.EVIDENCE_MALFORMED))
    return [text for kind in kinds if "passed with" in (text := raised(step, work, kind))]


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _yields(frame: FrameType) -> bool:
    """Return whether a generator is at a yield: an error there would skip its `finally`.

    A context manager would then not release its resources, such as a lock.
    """
    return frame.f_code.co_code[frame.f_lasti] == opmap["YIELD_VALUE"]


def _traced(trace: Callable[..., Any], work: Callable[[], _Result]) -> _Result:
    """Run ``work`` under ``trace``, without garbage collection.

    The collector closes generators of an earlier fault: an error raised there is lost, and this run would not reach the
    step.
    """
    _forget()
    before, collecting = sys.gettrace(), gc.isenabled()
    gc.disable()
    sys.settrace(trace)
    try:
        return work()
    finally:
        sys.settrace(before)
        if collecting:
            gc.enable()


def _forget() -> None:
    """Clear the caches of keys, so that all steps run again."""
    for one in vars(structures).values():
        if hasattr(one, "cache_clear"):
            one.cache_clear()
