# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The section `source` of node.yml: what may stand in it."""

from __future__ import annotations

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.source.config import parse_source, source_problems

ED25519 = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEL/06zH6IoWupSK5c+xqmvX7u8pqIxUN2ME7ozJzXgA admin@example"
GOOD = {"url": "https://git.example/site.git", "signers": [ED25519]}


def test_what_is_not_said_is_strict():
    source = parse_source(GOOD)
    assert (source.branch, source.minimum, source.transports) == ("main", 1, ("https",))
    assert source.signers[0].name == "admin@example"
    assert source_problems(GOOD) == []


def test_a_fingerprint_is_that_of_ssh_keygen():
    assert parse_source(GOOD).signers[0].fingerprint == "SHA256:grMmhVKmwAa683nqUnEXWa1sW5cc1RpLQVE8WyuRXCY"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param({"url": "ext::id"}, "url: expected a URL of", id="a transport that runs a program"),
        pytest.param({"url": "ext://x"}, "url: expected a URL of", id="the same with slashes"),
        pytest.param({"url": "https::http://x/y"}, "url: expected a URL of", id="a helper by name"),
        pytest.param({"url": "--upload-pack=id"}, "url: expected a URL of", id="an option"),
        pytest.param({"url": "/srv/site.git"}, "url: expected a URL of", id="a path"),
        pytest.param({"url": "file:///srv/site.git"}, "file is not among the transports", id="a file, not listed"),
        pytest.param({"url": "https://user:word@git.example/x"}, "expected no user", id="a password"),
        pytest.param({"url": "https://git.example/x\n"}, "url: expected a URL", id="a line break"),
        pytest.param({"url": "https://[x"}, "url: expected a URL", id="half an address"),
        pytest.param({"url": 1}, "url: expected a URL", id="a number"),
        pytest.param({"transports": []}, "transports: expected a list", id="no transport"),
        pytest.param({"transports": ["https", "ext"]}, "transports: expected one of", id="a transport of programs"),
        pytest.param({"signers": []}, "signers: expected 1 to 16", id="nobody signs"),
        pytest.param({"signers": ["ssh-rsa AAAA"]}, "signers: expected a public key", id="a key of another kind"),
        pytest.param({"signers": ["ssh-ed25519 AAAA"]}, "signers: expected a public key", id="half a key"),
        pytest.param({"signers": [f"command=x {ED25519}"]}, "signers: expected a public key", id="options of a key"),
        pytest.param({"signers": [f"* {ED25519}"]}, "signers: expected a public key", id="a line of allowed_signers"),
        pytest.param({"branch": "-x"}, "branch:", id="a branch that is an option"),
        pytest.param({"branch": "a:b"}, "branch:", id="a branch that is two"),
        pytest.param({"branch": "a/../b"}, "branch:", id="a branch that goes up"),
        pytest.param({"minimum": 0}, "minimum:", id="version nought"),
        pytest.param({"minimum": True}, "minimum:", id="a truth value for a version"),
        pytest.param({"hooks": 1}, "unknown field hooks", id="an unknown field"),
    ],
)
def test_everything_else_is_named(change, said):
    problems = source_problems({**GOOD, **change})
    assert len(problems) == 1, problems
    assert said in problems[0]


def test_what_is_missing_is_named():
    assert source_problems({}) == ["missing field signers", "missing field url"]
    assert source_problems([]) == ["expected a mapping, got []"]
