# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A state disk on a real dm-crypt and dm-integrity with a real software TPM: its life."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.tests.support.disk_kernel import run_disk_bed
from ansible_collections.attested.kubernetes.tests.support.swtpm import SwtpmFactory, missing_tools

if TYPE_CHECKING:
    from pathlib import Path

FORMAT = ["remember", "format", "note", "forget"]
EXCHANGE = ["add_beside", "drop_first", "add_permanent", "drop_beside"]
FIRST_USE = ["open", "make_filesystem", "mount", "begin_record", "initialise", "advance", "bind"]


def test_the_life_of_a_disk(tmp_path: Path) -> None:
    """Blank, formatted, in use, opened again; put back, and refused; destroyed, and as blank as before."""
    if missing := missing_tools():
        pytest.skip(f"no real TPM here: {', '.join(missing)} not installed (packages swtpm, swtpm-tools, gnutls-bin)")
    state = SwtpmFactory(tmp_path / "tpms").state("disk", certified=False)
    shutil.copytree(state, tmp_path / "tpm")
    seen = run_disk_bed("life", folder=tmp_path)
    assert (seen["blank"]["empty"], seen["check"], seen["formatted"]) == (True, FORMAT, [FORMAT, []])
    assert seen["random"] == 0o600
    assert [(one["contents"], one["users"], one["ours"], one["problem"]) for one in seen["preflight"]] == [
        ("", [], False, ""),
        ("crypto_LUKS at 0, crypto_LUKS at 16384", [], True, ""),
    ]
    assert seen["opened"] == [[*EXCHANGE, *FIRST_USE], []]
    assert seen["again"] == ["open", "check", "mount", "advance", "bind"]
    assert seen["data"] == "etcd was here"
    assert seen["second"]["generation"] == seen["first"]["generation"] + 1
    assert (seen["info"]["opened"], seen["info"]["header"]["refused"]) == (True, "")
    assert "capi:authenc(hmac(sha256),xts(aes))-plain64" in seen["table"]
    assert seen["put back"] == "STATE_DISK_ROLLED_BACK"
    assert seen["other header"] == "STATE_DISK_HEADER_CHANGED"
    assert seen["mapped"] == ["control"]
    assert (seen["destroyed"], seen["gone"]) == ([["remember", "discard"], []], "nothing")
    assert seen["made anew"] == FORMAT
    assert seen["leaked"] == []
