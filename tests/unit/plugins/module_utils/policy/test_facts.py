# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a kernel command line is taken apart, and for whom it counts."""

from __future__ import annotations

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.assertions import (
    BootFacts,
    Loader,
    boot_options,
    is_plain,
)


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
    ("line", "plain"),
    [
        pytest.param("", True, id="nothing"),
        pytest.param('root=LABEL=root dyndbg="file a +p" x~', True, id="letters, marks and blanks"),
        pytest.param("ro\nquiet", False, id="a newline, at which the kernel's stub stops"),
        pytest.param("ro\tquiet", False, id="another blank"),
        pytest.param("ro\x00quiet", False, id="a zero"),
        pytest.param("a=\u00a0b", False, id="a byte that the kernel takes for a blank"),
        pytest.param("a=b\ufffd", False, id="a byte that is no letter"),
    ],
)
def test_a_line_is_plain_where_the_kernel_reads_the_same(line: str, plain: bool) -> None:
    assert is_plain(line) is plain


def test_a_command_line_counts_for_the_loader_that_measured_it_alone() -> None:
    facts = BootFacts(command_lines={Loader.GRUB: ("ro",), Loader.IMAGE: ("rw",)})
    lines = {loader: facts.lines_by(loader) for loader in (*Loader, None)}
    assert lines == {Loader.GRUB: ("ro",), Loader.IMAGE: ("rw",), Loader.KERNEL: (), None: ()}
