# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Callback ``stages``: one line a stage."""

from __future__ import annotations

DOCUMENTATION = r"""
name: stages
type: stdout
short_description: One line a stage, with its time
version_added: 0.2.0
description:
  - Prints a line for every task that changed something, took longer than a second or reported steps, with its state,
    hosts and time. Other tasks have no line, and a play in which nothing has a line has no heading.
  - The message of C(ansible.builtin.debug) is printed unchanged.
  - A failure is printed in full, with its reason code, what to do and the next command to run.
  - A run in which no play matched any host ends with exit code 2.
  - Control characters in the output of a machine are printed as escapes.
  - With C(-v) it is Ansible's own callback P(ansible.builtin.default#callback), which prints everything.
  - Lines that a task prints while it works, as M(attested.kubernetes.init) does, are printed at once.
  - A result's key C(steps), a list of dictionaries with C(name), C(seconds) and C(changed), becomes a line a step.
author:
  - The attested.kubernetes authors (@attested-kubernetes)
extends_documentation_fragment:
  - default_callback
  - result_format_callback
requirements:
  - set as stdout_callback in the configuration, which the playbook C(attested.kubernetes.scaffold) does
"""

EXAMPLES = r"""
# ansible.cfg of a site
# [defaults]
# stdout_callback = attested.kubernetes.stages
"""

import contextlib
import functools
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible import constants as C
from ansible.plugins.callback.default import CallbackModule as Default
from ansible.utils.color import ANSIBLE_COLOR
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import visible
from ansible_collections.attested.kubernetes.plugins.plugin_utils import stage_lines
from ansible_collections.attested.kubernetes.plugins.plugin_utils.stage_lines import Stage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_NO_HOST_MATCHED = 2
_COLOURED = re.compile(r"(\x1b\[(?:0|[01];3[0-7]|38;5;[0-9]{1,3})m)")
_NOTHING = re.compile(r"(?!)")
_COLOURS = {"FAILED": C.COLOR_ERROR, "changed": C.COLOR_CHANGED, "ignored": C.COLOR_WARN, "ok": C.COLOR_OK}


def _quiet(method: Callable[..., None]) -> Callable[..., None]:
    """Use ``method`` by default, and Ansible's own of that name with -v; both escape control characters."""

    @functools.wraps(method)
    def chosen(self: CallbackModule, *args: Any, **kwargs: Any) -> None:
        for one in args:
            if isinstance(getattr(one, "result", None), dict):
                stage_lines.make_visible(one.result)  # a copy that Ansible makes for callbacks only
        loud = self._display.verbosity > 0
        with self._escaping(coloured=loud):
            (getattr(Default, method.__name__) if loud else method)(self, *args, **kwargs)

    return chosen


class CallbackModule(Default):
    """Collects the results of a task over its hosts and prints one line when the next one starts."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "attested.kubernetes.stages"

    def __init__(self) -> None:
        """Begin without a stage."""
        super().__init__()
        self._began = time.monotonic()
        self._stage: Stage | None = None
        self._heading = ""
        self._started_hosts: set[str] = set()
        self._playbook = ""
        self._terminal = sys.stdout.isatty()

    @_quiet
    def v2_playbook_on_start(self, playbook: Any) -> None:
        """Store the name by which the playbook can be run again."""
        path = Path(str(playbook._file_name))  # noqa: SLF001  # Ansible has no public name for it
        ours = path.parent.parent.parts[-2:] == ("attested", "kubernetes") and path.parent.name == "playbooks"
        self._playbook = f"attested.kubernetes.{path.stem}" if ours else path.name

    @_quiet
    def v2_playbook_on_play_start(self, play: Any) -> None:
        """Store the name of the play, which is printed before its first line."""
        self._close_stage()
        self._started_hosts.clear()
        self._heading = play.get_name().strip() or "Unnamed play"

    @_quiet
    def v2_playbook_on_no_hosts_matched(self) -> None:
        """Print an error, because Ansible ends with 0 here."""
        self._begin_output()
        self._display.display("  no host matched: nothing was done", color=C.COLOR_ERROR)

    @_quiet
    def v2_playbook_on_task_start(self, task: Any, is_conditional: bool) -> None:  # noqa: ARG002
        """Close the previous stage and open the next one."""
        self._open(task)

    @_quiet
    def v2_playbook_on_handler_task_start(self, task: Any) -> None:
        """Show a handler like any other task."""
        self._open(task)

    @_quiet
    def v2_playbook_on_include(self, included_file: Any) -> None:
        """Print nothing: the included tasks have their own lines."""

    @_quiet
    def v2_runner_on_start(self, host: Any, task: Any) -> None:  # noqa: ARG002
        """Record the hosts that take part."""
        self._started_hosts.add(host.get_name())

    @_quiet
    def v2_runner_on_ok(self, result: Any) -> None:
        """Record the host, and print the message of a debug task."""
        self._handle_warnings(result.result)
        stage = self._stage or self._open(result.task)
        host = result.host.get_name()
        (stage.changed if result.result.get("changed") else stage.good).append(host)
        steps = result.result.get("steps") or ()
        stage.steps += [(host, step) for step in steps if isinstance(step, dict) and "seconds" in step]
        if result.task.action in C._ACTION_DEBUG:  # noqa: SLF001  # every spelling of the action's name
            self._say(result.result)

    @_quiet
    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:  # noqa: FBT002
        """Record the host; print the failure in full unless the playbook ignores errors."""
        self._handle_warnings(result.result)
        stage = self._stage or self._open(result.task)
        host = result.host.get_name()
        if ignore_errors:
            stage.ignored.append(host)
            return
        stage.failed.append(host)
        self._fail(host, result.result, stage)

    @_quiet
    def v2_runner_on_unreachable(self, result: Any) -> None:
        """Treat an unreachable host as a failure."""
        stage = self._stage or self._open(result.task)
        stage.failed.append(result.host.get_name())
        self._fail(result.host.get_name(), result.result, stage)

    @_quiet
    def v2_runner_on_skipped(self, result: Any) -> None:
        """Print nothing: a skipped task is no stage."""

    @_quiet
    def v2_runner_item_on_ok(self, result: Any) -> None:
        """Print the message of a debug task in a loop, and the progress of a loop with ``extended: true``.

        Other items are part of the task's line.
        """
        if result.task.action in C._ACTION_DEBUG:  # noqa: SLF001
            self._say(result.result)
        elif isinstance(place := result.result.get("ansible_loop"), dict):
            self._print_item(result, place)

    @_quiet
    def v2_runner_item_on_failed(self, result: Any) -> None:
        """Print nothing yet: the failed items are printed with the task."""

    @_quiet
    def v2_runner_item_on_skipped(self, result: Any) -> None:
        """Print nothing."""

    @_quiet
    def v2_runner_retry(self, result: Any) -> None:
        """Show the attempt of a retried task on the terminal's current line."""
        tried, retries = result.result.get("attempts", 0), result.result.get("retries", 0)
        self._pass_by(f"  {result.task.name} ({result.host.get_name()}: attempt {tried} of {retries})")

    def v2_playbook_on_stats(self, stats: Any) -> None:
        """Print the last line; unlike with Ansible's own callback, a run that matched no host ends as an error."""
        if self._display.verbosity > 0:
            with self._escaping(coloured=True):
                super().v2_playbook_on_stats(stats)
        else:
            with self._escaping():
                self._close_run(stats)
        if not stats.processed:
            raise SystemExit(_NO_HOST_MATCHED)

    def v2_on_file_diff(self, result: Any) -> None:
        """Print Ansible's own diff lines."""
        stage_lines.make_visible(result.result)
        with self._escaping(coloured=True):
            self._begin_output()
            super().v2_on_file_diff(result)

    def _handle_warnings(self, res: Any) -> None:
        with self._escaping():
            super()._handle_warnings(res)

    def _handle_exception(self, result: Any, use_stderr: bool = False) -> None:  # noqa: FBT002
        with self._escaping():
            super()._handle_exception(result, use_stderr=use_stderr)

    @contextlib.contextmanager
    def _escaping(self, *, coloured: bool = False) -> Iterator[None]:
        """Escape control characters in the output of the display; ``coloured``: but colours of Ansible's own lines."""
        display = self._display.display
        colours = _COLOURED if coloured and ANSIBLE_COLOR else _NOTHING

        def shown(msg: str, *args: Any, **kwargs: Any) -> None:
            parts = colours.split(msg)  # every second one is a colour
            display("".join(part if at % 2 else visible(part) for at, part in enumerate(parts)), *args, **kwargs)

        self._display.display = shown
        try:
            yield
        finally:
            self._display.display = display

    def _close_run(self, stats: Any) -> None:
        self._close_stage()
        hosts = sorted(stats.processed)
        summaries = {host: stats.summarize(host) for host in hosts}
        bad = [host for host in hosts if summaries[host]["failures"] or summaries[host]["unreachable"]]
        changes = sum(summary["changed"] for summary in summaries.values())
        took = stage_lines.spent(time.monotonic() - self._began)
        if bad:
            text = f"\nFailed after {took}: {', '.join(bad)}. What was done stays; running again continues."
        elif not hosts:
            text = f"\nNothing was done in {took}: no host matched."
        else:
            counted = "1 host" if len(hosts) == 1 else f"{len(hosts)} hosts"
            text = f"\nDone in {took}: {counted}, {changes or 'nothing'} changed."
        self._display.display(text, color=C.COLOR_OK if hosts and not bad else C.COLOR_ERROR)

    def _open(self, task: Any) -> Stage:
        self._close_stage()
        name = (task.name or task.action).strip()
        self._stage = Stage(name=name, began=time.monotonic(), action=task.action, path=_shown_path(task))
        if task.action in stage_lines.SPEAKING:
            self._begin_output()
        else:
            self._pass_by(f"  {name}")
        return self._stage

    def _close_stage(self) -> None:
        stage, self._stage = self._stage, None
        self._pass_by("")
        if stage is None or not stage.hosts or stage.failed or stage.action in C._ACTION_DEBUG:  # noqa: SLF001
            return
        if stage.is_worth_a_line(time.monotonic()):
            self._begin_output()
            self._print_stage(stage)

    def _begin_output(self) -> None:
        """Print the name of the play before its first line."""
        self._pass_by("")
        heading, self._heading = self._heading, ""
        if heading:
            self._display.display(f"\n{heading}", color=C.COLOR_HIGHLIGHT)

    def _print_stage(self, stage: Stage) -> None:
        total = max(len(self._started_hosts), len(stage.hosts))
        for row in stage_lines.stage_lines(stage, now=time.monotonic(), total=total):
            self._display.display(row, color=_COLOURS[stage.state])

    def _print_item(self, result: Any, place: dict[str, Any]) -> None:
        stage, host, now = self._stage or self._open(result.task), result.host.get_name(), time.monotonic()
        seconds = now - stage.item_ends.get(host, stage.began)
        stage.item_ends[host] = now
        self._begin_output()
        state = "changed" if result.result.get("changed") else "ok"
        label = str(self._get_item_label(result.result))
        row = stage_lines.item_line(label, place, state, seconds=seconds, elapsed=now - stage.began)
        self._display.display(row, color=_COLOURS[state])
        self._pass_by(f"  {stage.name}")

    def _fail(self, host: str, result: dict[str, Any], stage: Stage) -> None:
        self._begin_output()
        row = stage_lines.line(stage.name, "FAILED", host, time.monotonic() - stage.began)
        self._display.display(row, color=C.COLOR_ERROR)
        for item in stage_lines.failed_items(result):
            for text in stage_lines.failure_lines(host, item, stage=stage, playbook=self._playbook):
                self._display.display(text)

    def _say(self, result: dict[str, Any]) -> None:
        self._begin_output()
        message = result.get("msg")
        for row in message if isinstance(message, list) else str("" if message is None else message).splitlines():
            self._display.display(f"  {row}")

    def _pass_by(self, text: str) -> None:
        """Show ``text`` on the terminal's current line until something is printed; nothing elsewhere."""
        if self._terminal:
            sys.stdout.write(f"\r\x1b[K{visible(text)[: stage_lines.WIDTH - 1]}")
            sys.stdout.flush()


def _shown_path(task: Any) -> str:
    path = str(task.get_path() or "")
    return path.partition("ansible_collections/")[2] or path
