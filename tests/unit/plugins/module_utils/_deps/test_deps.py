# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils._deps import Missing, optional, require
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import DependencyError


def test_a_library_that_is_there_is_itself():
    import json  # noqa: PLC0415  # the very module is compared

    assert optional("json") is json


def test_an_absent_library_can_be_named_and_inherited_from_but_not_used():
    absent = optional("no_such_library.inner")
    assert isinstance(absent.Thing.part, Missing)

    class Child(absent.Base):
        pass

    assert Child.__mro__ == (Child, object)
    with pytest.raises(DependencyError, match="no_such_library") as caught:
        absent.Thing.make()
    assert caught.value.code == "DEPENDENCY_MISSING"


def test_all_missing_libraries_are_named_at_once():
    with pytest.raises(DependencyError, match="found no no_such_one, no_such_two") as caught:
        require("json", "no_such_one", "no_such_two")
    assert caught.value.code == "DEPENDENCY_MISSING"


def test_nothing_missing_is_no_error():
    require("json", "os")
