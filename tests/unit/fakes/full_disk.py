# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A disk that is full from the n-th call on that needs room: writes, directories and links fail as the kernel does."""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class FullDisk:
    """Counts what needs room (a file's last step, a new directory, a new link) and refuses it once there is none.

    What programs of others write is none of its business: they have ways of their own to fail.
    """

    def __init__(self) -> None:
        """Have room for everything."""
        self.taken = 0
        self.room: int | None = None
        self._elsewhere = False

    def fill(self, *, after: int) -> None:
        """Be full after so many more calls."""
        self.room = self.taken + after

    def free(self) -> None:
        """Have room again."""
        self.room = None

    @contextmanager
    def elsewhere(self) -> Iterator[None]:
        """Look away."""
        before, self._elsewhere = self._elsewhere, True
        try:
            yield
        finally:
            self._elsewhere = before

    def guard(self, call: Callable[..., Any], *, new: int | None) -> Callable[..., Any]:
        """Return ``call`` with a look at the room before; ``new`` is which argument names what it makes."""

        def guarded(*arguments: Any, **named: Any) -> Any:
            if not self._elsewhere and (new is None or not os.path.lexists(arguments[new])):
                if self.room is not None and self.taken >= self.room:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                self.taken += 1
            return call(*arguments, **named)

        return guarded


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch, programs: Any) -> FullDisk:
    """The disk of the machine ``programs`` run on."""
    disk = FullDisk()
    monkeypatch.setattr(os, "fsync", disk.guard(os.fsync, new=None))
    monkeypatch.setattr(os, "mkdir", disk.guard(os.mkdir, new=0))
    monkeypatch.setattr(os, "symlink", disk.guard(os.symlink, new=1))
    run = programs.run

    def run_elsewhere(*arguments: Any, **named: Any) -> Any:
        with disk.elsewhere():
            return run(*arguments, **named)

    monkeypatch.setattr(programs, "run", run_elsewhere)
    return disk
