# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
import yaml
from ansible_collections.attested.kubernetes.plugins.doc_fragments import (
    etcd,
    kubeadm,
    kubectl,
    node_config,
    rotation,
    site,
    tpm,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import (
    ArgumentSpec,
    etcd_spec,
    kubeadm_spec,
    kubectl_spec,
    node_config_spec,
    rotation_spec,
    site_policy_spec,
    site_spec,
    site_verifier_spec,
    tpm_logs_spec,
    tpm_spec,
    tpm_timeout_spec,
)


@pytest.mark.parametrize(
    ("spec", "fragment"),
    [
        pytest.param(etcd_spec(), etcd.ModuleDocFragment.DOCUMENTATION, id="etcd"),
        pytest.param(kubectl_spec(), kubectl.ModuleDocFragment.DOCUMENTATION, id="kubectl"),
        pytest.param(kubeadm_spec(), kubeadm.ModuleDocFragment.DOCUMENTATION, id="kubeadm"),
        pytest.param(node_config_spec(), node_config.ModuleDocFragment.DOCUMENTATION, id="node_config"),
        pytest.param(rotation_spec(), rotation.ModuleDocFragment.DOCUMENTATION, id="rotation"),
        pytest.param(site_policy_spec(), site.ModuleDocFragment.POLICY, id="site.policy"),
        pytest.param(site_spec(), site.ModuleDocFragment.DOCUMENTATION, id="site"),
        pytest.param(site_verifier_spec(), site.ModuleDocFragment.VERIFIER, id="site.verifier"),
        pytest.param(tpm_logs_spec(), tpm.ModuleDocFragment.LOGS, id="tpm.logs"),
        pytest.param(tpm_spec(), tpm.ModuleDocFragment.DOCUMENTATION, id="tpm"),
        pytest.param(tpm_timeout_spec(), tpm.ModuleDocFragment.TIMEOUT, id="tpm.timeout"),
    ],
)
def test_a_piece_and_its_documentation_say_the_same(spec, fragment):
    documented = yaml.safe_load(fragment)["options"]
    said = {name: {key: option[key] for key in option if key != "description"} for name, option in documented.items()}
    assert said == spec.options


def test_merging_keeps_every_option_and_rule():
    first = ArgumentSpec(options={"a": {"type": "str"}}, mutually_exclusive=(("a", "b"),), required_by={"a": ("b",)})
    second = ArgumentSpec(options={"b": {"type": "int"}}, required_if=(("a", "x", ("b",)),), required_by={"b": ("a",)})
    merged = first.merged(second).arguments()
    assert merged["argument_spec"] == {"a": {"type": "str"}, "b": {"type": "int"}}
    assert merged["mutually_exclusive"] == [["a", "b"]]
    assert merged["required_if"] == [["a", "x", ("b",)]]
    assert merged["required_by"] == {"a": ["b"], "b": ["a"]}


def test_the_later_piece_wins():
    merged = tpm_spec().merged(ArgumentSpec(options={"tcti": {"type": "str", "required": True}}))
    assert merged.options["tcti"] == {"type": "str", "required": True}
