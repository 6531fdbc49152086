# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an init says on the admin's terminal while it goes on: the judgement, each task, and why it waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.attested.kubernetes.plugins.plugin_utils.stage_lines import begun_line, said_lines, spent

if TYPE_CHECKING:
    from collections.abc import Callable

    from ansible_collections.attested.kubernetes.plugins.module_utils.errors import TransportError
    from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.verify import VerifiedNode
    from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
    from ansible_collections.attested.kubernetes.plugins.module_utils.services.init_messages import Progress


class InitScreen:
    """Prints lines by ``say``; each stage has a line of its own, each reason to wait is said once."""

    def __init__(self, node: str, *, say: Callable[[str], object]) -> None:
        """Speak of ``node``."""
        self._node = node
        self._say = say
        self._stage = ""
        self._waits_for: Reason | None = None
        self.judgement: dict[str, str] = {}

    def asks(self, endpoint: str) -> None:
        """Say who is asked."""
        self._tell(f"asking {endpoint} for its evidence")

    def judged(self, verified: VerifiedNode) -> None:
        """Say, once, which machine it is and what it has booted; `judgement` keeps it for the result."""
        if self.judgement:
            return
        profile, posture = verified.verdict.profile, verified.verdict.posture.value
        self.judgement = {"profile": profile, "posture": posture, "ek_sha256": verified.machine.ek_sha256}
        self._tell(f"is the enrolled machine, booted as {profile} (posture {posture})")

    def progress(self, one: Progress) -> None:
        """Say which task begins, how long after the beginning, and the stage where that is a new one."""
        if one.stage != self._stage:
            self._tell(one.stage)
        self._say(begun_line(one.task, after_seconds=one.elapsed_seconds))
        self._stage, self._waits_for = one.stage, None

    def waits(self, error: TransportError, pause_seconds: float) -> None:
        """Say why the same is asked again."""
        if error.reason is not self._waits_for:
            self._waits_for = error.reason
            self._tell(f"{error.message} ({error.code}), is asked again in {spent(pause_seconds)}")

    def _tell(self, text: str) -> None:
        for row in said_lines(self._node, text):
            self._say(row)
