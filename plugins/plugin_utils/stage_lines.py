# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The output of the callback ``stages``: a stage as data, and its lines for a terminal of 100 columns. Pure."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ansible_collections.attested.kubernetes.plugins.module_utils.errors import visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

WIDTH = 100
_NAME, _STATE, _HOSTS, _TIME = 52, 8, 22, 10
_NAMED_HOSTS = 3
_WORTH_A_LINE_SECONDS = 1.0

SPEAKING = frozenset({"attested.kubernetes.init", "attested.kubernetes.node_recovery"})
"""Actions that print lines while they run; the callback shows no task on the terminal's current line meanwhile."""


@dataclass(slots=True)
class Stage:
    """One task over all its hosts: the hosts by outcome, and when it began (seconds of a monotonic clock).

    ``item_ends``: when the last item of a loop ended on a host.
    """

    name: str
    began: float
    action: str = ""
    path: str = ""
    changed: list[str] = field(default_factory=list)
    good: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    steps: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    item_ends: dict[str, float] = field(default_factory=dict)

    @property
    def hosts(self) -> tuple[str, ...]:
        """Every host that has a result, in the order of outcomes."""
        return (*self.changed, *self.good, *self.ignored, *self.failed)

    @property
    def state(self) -> str:
        """The most important outcome of the hosts, in one word."""
        pairs = (("FAILED", self.failed), ("ignored", self.ignored), ("changed", self.changed))
        return next((word for word, hosts in pairs if hosts), "ok")

    def is_worth_a_line(self, now: float) -> bool:
        """Return whether the stage gets its own line: it changed something, failed, took long or has steps."""
        return bool(self.hosts) and (
            self.state != "ok" or bool(self.steps) or now - self.began >= _WORTH_A_LINE_SECONDS
        )


def spent(seconds: float) -> str:
    """Return a duration as text: ``0.4 s``, ``83.1 s``, ``12 min 05 s``."""
    if seconds < 100:  # noqa: PLR2004  # two digits and a tenth fit the column
        return f"{seconds:.1f} s"
    return f"{int(seconds) // 60} min {int(seconds) % 60:02d} s"


def hosts_in_short(names: Sequence[str], total: int) -> str:
    """Return up to three names, else the number of hosts of ``total``."""
    if len(names) <= _NAMED_HOSTS and len(joined := ", ".join(sorted(names))) <= _HOSTS:
        return joined
    return f"all {total} hosts" if len(names) == total else f"{len(names)} of {total} hosts"


def line(name: str, state: str, hosts: str, seconds: float) -> str:
    """Return one row of the table, at most 100 columns wide."""
    return (
        f"  {_cut(name, _NAME):<{_NAME}}  {state:<{_STATE}}  {_cut(hosts, _HOSTS):<{_HOSTS}}{spent(seconds):>{_TIME}}"
    )


def stage_lines(stage: Stage, *, now: float, total: int) -> list[str]:
    """Return the stage's row and one indented row for each step in its results."""
    notable = stage.failed or stage.ignored or stage.changed or stage.good
    rows = [line(stage.name, stage.state, hosts_in_short(notable, total), now - stage.began)]
    for host, step in stage.steps:
        state = "changed" if step.get("changed") else "ok"
        rows.append(line(f"  - {step.get('name', '?')}", state, host, float(step.get("seconds", 0))))
    return rows


def item_line(label: str, place: Mapping[str, Any], state: str, *, seconds: float, elapsed: float) -> str:
    """Return the row of a finished item of a loop. ``place``: ``index`` and ``length`` of its ``ansible_loop``.

    ``seconds``: the duration of this item, ``elapsed``: that of the task so far.
    """
    name = f"  - {place.get('index', '?')} of {place.get('length', '?')}: {label}"
    return line(name, state, f"after {spent(elapsed)}", seconds)


def begun_line(task: str, *, after_seconds: float) -> str:
    """Return the row of a task that a machine begins, with the time since it began to work."""
    return line(f"  - {task}", "", "", after_seconds)


def host_lines(host: str, text: str) -> list[str]:
    """Return a text from or about a host, as rows."""
    return _wrapped(text, f"  {host}: ")


def failure_lines(host: str, result: Mapping[str, Any], *, stage: Stage, playbook: str) -> list[str]:
    """Return the rows of a failure: message, reason, hint, next command, and the task's place."""
    rows = [
        "",
        *_wrapped(str(result.get("msg") or result.get("censored") or "failed without a message"), f"  {host}: "),
    ]
    fields = (
        ("during", " / ".join(str(result[key]) for key in ("stage", "task") if result.get(key))),
        ("reason", result.get("reason")),
        ("hint", result.get("hint")),
        ("next", result.get("command")),
    )
    for label, value in fields:
        if value and isinstance(value, str):
            rows += _wrapped(value, f"    {label:<8} ")
    if isinstance(result.get("reason"), str):
        rows.append(f"    {'explain':<8} attested explain {result['reason']}")
    elif playbook:
        rows.append(f"    {'again':<8} ansible-playbook {playbook} -v   (shows everything)")
    rows.append(f"    {'at':<8} {stage.path} ({stage.action})")
    rows += _output(result)
    return rows


def failed_items(result: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    """Return the failed items of a loop, or the result itself."""
    items = [item for item in result.get("results") or () if isinstance(item, dict) and item.get("failed")]
    return items or [result]


def make_visible(result: dict[str, Any]) -> None:
    """Escape control characters in every text of a task's result, in place."""
    shown = _visible(result)
    result.clear()
    result.update(shown)


def _visible(value: Any) -> Any:
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, dict):
        return {_visible(name): _visible(one) for name, one in value.items()}
    return [_visible(one) for one in value] if isinstance(value, (list, tuple)) else value


def _output(result: Mapping[str, Any]) -> list[str]:
    rows: list[str] = []
    if "rc" in result:
        rows.append(f"    {'exit':<8} {result['rc']}")
    for key in ("stdout", "stderr", "module_stdout", "module_stderr"):
        text = str(result.get(key) or "").strip()
        if text:
            rows += [f"    {key}:", *(f"      {row}" for row in text.splitlines())]
    log = result.get("log")
    if isinstance(log, list) and log:
        rows += ["    its last lines:", *(f"      {row}" for row in log)]
    return rows


def _wrapped(text: str, label: str) -> list[str]:
    rows: list[str] = []
    for paragraph in text.splitlines() or [""]:
        start = label if not rows else " " * len(label)
        rows += textwrap.wrap(
            paragraph,
            WIDTH,
            initial_indent=start,
            subsequent_indent=" " * len(label),
            break_long_words=False,
            break_on_hyphens=False,
        ) or [start.rstrip()]
    return rows


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"
