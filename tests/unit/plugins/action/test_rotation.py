# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The actions of a rotation: the plan follows from what nodes and cluster say, and keys go to verified machines."""

from __future__ import annotations

import base64
import json
import secrets as random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from ansible.parsing.vault import VaultSecretsContext
from ansible_collections.attested.kubernetes.plugins.action import rotation, rotation_recipient
from ansible_collections.attested.kubernetes.plugins.module_utils.admin import secrets
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.site_directory import Site
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemClock, SystemRandom
from ansible_collections.attested.kubernetes.plugins.module_utils.node.authorization import OfferStore
from ansible_collections.attested.kubernetes.plugins.module_utils.node.key_share import open_orders
from ansible_collections.attested.kubernetes.plugins.module_utils.rotation.encryption_key import PlaneKeys
from ansible_collections.attested.kubernetes.plugins.module_utils.rotation.values import show_keys
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.binding import Purpose
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.sealed_box import OneTimeKey
from ansible_collections.attested.kubernetes.plugins.plugin_utils.vault import AnsibleVault
from ansible_collections.attested.kubernetes.tests.support.init_site import SECRETS
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ansible_collections.attested.kubernetes.plugins.module_utils.result import Result

CLUSTER = {"nodes": ["cp-1"], "control_planes": ["cp-1"], "now": "2026-11-22T12:00:00+00:00", "stored": {}}


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """A site whose vault password this run was given."""
    monkeypatch.setattr(VaultSecretsContext, "_current", VaultSecretsContext(SECRETS))
    (tmp_path / "hosts.yml").write_text("nodes: {}\n")
    (tmp_path / ".secrets").mkdir()
    made = Site.at(tmp_path)
    plan = secrets.plan(made)
    secrets.apply(made, plan, name="prod", vault=AnsibleVault(), clock=SystemClock(), random=SystemRandom())
    return made


class Planning(rotation.ActionModule):  # type: ignore[misc]
    """The action on the first control plane, which says this of its cluster."""

    def __init__(self, said: Mapping[str, Any]) -> None:
        self.said = said
        self.asked: list[tuple[str, Mapping[str, Any]]] = []

    def _execute(self, module: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        self.asked.append((module, arguments))
        return self.said

    def plan(self, kind: str, found: list[Any], *, check: bool = False, **options: Any) -> Result:
        """Return the result of the task."""
        given = {"site": None, "apply": False, "old": "", **options}
        return self.perform({"kind": kind, "found": found, **given}, check)


def test_the_plan_needs_no_site_and_asks_the_control_plane_for_nodes_and_secrets() -> None:
    action = Planning({**CLUSTER, "stored": {"key-1": 2}})
    done = action.plan(
        "encryption_key", [show_keys(PlaneKeys(name="cp-1", keys={"key-1": "x"}, taken=True))], old="key-1"
    )
    assert action.asked == [("attested.kubernetes.rotation_info", {"kind": "encryption_key", "scope": "cluster"})]
    assert (done.changed, done.values["phases"][0], done.values["changes"]) == (False, "make", {"cp-1": {}})
    assert done.values["stored"] == {"key-1": 2}


def test_a_control_plane_that_fails_ends_it_with_its_reason() -> None:
    action = Planning({"failed": True, "msg": "expected etcd", "reason": "ETCD_UNREACHABLE"})
    assert code_of(lambda: action.plan("encryption_key", [])) == "ETCD_UNREACHABLE"


def ring(site: Site) -> tuple[str, ...]:
    return secrets.load(site, AnsibleVault()).ring.names


def said(*names: str) -> list[dict[str, Any]]:
    return [{"node": "cp-1", "plane": {"names": list(names), "taken": True}, "disk": None}]


def test_the_site_makes_a_version_only_when_told_and_never_in_check_mode(site: Site) -> None:
    (old,) = ring(site)
    action, options = Planning(CLUSTER), {"site": str(site.root), "old": old}
    for check, apply, changed in ((False, False, False), (True, True, True)):
        done = action.plan("master_secret", said(old), check=check, apply=apply, **options)
        assert (done.changed, done.values["phases"][0], ring(site)) == (changed, "make", (old,))
    done = action.plan("master_secret", said(old), apply=True, **options)
    assert (done.changed, done.values["versions"], ring(site)[0]) == (True, [old], old)
    new = ring(site)[1]
    done = action.plan("master_secret", said(old), apply=True, **options)
    assert (done.changed, done.values["phases"][0], ring(site)) == (False, "share", (old, new))
    assert done.values["changes"] == {"cp-1": {"names": [old, new]}}


def test_the_site_forgets_no_version_that_is_still_held(site: Site) -> None:
    (old,) = ring(site)
    action, options = Planning(CLUSTER), {"site": str(site.root), "old": old, "apply": True}
    action.plan("master_secret", said(old), **options)
    new = ring(site)[1]
    assert action.plan("master_secret", said(new, old), **options).changed is False
    assert ring(site) == (old, new)
    assert action.plan("master_secret", said(new), **options).changed is True
    assert ring(site) == (new,)


class Receiving(rotation_recipient.ActionModule):  # type: ignore[misc]
    """The action on a control plane that has proven itself."""

    def __init__(self) -> None:
        self.target = OneTimeKey.generate()
        self.secret, self.binding = random.token_bytes(32), random.token_bytes(32)
        self.asked: list[tuple[str, Mapping[str, Any]]] = []
        self.sealed: list[bytes] = []
        self.purpose: Purpose | None = None

    def control_plane(self, params: Mapping[str, Any], *, purpose: Purpose) -> Any:
        """Return the machine; what is sealed to it is kept."""
        del params
        self.purpose = purpose

        def seal(data: bytes) -> bytes:
            self.sealed.append(data)
            return b"box"

        machine = SimpleNamespace(secret=self.secret, binding=self.binding, hpke_public=self.target.public, seal=seal)
        return SimpleNamespace(machine=machine, verdict=SimpleNamespace(profile="one")), "handle"

    def execute(self, module: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Keep what a module of the node is called with."""
        self.asked.append((module, arguments))
        return {"changed": True}

    def receive(self, *, check: bool = False, **options: Any) -> Result:
        """Return the result of the task."""
        given = {"node_config": "/etc/attested/node.yml", "tpm_timeout_seconds": 10, "offer": None, "site": None}
        return self.perform({**given, **options}, check)


@pytest.mark.parametrize("kind", ["authorities", "encryption_key"])
def test_who_gives_learns_the_verified_machine_and_nobody_else_does(tmp_path: Path, kind: str) -> None:
    action, offered = Receiving(), OneTimeKey.generate()
    offers = OfferStore(tmp_path / "offers", require_memory=lambda directory: None)
    handle, offer = offers.put(offered), base64.b64encode(offered.public).decode()
    values = action.receive(kind=kind, names=["b", "a"], offer=offer).values
    assert (values["handle"], values["profile"], action.purpose) == ("handle", "one", Purpose.SHARE)
    order = open_orders({"cp-2": base64.b64decode(values["order"])}, handle=handle, offers=offers)["cp-2"]
    assert (order.names, order.secret, order.binding) == (("b", "a"), action.secret, action.binding)
    assert order.recipient == action.target.public
    assert action.secret.hex() not in json.dumps(dict(values))
    assert action.asked == []


def test_versions_of_the_site_are_sealed_to_the_verified_machine_and_shown_nowhere(site: Site) -> None:
    action, (name,) = Receiving(), ring(site)
    done = action.receive(kind="master_secret", names=[name], site=str(site.root))
    bundle = secrets.load(site, AnsibleVault())
    assert (done.changed, done.values) == (True, {"names": [name], "profile": "one"})
    assert (action.sealed, action.purpose) == ([bundle.to_bytes()], Purpose.SHARE)
    ((module, arguments),) = action.asked
    assert module == "attested.kubernetes.rotation_phase"
    assert arguments == {
        "kind": "master_secret",
        "handle": "handle",
        "sealed": base64.b64encode(b"box").decode(),
        "node_config": "/etc/attested/node.yml",
        "tpm_timeout_seconds": 10,
    }


def test_check_mode_verifies_the_machine_and_sends_nothing(site: Site) -> None:
    action = Receiving()
    done = action.receive(kind="master_secret", names=list(ring(site)), site=str(site.root), check=True)
    assert (done.changed, action.purpose, action.sealed, action.asked) == (True, Purpose.SHARE, [], [])


def test_a_version_that_the_site_does_not_have_is_refused_before_anything_is_asked(site: Site) -> None:
    action = Receiving()
    named = {"kind": "master_secret", "names": ["2-" + "ab" * 8], "site": str(site.root)}
    assert code_of(lambda: action.receive(**named)) == "MASTER_SECRET_UNKNOWN"
    assert (action.purpose, action.asked) == (None, [])
