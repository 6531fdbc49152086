# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The users that services run as: of the system, without a password, a shell or a home (sysusers.d(5))."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..system import Runner

_NOT_FOUND = 2  # getent(1)


class Users:
    """The machine's users, wherever it knows them from."""

    def __init__(self, runner: Runner) -> None:
        """Keep how to ask and to make."""
        self._runner = runner

    def absent(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return those of ``names`` that the machine does not know; raises COMMAND_MISSING."""
        return tuple(
            name for name in names if self._runner.run(["getent", "passwd", name], check=False).returncode == _NOT_FOUND
        )

    def make(self, names: Sequence[str]) -> None:
        """Make them, each with a group of its name; raises COMMAND_FAILED."""
        if names:
            lines = (f"u {name} - - /nonexistent /usr/sbin/nologin" for name in names)
            self._runner.run(["systemd-sysusers", "--inline", *lines])
