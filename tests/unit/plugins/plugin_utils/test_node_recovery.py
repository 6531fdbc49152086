# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the action `node_recovery` makes of a site, a kit and what becomes of each node; the nodes are made up."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from ansible.parsing.vault import VaultSecretsContext
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError, Refusal, TransportError
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.services import recovery_client
from ansible_collections.attested.kubernetes.tests.support.init_site import SECRETS
from ansible_collections.attested.kubernetes.tests.support.kits import sample_kit
from ansible_collections.attested.kubernetes.tests.support.recovery_site import ADDRESSES, DISKS, NAMES, RecoverySite

if TYPE_CHECKING:
    from pathlib import Path

    from ansible_collections.attested.kubernetes.plugins.module_utils.services.recovery_client import (
        LockedNode,
        Rescuer,
    )


class Nodes:
    """Nodes that answer as a test says; what was asked of whom, and with which keys, is kept."""

    def __init__(self) -> None:
        self.answers: dict[str, AttestedError] = {}
        self.asked: list[tuple[str, str, str, bool]] = []
        self.rescuers: list[Rescuer] = []

    async def recover(self, node: LockedNode, rescuer: Rescuer, *, send: bool = True) -> None:
        self.asked.append((node.name, node.endpoint, node.disk.uuid, send))
        self.rescuers.append(rescuer)
        if node.name in self.answers:
            raise self.answers[node.name]


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> Nodes:
    """All nodes answer well."""
    made = Nodes()
    monkeypatch.setattr(recovery_client, "recover", made.recover)
    return made


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> RecoverySite:
    return RecoverySite(tmp_path_factory.mktemp("site"))


@pytest.fixture
def vault(monkeypatch: pytest.MonkeyPatch) -> None:
    """This run was given the password of the site's vault."""
    monkeypatch.setattr(VaultSecretsContext, "_current", VaultSecretsContext(SECRETS))


def states(answer: dict[str, Any]) -> dict[str, str]:
    return {name: one["state"] for name, one in answer["nodes"].items()}


WRONG = Refusal("expected another key", reason=Reason.RECOVERY_KEY_WRONG)
LOST = Refusal("expected a locked disk", reason=Reason.RECOVERY_RACE_LOST)
SILENT = TransportError("expected an answer", reason=Reason.PEER_UNREACHABLE, retryable=True)


@pytest.mark.usefixtures("vault")
def test_all_are_recovered_control_planes_first_each_by_its_own_disk(site: RecoverySite, nodes: Nodes) -> None:
    answer = site.act()
    assert not answer.get("failed"), answer
    assert (answer["changed"], set(states(answer).values())) == (True, {"recovered"})
    assert list(answer["nodes"]) == ["cp-1", "cp-2", "a-1"]
    assert nodes.asked == [(name, f"{ADDRESSES[name]}:9999", DISKS[name].uuid, True) for name in NAMES]
    (keys,) = {id(one.keys): one.keys for one in nodes.rescuers}.values()
    assert keys.cluster_id == site.init.bundle.cluster_id


@pytest.mark.usefixtures("vault")
def test_that_another_was_first_is_no_failure_and_changes_nothing(site: RecoverySite, nodes: Nodes) -> None:
    nodes.answers = dict.fromkeys(NAMES, LOST)
    answer = site.act()
    assert (answer.get("failed"), answer["changed"]) == (None, False)
    assert set(states(answer).values()) == {"another was first"}


@pytest.mark.parametrize(
    ("error", "state"),
    [pytest.param(WRONG, "failed", id="refused"), pytest.param(SILENT, "does not answer", id="silent")],
)
@pytest.mark.usefixtures("vault")
def test_one_that_stays_locked_fails_the_task_and_stops_no_other(
    site: RecoverySite, nodes: Nodes, error: AttestedError, state: str
) -> None:
    nodes.answers = {"cp-1": error, "cp-2": LOST}
    answer = site.act()
    assert (answer["failed"], answer["reason"]) == (True, "RECOVERY_INCOMPLETE")
    assert states(answer) == {"cp-1": state, "cp-2": "another was first", "a-1": "recovered"}
    assert f"cp-1: {error.code}: {error.message}" in answer["msg"]
    assert "cp-2" not in answer["msg"]
    assert any(f"cp-1: {state}" in line and error.code in line for line in answer["shown"])


@pytest.mark.usefixtures("vault")
def test_the_table_is_shown_and_returned(site: RecoverySite, nodes: Nodes) -> None:
    nodes.answers = {"a-1": WRONG}
    answer = site.act()
    assert answer["table"][-1] == "3 nodes: 2 recovered, 1 failed"
    assert [line.strip() for line in answer["shown"][-5:]] == answer["table"]


@pytest.mark.usefixtures("vault")
def test_check_mode_judges_and_sends_nothing(site: RecoverySite, nodes: Nodes) -> None:
    answer = site.act(check_mode=True)
    assert [send for _name, _endpoint, _disk, send in nodes.asked] == [False] * 3
    assert (answer["changed"], set(states(answer).values())) == (True, {"can be recovered"})


@pytest.mark.usefixtures("vault")
def test_one_without_a_known_disk_is_a_row_and_the_others_go_on(tmp_path: Path, nodes: Nodes) -> None:
    site = RecoverySite(tmp_path)
    site.enroll("cp-1", site.beds["cp-1"], disk="")
    answer = site.act()
    assert states(answer) == {"cp-1": "failed", "cp-2": "recovered", "a-1": "recovered"}
    assert answer["nodes"]["cp-1"]["reason"] == "RECOVERY_DISK_UNKNOWN"
    assert [one[0] for one in nodes.asked] == ["cp-2", "a-1"]
    by_kit = site.act(kit=str(site.kit), passphrase_file=str(site.passphrase))
    assert set(states(by_kit).values()) == {"recovered"}


def test_the_kit_alone_is_enough(site: RecoverySite, nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """No vault password, and so no secret of the site."""
    monkeypatch.setattr(VaultSecretsContext, "_current", None)
    assert site.act()["reason"] == "SITE_VAULT"
    answer = site.act(kit=str(site.kit), passphrase_file=str(site.passphrase))
    assert not answer.get("failed"), answer
    assert len(nodes.asked) == 3
    assert nodes.rescuers[0].keys.ring == site.init.bundle.ring


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        pytest.param({"passphrase": "another passphrase"}, "KIT_KEY_WRONG: got another one", id="another passphrase"),
        pytest.param({"passphrase_file": None}, "KIT_KEY_WRONG: got none", id="no passphrase"),
        pytest.param({"other": True}, "KIT_OTHER_CLUSTER", id="of another cluster"),
        pytest.param({"nodes": ["nas"]}, "SITE_INVENTORY", id="no such node"),
    ],
)
def test_what_is_refused_before_anybody_is_asked(
    site: RecoverySite,
    nodes: Nodes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, Any],
    code: str,
) -> None:
    options: dict[str, Any] = {"kit": str(site.kit), "passphrase_file": str(site.passphrase), **changes}
    if words := options.pop("passphrase", None):
        options["passphrase_file"] = str(tmp_path / "words")
        (tmp_path / "words").write_text(words, encoding="ascii")
    if options.pop("other", False):
        name = "ansible_collections.attested.kubernetes.plugins.plugin_utils.kit_keys.open_kit"
        monkeypatch.setattr(name, lambda *_known: sample_kit())
    answer = site.act(*options.pop("nodes", ()), **options)
    reason, _colon, said = code.partition(": ")
    assert (answer["failed"], answer["reason"], nodes.asked) == (True, reason, [])
    assert said in answer["msg"]


@pytest.mark.usefixtures("vault")
def test_no_secret_is_in_what_is_shown_or_returned(site: RecoverySite, nodes: Nodes) -> None:
    nodes.answers = {"a-1": WRONG}
    said = json.dumps(site.act()).encode()
    assert [one for one in site.canaries() if one in said] == []
