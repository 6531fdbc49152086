# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the module attestation_key does, on a real TPM."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ansible_collections.attested.kubernetes.plugins.module_utils.tpm import form

if TYPE_CHECKING:
    from ansible_collections.attested.kubernetes.tests.support.swtpm import Swtpm


def parameters(swtpm: Swtpm) -> dict[str, Any]:
    return {"tcti": swtpm.tcti, "tpm_timeout_seconds": 10}


def test_first_run_keeps_the_keys_and_the_second_changes_nothing(swtpm: Swtpm) -> None:
    first, second = form.run(parameters(swtpm), False), form.run(parameters(swtpm), False)
    assert (first.changed, second.changed) == (True, False)
    assert first.values == second.values


def test_check_mode_says_what_it_would_do_and_does_nothing(swtpm: Swtpm) -> None:
    asked, asked_again = form.run(parameters(swtpm), True), form.run(parameters(swtpm), True)
    assert asked.changed
    assert asked_again == asked
    assert form.run(parameters(swtpm), False).diff == asked.diff


def test_certified_key_is_said_to_be_certified(swtpms: Any) -> None:
    certified = form.run(parameters(swtpms("a")), False).values["ek_certified"]
    plain = form.run(parameters(swtpms("b", certified=False)), False).values["ek_certified"]
    assert (certified, plain) == (True, False)
