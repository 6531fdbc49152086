# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every variable that a user may set is described, is read, and has one default wherever it is read."""

from __future__ import annotations

import pytest
from ansible_collections.attested.kubernetes.tests.support import site_variables
from ansible_collections.attested.kubernetes.tests.support.site_variables import (
    described,
    read_by_playbooks,
    read_somewhere,
    set_in_sites,
    variable,
)


def test_what_a_playbook_reads_is_described_in_variables_yml():
    assert read_by_playbooks() - set(described()) == set()


def test_what_is_described_is_read():
    assert [name for name in described() if not read_somewhere(name)] == []


def test_each_is_described_once():
    assert len(described()) == len(set(described()))


@pytest.mark.parametrize("name", described())
def test_playbooks_agree_on_a_default_or_the_page_says_how_they_differ(name: str):
    found = variable(name)
    assert ("default" in found.words) == (len(set(found.defaults) - {"omit"}) > 1), found


def test_the_example_and_the_lab_set_only_what_is_described():
    unknown = {site: sorted(set(names) - set(described())) for site, names in set_in_sites().items()}
    assert unknown == {site: [] for site in site_variables.SITES}


def test_a_default_is_shown_as_a_user_writes_it():
    text = "a: \"{{ attested_x | default('10.0.0.0/8', true) }} {{ attested_y | default(f(1)) | bool }}\""
    assert dict(site_variables.defaults_in(text)) == {"attested_x": "10.0.0.0/8", "attested_y": "f(1)"}
