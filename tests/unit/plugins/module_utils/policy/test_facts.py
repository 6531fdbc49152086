# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a kernel command line is taken apart."""

from __future__ import annotations

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.facts import boot_options, given_options


@pytest.mark.parametrize(
    ("line", "options"),
    [
        pytest.param("", (), id="nothing"),
        pytest.param("quiet", ("quiet",), id="one word"),
        pytest.param("  ro\tquiet \n splash", ("ro", "quiet", "splash"), id="blanks of every kind"),
        pytest.param('dyndbg="file a +p" ro', ('dyndbg="file a +p"', "ro"), id="blanks within quotes"),
        pytest.param('"a b" "c d"', ('"a b"', '"c d"'), id="two in quotes"),
        pytest.param('a "b c', ("a", '"b c'), id="a quote that does not end"),
    ],
)
def test_words_are_those_of_the_kernel(line: str, options: tuple[str, ...]) -> None:
    assert boot_options(line) == options


@pytest.mark.parametrize(
    ("line", "options"),
    [
        pytest.param("", (), id="nothing"),
        pytest.param("/boot/vmlinuz ro quiet", ("ro", "quiet"), id="GRUB's file"),
        pytest.param("(hd0,gpt2)/vmlinuz ro", ("ro",), id="GRUB's device and file"),
        pytest.param("BOOT_IMAGE=/vmlinuz ro", ("ro",), id="GRUB's option"),
        pytest.param("/vmlinuz", (), id="a file alone"),
        pytest.param("ro quiet", ("ro", "quiet"), id="no boot loader"),
        pytest.param("ro /vmlinuz", ("ro", "/vmlinuz"), id="a file in another place"),
        pytest.param("NOT_BOOT_IMAGE=x ro", ("NOT_BOOT_IMAGE=x", "ro"), id="another option"),
    ],
)
def test_what_a_boot_loader_puts_in_front_is_no_option(line: str, options: tuple[str, ...]) -> None:
    assert given_options(line) == options
