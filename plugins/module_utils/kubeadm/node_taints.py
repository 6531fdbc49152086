# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module `node_taints`: set the taints of a Node that the site owns, and keep all others.

The API server keeps taints as one list, which server-side apply replaces as a whole. Labels
below `node-restriction.kubernetes.io` record which taints the site owns. A kubelet may change neither these labels nor
the taints of its Node ("NodeRestriction", Kubernetes). With an annotation a node could make the site remove others.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import KubeadmError, SiteError
from ..reasons import Reason
from ..result import Diff, Result
from .kubectl import Kubectl

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_NOTE = "taint.node-restriction.kubernetes.io/"
_KEY = re.compile(r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")
_RESERVED = re.compile(
    r"(.*\.)?attested-kubernetes\.dev/.*|node(\.cloudprovider)?\.kubernetes\.io/.*|node-role\.kubernetes\.io/control-plane"
)
_ROUNDS = 5


@dataclass(frozen=True, slots=True, order=True, kw_only=True)
class Taint:
    """A taint of a site."""

    key: str
    effect: str
    value: str = ""

    def __str__(self) -> str:
        """Return the taint in the form of `kubectl taint`."""
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaintPlan:
    """The taints before and after, and the labels to add (an empty text) or to remove (None)."""

    before: tuple[str, ...]
    after: tuple[str, ...]
    taints: tuple[Mapping[str, Any], ...]
    notes: Mapping[str, str | None]

    @property
    def is_empty(self) -> bool:
        """Whether the Node needs no change."""
        return self.before == self.after and not self.notes


def parse_taints(rows: Sequence[Mapping[str, Any]]) -> tuple[Taint, ...]:
    """Return the taints of a site; raises CONFIG_INVALID."""
    found: list[Taint] = []
    for row in rows:
        taint = Taint(key=str(row["key"]), value=str(row.get("value") or ""), effect=str(row["effect"]))
        if not _KEY.fullmatch(taint.key) or not _VALUE.fullmatch(taint.value) or taint.effect not in EFFECTS:
            raise _invalid(f"expected a key, a value and an effect ({', '.join(EFFECTS)}) of a taint, got {taint}")
        if _RESERVED.fullmatch(taint.key):
            raise _invalid(f"expected no taint that Kubernetes or this collection sets, got {taint}")
        if any((one.key, one.effect) == (taint.key, taint.effect) for one in found):
            raise _invalid(f"expected each key once with one effect, got {taint} again")
        found.append(taint)
    return tuple(sorted(found))


def plan_taints(node: Mapping[str, Any], wanted: Sequence[Taint]) -> TaintPlan:
    """Return the change of a Node's taints; pure. Taints that the site does not own are kept, in their order."""
    noted = {name for name in node["metadata"].get("labels") or {} if name.startswith(_NOTE)}
    found = tuple(node.get("spec", {}).get("taints") or ())
    names = {_note(one.key, one.effect): one for one in wanted}
    own = noted | set(names)
    kept = [one for one in found if _note(str(one["key"]), str(one["effect"])) not in own or _is_reserved(one)]
    made = [{"key": one.key, "effect": one.effect, **({"value": one.value} if one.value else {})} for one in wanted]
    notes: dict[str, str | None] = dict.fromkeys(sorted(noted - set(names)))
    notes |= dict.fromkeys(sorted(set(names) - noted), "")
    return TaintPlan(
        before=tuple(sorted(map(_shown, found))),
        after=tuple(sorted(map(_shown, (*kept, *made)))),
        taints=(*kept, *made),
        notes=notes,
    )


def run_taints(params: Mapping[str, Any], check_mode: bool) -> Result:
    """Set the taints of a Node to those of the site; raises CONFIG_INVALID, KUBECTL_FAILED."""
    return apply_taints(Kubectl.of_a_module(params["kubeconfig"]), params, check_mode=check_mode)


def apply_taints(kubectl: Kubectl, params: Mapping[str, Any], *, check_mode: bool) -> Result:
    """Plan and apply. The list is written by compare-and-set, and planned again after a conflict."""
    wanted, name = parse_taints(params["taints"]), str(params["name"])
    for left in reversed(range(_ROUNDS)):
        node = next(iter(kubectl.read_one("node", name, "")), None)
        if node is None:
            raise KubeadmError(f"expected the Node {name}, the cluster has none", reason=Reason.KUBECTL_FAILED)
        plan = plan_taints(node, wanted)
        if plan.is_empty or check_mode:
            break
        metadata = {"resourceVersion": node["metadata"]["resourceVersion"], "labels": plan.notes}
        try:
            kubectl.patch("node", name, {"metadata": metadata, "spec": {"taints": list(plan.taints)}})
            break
        except KubeadmError:
            if not left:
                raise
    return Result(
        changed=not plan.is_empty,
        diff=Diff(before=_lines(plan.before), after=_lines(plan.after)),
    )


def _note(key: str, effect: str) -> str:
    """Return the label of a taint that the site owns: a hash, because a taint's key may not fit into a label."""
    return f"{_NOTE}{hashlib.sha256(f'{key}:{effect}'.encode()).hexdigest()[:32]}"


def _is_reserved(taint: Mapping[str, Any]) -> bool:
    return bool(_RESERVED.fullmatch(str(taint["key"])))


def _shown(taint: Mapping[str, Any]) -> str:
    return str(Taint(key=str(taint["key"]), value=str(taint.get("value") or ""), effect=str(taint["effect"])))


def _lines(rows: Sequence[str]) -> str:
    return "".join(f"{row}\n" for row in rows)


def _invalid(message: str) -> SiteError:
    return SiteError(f"attested_node_taints: {message}", reason=Reason.CONFIG_INVALID)
