# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module `node_services`: run the services of this collection from a prepared release, or from the previous one.

The command line of a service has its environment: pip writes the directory of the environment, not the link, into the
first line of a program. So the next run continues a run that was interrupted between the link and the restart.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.command import SystemRunner
from ..core.files import place_link
from ..core.host import SystemClock
from ..errors import ComponentError, SystemFault
from ..reasons import Reason
from ..result import Diff, Result
from .releases import Releases

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..core.command import Runner
    from ..core.host import Clock

_PROPERTIES = "Id,Type,ActiveState,MainPID,StatusText,Result"
_UNITS = "attested-*.service"
_REATTEST = "attested-reattest.service"
_RESTART_SECONDS = 300
_SETTLE_SECONDS = 5.0
_PAUSE_SECONDS = 1.0
_EVIDENCE_SECONDS = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A service of this collection; ``environment``: directory name of the environment of its process, or None."""

    name: str
    runs: bool
    process: int
    environment: str | None
    says: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchPlan:
    """With ``switch``, point the link from ``before`` to ``wanted`` (directory names); restart these services."""

    wanted: str
    before: str | None
    switch: bool
    restart: tuple[str, ...]

    @property
    def is_empty(self) -> bool:
        """No changes."""
        return not self.switch and not self.restart


def plan_switch(in_use: str | None, wanted: str, services: Sequence[Service]) -> SwitchPlan:
    """Return the plan to run all services from ``wanted``. Pure.

    If the link already points to ``wanted``, ``before`` is the environment of a service that runs from another one.
    """
    behind = [one for one in services if one.environment not in (None, wanted)]
    earlier = in_use if in_use != wanted else next((one.environment for one in behind), None)
    return SwitchPlan(
        wanted=wanted, before=earlier, switch=in_use != wanted, restart=tuple(one.name for one in behind if one.process)
    )


def fault_of(services: Sequence[Service], restarted: Sequence[str], wanted: str) -> str | None:
    """Return the faults of the ``restarted`` services as text, or None if all run from ``wanted``. Pure."""
    found = {one.name: one for one in services}
    faults = []
    for name in restarted:
        one = found.get(name)
        if one is None or not one.runs:
            faults.append(f"{name} does not run" + (f" ({one.says})" if one and one.says else ""))
        elif one.environment != wanted:
            faults.append(f"{name} runs from {one.environment or 'no environment'}")
    return ", ".join(faults) or None


class ServiceGateway:
    """Read and restart the services, and switch the link; ``root`` replaces ``/`` in tests."""

    def __init__(self, runner: Runner, clock: Clock, *, runtime: str, root: Path = Path("/")) -> None:
        """Set the runner of systemctl, the clock and the link to the environment in use."""
        self._runner = runner
        self._clock = clock
        self.root = root
        self._link = root / runtime.lstrip("/")
        self._pattern = re.compile(rf"{re.escape(runtime)}-[0-9a-f]+(?=/)")

    def in_use(self) -> str | None:
        """Return the directory name behind the link, or None."""
        return self._link.readlink().name if self._link.is_symlink() else None

    def services(self) -> tuple[Service, ...]:
        """Return the long-running services; raises COMMAND_FAILED."""
        said = self._runner.run(["systemctl", "show", f"--property={_PROPERTIES}", _UNITS]).stdout.decode()
        rows = [dict(line.partition("=")[::2] for line in block.splitlines()) for block in said.split("\n\n")]
        return tuple(self._service(row) for row in rows if row.get("Id") and row.get("Type") != "oneshot")

    def switch(self, environment: str) -> None:
        """Point the link to ``environment``, atomically."""
        place_link(self._link, environment)

    def restart(self, names: Sequence[str]) -> None:
        """Restart the services and wait until they are ready; raises COMMAND_FAILED."""
        if names:
            self._runner.run(["systemctl", "reset-failed", *names], check=False)
            self._runner.run(["systemctl", "restart", *names], timeout_seconds=_RESTART_SECONDS)

    def fault(self, restarted: Sequence[str], wanted: str, *, seconds: float) -> str | None:
        """Wait until the services run stably from ``wanted`` and evidence is accepted; return the fault or None."""
        deadline = self._clock.monotonic() + seconds
        before: tuple[Service, ...] = ()
        steady = self._clock.monotonic()
        while True:
            now = self.services()
            fault = fault_of(now, restarted, wanted)
            if fault or [one.process for one in now] != [one.process for one in before]:
                steady = self._clock.monotonic()
            pause = _PAUSE_SECONDS
            if fault is None and self._clock.monotonic() - steady >= _SETTLE_SECONDS:
                fault, pause = self._evidence_fault(), _EVIDENCE_SECONDS
                if fault is None:
                    return None
            if self._clock.monotonic() >= deadline:
                return fault or "the services do not stay up"
            before = now
            self._clock.sleep(pause)

    def _evidence_fault(self) -> str | None:
        """Push fresh evidence, unless its unit is absent or its conditions fail; return the fault or None."""
        try:
            known = self._runner.run(["systemctl", "cat", _REATTEST], check=False).returncode == 0
            if known:
                self._runner.run(["systemctl", "start", _REATTEST], timeout_seconds=_RESTART_SECONDS)
        except SystemFault as error:
            return f"the node's evidence was not accepted ({error.message}; see journalctl -u {_REATTEST})"
        return None

    def _service(self, row: Mapping[str, str]) -> Service:
        process = int(row.get("MainPID", "0") or 0)
        return Service(
            name=row["Id"],
            runs=row.get("ActiveState") == "active",
            process=process,
            environment=self._environment(process) if process else None,
            says=row.get("StatusText") or row.get("Result", ""),
        )

    def _environment(self, process: int) -> str | None:
        try:
            words = (self.root / "proc" / str(process) / "cmdline").read_text(encoding="utf-8", errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            return None
        found = self._pattern.search(words)
        return Path(found.group()).name if found else None


def run_services(params: Mapping[str, Any], check_mode: bool, *, gateway: ServiceGateway | None = None) -> Result:
    """Run the services from ``params['release']``; raises RELEASE_NOT_PREPARED and SERVICES_NOT_HEALTHY."""
    services = gateway or ServiceGateway(SystemRunner(), SystemClock(), runtime=params["path"])
    release = str(params["release"])
    environment = Releases(params["path"], root=services.root).environment(release)
    if environment is None or not environment.is_dir():
        raise ComponentError(
            f"expected release {release} beside {params['path']}, found no environment of it",
            reason=Reason.RELEASE_NOT_PREPARED,
        )
    plan = plan_switch(services.in_use(), environment.name, services.services())
    if not check_mode and not plan.is_empty:
        _switch(plan, services, seconds=float(params["wait_seconds"]))
    return Result(
        changed=not plan.is_empty,
        values={"release": release, "restarted": list(plan.restart)},
        diff=Diff(
            before=f"environment {plan.before}\n" if plan.switch else "",
            after="".join(
                [f"environment {plan.wanted}\n" if plan.switch else "", *(f"restart {one}\n" for one in plan.restart)]
            ),
        ),
    )


def _switch(plan: SwitchPlan, services: ServiceGateway, *, seconds: float) -> None:
    """Apply ``plan``; if the services are not healthy, switch back and raise SERVICES_NOT_HEALTHY."""
    fault = _try(plan.wanted, plan.restart, services, seconds=seconds)
    if fault is None:
        return
    if plan.before is None:
        back = "there is no environment to switch back to"
    else:
        left = _try(plan.before, plan.restart, services, seconds=seconds)
        back = f"the node was switched back to {plan.before}" + (f", where {left}" if left else "")
    raise ComponentError(
        f"expected the services to be healthy with {plan.wanted} within {seconds:.0f} s, got: {fault}; {back}",
        reason=Reason.SERVICES_NOT_HEALTHY,
    )


def _try(environment: str, restart: Sequence[str], services: ServiceGateway, *, seconds: float) -> str | None:
    services.switch(environment)
    try:
        services.restart(restart)
    except SystemFault as error:
        return fault_of(services.services(), restart, environment) or error.message
    return services.fault(restart, environment, seconds=seconds)
