# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The site's settings of the kubelet: what is refused, and what a running kubelet does with the others."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.bundle.kubelet import (
    DROP_IN,
    Kubelet,
    render_settings,
    run_settings,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.core.command import CommandResult
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import ComponentError, SiteError
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

UNIT = {"path": "/etc/systemd/system/kubelet.service", "content": "[Unit]\n"}


@dataclass
class Host:
    """A machine whose kubelet ends while its settings have ``maxPods`` of -1; the unit runs if ``runs``."""

    root: Path
    runs: bool = True
    ends_always: bool = False
    told: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def run(self, argv: Sequence[str], **_options: object) -> CommandResult:
        if argv[1] != "is-active":
            self.told.append(" ".join(argv[1:]))
        said = ("active" if self.healthy() else "activating") if self.runs else "inactive"
        return CommandResult(argv=tuple(argv), returncode=0, stdout=said.encode(), stderr=b"")

    def healthy(self) -> bool:
        return self.runs and not self.ends_always and self.settings().get("maxPods") != -1

    def settings(self) -> dict[str, object]:
        place = self.root / DROP_IN.lstrip("/")
        return json.loads(place.read_text()) if place.exists() else {}

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds

    def apply(self, configuration=None, *, check_mode=False, units=(UNIT,)):
        kubelet = Kubelet(self, self, healthy=self.healthy, root=self.root)
        params = {"configuration": configuration or {}, "units": list(units), "wait_seconds": 60}
        return run_settings(params, check_mode, kubelet=kubelet)


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path)


@pytest.mark.parametrize(
    "name",
    [
        "authentication",
        "authorization",
        "Authentication",
        "readOnlyPort",
        "staticPodPath",
        "staticpodurl",
        "rotateCertificates",
        "serverTLSBootstrap",
        "kind",
    ],
)
def test_what_this_collection_sets_is_refused(host, name):
    with pytest.raises(SiteError) as caught:
        host.apply({"maxPods": 50, name: {}})
    assert caught.value.reason is Reason.CONFIG_INVALID
    assert f"no {name} in attested_kubelet_configuration: " in caught.value.message
    assert (host.told, host.settings()) == ([], {})


@pytest.mark.parametrize(
    ("gates", "said"),
    [
        pytest.param({"RotateKubeletServerCertificate": True}, "no feature gate RotateKubelet", id="ruled"),
        pytest.param({"NodeSwap": "yes"}, "with true or false", id="no boolean"),
        pytest.param(["NodeSwap"], "with true or false", id="a list"),
    ],
)
def test_feature_gates_are_looked_at(gates, said):
    with pytest.raises(SiteError, match=said):
        render_settings({"featureGates": gates})


def test_a_kubelet_that_runs_is_restarted_once(host):
    result = host.apply({"maxPods": 50, "featureGates": {"NodeSwap": True}})
    assert result.changed
    assert result.values == {"written": [UNIT["path"], DROP_IN], "restarted": True}
    assert host.told == ["daemon-reload", "restart kubelet.service"]
    assert host.settings()["maxPods"] == 50
    assert host.settings()["kind"] == "KubeletConfiguration"
    host.told.clear()
    again = host.apply({"maxPods": 50, "featureGates": {"NodeSwap": True}})
    assert (again.changed, again.values["restarted"], host.told) == (False, False, [])


def test_settings_that_go_leave_what_this_collection_sets(host):
    """Kubeadm turns `rotateCertificates` on for the cluster; each kubelet then ignores the renewed certificate."""
    host.apply({"maxPods": 50})
    assert host.settings()["rotateCertificates"] is False
    host.apply()
    assert host.settings() == {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "rotateCertificates": False,
    }


def test_a_machine_that_is_no_member_is_written_only(host):
    host.runs = False
    result = host.apply({"maxPods": 50})
    assert (result.changed, result.values["restarted"], host.told) == (True, False, ["daemon-reload"])


def test_check_mode_changes_nothing(host):
    result = host.apply({"maxPods": 50}, check_mode=True)
    assert (result.changed, result.values["restarted"], host.told, host.settings()) == (True, True, [], {})
    assert '"maxPods": 50' in result.diff.after


def test_settings_that_the_kubelet_does_not_accept_are_put_back(host):
    host.apply({"maxPods": 50})
    with pytest.raises(ComponentError) as caught:
        host.apply({"maxPods": -1}, units=[{**UNIT, "content": "[Unit]\nDescription=new\n"}])
    assert caught.value.reason is Reason.KUBERNETES_NOT_HEALTHY
    assert "the kubelet runs with the files of before" in caught.value.message
    assert host.settings()["maxPods"] == 50
    assert (host.root / UNIT["path"].lstrip("/")).read_text() == UNIT["content"]


def test_a_first_file_that_is_not_accepted_goes(host):
    with pytest.raises(ComponentError):
        host.apply({"maxPods": -1}, units=[])
    assert host.settings() == {}


def test_a_kubelet_that_was_broken_before_is_said_to_be(host):
    host.ends_always = True
    with pytest.raises(ComponentError, match="with the files of before the kubelet is not healthy within 60 s"):
        host.apply({"maxPods": 50})
