# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the pages say of settings that change by a reload or by a restart only."""

from __future__ import annotations

import dataclasses
import re

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.services.join_service import JoinServiceConfig
from ansible_collections.attested.kubernetes.tests.support.house import ROOT

BOUNDS = (ROOT / "docs" / "protocol" / "tickets.md").read_text(encoding="utf-8")
SETTINGS = {one.name for one in dataclasses.fields(JoinServiceConfig)}


def test_the_page_of_tickets_tells_every_limit_of_an_address_and_how_it_changes() -> None:
    (told,) = [part for part in BOUNDS.split("\n\n") if "`systemctl reload attested-join-service`" in part]
    by_reload, restart, by_restart = told.partition("changes at once.")
    assert restart
    named = [set(re.findall(r"`([a-z_]+_(?:second|burst))`", part)) for part in (by_reload, by_restart)]
    assert named == [{"challenges_per_second", "challenge_burst"}, {"connections_per_second", "connection_burst"}]
    assert set.union(*named) == {one for one in SETTINGS if one.endswith(("_per_second", "_burst"))}


@pytest.mark.parametrize(
    ("service", "reloads"),
    [("join_service", True), ("key_service", True), ("verification_service", False)],
)
def test_only_services_that_read_their_settings_again_have_a_reload(service: str, reloads: bool) -> None:
    unit = f"attested-{service.replace('_', '-')}.service.j2"
    text = (ROOT / "roles" / service / "templates" / unit).read_text(encoding="utf-8")
    assert ("ExecReload=" in text) is reloads


def test_the_page_of_verification_says_what_its_service_lacks() -> None:
    page = (ROOT / "docs" / "protocol" / "verification.md").read_text(encoding="utf-8")
    assert "there is no reload" in page
    assert "no `/metrics`, `/healthz` or `/readyz`" in page
