# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The text of a share of a master secret, as somebody typed it in."""

from __future__ import annotations

import re

from ansible_collections.attested.kubernetes.plugins.module_utils.admin.shares import shares_of

# a share of a master secret of zeros, made once by `attested secret split`
SHARE = b"""\
# Share 1 of 3 of the master secret of an attested.kubernetes cluster.
# Any 2 of them rebuild it; fewer tell nothing of it. Keep them apart.
# A passphrase is not needed.
# To rebuild: attested secret combine (docs/recovery-kit.md). The words alone are enough.
format: attested-share/v1
cluster-id: 823267d1276b940d1f04b9fac150721f196bf1090e125684d4efd8416a691588
measurement-salt: 0000000000000000000000000000000000000000000000000000000000000000
master-secret: 65d0b00f1f05a9dc319d06a661612162
 1 story      2 veteran    3 academic   4 acid
 5 actress    6 careful    7 helpful    8 eraser
 9 domain    10 mason     11 lilac     12 desert
13 frost     14 minister  15 unknown   16 scroll
17 glimpse   18 furl      19 ruin      20 syndrome
21 funding   22 alive     23 scramble  24 density
25 problem   26 endorse   27 silent    28 fancy
29 remember  30 cleanup   31 glad      32 epidemic
33 kitchen   34 spew      35 photo     36 hesitate
37 suitable  38 pregnant  39 memory    40 kitchen
41 famous    42 galaxy    43 skin      44 wrote
45 exchange  46 regular   47 rumor     48 oral
49 acrobat   50 always    51 pistol    52 trend
53 clogs     54 salon     55 switch    56 penalty
57 acne      58 research  59 vegan     60 seafood
61 slush     62 grief
"""


def seeds() -> list[bytes]:
    words = re.sub(rb"(?m)^[#a-z].*\n", b"", SHARE)
    return [SHARE, words, SHARE + b"\n" + SHARE]


def one_input(data: bytes) -> None:
    for share in shares_of("input", data):
        assert 1 <= share.phrase.place <= 16
        assert 2 <= share.phrase.threshold <= 16
