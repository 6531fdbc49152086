# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`attested-agent renew-control-plane`: renews the certificates of a control plane itself; a timer may run it."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from ..core.host import SystemClock
from ..errors import AttestedError
from ..reasons import Reason
from .config import DEFAULT_PATH
from .control_plane_renewal import renew_control_plane, result_of
from .renewal_record import CONTROL_PLANE_DIRECTORY, RenewalRecord
from .run_record import RENEW_CONTROL_PLANE, RunRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .control_plane_renewal import RenewedControlPlane

_INTERVAL_SECONDS = 86400
_PASSES = frozenset(
    {Reason.API_CONFLICT, Reason.API_UNAVAILABLE, Reason.CONTROL_PLANE_JOIN_BUSY, Reason.ETCD_MEMBER_UNHEALTHY}
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; return 0, or 1 with the error on standard error."""
    options = _parser().parse_args(argv)
    record = RenewalRecord(CONTROL_PLANE_DIRECTORY, clock=SystemClock())
    runs = RunRecord(RENEW_CONTROL_PLANE, clock=SystemClock())
    try:
        with nullcontext() if options.check else runs.kept():
            values = renew_and_record(
                lambda: renew_control_plane(options.config, at_once=options.now, check=options.check, log=_log),
                None if options.check else record,
                interval_seconds=options.interval,
            )
    except AttestedError as error:
        sys.stderr.write(f"attested-agent renew-control-plane: {error.code}: {error}\n{error.hint}\n")
        return 1
    if options.json:
        sys.stdout.write(json.dumps(values, indent=2) + "\n")
    else:
        sys.stdout.write(_table(values, check=options.check))
    return 0


def renew_and_record(
    renew: Callable[[], RenewedControlPlane], record: RenewalRecord | None, *, interval_seconds: int
) -> Mapping[str, Any]:
    """Renew and return plain values; a failure is written to ``record`` (None in check mode)."""
    try:
        values = result_of(renew(), check_mode=record is None).values
    except AttestedError as error:
        if record is not None:
            record.failed(error, next_seconds=interval_seconds, passes=error.reason in _PASSES)
        raise
    if record is not None:
        record.clear()
    return values


def _log(title: str) -> None:
    sys.stderr.write(f"attested-agent renew-control-plane: {title}\n")


def _table(values: Mapping[str, Any], *, check: bool) -> str:
    renewed = values["renewed"]
    certificates = values["certificates"]
    word = "would be renewed" if check else "renewed"
    rows = [
        f"{one['name']:<26} until {one['expires']}  {word if one['name'] in renewed else 'due from ' + one['renews']}"
        for one in certificates
    ]
    return "\n".join(rows) + "\n"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="attested-agent renew-control-plane",
        description="Renew the certificates of this control plane that are due, one component after the other, "
        "and restart each component; one control plane of the cluster at a time.",
    )
    parser.add_argument("--config", default=DEFAULT_PATH, metavar="FILE", help="node.yml (default: %(default)s)")
    parser.add_argument("--now", action="store_true", help="renew all of them, even if they are not due")
    parser.add_argument("--check", action="store_true", help="only list what would be renewed")
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.add_argument(
        "--interval",
        type=int,
        default=_INTERVAL_SECONDS,
        metavar="SECONDS",
        help="how often the timer runs this, for attested status (default: %(default)s)",
    )
    return parser
