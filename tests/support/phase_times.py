# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The phases of an init and of a join, of kubeadm alone and of ours: parse the output into tables. Pure.

All times are seconds of the kernel's monotonic clock, which the host and its lab machines share.
"""

from __future__ import annotations

import json
import re
import statistics
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import yaml
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.phases import INIT_PHASES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

KUBEADM_TASKS = (
    "Write certificates and kubeconfigs",
    "Start the control plane",
    "Install configuration, DNS and kube-proxy",
)
"""The tasks of the role `control_plane` that run kubeadm's phases."""

TOTAL = "together"

_TAGGED = re.compile(r"\[([a-z-]+)\] ")
_TOKEN = re.compile(r"--token (\S+)")
_CA_HASH = re.compile(r"--discovery-token-ca-cert-hash (sha256:[0-9a-f]{64})")
_HARDENED = ("extraArgs", "extraVolumes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line of a program with its time."""

    at: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """One row: the tags of kubeadm's lines in it, and our steps for the same work."""

    title: str
    tags: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Seconds of one row of the table, None if a side has no such work."""

    title: str
    bare: float | None = None
    ours: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One task of the playbook that a machine ran on itself."""

    stage: str
    task: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """The log of a bootstrapper: time of its decision, and the seconds of each step."""

    course_at: float
    steps: Mapping[str, float] = field(default_factory=dict)


INIT = (
    Phase(title="check the machine", tags=("init", "preflight"), steps=("preflight",)),
    Phase(title="certificates", tags=("certs",), steps=("certs",)),
    Phase(title="kubeconfigs", tags=("kubeconfig",), steps=("kubeconfig", "kubelet-credential")),
    Phase(title="manifest of etcd", tags=("etcd",), steps=("etcd",)),
    Phase(title="manifests of the control plane", tags=("control-plane",), steps=("control-plane",)),
    Phase(title="start the kubelet", tags=("kubelet-start",), steps=("kubelet-start",)),
    Phase(
        title="wait for the control plane",
        tags=("wait-control-plane", "kubelet-check", "control-plane-check", "api-check"),
        steps=("wait-control-plane",),
    ),
    Phase(
        title="upload the configuration", tags=("upload-config", "kubelet", "upload-certs"), steps=("upload-config",)
    ),
    Phase(title="mark the control plane", tags=("mark-control-plane",), steps=("mark-control-plane",)),
    # kubeadm prints the lines of add-ons at their end, and not always one of the kubelet
    Phase(
        title="token of bare, finish kubelet, DNS and proxy",
        tags=("bootstrap-token", "kubelet-finalize", "addons"),
        steps=("kubelet-finalize", "coredns", "kube-proxy", "super-admin"),
    ),
)
JOIN = (
    Phase(title="check the machine, find the cluster", tags=("preflight",), steps=("preflight",)),
    Phase(
        title="start the kubelet",
        tags=("kubelet-start", "kubelet-check", "kubelet-wait-bootstrap"),
        steps=("kubelet-start", "bootstrap-config"),
    ),
)
OURS_OF_A_JOIN = (
    Phase(title="ask for a ticket", steps=("ticket",)),
    Phase(title="take the lock", steps=("lock",)),
    Phase(title="write what the ticket brought", steps=("write",)),
)


def seconds_by_tag(lines: Sequence[Line], *, known: Iterable[str], begun: float, ended: float) -> dict[str, float]:
    """Return the seconds by tag: from its first line to the next tag; the time before the first tag counts for it.

    Lines after ``ended`` and tags that are not ``known`` do not count.
    """
    tags = set(known)
    marks = [(match[1], one.at) for one in lines if (match := _TAGGED.match(one.text)) and match[1] in tags]
    if not marks:
        raise ValueError(f"expected lines of kubeadm, got {[one.text for one in lines[-3:]]}")
    edges = [(marks[0][0], begun), *marks[1:], ("", ended)]
    taken: dict[str, float] = {}
    for (tag, since), (_next, until) in pairwise(edges):
        taken[tag] = taken.get(tag, 0.0) + max(0.0, min(until, ended) - min(since, ended))
    return taken


def paired(phases: Sequence[Phase], bare: Mapping[str, float], ours: Mapping[str, float]) -> list[Row]:
    """Return a row for each phase that either side has."""
    rows = [Row(title=one.title, bare=_sum(bare, one.tags), ours=_sum(ours, one.steps)) for one in phases]
    return [row for row in rows if row.bare is not None or row.ours is not None]


def init_rows(
    bare: Mapping[str, float], steps: Mapping[str, float], tasks: Sequence[Task], *, ours: float
) -> list[Row]:
    """Return the rows of an init that took ``ours`` seconds for the admin, with the sums of both sides."""
    around = sum(one.seconds for one in tasks if one.task in KUBEADM_TASKS) - _known(steps, INIT_PHASES)
    first = {one.stage for one in tasks[:1]}
    rows = [Row(title="judge the machine, send it the keys", ours=ours - sum(one.seconds for one in tasks))]
    rows += [Row(title=one.task.lower(), ours=one.seconds) for one in tasks if one.stage in first]
    rows += paired(INIT, bare, steps)
    rows.append(Row(title="Ansible around kubeadm", ours=around))
    for stage in dict.fromkeys(one.stage for one in tasks if one.stage not in first):
        others = [one.seconds for one in tasks if one.stage == stage and one.task not in KUBEADM_TASKS]
        rows.append(Row(title=f"{stage.lower()}: {len(others)} other tasks", ours=sum(others)))
    return [*rows, Row(title=TOTAL, bare=sum(bare.values()), ours=ours)]


def join_rows(
    bare: Mapping[str, float], told: Told, *, unit_at: float, node_at: float, bare_seconds: float
) -> list[Row]:
    """Return the rows of a join, both sides until its Node was seen, with the sums."""
    started, ours = told.course_at - unit_at, node_at - unit_at
    asked = paired(OURS_OF_A_JOIN, {}, told.steps)
    kubeadm = paired(JOIN, bare, told.steps)
    known = started + sum(row.ours or 0.0 for row in (*asked, *kubeadm))
    return [
        Row(title="start the program, look at the machine", ours=started),
        *asked,
        *kubeadm,
        Row(title="until the Node is there", bare=bare_seconds - sum(bare.values()), ours=ours - known),
        Row(title=TOTAL, bare=bare_seconds, ours=ours),
    ]


def medians(rounds: Sequence[Sequence[Row]]) -> list[Row]:
    """Return the median of each row over several rounds, in the order of the first one."""
    titles = dict.fromkeys(row.title for rows in rounds for row in rows)
    found = {title: [row for rows in rounds for row in rows if row.title == title] for title in titles}
    ordered = sorted(found, key=lambda title: title == TOTAL)
    return [
        Row(title=title, bare=_median(row.bare for row in found[title]), ours=_median(row.ours for row in found[title]))
        for title in ordered
    ]


def rendered(heading: str, rows: Sequence[Row]) -> str:
    """Return the rows as text in columns: phase, seconds of both sides, difference."""
    width = max(len(heading), *(len(row.title) for row in rows))
    lines = [f"{heading:<{width}}{'bare s':>10}{'ours s':>10}{'more':>10}"]
    for row in rows:
        more = None if row.bare is None or row.ours is None else row.ours - row.bare
        cells = (row.bare, row.ours, more)
        lines.append(f"{row.title:<{width}}" + "".join(f"{'-' if one is None else f'{one:.2f}':>10}" for one in cells))
    return "\n".join(lines)


def longest(tasks: Sequence[Task], *, count: int = 10) -> str:
    """Return the slowest tasks, one per line."""
    ordered = sorted(tasks, key=lambda one: one.seconds, reverse=True)[:count]
    return "\n".join(f"{one.seconds:8.2f} s  {one.stage}: {one.task}" for one in ordered)


# ---- what was printed


def told_by(journal: str, *, since: float) -> Told:
    """Parse the journal of a bootstrapper (journalctl --output=json) from the time ``since``."""
    heard = list(_heard(journal, since))
    courses = [at for at, said in heard if said["event"] == "course"]
    if not courses:
        raise ValueError("expected the course of a bootstrapper in its journal, found none")
    return Told(course_at=courses[0], steps=_steps(heard))


def told_steps(journal: str, *, since: float) -> Mapping[str, float]:
    """Return the seconds of each step in the journal of a bootstrapper, from the time ``since``."""
    return _steps(list(_heard(journal, since)))


def told_starts(journal: str) -> list[float]:
    """Return when a unit was started, by systemd's journal entries, in seconds since boot."""
    return [at for at, _entry in _entries(journal)]


def _entries(journal: str) -> Iterator[tuple[float, dict[str, Any]]]:
    for line in journal.splitlines():
        entry = json.loads(line)
        yield int(entry["__MONOTONIC_TIMESTAMP"]) / 1e6, entry


def _heard(journal: str, since: float) -> Iterator[tuple[float, dict[str, Any]]]:
    for at, entry in _entries(journal):
        said = _said(entry.get("MESSAGE"))
        if at >= since and "event" in said:
            yield at, said


def _said(message: object) -> dict[str, Any]:
    try:
        said = json.loads(message) if isinstance(message, str) else None
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def _steps(heard: Sequence[tuple[float, dict[str, Any]]]) -> Mapping[str, float]:
    steps: dict[str, float] = {}
    for _at, said in heard:
        if said["event"] == "step":
            steps[said["name"]] = steps.get(said["name"], 0.0) + float(said["seconds"])
    if not steps:
        raise ValueError("expected steps of a bootstrapper in its journal, found none")
    return steps


def told_tasks(output: str) -> list[Task]:
    """Return the tasks of the machine in the result of the action `init` (ansible-playbook -vvvv)."""
    found = re.search(r"^changed: \[[^\]]+\] => (?=\{)", output, re.MULTILINE)
    result = json.JSONDecoder().raw_decode(output, found.end())[0] if found else {}
    if not result.get("tasks"):
        raise ValueError("expected the tasks of an init, found none")
    return [Task(stage=one["stage"], task=one["task"], seconds=float(one["seconds"])) for one in result["tasks"]]


# ---- what bare kubeadm is told


def bare_init_config(ours: bytes) -> bytes:
    """Return our init configuration without hardening, with kubeadm's own bootstrap token."""
    return _documents(_softened(document) for document in yaml.safe_load_all(ours))


def bare_join_config(ours: bytes, *, endpoint: str, printed: str) -> bytes:
    """Return the configuration of a join with the token that ``kubeadm init`` printed."""
    token, ca_hash = _TOKEN.search(printed), _CA_HASH.search(printed)
    if token is None or ca_hash is None:
        raise ValueError("expected how to join in the words of kubeadm init, found it not")
    (document,) = yaml.safe_load_all(ours)
    by_token = {"apiServerEndpoint": endpoint, "token": token[1], "caCertHashes": [ca_hash[1]]}
    return _documents([{**document, "discovery": {"bootstrapToken": by_token}}])


def endpoint_of(config: bytes) -> str:
    """Return the endpoint of the API servers in this configuration."""
    return str(_of_kind(config, "ClusterConfiguration")["controlPlaneEndpoint"])


def _softened(document: dict[str, Any]) -> dict[str, Any]:
    kind = document["kind"]
    if kind == "InitConfiguration":
        return {name: value for name, value in document.items() if name not in {"skipPhases", "patches"}}
    if kind == "ClusterConfiguration":
        parts = ("apiServer", "controllerManager", "scheduler")
        return document | {name: _without(document.get(name, {}), _HARDENED) for name in parts}
    return _without(document, ("serverTLSBootstrap",))


def _without(given: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if name not in names}


def _of_kind(config: bytes, kind: str) -> dict[str, Any]:
    (found,) = (one for one in yaml.safe_load_all(config) if one["kind"] == kind)
    return dict(found)


def _documents(parts: Iterable[Mapping[str, Any]]) -> bytes:
    return b"---\n".join(json.dumps(part, indent=1).encode() + b"\n" for part in parts)


def _sum(seconds: Mapping[str, float], names: Iterable[str]) -> float | None:
    found = [seconds[name] for name in names if name in seconds]
    return sum(found) if found else None


def _known(steps: Mapping[str, float], phases: Iterable[Any]) -> float:
    return sum(steps.get(phase.name, 0.0) for phase in phases)


def _median(values: Iterable[float | None]) -> float | None:
    found = [one for one in values if one is not None]
    return statistics.median(found) if found else None
