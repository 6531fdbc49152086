# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command `attested` on a node: show the machine's status, explain reason codes, and run its subcommands."""

from __future__ import annotations

import argparse
import json
import os
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.command import SystemRunner
from ..core.host import SystemClock, release
from ..errors import AttestedError, visible
from ..evidence.eventlog.facts import boot_facts
from ..evidence.eventlog.kinds import describe
from ..evidence.eventlog.tcg import parse_firmware_log
from ..evidence.image.next_boot import Shown, Verdict, judge
from ..evidence.registry import own_evidence, unproven_evidence
from ..kubeadm.operation import Machine
from ..kubeadm.spec import KubernetesPaths
from ..node import boot_entry
from ..node.config import DEFAULT_PATH, load_node_config
from ..node.journal import NodeJournal, NodePhase
from ..node.status import NodeStatus, read_status
from ..node.witness import read_event_logs
from ..policy.learning import READING_REGISTERS, Preset, learn_preset
from ..reasons import Reason
from ..tpm.client import open_tpm
from .appraise import add_appraise, add_variants
from .audit import add_audit
from .kit import add_kit, add_secret
from .rescue import add_rescue

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..node.config import NodeConfig
    from ..policy.profile import MeasurementProfile

_GOOD, _WAITING, _BAD, _PLAIN = "\033[32m", "\033[33m", "\033[31m", "\033[0m"
_WIDTH = 100
_LABEL_WIDTH = 13
_USAGE_ERROR = 2
_RENEWAL_SECONDS = 300
_CONTROL_PLANE_RENEWAL_SECONDS = 3600
_COMPARE = "before a reboot compare it with the policy: ansible-playbook attested.kubernetes.status"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; return 0, 1 when a person is needed or something failed, 2 for wrong usage."""
    options = _parser().parse_args(argv)
    run: Callable[[argparse.Namespace], int] = options.run
    try:
        return run(options)
    except AttestedError as error:
        _fail(error, as_json=options.json)
        return 1


def _status(options: argparse.Namespace) -> int:
    if os.geteuid() != 0:
        sys.stderr.write(
            "attested: expected root, since the state of a node is root's alone; use sudo attested status\n"
        )
        return _USAGE_ERROR
    machine = Machine(runner=SystemRunner(), clock=SystemClock(), paths=KubernetesPaths())
    config = load_node_config(options.config)
    status = read_status(machine, NodeJournal(clock=machine.clock))
    values = {
        "node": config.name,
        "cluster": config.cluster_name,
        "evidence": own_evidence(),
        "verified_only": unproven_evidence() or None,
        **status.as_result(),
        "next_boot": _next_boot(config) if status.state.phase is NodePhase.JOINED else None,
    }
    if options.json:
        _print(json.dumps(values, indent=2))
    else:
        printable = {name: visible(value) if isinstance(value, str) else value for name, value in values.items()}
        _print(_table(printable, status))
    return 1 if status.needs_person else 0


def _next_boot(config: NodeConfig) -> str | None:
    """Return how the next boot of a member differs from its current boot, None if it does not or without UEFI.

    A node has no policy to compare it with, so the text names the playbook `status`.
    """
    machine = boot_entry.Machine(runner=SystemRunner())
    if not machine.is_uefi:
        return None
    try:
        found = boot_entry.find_next(machine)
        judged = judge(found, [_this_boot(config)], now=SystemClock().now(), shown=Shown())
    except (AttestedError, OSError) as error:
        return f"unknown: {error}; {_COMPARE}"
    if judged.verdict is Verdict.ALLOWED:
        return None
    change = f"{found.path} differs from {judged.differences}" if judged.differences else f"unknown: {judged.why}"
    return f"{change}; {_COMPARE}"


def _this_boot(config: NodeConfig) -> MeasurementProfile:
    """Return the current boot of this machine, as a profile that is learned from its registers and its log."""
    logs = read_event_logs(config.logs)
    with open_tpm(config.tcti) as tpm:
        registers = tpm.pcr_read(READING_REGISTERS)
    log = parse_firmware_log(logs.firmware)
    return learn_preset(
        "this boot",
        Preset.AUTO,
        pcrs=registers,
        events=describe(log, (), command_line=logs.command_line),
        facts=boot_facts(log, quoted=registers, command_line=logs.command_line),
    )


def _agent() -> str:
    """Return the path of `attested-agent`, which is next to this program (`node.agent`)."""
    return str(Path(sys.executable).with_name("attested-agent"))


def _renew(options: argparse.Namespace) -> int:
    """Run the program of the timer, which prints its own result."""
    words = [_agent(), "renew", f"--config={options.config}", *(["--now"] if options.now else [])]
    done = SystemRunner().run(words, timeout_seconds=_RENEWAL_SECONDS, check=False)
    sys.stderr.write(visible(done.stderr.decode("utf-8", "replace")))
    return done.returncode


def _renew_control_plane(options: argparse.Namespace) -> int:
    """Run the program of the timer in another process and print its output."""
    chosen = {"--now": options.now, "--check": options.check, "--json": options.json}
    given = [word for word, is_chosen in chosen.items() if is_chosen]
    words = [_agent(), "renew-control-plane", f"--config={options.config}", *given]
    done = SystemRunner().run(words, timeout_seconds=_CONTROL_PLANE_RENEWAL_SECONDS, check=False)
    sys.stderr.write(visible(done.stderr.decode("utf-8", "replace")))
    sys.stdout.write(visible(done.stdout.decode("utf-8", "replace")))
    return done.returncode


def _explain(options: argparse.Namespace) -> int:
    code = options.code.upper()
    if code not in Reason.__members__:
        sys.stderr.write(f"attested: expected a reason code, got {visible(options.code)}\n{_similar(code)}")
        return _USAGE_ERROR
    text = Reason[code].value
    values = {
        "code": code,
        "what_happened": text.summary,
        "what_to_do": text.hint,
        "next_command": text.command,
        "peer_hears": text.coarse.value,
    }
    if options.json:
        _print(json.dumps(values, indent=2))
    else:
        rows = [_row(name.replace("_", " "), value) for name, value in values.items() if name != "code"]
        _print("\n".join([_colored(code, _WAITING), *rows]))
    return 0


def _codes(options: argparse.Namespace) -> int:
    rows = {name: member.value.summary for name, member in Reason.__members__.items()}
    if options.json:
        _print(json.dumps(rows, indent=2))
    else:
        width = max(map(len, rows))
        _print("\n".join(f"{name:<{width}}  {summary}" for name, summary in rows.items()))
    return 0


def _table(values: dict[str, Any], status: NodeStatus) -> str:
    color = _GOOD if not status.needs_person else _WAITING if status.state.reason is None else _BAD
    shown = {
        "node": f"{values['node']} of cluster {values['cluster']}",
        "phase": _colored(values["phase"], color),
        "since": values["since"],
        "locked": "yes" if values["locked"] else "no",
        "evidence": values["evidence"],
        "verified only": values["verified_only"],
        "kubelet": "running" if values["kubelet_active"] else "stopped",
        "certificate": _certificate(values),
        "control plane": _control_plane(values),
        "API": values["api"],
        "Kubernetes": values["kubernetes_version"],
        "reason": values["reason"],
        "message": values["message"],
        "next try": values["next_try"],
        "next boot": values["next_boot"],
        "to do": values["to_do"],
    }
    return "\n".join(_row(label, value) for label, value in shown.items() if value is not None)


def _certificate(values: dict[str, Any]) -> str:
    if not values["certificate_expires"]:
        return "none"
    until = f"until {values['certificate_expires']}"
    renews = values["certificate_renews"]
    return f"{until}, renewed by itself from {renews} on" if renews else until


def _control_plane(values: dict[str, Any]) -> str | None:
    until, first = values["control_plane_expires"], values["control_plane_first"]
    return f"certificates until {until} ({first} ends first)" if until else None


def _row(label: str, value: str) -> str:
    indent = " " * (_LABEL_WIDTH + 1)
    wrapped = textwrap.fill(
        value, _WIDTH, initial_indent=indent, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return f"{label:<{_LABEL_WIDTH}} {wrapped.lstrip()}"


def _colored(text: str, color: str) -> str:
    plain = not sys.stdout.isatty() or "NO_COLOR" in os.environ
    return text if plain else f"{color}{text}{_PLAIN}"


def _similar(code: str) -> str:
    first = code.split("_", maxsplit=1)[0]
    known = [name for name in Reason.__members__ if name.startswith(first)]
    return f"codes of that kind: {', '.join(known)}\n" if known else "attested codes lists them all\n"


def _fail(error: AttestedError, *, as_json: bool) -> None:
    values = {
        "reason": error.code,
        "message": error.message,
        "hint": error.hint,
        "command": error.reason.value.command,
    }
    if as_json:
        sys.stderr.write(json.dumps(values, indent=2) + "\n")
        return
    rows = [_row("what failed", error.message), _row("to do", error.hint), _row("next", values["command"])]
    sys.stderr.write("\n".join([f"attested: {error.code}", *rows]) + "\n")


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="attested", description="Show the status of this machine, and handle keys, evidence and audit logs."
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {release()}")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--json", action="store_true", help="for programs")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    status = commands.add_parser("status", parents=[common], help="phase, reason, next try, what to do")
    status.add_argument(
        "--config", default=DEFAULT_PATH, metavar="FILE", help="the node's configuration (default: %(default)s)"
    )
    status.set_defaults(run=_status)
    renew = commands.add_parser(
        "renew", parents=[common], help="renew the kubelet's certificate if it is time (a timer does so each hour)"
    )
    renew.add_argument("--now", action="store_true", help="renew even if it is not due")
    renew.add_argument(
        "--config", default=DEFAULT_PATH, metavar="FILE", help="the node's configuration (default: %(default)s)"
    )
    renew.set_defaults(run=_renew)
    _add_control_plane(commands, common)
    explain = commands.add_parser("explain", parents=[common], help="what a reason code means and what to do")
    explain.add_argument("code", metavar="CODE", help="for example PCR_MISMATCH")
    explain.set_defaults(run=_explain)
    add_audit(commands, common)
    codes = commands.add_parser("codes", parents=[common], help="all reason codes")
    codes.set_defaults(run=_codes)
    add_variants(commands, common)
    add_appraise(commands, common)
    add_rescue(commands, common)
    add_secret(commands, common)
    add_kit(commands, common)
    return parser


def _add_control_plane(commands: Any, common: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "renew-control-plane",
        parents=[common],
        help="renew the certificates of a control plane itself (API server, etcd, controllers) that are due",
        description="Renew the certificates of this control plane that are due within 60 days, component by component, "
        "and restart each. It waits for its turn: one control plane of the cluster at a time. May take minutes.",
    )
    parser.add_argument("--now", action="store_true", help="renew all of them, even if they are not due")
    parser.add_argument("--check", action="store_true", help="only list what would be renewed")
    parser.add_argument(
        "--config", default=DEFAULT_PATH, metavar="FILE", help="the node's configuration (default: %(default)s)"
    )
    parser.set_defaults(run=_renew_control_plane)


if __name__ == "__main__":
    raise SystemExit(main())
