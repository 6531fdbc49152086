# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the module attestation_key does, on a real TPM."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import TpmError
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm import keys

if TYPE_CHECKING:
    from collections.abc import Callable

    from ansible_collections.attested.kubernetes.tests.support.swtpm import Swtpm


def parameters(swtpm: Swtpm) -> dict[str, Any]:
    return {"tcti": swtpm.tcti, "tpm_timeout_seconds": 10}


def test_first_run_keeps_the_keys_and_the_second_changes_nothing(swtpm: Swtpm) -> None:
    first, second = keys.run(parameters(swtpm), False), keys.run(parameters(swtpm), False)
    assert (first.changed, second.changed) == (True, False)
    assert first.values == second.values


def test_check_mode_says_what_it_would_do_and_does_nothing(swtpm: Swtpm) -> None:
    asked, asked_again = keys.run(parameters(swtpm), True), keys.run(parameters(swtpm), True)
    assert asked.changed
    assert asked_again == asked
    assert keys.run(parameters(swtpm), False).diff == asked.diff


def test_certified_key_is_said_to_be_certified(swtpms: Any) -> None:
    certified = keys.run(parameters(swtpms("a")), False).values["ek_certified"]
    plain = keys.run(parameters(swtpms("b", certified=False)), False).values["ek_certified"]
    assert (certified, plain) == (True, False)


@pytest.mark.parametrize(
    ("hierarchy", "flag"),
    [pytest.param("endorsement", "ehEnable", id="endorsement"), pytest.param("owner", "shEnable", id="owner")],
)
def test_a_hierarchy_that_is_off_is_named_before_anything_is_kept(
    hierarchy: str, flag: str, swtpm: Swtpm, tool: Callable[..., str]
) -> None:
    assert keys.run(parameters(swtpm), True).values["ak_name"]
    tool(swtpm, "hierarchycontrol", "-C", hierarchy[0], flag, "clear")
    with pytest.raises(TpmError, match=f"got {hierarchy} off") as caught:
        keys.run(parameters(swtpm), False)
    assert caught.value.code == "TPM_HIERARCHY_DISABLED"


def test_a_tpm_without_the_sha256_bank_is_refused(swtpm: Swtpm, tool: Callable[..., str]) -> None:
    tool(swtpm, "pcrallocate", "sha1:all+sha256:none")
    swtpm.reset()
    with pytest.raises(TpmError, match="bank of sha256, got sha1") as caught:
        keys.run(parameters(swtpm), False)
    assert caught.value.code == "TPM_PCR_UNAVAILABLE"


def test_a_lockout_is_told_and_bars_nothing(swtpm: Swtpm, lock_out: Callable[[Swtpm], None]) -> None:
    assert keys.run(parameters(swtpm), True).warnings == ()
    lock_out(swtpm)
    done = keys.run(parameters(swtpm), False)
    assert done.changed
    assert [one.split(":")[0] for one in done.warnings] == ["TPM_LOCKOUT"]
