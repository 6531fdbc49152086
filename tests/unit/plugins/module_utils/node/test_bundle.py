# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What travels from a machine to the admin's, and the archive that is made of it."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import Refusal
from ansible_collections.attested.kubernetes.plugins.module_utils.node.support_bundle import (
    MAX_MATERIAL,
    LeftOut,
    Material,
    Part,
    Piece,
    parse_material,
    render_bundle,
    render_material,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason

PIECE = Piece(name="journals/a.log", origin="journalctl", content="a\n", hidden=2, note="cut")
MATERIAL = Material(pieces=(PIECE,), left_out=(LeftOut(what="clock", why="no program"),))
NOW = datetime(2026, 11, 22, 3, 0, tzinfo=UTC)


def packed(**changed: Any) -> bytes:
    """Return material that was changed in one field, as a machine might send it."""
    document = json.loads(gzip.decompress(render_material(MATERIAL)))
    return gzip.compress(json.dumps(document | changed).encode())


def row(**changed: Any) -> list[dict[str, Any]]:
    """Return the one piece, changed."""
    return [{"name": "a", "origin": "o", "content": "c", "hidden": 0, "note": "", **changed}]


def test_what_is_sent_arrives():
    assert parse_material(render_material(MATERIAL)) == MATERIAL


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"no gzip", id="no gzip"),
        pytest.param(render_material(MATERIAL)[:-9], id="half of it"),
        pytest.param(gzip.compress(bytes(MAX_MATERIAL + 1)), id="a bomb"),
        pytest.param(gzip.compress(b"[" * 100_000), id="brackets"),
        pytest.param(gzip.compress(b"[]"), id="a list"),
        pytest.param(packed(version=2), id="a version of tomorrow"),
        pytest.param(packed(pieces="x"), id="no list"),
        pytest.param(packed(pieces=row() * 600), id="too many pieces"),
        pytest.param(packed(pieces=row() * 2), id="a name twice"),
        pytest.param(packed(pieces=row(name="../x")), id="a name that leads out"),
        pytest.param(packed(pieces=row(name="/x")), id="a whole path"),
        pytest.param(packed(pieces=row(name="a/../b")), id="a name that turns back"),
        pytest.param(packed(pieces=row(name="x" * 300)), id="a long name"),
        pytest.param(packed(pieces=row(content=7)), id="no text"),
        pytest.param(packed(pieces=row(origin=None)), id="no origin"),
        pytest.param(packed(left_out=[{}]), id="a line without words"),
    ],
)
def test_what_a_machine_may_not_send(data: bytes):
    with pytest.raises(Refusal) as caught:
        parse_material(data)
    assert caught.value.reason is Reason.SUPPORT_MATERIAL_MALFORMED


def opened(data: bytes) -> dict[str, bytes]:
    """Return the files of an archive, each a plain one that only its owner reads."""
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as tar:
        members = tar.getmembers()
        assert all(member.isreg() and member.mode == 0o600 for member in members)
        return {member.name: tar.extractfile(member).read() for member in members}


def test_the_manifest_tells_origin_and_hash_of_each_file_and_what_is_missing():
    parts = [Part.of_node("w-1", MATERIAL), Part.failed("w-2", "unreachable")]
    data, manifest = render_bundle("support-lab", parts, made_at=NOW, facts={"python": "3"})
    files = opened(data)
    assert set(files) == {"support-lab/manifest.json", "support-lab/nodes/w-1/journals/a.log"}
    assert json.loads(files["support-lab/manifest.json"]) == manifest
    (found,) = manifest["files"]
    assert found["sha256"] == hashlib.sha256(files[f"support-lab/{found['path']}"]).hexdigest()
    assert (found["origin"], found["hidden"], found["note"], found["size"]) == ("journalctl", 2, "cut", 2)
    assert [(one["part"], one["what"], one["why"]) for one in manifest["left_out"]] == [
        ("nodes/w-1", "clock", "no program"),
        ("nodes/w-2", "everything", "unreachable"),
    ]
    assert any("Secrets" in one["what"] for one in manifest["never_collected"])


@pytest.mark.parametrize("name", ["../../etc", "a/b", "..", "/etc", ""])
def test_a_name_of_an_inventory_leads_nowhere(name: str):
    place = Part.of_node(name, MATERIAL).place
    assert place.startswith("nodes/")
    assert place.count("/") == 1
    assert place.partition("/")[2] not in {"", ".", ".."}


def test_what_does_not_fit_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(
        "ansible_collections.attested.kubernetes.plugins.module_utils.node.support_bundle.MAX_BUNDLE", 3
    )
    both = Material(pieces=(PIECE, replace(PIECE, name="b")), left_out=())
    _data, manifest = render_bundle("x", [Part.of_node("w-1", both)], made_at=NOW, facts={})
    assert [one["path"] for one in manifest["files"]] == ["nodes/w-1/journals/a.log"]
    assert [one["what"] for one in manifest["left_out"]] == ["b"]
