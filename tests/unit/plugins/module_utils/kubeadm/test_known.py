# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whom the program dials: what the cluster named, what the site wrote, and what a name stands for."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest
import yaml
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemClock
from ansible_collections.attested.kubernetes.plugins.module_utils.core.logs import Log
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.endpoint_addresses import render_list
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.endpoint_service import (
    ApiEndpointConfig,
    Lists,
    load_known,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.tests.unit.fakes.random import SeededRandom

if TYPE_CHECKING:
    from pathlib import Path

A, B, C = "10.0.0.11:6443", "10.0.0.12:6443", "10.0.0.13:6443"
NAME = "api.prod.example:6443"


def test_the_clusters_own_come_first_then_the_sites_then_names() -> None:
    config = ApiEndpointConfig(control_planes=(A, "cp-2.example:6443"), endpoint=NAME)
    known = load_known(config, [B, C], random=SeededRandom(1))
    assert set(known.addresses[:2]) == {B, C}
    assert known.addresses[2:] == (A,)
    assert known.names == ("cp-2.example:6443", NAME)


def test_workers_do_not_all_begin_with_the_same_one() -> None:
    config = ApiEndpointConfig(control_planes=(A, B, C))
    first = {load_known(config, [], random=SeededRandom(seed)).addresses[0] for seed in range(50)}
    assert first == {A, B, C}


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        pytest.param(ApiEndpointConfig(), Reason.CONFIG_INVALID, id="nobody"),
        pytest.param(ApiEndpointConfig(control_planes=("10.0.0.11",)), Reason.ENDPOINT_INVALID, id="no port"),
        pytest.param(ApiEndpointConfig(control_planes=(A,) * 65), Reason.CONFIG_INVALID, id="too many"),
    ],
)
def test_a_configuration_that_leads_nowhere_is_refused(config: ApiEndpointConfig, reason: Reason) -> None:
    with pytest.raises(AttestedError) as caught:
        load_known(config, [], random=SeededRandom(1))
    assert caught.value.reason is reason


def lists(directory: Path, told: io.StringIO) -> Lists:
    config = {"control_planes": [A], "list_file": str(directory / "list.json")}
    (directory / "config.yml").write_text(yaml.safe_dump(config))
    log = Log(told, as_json=True, clock=SystemClock())
    return Lists(directory / "config.yml", log=log, random=SeededRandom(1))


def test_a_list_that_appears_or_changes_is_seen(tmp_path: Path) -> None:
    found = lists(tmp_path, io.StringIO())
    assert found.load().addresses == (A,)
    assert not found.has_changed()
    (tmp_path / "list.json").write_bytes(render_list([B]))
    assert found.has_changed()
    assert found.load().addresses == (B, A)
    assert not found.has_changed()


def test_a_list_that_is_broken_or_gone_leaves_the_last_good_one(tmp_path: Path) -> None:
    told = io.StringIO()
    found = lists(tmp_path, told)
    (tmp_path / "list.json").write_bytes(render_list([B]))
    found.load()
    (tmp_path / "list.json").write_bytes(b'{"version": 1, "control_planes": []}')
    assert found.load().addresses == (B, A)
    assert "list_refused" in told.getvalue()
    (tmp_path / "list.json").unlink()
    assert found.load().addresses == (B, A)
