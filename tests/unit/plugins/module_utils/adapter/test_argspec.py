# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
import yaml
from ansible_collections.attested.kubernetes.plugins.doc_fragments import node_config, tpm
from ansible_collections.attested.kubernetes.plugins.module_utils.adapter import (
    ArgumentSpec,
    node_config_spec,
    tpm_spec,
)


@pytest.mark.parametrize(
    ("spec", "fragment"),
    [
        pytest.param(tpm_spec(), tpm, id="tpm"),
        pytest.param(node_config_spec(), node_config, id="node_config"),
    ],
)
def test_a_piece_and_its_documentation_say_the_same(spec, fragment):
    documented = yaml.safe_load(fragment.ModuleDocFragment.DOCUMENTATION)["options"]
    said = {name: {key: option[key] for key in ("type", "default")} for name, option in documented.items()}
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
