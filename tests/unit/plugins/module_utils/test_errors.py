# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import (
    MAX_MESSAGE,
    AttestedError,
    PolicyError,
    Refusal,
    visible,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Coarse, Reason, explain


def test_an_error_carries_sentence_code_and_the_reasons_hint():
    error = Refusal("expected 32 bytes, got 31", reason=Reason.MESSAGE_MALFORMED)
    assert isinstance(error, AttestedError)
    assert (error.message, error.code) == ("expected 32 bytes, got 31", "MESSAGE_MALFORMED")
    assert error.hint == Reason.MESSAGE_MALFORMED.value.hint
    assert str(error) == f"MESSAGE_MALFORMED: expected 32 bytes, got 31 ({error.hint})"


def test_a_better_hint_replaces_the_general_one():
    assert PolicyError("x", reason=Reason.FILE_UNUSABLE, hint="Look at line 3.").hint == "Look at line 3."


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param("Müller ✓ 日本", "Müller ✓ 日本", id="letters stay"),
        pytest.param("a\r\nb\tc\n", "a\nb c\n", id="lines stay lines, a tab is a space"),
        pytest.param("\x1b[2J\x9b1A\x7f\x00", "\\x1b[2J\\x9b1A\\x7f\\x00", id="controls"),
        pytest.param("\u202eab\u2066\u200b", "\\u202eab\\u2066\\u200b", id="marks of direction and no width"),
        pytest.param("\u2028\x85\ud800", "\\u2028\\x85\\ud800", id="other ends of a line, half of a letter"),
    ],
)
def test_what_a_terminal_obeys_is_written_as_an_escape(text, shown):
    assert visible(text) == visible(shown) == shown
    assert PolicyError(text, reason=Reason.FILE_UNUSABLE, hint=text).message == shown


def test_a_message_has_an_end():
    assert PolicyError("x" * MAX_MESSAGE, reason=Reason.FILE_UNUSABLE).message == "x" * MAX_MESSAGE
    assert PolicyError("x" * (MAX_MESSAGE + 1), reason=Reason.FILE_UNUSABLE).message == "x" * MAX_MESSAGE + "…"


def test_explain_says_meaning_action_command_and_what_a_peer_hears():
    text = explain("swap_active")
    row = Reason.SWAP_ACTIVE.value
    assert text.startswith(f"SWAP_ACTIVE: {row.summary}\n")
    for part in (row.hint, row.command, Coarse.LOCAL.value):
        assert part in text


def test_an_unknown_code_is_answered_with_the_nearest():
    with pytest.raises(LookupError, match="SWAP_ACTIVE"):
        explain("SWAP_ACTIV")


def test_a_word_that_is_no_code_at_all_is_refused():
    with pytest.raises(LookupError, match="got hello$"):
        explain("hello")
