# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which machine may make the cluster: the first one, unless another one was there before or the site names another."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.plugin_utils.site_action import SiteAction

OLD = {"attested_ek": "sha256:" + "ab" * 32, "attested_ek_replaced": ["sha256:" + "cd" * 32]}
NEW = {"attested_ek": "sha256:" + "ab" * 32}


def action(host: dict[str, Any], **variables: str) -> SiteAction:
    """Return an action whose task is that of cp-1."""
    made: SiteAction = object.__new__(SiteAction)
    groups = {"control_planes": ["cp-1", "cp-2"]}
    made.task_vars = {"inventory_hostname": "cp-1", "hostvars": {"cp-1": host}, "groups": groups, **variables}
    return made


@pytest.mark.parametrize(
    ("host", "variables"),
    [
        pytest.param(NEW, {}, id="the first one"),
        pytest.param({}, {}, id="one that nobody enrolled, which is refused later"),
        pytest.param(NEW, {"attested_founder": "cp-1"}, id="the one that the site names"),
        pytest.param(OLD, {"attested_founder": "cp-1"}, id="one in another's place that the site names"),
    ],
)
def test_who_makes_the_cluster(host: dict[str, Any], variables: dict[str, str]) -> None:
    action(host, **variables).require_founder()


@pytest.mark.parametrize(
    ("host", "variables", "words"),
    [
        pytest.param(OLD, {}, "the replacement of that machine", id="a replacement"),
        pytest.param(NEW, {"attested_founder": "cp-2"}, "the site says cp-2", id="the site names another"),
        pytest.param(NEW, {"attested_founder": "nobody"}, "the site says nobody", id="the site names nobody"),
    ],
)
def test_who_makes_no_second_one(host: dict[str, Any], variables: dict[str, str], words: str) -> None:
    with pytest.raises(AttestedError) as caught:
        action(host, **variables).require_founder()
    assert caught.value.code == "CLUSTER_FOUNDER_GONE"
    assert words in caught.value.message
