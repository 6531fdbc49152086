# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Print the progress of an init on the admin's terminal: the judgement, each task, and each reason to wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.attested.kubernetes.plugins.plugin_utils.stage_lines import begun_line, host_lines, spent

if TYPE_CHECKING:
    from collections.abc import Callable

    from ansible_collections.attested.kubernetes.plugins.module_utils.errors import TransportError
    from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.verify import VerifiedNode
    from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
    from ansible_collections.attested.kubernetes.plugins.module_utils.services.init_messages import Progress


class InitScreen:
    """Prints lines with ``say``; each stage has its own line, and each reason to wait is printed once."""

    def __init__(self, node: str, *, say: Callable[[str], object]) -> None:
        """Begin the output for ``node``."""
        self._node = node
        self._say = say
        self._stage = self._task = ""
        self._waits_for: Reason | None = None
        self.judgement: dict[str, str] = {}

    def requests(self, endpoint: str) -> None:
        """Print the endpoint that is called."""
        self._print(f"requesting evidence from {endpoint}")

    def judged(self, verified: VerifiedNode) -> None:
        """Print once the verified machine and its profile; `judgement` stores them for the result."""
        if self.judgement:
            return
        profile, posture = verified.verdict.profile, verified.verdict.posture.value
        self.judgement = {"profile": profile, "posture": posture, "ek_sha256": verified.machine.ek_sha256}
        self._print(f"is the enrolled machine, booted as {profile} (posture {posture})")

    def progress(self, one: Progress) -> None:
        """Print the stage if it is new, then the task that begins and the time since the beginning.

        An include and the task that it includes may have one name, which is printed once.
        """
        if one.stage != self._stage:
            self._print(one.stage)
        if (one.stage, one.task) != (self._stage, self._task):
            self._say(begun_line(one.task, after_seconds=one.elapsed_seconds))
        self._stage, self._task, self._waits_for = one.stage, one.task, None

    def waits(self, error: TransportError, pause_seconds: float) -> None:
        """Print why the same request is sent again."""
        if error.reason is not self._waits_for:
            self._waits_for = error.reason
            self._print(f"{error.message} ({error.code}), trying again in {spent(pause_seconds)}")

    def _print(self, text: str) -> None:
        for row in host_lines(self._node, text):
            self._say(row)
