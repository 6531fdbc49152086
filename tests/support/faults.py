# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults at every step: which functions of ours a piece of work calls, and what happens when one of them fails.

The steps are not listed by hand: the work is watched once, and then done again for each function that it called, with
an exception where that function begins, or where it ends with its work done.
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
    """What no code of ours can expect."""


class NotReachedError(Exception):
    """The work was done without the step: something was remembered from an earlier time."""


@dataclass(frozen=True, slots=True)
class Step:
    """A function of ours, and where in it the fault is: at its beginning or at its end."""

    code: CodeType
    when: str

    def __str__(self) -> str:
        """Return file and name."""
        return f"{self.file}:{self.code.co_qualname} {self.when}"

    @property
    def file(self) -> str:
        """The file below module_utils."""
        return _place(self.code.co_filename).removeprefix(f"{UTILS}/")


@cache
def _place(file: str) -> str:
    """Return where a file is: the collection may have been imported through a link."""
    return os.path.realpath(file)


def steps_of(work: Callable[[], object], *, packages: Iterable[str] = ()) -> list[Step]:
    """Do ``work`` and return the steps that it took, in their order; only those of ``packages``, if there are any."""
    seen: dict[Step, None] = {}
    prefixes = tuple(f"{UTILS}/{name}" for name in packages) or (str(UTILS),)

    def watch(frame: FrameType, _event: str, _argument: Any) -> Any:
        known = Step(frame.f_code, END) in seen or not _place(frame.f_code.co_filename).startswith(prefixes)
        return None if known else inside

    def inside(frame: FrameType, event: str, _argument: Any) -> Any:
        if event == "line":  # a generator that is thrown away unused begins, but runs no line
            seen.setdefault(Step(frame.f_code, BEGIN))
        if event == "return" and Step(frame.f_code, BEGIN) in seen and not _yields(frame):
            seen.setdefault(Step(frame.f_code, END))
        return inside

    _traced(watch, work)
    return list(seen)


def with_fault(step: Step, work: Callable[[], _Result], error: Exception) -> _Result:
    """Do ``work`` with ``error`` at the first time that ``step`` is reached; raises `NotReachedError` if it is not."""
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
    """Return "" if the fault came out of ``work``, or a refusal that it caused; else what happened instead."""
    fault = error or InjectedError(FAULT)
    try:
        result = with_fault(step, work, fault)
    except NotReachedError:
        raise
    except Exception as caught:  # noqa: BLE001 - which one it is, is what is asked
        # a library that calls us back keeps the words of an error and not the error
        told = isinstance(caught, AttestedError) and f"{fault}" in caught.message
        return "" if told or fault in _causes(caught) else f"{step}: {type(caught).__name__} {caught}"
    return f"{step}: passed with {type(result).__name__}"


def passed(step: Step, work: Callable[[], object]) -> list[str]:
    """Return the kinds of errors that our code expects in places, after which ``work`` has a result all the same."""
    kinds = (ValueError(FAULT), Refusal(FAULT, reason=Reason.EVIDENCE_MALFORMED))
    return [text for kind in kinds if "passed with" in (text := raised(step, work, kind))]


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _yields(frame: FrameType) -> bool:
    """Whether a generator only gives something and goes on: an error there would skip its own `finally`, as none does.

    A context manager would then keep what it holds, a lock for instance, whoever leaves it by whatever way.
    """
    return frame.f_code.co_code[frame.f_lasti] == opmap["YIELD_VALUE"]


def _traced(trace: Callable[..., Any], work: Callable[[], _Result]) -> _Result:
    """Do ``work`` under ``trace``, with the garbage collector off.

    The collector closes generators that an earlier fault left: an error raised there is lost, and the step was not
    reached by this work.
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
    """Empty the caches of keys: what is kept from the last time is no step of this time."""
    for one in vars(structures).values():
        if hasattr(one, "cache_clear"):
            one.cache_clear()
