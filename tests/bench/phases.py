# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bare kubeadm against ours, phase by phase: an init, and the way of a worker to its Node object.

In a lab of its own, on the same machines in turn. Ours: an admin's init over the wire, a worker whose unit is started
on a quiet machine, and one whose unit starts as the machine boots. Bare: `kubeadm init` and `kubeadm join` with the
same binaries, images, names and networks, without what we harden, by the bootstrap token that kubeadm itself makes.
All joins end as a watch on the control plane shows the Node.
Usage: python tests/bench/phases.py [--rounds N]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ansible_collections.attested.kubernetes.plugins.module_utils.admin.site_directory import Site
from ansible_collections.attested.kubernetes.tests.support import phase_times
from ansible_collections.attested.kubernetes.tests.support.bench import Figure, report
from ansible_collections.attested.kubernetes.tests.support.boot_lab import (
    CONTROL_PLANE,
    DOOR,
    UNIT,
    USED_LAB,
    WORKER,
    boot_lab,
    is_joined,
    make_absent,
    state_of,
)
from ansible_collections.attested.kubernetes.tests.support.lab import obstacles
from ansible_collections.attested.kubernetes.tests.support.phase_times import INIT, JOIN, TOTAL, Line, Row, Task, Told
from ansible_collections.attested.kubernetes.tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ansible_collections.attested.kubernetes.tests.support.road import Road

INIT_OVER_BARE_SECONDS = 5.0
JOIN_OVER_BARE_SECONDS = 2.0
PATIENCE_SECONDS = 300.0
SETTLED_LOAD_SECONDS = 5.0
STATE = "/var/lib/attested/kubeadm"
STARTING = "7d4958e842da4a758f6c1cdc7b36dcc5"  # SD_MESSAGE_UNIT_STARTING, sd-messages.h
BARE_CONFIG = "/run/bare-kubeadm.yaml"
ADMIN = "--kubeconfig=/etc/kubernetes/admin.conf"
INIT_TASK = "TASK [Verify the machine and initialize the cluster]"
INIT_DONE = f"changed: [{CONTROL_PLANE}] => "

# of the machine's next boot nothing stays of it; our unit has no bootstrap kubeconfig and wants the lock
BARE_KUBELET = """
set -e; umask 022; mkdir -p /run/systemd/system/kubelet.service.d
cat > /run/systemd/system/kubelet.service.d/zz-bare.conf <<'END'
[Unit]
ConditionPathExists=
[Service]
ExecStart=
ExecStart=/usr/local/bin/kubelet --bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf \
 --kubeconfig=/etc/kubernetes/kubelet.conf --config=/var/lib/kubelet/config.yaml $KUBELET_KUBEADM_ARGS
END
systemctl daemon-reload; systemctl enable --quiet kubelet
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One round: the rows of the three tables, and the tasks of the machine's own playbook."""

    init: list[Row]
    quiet: list[Row]
    boot: list[Row]
    tasks: list[Task]


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """One join of ours: what the worker told, when its unit began, when its Node was seen."""

    told: Told
    unit_at: float
    node_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Ours:
    """What a round has measured of ours, before the machines are bare."""

    init_seconds: float
    tasks: list[Task]
    steps: Mapping[str, float]
    quiet: Joined
    boot: Joined


@dataclass(frozen=True, slots=True, kw_only=True)
class Bare:
    """What a round has measured of bare kubeadm: seconds of each of its tags, and of the join up to its Node."""

    init: Mapping[str, float]
    join: Mapping[str, float]
    join_seconds: float


@dataclass(slots=True)
class Watch:
    """The lines of a program while it runs, each with its moment."""

    lines: list[Line] = field(default_factory=list)

    def take(self, stream: Iterable[str]) -> None:
        """Read until the end."""
        for text in stream:
            self.lines.append(Line(at=time.monotonic(), text=text.rstrip("\n")))

    def first(self, text: str) -> float | None:
        """Return when the first line that begins with ``text`` came, None while there is none."""
        return next((one.at for one in self.lines if one.text.startswith(text)), None)


def stamped(stream: Iterable[str]) -> list[Line]:
    """Return the lines of a program that ends by itself."""
    watch = Watch()
    watch.take(stream)
    return watch.lines


@contextmanager
def watched_nodes(road: Road) -> Iterator[Watch]:
    """Watch the Nodes by the control plane; the watch stands before this returns."""
    words = ["timeout", str(int(PATIENCE_SECONDS)), "kubectl", ADMIN, "get", "nodes", "--watch", "--output=name"]
    argv = [str(road.lab.directory / "podman"), "exec", CONTROL_PLANE, *words]
    watch = Watch()
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        reader = threading.Thread(target=watch.take, args=(process.stdout,), daemon=True)
        reader.start()
        try:
            wait_for(lambda: watch.first(f"node/{CONTROL_PLANE}") is not None)
            yield watch
        finally:
            process.terminate()


def node_at(watch: Watch) -> float:
    """Return when the worker's Node was seen."""
    wait_for(lambda: watch.first(f"node/{WORKER}") is not None, seconds=PATIENCE_SECONDS)
    return watch.first(f"node/{WORKER}") or 0.0


# ---- ours


def clear(road: Road) -> None:
    """Make both machines nobody's in a fresh boot; the worker does nothing by itself."""
    make_absent(road, WORKER)
    make_absent(road, CONTROL_PLANE)
    Site.at(str(road.site)).admin_kubeconfig.unlink(missing_ok=True)  # of a cluster that is no more
    road.inside(WORKER, "systemctl", "disable", "--quiet", UNIT)
    for machine in (WORKER, CONTROL_PLANE):
        road.reboot(machine)
    wait_for(lambda: state_of(road, CONTROL_PLANE, DOOR) == "active", seconds=PATIENCE_SECONDS)
    time.sleep(SETTLED_LOAD_SECONDS)


def init(road: Road) -> tuple[float, list[Task], Mapping[str, float]]:
    """Let an admin make the cluster; return the seconds of the action, the machine's tasks, the steps of kubeadm."""
    begun = time.monotonic()
    process = road.start("init")
    assert process.stdout is not None
    lines = stamped(process.stdout)
    output = "\n".join(one.text for one in lines)
    if process.wait():
        raise RuntimeError(f"init: {output[-4000:]}")
    asked = next(one.at for one in lines if one.text.startswith(INIT_TASK))
    done = next(one.at for one in lines if one.text.startswith(INIT_DONE) and one.at > asked)
    print(f"the whole playbook init: {time.monotonic() - begun:.1f} s, of it the action init {done - asked:.1f} s")
    steps = phase_times.told_steps(journal_of(road, CONTROL_PLANE), since=asked)
    return done - asked, phase_times.told_tasks(output[output.index(INIT_TASK) :]), steps


def settle(road: Road) -> None:
    """Wait until the control plane has nothing to do but to serve."""
    wait_for(lambda: state_of(road, CONTROL_PLANE, UNIT) == "inactive", seconds=PATIENCE_SECONDS)
    road.wait_until_ready(CONTROL_PLANE, boot_id=road.boot_id(CONTROL_PLANE))
    time.sleep(SETTLED_LOAD_SECONDS)


def joined(road: Road, *, at_boot: bool) -> Joined:
    """Let the worker join by its unit."""
    with watched_nodes(road) as watch:
        if at_boot:
            road.reboot(WORKER)
        else:
            road.inside(WORKER, "systemctl", "start", "--no-block", UNIT)
        seen = node_at(watch)
    wait_for(lambda: is_joined(road, WORKER), seconds=PATIENCE_SECONDS)
    starts = phase_times.told_starts(journal_of(road, WORKER, MESSAGE_ID=STARTING))
    if len(starts) != 1:
        raise RuntimeError(f"expected one start of {UNIT}, it was started {len(starts)} times")
    (began,) = starts
    return Joined(told=phase_times.told_by(journal_of(road, WORKER), since=began), unit_at=began, node_at=seen)


def journal_of(road: Road, machine: str, **fields: str) -> str:
    """Return what was told of the bootstrapper in this boot, or what of it has these ``fields``.

    Not what systemd shows of the unit: it forgets a unit that is stopped and wanted by none.
    """
    matches = [f"{name}={value}" for name, value in fields.items()]
    argv = ("journalctl", "--boot", "--unit", UNIT, "--output=json", "--no-pager", *matches)
    return road.inside(machine, *argv)


def ours(road: Road) -> Ours:
    """Measure ours: an init, a quiet join, a join at boot."""
    seconds, tasks, steps = init(road)
    settle(road)
    quiet = joined(road, at_boot=False)
    make_absent(road, WORKER)
    road.inside(WORKER, "systemctl", "enable", "--quiet", UNIT)
    boot = joined(road, at_boot=True)
    return Ours(init_seconds=seconds, tasks=tasks, steps=steps, quiet=quiet, boot=boot)


# ---- bare


def bare(road: Road) -> Bare:
    """Measure kubeadm alone; the machines still hold the cluster of ours."""
    config = road.inside(CONTROL_PLANE, "cat", f"{STATE}/init.yaml").encode()
    worker = road.inside(WORKER, "cat", f"{STATE}/join.yaml").encode()
    for machine in (WORKER, CONTROL_PLANE):
        make_absent(road, machine)
        road.inside(machine, "sh", "-c", BARE_KUBELET)
    time.sleep(SETTLED_LOAD_SECONDS)
    printed, begun, ended = kubeadm(road, CONTROL_PLANE, "init", phase_times.bare_init_config(config))
    init_seconds = phase_times.seconds_by_tag(printed, known=tags_of(INIT), begun=begun, ended=ended)
    told = " ".join(one.text.rstrip("\\") for one in printed)
    by_token = phase_times.bare_join_config(worker, endpoint=phase_times.endpoint_of(config), printed=told)
    time.sleep(SETTLED_LOAD_SECONDS)
    with watched_nodes(road) as watch:
        printed, begun, ended = kubeadm(road, WORKER, "join", by_token)
        seen = node_at(watch)
    print(f"bare kubeadm join ended {ended - seen:+.2f} s after its Node was seen")
    join = phase_times.seconds_by_tag(printed, known=tags_of(JOIN), begun=begun, ended=min(ended, seen))
    return Bare(init=init_seconds, join=join, join_seconds=seen - begun)


def kubeadm(road: Road, machine: str, verb: str, config: bytes) -> tuple[list[Line], float, float]:
    """Run ``kubeadm init`` or ``join`` as a whole; return its lines, and when it began and ended."""
    road.inside(machine, "sh", "-c", f"umask 077; cat > {BARE_CONFIG}", given=config)
    argv = [str(road.lab.directory / "podman"), "exec", machine, "kubeadm", verb, "--config", BARE_CONFIG]
    begun = time.monotonic()
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        lines = stamped(process.stdout)
    ended = time.monotonic()
    if process.returncode:
        raise RuntimeError(f"kubeadm {verb}: " + "\n".join(one.text for one in lines[-20:]))
    return lines, begun, ended


def tags_of(phases: Sequence[phase_times.Phase]) -> list[str]:
    """Return the tags of all ``phases``."""
    return [tag for one in phases for tag in one.tags]


# ---- both


def measure(road: Road) -> Round:
    """Measure one round, ours first: its join and init need machines that hold no lock."""
    clear(road)
    own = ours(road)
    base = bare(road)
    quiet, boot = (
        phase_times.join_rows(
            base.join, one.told, unit_at=one.unit_at, node_at=one.node_at, bare_seconds=base.join_seconds
        )
        for one in (own.quiet, own.boot)
    )
    rows = phase_times.init_rows(base.init, own.steps, own.tasks, ours=own.init_seconds)
    return Round(init=rows, quiet=quiet, boot=boot, tasks=own.tasks)


def figure(name: str, rows: Sequence[Row], *, over_bare: float, verb: str) -> Figure:
    """Return the sums of a table beside what is allowed."""
    (total,) = (row for row in rows if row.title == TOTAL)
    alone = total.bare or 0.0
    return Figure(
        name=name,
        value=total.ours or 0.0,
        unit="s",
        budget=alone + over_bare,
        baseline=alone,
        baseline_name=f"s, bare kubeadm {verb}",
    )


def show(rounds: Sequence[Round]) -> None:
    """Print the tables and hand on their sums."""
    init_rows, quiet, boot = (
        phase_times.medians([getattr(one, name) for one in rounds]) for name in ("init", "quiet", "boot")
    )
    for heading, rows in (("init", init_rows), ("join, quiet machine", quiet), ("join, while it boots", boot)):
        print(f"\n{phase_times.rendered(heading, rows)}")
    print(f"\nlongest tasks of the machine's own playbook, last round:\n{phase_times.longest(rounds[-1].tasks)}\n")
    load = " ".join(f"{one:.1f}" for one in os.getloadavg())
    print(f"medians of {len(rounds)} rounds; {os.cpu_count()} processors, load {load}")
    report(
        figure("init", init_rows, over_bare=INIT_OVER_BARE_SECONDS, verb="init"),
        figure("join, unit start to Node, quiet machine", quiet, over_bare=JOIN_OVER_BARE_SECONDS, verb="join"),
        figure("join, unit start to Node, while it boots", boot, over_bare=JOIN_OVER_BARE_SECONDS, verb="join"),
    )


def main() -> None:
    """Print the tables; the machines of a lab that is used (ATTESTED_BOOT_LAB) are nobody's at the end."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="the medians count (default: %(default)s)")
    options = parser.parse_args()
    if found := obstacles():
        print(f"phases: not measured, {found}")
        return
    with boot_lab("attested-phases", "127.81.0") as road:
        rounds = [measure(road) for _round in range(options.rounds)]
        if os.environ.get(USED_LAB):
            clear(road)
    show(rounds)


if __name__ == "__main__":
    main()
