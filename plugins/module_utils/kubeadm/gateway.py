# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run kubeadm and control the kubelet's unit; return the output of programs without secrets."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..errors import KubeadmError, SystemFault
from ..reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ..core.command import CommandResult, Runner
    from ..core.host import Clock
    from .phases import Phase

_LAST_LINES = 12
_UNIT = "kubelet.service"
_UNIT_TIMEOUT_SECONDS = 60
_VERSION = re.compile(r"1\.([0-9]{1,3})\.[0-9]{1,3}")
_MEMBER_SKEW = range(-1, 4)
_KUBEADM_VERSION = ("kubeadm", "version", "--output=short")
_SECRETS = (
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL), "[key]"),
    (re.compile(r"\b[a-z0-9]{6}\.[a-z0-9]{16}\b"), "[token]"),
    (re.compile(r"\b[0-9a-f]{64}\b"), "[64 hex digits]"),
    (re.compile(r"[A-Za-z0-9+/]{80,}={0,2}"), "[base64]"),
)


class Kubeadm:
    """Runs kubeadm, one phase per call."""

    def __init__(self, runner: Runner, *, operation: str, config: Path, ignored: Sequence[str] = ()) -> None:
        """Store the operation ("init" or "join"), its configuration file and the checks to ignore."""
        self._runner = runner
        self._operation = operation
        self._config = config
        self._ignored = tuple(ignored)

    def run(self, phase: Phase) -> None:
        """Run one phase; raises KUBEADM_PHASE_FAILED, with the last lines of kubeadm if it exited."""
        argv = ["kubeadm", self._operation, "phase", *phase.command, "--config", str(self._config)]
        if phase.name == "preflight" and self._ignored:
            argv.append(f"--ignore-preflight-errors={','.join(self._ignored)}")
        try:
            result = self._runner.run(argv, timeout_seconds=phase.timeout_seconds, check=False)
        except SystemFault as error:
            if error.reason is not Reason.COMMAND_TIMEOUT:
                raise
            raise KubeadmError(
                f"expected kubeadm {self._operation} phase {phase.name} to end within {phase.timeout_seconds:g} s",
                reason=Reason.KUBEADM_PHASE_FAILED,
                hint="Check whether the kubelet runs and the API server answers. Running again continues.",
            ) from error
        if result.returncode != 0:
            raise KubeadmError(
                f"kubeadm {self._operation} phase {phase.name} ended with {result.returncode}: {last_lines(result)}",
                reason=Reason.KUBEADM_PHASE_FAILED,
            )


class KubeletUnit:
    """The systemd unit of the kubelet."""

    def __init__(self, runner: Runner, *, clock: Clock) -> None:
        """Store the runner of programs and the clock."""
        self._runner = runner
        self._clock = clock

    def is_active(self) -> bool:
        """Return whether the unit runs now."""
        return self._systemctl("is-active", "--quiet", _UNIT, check=False).returncode == 0

    def start(self) -> None:
        """Enable and start the unit; raises KUBELET_NOT_RUNNING if it does not run afterwards."""
        self.enable()
        self._systemctl("start", _UNIT)
        self.require_active()

    def enable(self) -> None:
        """Enable the unit: it starts at boot when the machine is locked."""
        self._systemctl("enable", "--quiet", _UNIT)

    def restart(self) -> None:
        """Restart the kubelet, so that it reads its credential again; raises KUBELET_NOT_RUNNING."""
        self._systemctl("restart", _UNIT)
        self.require_active()

    def stop(self) -> None:
        """Stop and disable the unit; a machine without the unit is no error."""
        self._systemctl("disable", "--quiet", "--now", _UNIT, check=False)

    def require_active(self) -> None:
        """Raise KUBELET_NOT_RUNNING unless the unit runs.

        A start whose condition fails is no error of systemctl.
        """
        if not self.is_active():
            raise KubeadmError("expected the kubelet to run, it does not", reason=Reason.KUBELET_NOT_RUNNING)

    def _systemctl(self, *words: str, check: bool = True) -> CommandResult:
        return self._runner.run(["systemctl", *words], timeout_seconds=_UNIT_TIMEOUT_SECONDS, check=check)


def installed_version(runner: Runner, *, wanted: str) -> str:
    """Return the version of kubeadm on this machine, without the "v".

    ``wanted`` is a minor version ("1.35") or a full version. Raises RELEASE_NOT_PREPARED if kubeadm has another one.
    """
    found = reported_version(runner, _KUBEADM_VERSION)
    if found is None or (found != wanted and not found.startswith(f"{wanted}.")):
        raise KubeadmError(f"expected kubeadm {wanted}, found {found or 'none'}", reason=Reason.RELEASE_NOT_PREPARED)
    return found


def require_prepared(runner: Runner, *, version: str, member: bool = False) -> None:
    """Raise RELEASE_NOT_PREPARED unless kubeadm and kubelet have the ``version`` of the ticket.

    A ``member`` that starts again may be before or after its own upgrade. Its kubelet may be up to three minor versions
    older, or one newer, because tickets get a new version last (docs/adr/0073).
    """
    found = {
        "kubeadm": reported_version(runner, _KUBEADM_VERSION),
        "kubelet": reported_version(runner, ("kubelet", "--version")),
    }
    if set(found.values()) != {version} and not (member and _is_near(found["kubelet"] or "", version)):
        raise KubeadmError(
            f"expected kubeadm and kubelet of the version in the ticket of this machine, {version!r}, got "
            + ", ".join(f"{name} {reported or 'none'}" for name, reported in found.items()),
            reason=Reason.RELEASE_NOT_PREPARED,
        )


def _is_near(kubelet: str, version: str) -> bool:
    wanted, found = _VERSION.fullmatch(version), _VERSION.fullmatch(kubelet)
    return wanted is not None and found is not None and int(wanted[1]) - int(found[1]) in _MEMBER_SKEW


def reported_version(runner: Runner, argv: Sequence[str]) -> str | None:
    """Return the last word that a program prints, without the "v", or None if it fails or prints nothing."""
    try:
        words = runner.run(argv).stdout.decode("ascii", "replace").split()
    except SystemFault:
        return None
    return words[-1].removeprefix("v") if words else None


def last_lines(result: CommandResult) -> str:
    """Return the last lines of a program's standard error, or of its output if that is empty, redacted."""
    text = (result.stderr.strip() or result.stdout.strip()).decode("utf-8", "replace")
    lines = [line for line in redact(text).splitlines() if line.strip()]
    return "\n".join(lines[-_LAST_LINES:]) or "no output"


def redact(text: str) -> str:
    """Return ``text`` without private keys, tokens, 64 hexadecimal digits and long base64."""
    for pattern, stand_in in _SECRETS:
        text = pattern.sub(stand_in, text)
    return text
