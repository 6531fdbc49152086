# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`attested rescue`: what is shown, what is written where, and that no key is shown by accident."""

from __future__ import annotations

import io
import json
import stat
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.cli import command
from ansible_collections.attested.kubernetes.tests.support.canary import spellings
from ansible_collections.attested.kubernetes.tests.support.luks import vector, with_json
from ansible_collections.attested.kubernetes.tests.unit.plugins.module_utils.rescue.test_values import (
    CLUSTER,
    SALT,
    STATE,
    UUID,
    master,
)

if TYPE_CHECKING:
    from pathlib import Path

MEASURED = bytes.fromhex("4790578891f3fe6cc22cb661ecdc1b7e33121b1287546a52ba33a9136719c213")


@pytest.fixture
def secret(tmp_path: Path) -> str:
    path = tmp_path / "constellation-mastersecret.json"
    path.write_bytes(master().to_json())
    return str(path)


def keys(*words: str, secret: str) -> list[str]:
    return ["rescue", "keys", "--master-secret", secret, *words]


def test_what_is_public_is_shown_and_no_secret(secret: str, capsys: Any, tmp_path: Path) -> None:
    assert command.main(keys("--measurement-salt", SALT.hex(), "--disk", UUID, secret=secret)) == 0
    shown = capsys.readouterr().out
    assert CLUSTER in shown
    assert UUID in shown
    out = tmp_path / "out"
    assert command.main(keys("--disk", UUID, "--out", str(out), secret=secret)) == 0
    told = capsys.readouterr().out
    for path in out.iterdir():
        data = path.read_bytes()
        for needle in spellings(data) if path.name != "ssh_ca" else data.splitlines()[2:4]:
            assert needle.decode("latin-1") not in shown + told


def test_keys_are_written_for_their_owner_alone(secret: str, tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "out"
    assert command.main(keys("--disk", UUID, "--out", str(out), "--json", secret=secret)) == 0
    assert stat.S_IMODE(out.stat().st_mode) == 0o700
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in out.iterdir()}
    assert modes == dict.fromkeys((f"{UUID}.key", "measurement-secret", "ssh_ca"), 0o600)
    assert (out / "measurement-secret").read_bytes() == MEASURED
    assert len((out / f"{UUID}.key").read_bytes()) == 32
    assert (out / "ssh_ca").read_bytes().startswith(b"-----BEGIN OPENSSH PRIVATE KEY-----")
    assert sorted(json.loads(capsys.readouterr().out)["files"]) == sorted(map(str, out.iterdir()))


def test_keys_are_shown_when_that_is_said(secret: str, capsys: Any) -> None:
    assert command.main(keys("--show-secrets", "--json", secret=secret)) == 0
    assert json.loads(capsys.readouterr().out)["secrets"]["measurement-secret"] == MEASURED.hex()


def test_the_master_secret_may_come_over_standard_input(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(master().to_json())))
    assert command.main(keys("--json", secret="-")) == 0
    assert json.loads(capsys.readouterr().out)["master secret"] == master().fingerprint()


def test_the_state_file_must_be_of_the_same_cluster(secret: str, capsys: Any, tmp_path: Path) -> None:
    state = tmp_path / "constellation-state.yaml"
    state.write_text(STATE, encoding="utf-8")
    assert command.main(keys("--state", str(state), secret=secret)) == 0
    state.write_text(STATE.replace(CLUSTER, "ab" * 32), encoding="utf-8")
    assert command.main(keys("--state", str(state), secret=secret)) == 1
    assert "CLUSTER_ID_MISMATCH" in capsys.readouterr().err


def test_a_state_file_is_bounded_before_it_is_read(secret: str, capsys: Any, tmp_path: Path) -> None:
    state = tmp_path / "constellation-state.yaml"
    state.write_text(STATE + "#" * 65536, encoding="utf-8")
    assert command.main(keys("--state", str(state), secret=secret)) == 1
    assert "FILE_UNUSABLE" in capsys.readouterr().err


def test_a_header_without_slots_names_the_disk_and_is_not_tried(secret: str, capsys: Any, tmp_path: Path) -> None:
    header = tmp_path / "header"
    header.write_bytes(vector("constellation"))
    assert command.main(keys("--disk", str(header), "--json", secret=secret)) == 0
    (row,) = json.loads(capsys.readouterr().out)["disks"]
    assert (row["disk"], row["header"]) == ("21111111-2222-4333-8444-555555555551", "as it must be")
    assert row["key"].startswith("not tried")


def test_a_hostile_header_is_refused_unless_that_is_said(secret: str, capsys: Any, tmp_path: Path) -> None:
    header = tmp_path / "header"
    null = with_json(vector("constellation"), lambda one: one["segments"]["0"].update(encryption="cipher_null-ecb"))
    header.write_bytes(null)
    assert command.main(keys("--disk", str(header), secret=secret)) == 1
    refused = capsys.readouterr().err
    assert "LUKS_HEADER_FOREIGN" in refused
    assert "expected the cipher" in refused
    assert command.main(keys("--disk", str(header), "--insecure-any-header", "--json", secret=secret)) == 0
    shown = capsys.readouterr()
    assert "warning: LUKS_HEADER_FOREIGN: expected the cipher" in shown.err
    (row,) = json.loads(shown.out)["disks"]
    assert (row["header"], row["key"]) == ("LUKS_HEADER_FOREIGN", "not tried")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        pytest.param(["--disk", "measurementSecret"], "DISK_ID_MALFORMED", id="neither a file nor a UUID"),
        pytest.param(["--measurement-salt", "abc"], "RESCUE_FILE_MALFORMED", id="half a digit"),
        pytest.param(["--measurement-salt", "ab"], "RESCUE_FILE_MALFORMED", id="a short salt"),
        pytest.param(["--state", "/nonexistent"], "FILE_UNUSABLE", id="no state file"),
        pytest.param(["--out", "/nonexistent/out"], "FILE_UNUSABLE", id="nowhere to write"),
    ],
)
def test_what_cannot_be_is_refused(words: list[str], code: str, secret: str, capsys: Any) -> None:
    assert command.main(keys(*words, secret=secret)) == 1
    assert code in capsys.readouterr().err


def test_a_file_that_is_no_master_secret_is_not_shown(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "secret"
    path.write_text('{"key": "canary"}', encoding="utf-8")
    assert command.main(keys(secret=str(path))) == 1
    shown = capsys.readouterr()
    assert "SITE_SECRET_MALFORMED" in shown.err
    assert "expected the master secret as JSON" in shown.err
    assert "canary" not in shown.err + shown.out


def test_a_disk_is_mounted_into_an_empty_folder_only(secret: str, tmp_path: Path, capsys: Any) -> None:
    words = ["rescue", "mount", "--master-secret", secret, "--disk", str(tmp_path / "disk"), "--at", str(tmp_path)]
    assert command.main(words) == 1
    assert "expected an empty folder" in capsys.readouterr().err
