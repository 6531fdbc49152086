# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the admin reads about a revoked or removed machine: until when its certificate is valid."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jinja2
import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.admission import HELD

ROLES = Path(__file__).parents[3] / "roles"
UNTIL = "2026-11-24T12:15:00+00:00"
TICKET = f"until {UNTIL} at the latest"
YEAR = "for up to a year after that"
NEVER = "It never received a certificate of this cluster."


def told(template: str, **values: Any) -> str:
    """Return what the role prints, rendered as Ansible does."""
    text = (ROLES / "node_removal" / "templates" / f"{template}.j2").read_text(encoding="utf-8")
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, autoescape=False, trim_blocks=True)
    return environment.from_string(text).render(values)


@pytest.mark.parametrize(
    ("role", "until", "says"),
    [
        pytest.param("worker", UNTIL, {TICKET}, id="a worker that joined"),
        pytest.param("worker", "", {NEVER}, id="a worker that never joined"),
        pytest.param("control-plane", "", {YEAR}, id="the first control plane, which had no ticket"),
        pytest.param("control-plane", UNTIL, {TICKET, YEAR}, id="a control plane with a ticket, maybe the first one"),
    ],
)
def test_a_revoked_machines_certificate(role: str, until: str, says: set[str]) -> None:
    done = {"node": "n-1", "identity": "ek-1", "role": role, "certificate_until": until}
    text = told("revoked", node_removal_revoked=done, node_removal_drained={})
    assert {one for one in (TICKET, YEAR, NEVER) if one in text} == says


@pytest.mark.parametrize(
    ("held", "year"),
    [
        pytest.param([], False, id="a worker"),
        pytest.param([{"what": "a key", "could": "do much", "ends": "never"}], True, id="a control plane"),
    ],
)
def test_a_dead_machine_that_was_taken_out(held: list[dict[str, str]], year: bool) -> None:
    text = told(
        "left",
        ansible_check_mode=False,
        node_removal_answers=False,
        node_removal_done={"held": held},
        node_removal_drained={},
        node_removal_name="n-1",
    )
    assert "ends after 72 hours at most" in text
    assert ("a year after that" in text) is year


@pytest.mark.parametrize("authority", ["", "0123456789abcdef"], ids=["as it is", "with a rotation that follows"])
def test_of_a_control_plane_every_secret_is_named_and_said_to_be_good_or_not(authority: str) -> None:
    """What the rotation makes worthless is named as that; what it does not stays what somebody could still do."""
    done = {
        "node": "cp-1",
        "identity": "ek-1",
        "role": "control-plane",
        "certificate_until": UNTIL,
        "held": [one.as_result() for one in HELD],
        "held_authority": authority,
    }
    text = told("revoked", node_removal_revoked=done, node_removal_drained={}, node_removal_etcd_member="cp-1")
    could = {one.what for one in HELD if f"- {one.could} (" in text}
    assert could == {one.what for one in HELD if not authority or one.rotated != "rotate_authorities"}
    assert {one.what for one in HELD if f"- {one.what}\n" in text} == {one.what for one in HELD} - could
    assert text.count("It cannot sign the site's policy") == 1
    assert ("none of its keys is rotated" in text, authority in text) == (not authority, True)
