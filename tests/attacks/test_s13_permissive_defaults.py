# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S13: nothing that we ship accepts a simulator, an unknown machine, or an empty policy unless somebody says so."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import yaml
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.in_force import SitePolicy
from ansible_collections.attested.kubernetes.tests.support import house
from ansible_collections.attested.kubernetes.tests.support.exchange import identity_of
from ansible_collections.attested.kubernetes.tests.support.house import ROOT
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of
from ansible_collections.attested.kubernetes.tests.support.threats import Threat

if TYPE_CHECKING:
    from ansible_collections.attested.kubernetes.tests.support.exchange import Exchange

THREAT = Threat(
    id="S13",
    title="Permissive defaults",
    case="Keylime's accept-all, Trustee's sample TEE, Cluster API's null attestor",
    bed="tree",
    stops=(
        ("evidence/registry.py", "VARIANT_UNKNOWN"),
        ("policy/decision.py", "POLICY_EMPTY"),
        ("policy/identity.py", "IDENTITY_UNKNOWN"),
    ),
)

SHIPPED = [path for path in house.tracked() if path.relative_to(ROOT).parts[0] in {"plugins", "roles", "playbooks"}]
OURS_TO_TEST = re.compile(
    r"soft_?tpm|hash_?validator|test[ _-]attester|accept[ _-]all|null[ _-]attestor", re.IGNORECASE
)


@pytest.mark.parametrize("variant", ["sample", "simulator", "test", "null", "", "TPM2", "tpm2 "])
def test_a_variant_that_nobody_named(exchange: Exchange, variant: str) -> None:
    challenge, record = exchange.challenged()
    given = exchange.answered(challenge)
    assert exchange.verified(given, record)
    other = replace(given.bound, evidence=replace(given.bound.evidence, variant=variant))
    assert code_of(lambda: exchange.verified(given, record, bound=other)) == "VARIANT_UNKNOWN"


def test_a_policy_without_a_profile_accepts_nobody(exchange: Exchange) -> None:
    assert exchange.run()
    empty = SitePolicy(profiles=[], identities=[identity_of(exchange.tpm.ek)])
    assert code_of(lambda: exchange.run(policy=empty)) == "POLICY_EMPTY"


def test_a_policy_without_an_identity_accepts_nobody(exchange: Exchange) -> None:
    assert exchange.run()
    nobody = SitePolicy(profiles=exchange.policy.profiles(), identities=[])
    assert code_of(lambda: exchange.run(policy=nobody)) == "IDENTITY_UNKNOWN"


def test_no_test_attester_is_shipped() -> None:
    """The search first finds the one that lives in the tests."""
    assert OURS_TO_TEST.search((ROOT / "tests/support/soft_tpm.py").read_text(encoding="utf-8"))
    named = [path for path in SHIPPED if path.suffix in {".py", ".yml", ".j2"}]
    found = [house.shown(path) for path in named if OURS_TO_TEST.search(path.read_text(encoding="utf-8"))]
    assert found == []


def test_nothing_shipped_imports_a_test() -> None:
    wrong = [
        house.shown(path)
        for path in house.plugin_files()
        if any(".tests" in one.module for one in house.imports_of(path))
    ]
    assert wrong == []


def loose_options() -> list[tuple[str, str, object]]:
    """Return every role variable and module option that loosens something, with its default."""
    found = []
    for path in sorted((ROOT / "roles").glob("*/meta/argument_specs.yml")):
        for spec in yaml.safe_load(path.read_text(encoding="utf-8"))["argument_specs"].values():
            found += _loosening(house.shown(path), spec.get("options") or {})
    for path in sorted((ROOT / "plugins" / "modules").glob("*.py")):
        text = path.read_text(encoding="utf-8")
        documentation = re.search(r'DOCUMENTATION = r?"""(.*?)"""', text, re.DOTALL)
        found += _loosening(
            house.shown(path), yaml.safe_load(documentation.group(1)).get("options") or {} if documentation else {}
        )
    return found


def _loosening(shown: str, options: dict[str, dict[str, object]]) -> list[tuple[str, str, object]]:
    """Return those that loosen; the port of what a switch beside it turns on turns nothing on by itself."""
    names = [
        name for name in options if "insecure_" in name and name.removesuffix("_port") not in set(options) - {name}
    ]
    return [(shown, name, options[name].get("default")) for name in names]


def test_what_loosens_is_off() -> None:
    assert loose_options()
    assert [one for one in loose_options() if one[2] not in {False, None}] == []


def test_no_role_and_no_example_sets_what_loosens() -> None:
    setting = re.compile(r"^\s*\w*insecure_\w+:\s*(true|yes|on|1)\b", re.IGNORECASE | re.MULTILINE)
    assert setting.search("attested_insecure_first_use: true")
    files = [*SHIPPED, *(path for path in house.tracked() if "inventory" in path.relative_to(ROOT).parts[:1])]
    found = [
        house.shown(path)
        for path in files
        if path.suffix == ".yml" and setting.search(path.read_text(encoding="utf-8"))
    ]
    assert found == []


SAID_OF_UNKNOWN = re.compile(r"^\s*attested_unknown_machines:\s*([^\s{]\S*)", re.MULTILINE)
"""A setting; the table of all variables describes it, and sets nothing."""


def test_unknown_machines_are_refused_in_a_new_site() -> None:
    texts = [path.read_text(encoding="utf-8") for path in house.tracked("*") if path.suffix in {".yml", ".j2"}]
    said = [match for text in texts for match in SAID_OF_UNKNOWN.findall(text)]
    assert set(said) == {"refuse"}
