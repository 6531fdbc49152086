# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The status of a fleet as lines for a terminal, as JSON and as an HTML page. Pure.

The sources are the results of the module `node_status_info` for each node, and of `cluster_info`. Results of nodes are
untrusted, so each value is converted to text.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..evidence.image.next_boot import Verdict
from ..policy.identity import Admission
from ..reasons import Reason
from .page import BAD, GOOD, UNSURE, Cell, Count, Need, Page, place_of, plain, render_page

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

VERSION = 1
_WORDS = {BAD: "needs a person", UNSURE: "in progress", GOOD: "good"}
_STANDINGS = {
    "EvidenceGood": "good",
    "NotYetAttested": "new",
    "ReattestationFailed": "failed",
    "ReattestationOverdue": "overdue",
}
"""The words for the reasons of the Node's condition Attested."""
_BAD_STANDINGS = {"ReattestationFailed": "Evidence refused", "ReattestationOverdue": "Evidence overdue"}
_REVOKED = "Revoked. Take it off the network, then remove it from hosts.yml."
_LOOK = "systemctl status kubelet containerd"
_FORM = "{:<12} {:<13} {:<10} {:<7} {:<8} {:<9} {:<23} {:<16} {:<8} {:<8} {:<20} {}".format
_COLUMNS = (
    "Node", "Status", "Role", "Phase", "Locked", "Ready", "Version", "Identity", "Profile", "Evidence reaches",
    "Attested", "Certificate until", "To do",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    """One node: its own status, and its status in the cluster. Unknown values are empty.

    ``next_boot``: why the policy in force may not accept the node after a reboot.
    """

    name: str
    tone: str
    role: str
    phase: str
    locked: str
    ready: str
    version: str
    identity: str
    profile: str
    posture: str
    attested: str
    certificate_until: str
    control_plane_until: str
    control_plane_first: str
    next_boot: str
    to_do: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """The last refusal of a machine without good evidence since; ``clauses``: registers and events."""

    node: str
    reason: str
    times: str
    last_seen: str
    clauses: tuple[str, ...]
    command: str

    @property
    def what(self) -> str:
        """The title of this refusal."""
        return f"Refused: {self.reason}"

    @property
    def told(self) -> str:
        """The count and the time of the last refusal."""
        return f"{self.times} times, the last at {self.last_seen}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """An unknown machine that proved its key and waits for approval."""

    identity: str
    claims: str
    since: str

    @property
    def command(self) -> str:
        """The command that approves the machine."""
        return f"approve -e confirm={self.identity} -e node=NAME"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A problem that an admin must solve: ``line`` for a terminal, ``need`` for a page."""

    line: str
    need: Need


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetStatus:
    """The status of the fleet; ``policy``: lines about the policy in force, empty without an API server."""

    cluster_name: str
    release: str
    made_at: datetime
    rows: tuple[NodeRow, ...]
    calls: tuple[Call, ...]
    refusals: tuple[Refusal, ...]
    waiting: tuple[Waiting, ...]
    policy: tuple[str, ...]

    def count(self, tone: str) -> int:
        """Return the number of nodes with this tone."""
        return sum(one.tone == tone for one in self.rows)

    def ordered(self) -> tuple[NodeRow, ...]:
        """Return the rows by severity, then by name."""
        return tuple(sorted(self.rows, key=lambda one: (list(_WORDS).index(one.tone), one.name)))


def read_fleet(
    nodes: Mapping[str, Mapping[str, Any]],
    cluster: Mapping[str, Any],
    *,
    control_planes: Sequence[str],
    cluster_name: str,
    release: str,
    made_at: datetime,
    next_boots: Mapping[str, Mapping[str, Any]] | None = None,
) -> FleetStatus:
    """Return the status from the module results; the result of an unreachable node or cluster has its failure.

    ``next_boots``: predictions for the next boot by node (`evidence.image.next_boot.Judgement`).
    """
    judged = next_boots or {}
    known = {_text(row, "name"): row for row in cluster.get("nodes") or ()}
    names = sorted(nodes)
    calls = [*_calls_of_cluster(nodes, cluster, control_planes)]
    for name in names:
        calls += _calls_of_node(name, nodes[name], known.get(name, {}))
    calls += [_unsigned(str(name)) for name in _policy(cluster).get("revocations_unsigned") or ()]
    called = {one.need.subject for one in calls}
    return FleetStatus(
        cluster_name=cluster_name,
        release=release,
        made_at=made_at,
        rows=tuple(
            _row(name, nodes[name], known.get(name, {}), judged.get(name, {}), is_called=name in called)
            for name in names
        ),
        calls=tuple(calls),
        refusals=tuple(one for name in names if (one := _refusal(name, known.get(name, {})))),
        waiting=tuple(
            Waiting(identity=_text(one, "identity"), claims=_text(one, "claims"), since=_text(one, "since"))
            for one in cluster.get("waiting") or ()
        ),
        policy=tuple(_policy_lines(cluster, made_at)) if "nodes" in cluster else (),
    )


def render_table(fleet: FleetStatus) -> list[str]:
    """Return the lines of the table for a terminal: header, nodes, then details of single machines."""
    header = ("NODE", "ROLE", "PHASE", "LOCKED", "READY", "VERSION", "IDENTITY", "PROFILE", "POSTURE", "ATTESTED")
    lines = [_FORM(*header, "CERTIFICATE UNTIL", "TO DO")]
    for one in fleet.rows:
        cells = (*_facts(one), one.certificate_until, one.to_do)
        lines.append(_FORM(one.name, *(plain(cell) or "-" for cell in cells)))
    lines += [
        f"CONTROL PLANE {one.name}: certificates until {one.control_plane_until} ({one.control_plane_first} ends first)"
        for one in fleet.rows
        if one.control_plane_until
    ]
    lines += [f"NEXT BOOT {one.name}: {one.next_boot}" for one in fleet.rows if one.next_boot]
    for refusal in fleet.refusals:
        lines.append(f"REFUSED {refusal.node}: {refusal.reason}, {refusal.told}")
        lines += [f"  {clause}" for clause in refusal.clauses]
    for machine in fleet.waiting:
        claims = machine.claims or "no name"
        lines.append(f"WAITS: {machine.identity} (claims {claims}) since {machine.since}: {machine.command}")
    return [plain(line) for line in lines]


def render_calls(fleet: FleetStatus) -> list[str]:
    """Return a header and one line for each problem; empty without problems."""
    return [plain(line) for line in ("A person is needed:", *(one.line for one in fleet.calls))] if fleet.calls else []


def render_policy(fleet: FleetStatus) -> list[str]:
    """Return the lines about the policy in force."""
    return [plain(line) for line in fleet.policy]


def render_json(fleet: FleetStatus) -> bytes:
    """Return the status as JSON, format version 1."""
    body = {
        "version": VERSION,
        "cluster": fleet.cluster_name,
        "release": fleet.release,
        "made_at": fleet.made_at.isoformat(),
        "counts": {word: fleet.count(tone) for tone, word in _WORDS.items()},
        "nodes": [
            {"name": one.name, "status": _WORDS[one.tone]}
            | {name: getattr(one, name) for name in NodeRow.__slots__ if name not in ("name", "tone")}
            for one in fleet.ordered()
        ],
        "needs": [
            {"subject": one.subject, "what": one.what, "lines": list(one.lines), "hint": one.hint}
            | {"command": one.command, "place": one.place}
            for one in (call.need for call in fleet.calls)
        ],
        "refusals": [
            {"node": one.node, "reason": one.reason, "times": one.times, "last_seen": one.last_seen}
            | {"message": list(one.clauses), "command": one.command}
            for one in fleet.refusals
        ],
        "waiting": [
            {"identity": one.identity, "claims": one.claims, "since": one.since, "command": one.command}
            for one in fleet.waiting
        ],
        "policy": list(fleet.policy),
    }
    return json.dumps(body, indent=2).encode() + b"\n"


def render_html(fleet: FleetStatus) -> bytes:
    """Return the status as one HTML page without external resources."""
    page = Page(
        title=f"Status of cluster {fleet.cluster_name}" if fleet.cluster_name else "Status of the cluster",
        about="each node and the API server were asked over ssh",
        release=fleet.release,
        made_at=fleet.made_at,
        counts=tuple(Count(word=word, tone=tone, count=fleet.count(tone)) for tone, word in _WORDS.items()),
        needs=tuple(one.need for one in fleet.calls),
        columns=_COLUMNS,
        rows=tuple(_cells(one) for one in fleet.ordered()),
    )
    called = {(one.subject, one.what) for one in page.needs}
    others = [one for one in fleet.refusals if (one.node, one.what) not in called]
    return render_page(page, "status.html.j2", fleet=fleet, refusals=others)


def _cells(row: NodeRow) -> tuple[Cell, ...]:
    """Return the cells of a row of the page."""
    plane = f"control plane: {row.control_plane_until} ({row.control_plane_first})" if row.control_plane_until else ""
    return (
        Cell(text=row.name),
        Cell(text=_WORDS[row.tone], tone=row.tone, order=str(list(_WORDS).index(row.tone))),
        *(Cell(text=text, full=text if text.startswith("ek-") else "") for text in _facts(row)),
        Cell(text=row.certificate_until, more=plane),
        Cell(text=row.to_do, more=f"next boot {row.next_boot}" if row.next_boot else ""),
    )


def _facts(row: NodeRow) -> tuple[str, ...]:
    return (
        row.role, row.phase, row.locked, row.ready, row.version, row.identity, row.profile, row.posture, row.attested,
    )  # fmt: skip


def _text(said: Mapping[str, Any], key: str) -> str:
    value = said.get(key)
    return "" if value is None else str(value)


def _truth(said: Mapping[str, Any], key: str) -> str:
    return ("yes" if said[key] else "no") if key in said else ""


def _time(said: Mapping[str, Any], key: str) -> str:
    return _text(said, key).replace("+00:00", "Z")


def _policy(cluster: Mapping[str, Any]) -> Mapping[str, Any]:
    policy: Mapping[str, Any] = cluster.get("policy") or {}
    return policy


def _needs_person(said: Mapping[str, Any]) -> bool:
    return bool(said.get("needs_person", True))


def _is_revoked(known: Mapping[str, Any]) -> bool:
    return _text(known, "admission") == Admission.REVOKED.value


def _to_do(said: Mapping[str, Any]) -> str:
    return _text(said, "to_do") or _text(said, "msg") or "cannot be reached"


def _next_boot(judged: Mapping[str, Any]) -> str:
    verdict = _text(judged, "verdict")
    return "" if verdict in {"", Verdict.ALLOWED.value} else f"{verdict}: {_text(judged, 'why')}"


def _row(
    name: str, said: Mapping[str, Any], known: Mapping[str, Any], judged: Mapping[str, Any], *, is_called: bool
) -> NodeRow:
    to_do = _REVOKED if _is_revoked(known) else _to_do(said)
    is_well = said.get("phase") == "Joined" and to_do == "Nothing."
    return NodeRow(
        name=name,
        tone=BAD if is_called else GOOD if is_well else UNSURE,
        role=_text(known, "role"),
        phase=_text(said, "phase") or "unknown",
        locked=_truth(said, "locked"),
        ready=_truth(known, "ready"),
        version=_text(known, "version"),
        identity=_text(known, "identity"),
        profile=_text(known, "profile"),
        posture=_text(known, "posture"),
        attested=_STANDINGS.get(_text(known, "standing"), ""),
        certificate_until=_time(said, "certificate_expires"),
        control_plane_until=_time(said, "control_plane_expires"),
        control_plane_first=_text(said, "control_plane_first"),
        next_boot=_next_boot(judged),
        to_do=to_do,
    )


def _refusal(name: str, known: Mapping[str, Any]) -> Refusal | None:
    said = known.get("refused")
    if not said:
        return None
    return Refusal(
        node=name,
        reason=_text(said, "reason"),
        times=_text(said, "count"),
        last_seen=_text(said, "last_seen"),
        clauses=tuple(_text(said, "message").split("; ")),
        command=_text(said, "command"),
    )


def _call(subject: str, line: str, **need: Any) -> Call:
    return Call(line=f"{subject}: {line}", need=Need(subject=subject, **need))


def _calls_of_cluster(
    nodes: Mapping[str, Mapping[str, Any]], cluster: Mapping[str, Any], control_planes: Sequence[str]
) -> Iterator[Call]:
    """Yield a problem if the API does not answer although a control plane has joined."""
    up = [name for name in control_planes if nodes.get(name, {}).get("phase") == "Joined"]
    if "nodes" not in cluster and up:
        said = _text(cluster, "msg") or "no control plane can be asked"
        command = f"attested status; {_LOOK}"
        yield _call(
            "the cluster",
            f"{said}; next, on {up[0]}: {command}",
            what="The cluster does not answer",
            lines=(said,),
            command=command,
            place=f"on {up[0]}",
        )


def _calls_of_node(name: str, said: Mapping[str, Any], known: Mapping[str, Any]) -> Iterator[Call]:
    if _needs_person(said) and not _is_revoked(known):
        yield _call_of_itself(name, said)
        if refusal := _refusal(name, known):
            yield _call(
                name,
                f"the cluster refused it by {refusal.reason}, see REFUSED above; next: {refusal.command}",
                what=refusal.what,
                lines=(refusal.told, *refusal.clauses),
                command=refusal.command,
            )
    if known.get("registered") and not known.get("ready"):
        why = _text(known, "ready_message") or "its kubelet has not reported yet"
        yield _call(
            name,
            f"the Node is not Ready: {why}; next, on {name}: {_LOOK}",
            what="The Node is not Ready",
            lines=(why,),
            command=_LOOK,
            place=place_of(_LOOK),
        )
    if (what := _BAD_STANDINGS.get(_text(known, "standing"))) is not None:
        message = _text(known, "standing_message")
        why, _next, command = message.partition("; next: ")
        yield _call(name, message, what=what, lines=(why,), command=command)


def _call_of_itself(name: str, said: Mapping[str, Any]) -> Call:
    """Return the node's own problem, or the failure of the module."""
    reason, to_do, message = _text(said, "reason"), _to_do(said), _text(said, "message")
    line = f"{reason}: {to_do}" if reason else to_do
    if said.get("unreachable") or not (said.get("msg") or said.get("phase")):
        return _call(
            name,
            line,
            what="Not reachable over ssh",
            lines=(to_do,),
            hint="Check that the machine is up, and that its address in hosts.yml is right.",
            command="ansible nodes -m ansible.builtin.ping",
        )
    if "phase" not in said:
        command = _text(said, "command") or Reason.MODULE_FAILED.value.command
        return _call(
            name,
            line,
            what=reason or Reason.MODULE_FAILED.name,
            lines=(to_do,),
            hint=_text(said, "hint") or Reason.MODULE_FAILED.value.hint,
            command=command,
            place=place_of(command),
        )
    command = Reason[reason].value.command if reason in Reason.__members__ else "attested status"
    return _call(
        name,
        line,
        what=reason or f"Phase {_text(said, 'phase')}",
        lines=(message,) if message else (),
        hint=to_do,
        command=command,
        place=place_of(command),
    )


def _unsigned(name: str) -> Call:
    command = "ansible-playbook attested.kubernetes.policy"
    return _call(
        name,
        f"its revocation is not in the signed policy; next: {command}",
        what="The revocation is not in the signed policy",
        command=command,
    )


def _policy_lines(cluster: Mapping[str, Any], now: datetime) -> Iterator[str]:
    """Yield lines about the policy, and about restrictions of Pods, Services and kubelets."""
    policy = _policy(cluster)
    if not policy:
        yield "POLICY none: every machine is refused. Run ansible-playbook attested.kubernetes.policy"
    else:
        yield from _lines_in_force(policy, now)
    secrets = _text(cluster, "secrets_written_with")
    if secrets:
        yield f"SECRETS are written {'in clear' if secrets == 'identity' else f'with {secrets}'}"
    guards = cluster.get("guards") or {}
    if not guards:
        return
    yield f"PODS are {_held_to(guards)}"
    if not guards.get("external_ips_denied"):
        yield (
            "SERVICES can take over any port of any node with externalIPs. "
            "Run ansible-playbook attested.kubernetes.node"
        )
    if not guards.get("kubelets_checked"):
        yield (
            "KUBELETS serve with certificates that are not verified (attested_kubelet_serving_certificates): "
            "a machine with the address of a node can read kubectl exec"
        )


def _lines_in_force(policy: Mapping[str, Any], now: datetime) -> Iterator[str]:
    seen = ", ".join(f"{name}: {number}" for name, number in (policy.get("seen_by") or {}).items())
    yield (
        f"POLICY generation {_text(policy, 'generation')}, profiles {', '.join(policy['profiles'])}, "
        f"{_text(policy, 'revoked')} revoked, {f'recorded by {seen}' if seen else 'not recorded yet'}"
    )
    for one in policy.get("exceptions") or ():
        over = " (over)" if one["until"] <= now.strftime("%Y-%m-%dT%H:%M:%SZ") else ""
        yield f"EXCEPTION {one['profile']} on {', '.join(one['nodes'])} until {one['until']}{over}: {one['why']}"
    for weakness in policy.get("weaknesses") or ():
        yield f"WEAK {weakness}"
    for one in policy.get("unreadable") or ():
        yield f"UNREADABLE, admits no machine: {one}"


def _held_to(guards: Mapping[str, Any]) -> str:
    level = _text(guards, "pod_security")
    if level == "privileged":
        return "not restricted: a user who can create a Pod can take over its node (attested_pod_security)"
    if not level:
        return "restricted by an admission configuration that this collection did not write"
    return f"held to {level}, except in {', '.join(guards['exempt_namespaces'])}"
