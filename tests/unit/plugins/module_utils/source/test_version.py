# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The site's version, its pin, and what is measured of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.source.staging import FileKind, SiteFile
from ansible_collections.attested.kubernetes.plugins.module_utils.source.version import (
    Installed,
    Kept,
    Measured,
    Pin,
    parse_kept,
    parse_measured,
    parse_pin,
    require_installed,
    require_later,
)

PIN = Pin(version=7, collection="0.1.0", bundle="ab" * 32)
TEXT = f"version: 7\ncollection: 0.1.0\nbundle: {'ab' * 32}\n"
MEASURED = Measured(
    commit="cd" * 20, version=7, signer="SHA256:x", collection="0.1.0", bundle="ab" * 32, node_config="ef" * 32
)


def site(text):
    return [SiteFile(path="attested-node.yml", kind=FileKind.PLAIN, content=text.encode())]


def code(call, *arguments, **more):
    with pytest.raises(AttestedError) as caught:
        call(*arguments, **more)
    return caught.value.code


def test_a_pin_is_read():
    assert parse_pin(site(TEXT)) == PIN


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="nothing"),
        pytest.param("[", id="no YAML"),
        pytest.param("- a\n", id="a list"),
        pytest.param(TEXT + "more: 1\n", id="a field that is not known"),
        pytest.param(TEXT.replace("version: 7\n", ""), id="no version"),
        pytest.param(TEXT.replace("7", "'7'"), id="a version in words"),
        pytest.param(TEXT.replace("7", "true"), id="a version that is a truth value"),
        pytest.param(TEXT.replace("7", "0"), id="version nought"),
        pytest.param(TEXT.replace("ab" * 32, "AB" * 32), id="a hash in capitals"),
        pytest.param(TEXT.replace("0.1.0", "'0.1 0'"), id="a release with a space"),
        pytest.param(TEXT + "#" * 4096, id="a long file"),
    ],
)
def test_any_other_pin_is_refused(text):
    assert code(parse_pin, site(text)) == "SOURCE_PIN_MALFORMED"


@pytest.mark.parametrize(
    ("minimum", "kept", "descends", "expected"),
    [
        pytest.param(7, None, True, None, id="the least version, nothing kept"),
        pytest.param(1, Kept(version=7, commit="cd" * 20), True, None, id="the version that is kept"),
        pytest.param(8, None, True, "SOURCE_ROLLED_BACK", id="less than the least"),
        pytest.param(1, Kept(version=8, commit="cd" * 20), True, "SOURCE_ROLLED_BACK", id="less than what is kept"),
        pytest.param(1, Kept(version=6, commit="cd" * 20), False, "SOURCE_HISTORY_REWRITTEN", id="not a descendant"),
    ],
)
def test_a_site_goes_forward(minimum, kept, descends, expected):
    arguments = {"commit": "00" * 20, "minimum": minimum, "kept": kept, "descends": descends}
    if expected is None:
        require_later(PIN, **arguments)
    else:
        assert code(require_later, PIN, **arguments) == expected


@pytest.mark.parametrize("change", [{"collection": "0.2.0"}, {"bundle": "00" * 32}])
def test_another_collection_is_refused(change):
    installed = Installed(collection="0.1.0", bundle="ab" * 32)
    require_installed(PIN, installed)
    assert code(require_installed, PIN, replace(installed, **change)) == "SOURCE_COLLECTION_DIFFERS"


def test_what_is_kept_is_read_back():
    kept = Kept(version=7, commit="cd" * 20)
    assert parse_kept(kept.to_bytes()) == kept


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{}",
        b"[" * 100000,
        b'{"form": 2, "version": 7, "commit": "' + b"cd" * 20 + b'"}',
        b'{"form": 1, "version": "7", "commit": "' + b"cd" * 20 + b'"}',
        b'{"form": 1, "version": 7, "commit": "HEAD"}',
    ],
)
def test_any_other_state_is_refused(content):
    assert code(parse_kept, content) == "SOURCE_STATE_MALFORMED"


def test_what_is_measured_is_read_back_and_begins_like_nothing_else():
    assert parse_measured(MEASURED.to_text()) == MEASURED
    assert MEASURED.to_text().startswith('{"attested.source":1,"commit":"cdcd')


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        MEASURED.to_text() + " ",
        MEASURED.to_text().replace(":7,", ":0,"),
        MEASURED.to_text().replace('"attested.source":1', '"attested.source":2'),
        MEASURED.to_text().replace('"version"', '"more"'),
        MEASURED.to_text().replace('"SHA256:x"', '["SHA256:x"]'),
        MEASURED.to_text().replace('"SHA256:x"', "7"),
        MEASURED.to_text().replace('"SHA256:x"', "[" * 900 + "]" * 900),
    ],
)
def test_any_other_text_is_refused(text):
    assert code(parse_measured, text) == "SOURCE_STATE_MALFORMED"
