# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a node would be let in: by the admission's own decision, or not known; recorded boots and what is known."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.policy_plan import (
    Failing,
    LastSeen,
    Unknown,
    outlook,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.assertions import Assertions, Lockdown
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.learning import Preset
from ansible_collections.attested.kubernetes.tests.support.boot_facts import judged, learned

if TYPE_CHECKING:
    from ansible_collections.attested.kubernetes.plugins.module_utils.policy.profile import MeasurementProfile

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
ON, OFF = "deb13-grub-secureboot", "deb13-base"


def node(boot: str = ON, *, fresh: bool = True, keep: tuple[int, ...] | None = None, **changes: Any) -> LastSeen:
    """Return a node that runs ``boot``: with its logs where it is ``fresh``, else as a record shows it."""
    known = judged(boot)
    seen = LastSeen(
        node_name="w-1",
        ek_sha256="9f" * 32,
        revoked=False,
        phase="Joined",
        profile="before",
        registers={pcr: value for pcr, value in known.pcrs.items() if keep is None or pcr in keep},
        facts=known.facts if fresh else None,
    )
    return replace(seen, **changes)


def asserting(boot: str, **demands: Any) -> MeasurementProfile:
    """Return a profile that holds PCR 7 of ``boot`` and asserts ``demands`` alone."""
    base = learned(boot, Preset.STRICT)
    return replace(base, registers={7: base.registers[7]}, assertions=Assertions(**demands))


def kind(found: object) -> str:
    return type(found).__name__


@pytest.mark.parametrize(
    ("seen", "profiles", "expected"),
    [
        pytest.param(node(), (asserting(ON, secure_boot=True),), None, id="proven by fresh logs"),
        pytest.param(node(OFF), (asserting(OFF, secure_boot=True),), Failing, id="disproven by fresh logs"),
        pytest.param(node(), (asserting(ON, lockdown=Lockdown.INTEGRITY),), Failing, id="not proven by fresh logs"),
        pytest.param(node(), (asserting(ON, firmware_minimum="2999.1"),), Failing, id="an older firmware"),
        pytest.param(node(), (asserting(ON, sbat_minimum={"shim": 99}),), Failing, id="an older revocation level"),
        pytest.param(node(fresh=False), (asserting(ON, secure_boot=True),), Unknown, id="values fit, no log at hand"),
        pytest.param(
            node(fresh=False), (asserting(OFF, secure_boot=True),), Failing, id="values that fit no log could mend"
        ),
        pytest.param(
            node(fresh=False),
            (asserting(ON, secure_boot=True), asserting(ON)),
            None,
            id="another profile asserts nothing",
        ),
        pytest.param(
            node(fresh=False), (asserting(OFF), asserting(ON, secure_boot=True)), Unknown, id="one fails, one may pass"
        ),
        pytest.param(node(fresh=False, keep=(4,)), (asserting(ON),), Unknown, id="a register that nobody quoted"),
        pytest.param(node(fresh=False, keep=()), (asserting(ON),), Unknown, id="a record of before there were values"),
        pytest.param(node(fresh=False, keep=()), (), Failing, id="no profile at all"),
        pytest.param(node(), (replace(asserting(ON), retired=True),), Failing, id="a retired profile"),
        pytest.param(node(), (replace(asserting(ON), expires=NOW),), Failing, id="an expired profile"),
        pytest.param(
            node(fresh=False),
            (replace(asserting(ON, secure_boot=True), expires=NOW),),
            Failing,
            id="an expired profile, whatever it asserts",
        ),
    ],
)
def test_what_would_become_of_a_node(
    seen: LastSeen, profiles: tuple[MeasurementProfile, ...], expected: type | None
) -> None:
    assert kind(outlook(seen, profiles, now=NOW)) == (expected.__name__ if expected else "NoneType")


def test_a_refusal_says_what_deviates_with_the_code_of_each_assertion() -> None:
    profile = replace(asserting(OFF, secure_boot=True), name="next")
    told = str(outlook(node(OFF), (profile,), now=NOW))
    assert told == (
        "w-1 would fail: it was attested as before last "
        "(nearest next: SECURE_BOOT_OFF: assertion: expected Secure Boot on, got it off)"
    )


def test_what_is_not_known_says_why_and_what_became_of_the_question() -> None:
    seen = node(fresh=False, evidence_missing="requested evidence: PEER_UNREACHABLE: no answer")
    told = str(outlook(seen, (replace(asserting(ON, secure_boot=True), name="next"),), now=NOW))
    assert told == (
        "w-1: not known whether it would fail, next asks for what an event log proves, and none is at hand; "
        "requested evidence: PEER_UNREACHABLE: no answer"
    )
