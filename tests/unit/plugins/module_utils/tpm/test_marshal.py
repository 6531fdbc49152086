# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""marshal.py: bounded reading, exact writing."""

from __future__ import annotations

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import TpmError
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.structures import Reader, sized, u8, u16, u32, u64


def test_numbers_are_big_endian_and_read_back() -> None:
    reader = Reader(u8(1) + u16(2) + u32(3) + u64(4) + sized(b"ab") + u32(7) + b"rest", "all")
    read = (reader.u8(), reader.u16(), reader.u32(), reader.u64(), reader.sized(2), reader.count(7), reader.rest())
    assert read == (1, 2, 3, 4, b"ab", 7, b"rest")
    reader.end()


@pytest.mark.parametrize(
    ("data", "read", "text"),
    [
        pytest.param(
            b"\x00", lambda r: r.u16(), "expected 2 more bytes in X at offset 0, got 1", id="a number cut short"
        ),
        pytest.param(b"", lambda r: r.u8(), "expected 1 more bytes", id="nothing at all"),
        pytest.param(b"\x00\x03ab", lambda r: r.sized(9), "expected 3 more bytes", id="a field shorter than its size"),
        pytest.param(b"\x00\x03abc", lambda r: r.sized(2), "expected at most 2 bytes", id="a field over its limit"),
        pytest.param(u32(5), lambda r: r.count(4), "expected at most 4 elements", id="a list over its limit"),
        pytest.param(b"x", lambda r: r.end(), "expected the end of X, got 1 more bytes", id="a byte behind the end"),
    ],
)
def test_bytes_that_do_not_fit_are_refused(data: bytes, read, text: str) -> None:
    with pytest.raises(TpmError) as caught:
        read(Reader(data, "X"))
    assert (caught.value.reason, text in caught.value.message) == (Reason.TPM_MALFORMED, True)
