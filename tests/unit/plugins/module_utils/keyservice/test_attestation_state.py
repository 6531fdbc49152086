# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which refusals are held against a node, and how they are written; and what they mean for a ticket."""

from __future__ import annotations

import ast
import datetime as dt
from typing import Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import Refusal
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.attestation_state import (
    EVIDENCE_REFUSED,
    RefusalKeeper,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.config import KeyServiceConfig
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.join_attempts import RefusalReporter
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.live_policy import LivePolicy, StatusWriter
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.identity import Role
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Coarse, Reason
from ansible_collections.attested.kubernetes.tests.support import house
from ansible_collections.attested.kubernetes.tests.support.kube import FakeGateway

NOW = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)
EK = "ab" * 32
NAME = f"ek-{EK[:20]}"


class Clock:
    """A clock that stands."""

    def now(self) -> dt.datetime:
        return NOW


class Kept:
    """A keeper over an API in memory, and what it told."""

    def __init__(self, *, phase: str = "Joined", admission: str = "Approved") -> None:
        document = {
            "apiVersion": "attested-kubernetes.dev/v1alpha1",
            "kind": "NodeIdentity",
            "metadata": {"name": NAME},
            "spec": {"ekSha256": EK, "nodeName": "w-1", "role": Role.WORKER.value, "admission": admission},
        }
        self.gateway = FakeGateway(document)
        if phase:
            revision = self.gateway.objects("nodeidentities")[0]["metadata"]["resourceVersion"]
            self.gateway.patch_status("nodeidentities", NAME, status={"phase": phase}, revision=revision)
        self.gateway.writes = 0
        self.woken = 0
        self.lost: list[tuple[str, str]] = []
        policy = LivePolicy(self.gateway, None, clock=Clock())  # type: ignore[arg-type]  # registrations ask no guard
        self.keeper = RefusalKeeper(
            policy, StatusWriter(self.gateway), kept=self._wake, lost=lambda ek, code: self.lost.append((ek, code))
        )

    def _wake(self, name: str) -> None:
        assert name == NAME
        self.woken += 1

    def note(self, reason: Reason, at: dt.datetime = NOW) -> Any:
        self.keeper.note(Refusal("x", reason=reason), ek_sha256=EK, now=at)
        return self.gateway.status(NAME).get("lastRefusal")


def test_a_refusal_is_kept_until_there_is_another_one() -> None:
    kept = Kept()
    first = {"time": "2026-11-21T12:00:00Z", "reason": "PCR_MISMATCH"}
    assert kept.note(Reason.PCR_MISMATCH) == first
    assert kept.note(Reason.PCR_MISMATCH, NOW + dt.timedelta(hours=1)) == first
    assert (kept.gateway.writes, kept.woken) == (1, 1)
    later = kept.note(Reason.TPM_ROLLED_BACK, NOW + dt.timedelta(hours=1))
    assert later == {"time": "2026-11-21T13:00:00Z", "reason": "TPM_ROLLED_BACK"}


STEPS = {
    "evidence/ek_certificate.py": None,  # 7
    "evidence/ek_profile.py": None,
    "evidence/eventlog": None,  # 8
    "evidence/verify.py": ("_verify_logs", "_verify_lock", "_require_permitted"),  # 8, 9
    "policy/assertions.py": None,  # 10
    "policy/decision.py": None,
    "keyservice/release.py": ("check_continuity",),
    "keyservice/reattest.py": ("check_standing",),
}
"""Files, or functions of one, in which the steps of `verify_node` after 6, and continuity, refuse."""

OF_OURS = {"API_CONFLICT", "EK_AUTHORITIES_UNUSABLE", "NODELOCK_REGISTER_RESETTABLE", "POLICY_EMPTY", "QUOTE_SELECTION"}
"""What they say of our own configuration, or of evidence that newer one has overtaken; the register that step 8 looks
for is demanded by us, in step 5."""


def reasons_in(place: str, functions: tuple[str, ...] | None) -> set[str]:
    """Return the reasons that a file, or these functions of it, or all files of a folder name."""
    path = house.UTILS / place
    trees = [house.tree_of(one) for one in (sorted(path.glob("*.py")) if path.is_dir() else [path])]
    parts: list[ast.AST] = [*trees]
    if functions is not None:
        parts = [one for one in ast.walk(trees[0]) if isinstance(one, ast.FunctionDef) and one.name in functions]
        assert len(parts) == len(functions)
    found = (node for part in parts for node in ast.walk(part) if isinstance(node, ast.Attribute))
    return {node.attr for node in found if isinstance(node.value, ast.Name) and node.value.id == "Reason"}


def test_every_reason_that_can_follow_the_quote_counts_and_no_other() -> None:
    """Whoever adds a reason to one of these steps decides here whether it is held against a node."""
    raised = {reason for place, functions in STEPS.items() for reason in reasons_in(place, functions)}
    assert raised >= OF_OURS
    assert {one.name for one in EVIDENCE_REFUSED} == raised - OF_OURS


@pytest.mark.parametrize("reason", sorted(EVIDENCE_REFUSED, key=lambda one: one.name), ids=lambda one: one.name)
def test_what_a_machine_proved_against_itself_counts(reason: Reason) -> None:
    assert Kept().note(reason)["reason"] == reason.name
    assert reason.value.coarse in {Coarse.REFUSED, Coarse.INVALID}


@pytest.mark.parametrize(
    "reason",
    [
        pytest.param(Reason.ACTIVATION_NOT_PROVEN, id="a stranger names its key"),
        pytest.param(Reason.MESSAGE_TOO_LARGE, id="somebody sends logs with its key's proof"),
        pytest.param(Reason.BINDING_MISMATCH, id="somebody relays what its verification service said"),
        pytest.param(Reason.QUOTE_SIGNATURE, id="somebody signs in its name"),
        pytest.param(Reason.TPM_RESET_BETWEEN, id="it is rebooting"),
        pytest.param(Reason.IDENTITY_REVOKED, id="the admin said so"),
        pytest.param(Reason.POLICY_EMPTY, id="we accept nobody"),
        pytest.param(Reason.API_UNAVAILABLE, id="trouble of our own"),
        pytest.param(Reason.REATTESTATION_OVERDUE, id="it asks to renew while it is overdue"),
        pytest.param(Reason.REATTESTATION_FAILED, id="it asks to renew after it failed"),
    ],
)
def test_what_is_not_its_own_word_does_not(reason: Reason) -> None:
    assert Kept().note(reason) is None


@pytest.mark.parametrize(
    "state",
    [
        pytest.param({"phase": "Admitted"}, id="a machine that has no Node yet"),
        pytest.param({"phase": ""}, id="one that never had a ticket"),
        pytest.param({"admission": "Revoked"}, id="one that was revoked"),
        pytest.param({"admission": "Pending"}, id="one that waits"),
    ],
)
def test_what_is_no_node_has_no_standing(state: dict[str, str]) -> None:
    assert Kept(**state).note(Reason.PCR_MISMATCH) is None


def test_what_cannot_be_written_is_told_and_changes_no_answer() -> None:
    kept = Kept()
    kept.gateway.before_write = lambda: kept.gateway.apply(_other_spec())
    kept.note(Reason.PCR_MISMATCH)
    assert kept.lost == [(EK, "API_CONFLICT")]


class Attempts:
    """Takes refusals for people."""

    def note(self, attempt: Any) -> None:
        """Take one."""


@pytest.mark.parametrize(
    ("fields", "held"),
    [
        pytest.param({"ek": EK, "proven": "yes"}, True, id="a machine that proved its key"),
        pytest.param({"ek": EK}, False, id="somebody who names its key"),
        pytest.param({}, False, id="somebody who names nothing"),
    ],
)
def test_a_refusal_is_held_against_who_proved_the_key(fields: dict[str, str], held: bool) -> None:
    kept = Kept()
    RefusalReporter(Attempts(), keeper=kept.keeper).report(Refusal("x", reason=Reason.PCR_MISMATCH), fields, now=NOW)
    assert ("lastRefusal" in kept.gateway.status(NAME)) is held


@pytest.mark.parametrize(
    ("seconds", "grace"),
    [
        pytest.param(None, dt.timedelta(minutes=90), id="half of the period"),
        pytest.param(0, dt.timedelta(0), id="none"),
    ],
)
def test_how_long_nobody_becomes_overdue_after_a_start(seconds: int | None, grace: dt.timedelta) -> None:
    config = KeyServiceConfig(
        node_name="cp-1",
        api_server="https://x:6443",
        api_endpoint="x:6443",
        reattest_grace_seconds=seconds,
    )
    assert (config.overdue_after, config.grace) == (dt.timedelta(hours=3), grace)


def _other_spec() -> dict[str, Any]:
    spec = {"ekSha256": EK, "nodeName": "w-1", "role": "worker", "admission": "Approved", "knownBy": "somebody"}
    return {"kind": "NodeIdentity", "metadata": {"name": NAME}, "spec": spec}
