# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""responses.py: response codes in words."""

from __future__ import annotations

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.commands import (
    RC_INTEGRITY,
    RC_POLICY_FAIL,
    ResponseError,
    base,
    describe,
)


@pytest.mark.parametrize(
    ("code", "text"),
    [
        pytest.param(0x1DF, "TPM_RC_INTEGRITY (0x1DF, parameter 1)", id="a parameter"),
        pytest.param(0x99D, "TPM_RC_POLICY_FAIL (0x99D, session 1)", id="a session"),
        pytest.param(0x18B, "TPM_RC_HANDLE (0x18B, handle 1)", id="a handle"),
        pytest.param(0x08E, "TPM_RC_AUTH_FAIL (0x08E)", id="without a place"),
        pytest.param(0x0BF, "TPM_RC_unknown (0x0BF)", id="an unknown one with a place"),
        pytest.param(0x100, "TPM_RC_INITIALIZE (0x100)", id="not started"),
        pytest.param(0x922, "TPM_RC_RETRY (0x922)", id="a warning"),
        pytest.param(0x9FF & ~0x80, "TPM_RC_unknown (0x97F)", id="an unknown warning"),
        pytest.param(0xB0143, "response code 0XB0143 of software layer 11 above the TPM", id="a resource manager"),
    ],
)
def test_a_response_code_is_described(code: int, text: str) -> None:
    assert describe(code) == text


@pytest.mark.parametrize(
    ("code", "expected"), [(0x1DF, RC_INTEGRITY), (0x99D, RC_POLICY_FAIL), (0x922, 0x922), (0xB0143, 0xB0143)]
)
def test_the_base_leaves_the_place_out(code: int, expected: int) -> None:
    assert base(code) == expected


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        pytest.param(0x100, "startup-clear", id="not started"),
        pytest.param(0x902, "tpm2_flushcontext", id="no room for objects"),
        pytest.param(0x101, Reason.TPM_COMMAND_FAILED.value.hint, id="anything else"),
    ],
)
def test_an_error_names_the_command_and_what_to_do(code: int, hint: str) -> None:
    error = ResponseError(code, "TPM2_QUOTE")
    assert "expected success of TPM2_QUOTE" in error.message
    assert hint in error.hint
    assert error.reason is Reason.TPM_COMMAND_FAILED
