# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`attested secret`: shares from the command line, what is shown of them, and where nothing may be written."""

from __future__ import annotations

import io
import json
import os
import pty
import stat
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.admin import site_directory
from ansible_collections.attested.kubernetes.plugins.module_utils.cli import command
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.derive import (
    cluster_id,
    measurement_secret,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.master import import_master_secret
from ansible_collections.attested.kubernetes.tests.support.canary import spellings
from ansible_collections.attested.kubernetes.tests.unit.plugins.module_utils.admin.test_shares import (
    MASTER,
    OTHER,
    SALT,
    texts,
    words_of,
)

if TYPE_CHECKING:
    from pathlib import Path

PASSPHRASE = "correct horse battery"
PEM = b"-----BEGIN CERTIFICATE-----\n"


@pytest.fixture
def secret(tmp_path: Path) -> str:
    path = tmp_path / "master-secret.json"
    path.write_bytes(MASTER.to_json())
    return str(path)


@pytest.fixture(scope="module")
def shares(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shares")
    for place, text in enumerate(texts(threshold=2, count=3), start=1):
        (folder / f"share-{place}.txt").write_text(text, encoding="ascii")
    return folder


def public_file(path: Path, *, salt: bytes = SALT) -> str:
    facts = site_directory.ClusterFile(
        cluster_id=cluster_id(measurement_secret(MASTER), salt), measurement_salt=salt, join_ca=PEM, policy_key=PEM
    )
    path.write_bytes(site_directory.render(facts))
    return str(path)


def split(secret: str, out: Path, *words: str) -> list[str]:
    return ["secret", "split", "--master-secret", secret, "-k", "2", "-n", "3", "--out", str(out), *words]


def secrets_of(folder: Path) -> list[str]:
    """Return the secret in every spelling, and lines of words of every share."""
    needles = [one.decode("latin-1") for part in (MASTER.key, MASTER.salt) for one in spellings(part.reveal())]
    for path in folder.glob("share-*.txt"):
        words = words_of(path.read_text(encoding="ascii"))
        needles += [" ".join(words[at : at + 3]) for at in range(4, len(words) - 3)]
        needles += [line for line in path.read_text(encoding="ascii").splitlines() if line[:2].strip().isdigit()]
    return needles


def test_shares_are_made_shown_tried_and_put_together(secret: str, tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "safe"
    public = public_file(tmp_path / "cluster.yml")
    assert command.main(split(secret, out, "--cluster-file", public)) == 0
    assert stat.S_IMODE(out.stat().st_mode) == 0o700
    files = sorted(out.iterdir())
    assert [(path.name, stat.S_IMODE(path.stat().st_mode)) for path in files] == [
        (f"share-{place}.txt", 0o600) for place in (1, 2, 3)
    ]
    assert command.main(["secret", "show", str(out), secret]) == 0
    assert command.main(["secret", "combine", str(files[2]), str(files[0])]) == 0
    told = capsys.readouterr()
    assert cluster_id(measurement_secret(MASTER), SALT).hex() in told.out
    assert MASTER.fingerprint() in told.out
    assert not [needle for needle in secrets_of(out) if needle in told.out + told.err]
    again = tmp_path / "again.json"
    assert command.main(["secret", "combine", str(out), "--out", str(again)]) == 0
    assert stat.S_IMODE(again.stat().st_mode) == 0o600
    assert import_master_secret(again.read_bytes()) == MASTER
    assert command.main(["rescue", "keys", "--master-secret", str(again)]) == 0


def test_a_second_split_into_the_same_folder_changes_nothing(secret: str, tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "safe"
    assert command.main(split(secret, out)) == 0
    before = {path: path.read_bytes() for path in out.iterdir()}
    assert command.main(split(secret, out)) == 1
    refused = capsys.readouterr().err
    assert "PLACE_TAKEN" in refused
    assert "an empty folder" in refused
    assert {path: path.read_bytes() for path in out.iterdir()} == before


@pytest.mark.parametrize("sign", [".git", "hosts.yml"])
def test_nothing_is_written_in_clear_into_a_repository_or_a_site(
    sign: str, secret: str, shares: Path, tmp_path: Path, capsys: Any
) -> None:
    root = tmp_path / "site"
    (root / "deep").mkdir(parents=True)
    (root / sign).write_text("", encoding="utf-8")
    link = tmp_path / "link"
    link.symlink_to(root / "deep")
    for place in (root / "safe", root / "deep" / "safe", link / "safe"):
        assert command.main(split(secret, place)) == 1
        assert "SHARES_EXPOSED" in capsys.readouterr().err
        assert command.main(["secret", "combine", str(shares), "--out", str(place)]) == 1
        assert "SHARES_EXPOSED" in capsys.readouterr().err
    assert list((root / "deep").iterdir()) == []


def test_secret_and_shares_may_come_over_standard_input_and_leave_by_a_pipe(
    shares: Path, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(MASTER.to_json())))
    assert command.main(split("-", tmp_path / "safe")) == 0
    capsys.readouterr()
    stream = b"".join(path.read_bytes() for path in sorted(shares.iterdir()))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stream)))
    assert command.main(["secret", "combine", "-", "--out", "-"]) == 0
    assert import_master_secret(capsys.readouterr().out.encode()) == MASTER
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"x" * (1 << 18) + b"x")))
    assert command.main(["secret", "combine", "-"]) == 1
    assert "FILE_UNUSABLE" in capsys.readouterr().err


def test_a_rebuilt_secret_is_never_printed_on_a_terminal(
    shares: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert command.main(["secret", "combine", str(shares), "--out", "-"]) == 1
    shown = capsys.readouterr()
    assert "SHARES_EXPOSED" in shown.err
    assert shown.out == ""


def test_shares_do_not_name_a_cluster_that_is_not_theirs(secret: str, tmp_path: Path, capsys: Any) -> None:
    foreign = tmp_path / "other.json"
    foreign.write_bytes(OTHER.to_json())
    public = public_file(tmp_path / "cluster.yml")
    assert command.main(split(str(foreign), tmp_path / "safe", "--cluster-file", public)) == 1
    assert "CLUSTER_ID_MISMATCH" in capsys.readouterr().err
    assert not (tmp_path / "safe").exists()


@pytest.mark.parametrize(
    ("chosen", "code"),
    [
        pytest.param(["share-1.txt"], "SHARES_TOO_FEW", id="too few"),
        pytest.param(["share-1.txt", "share-1.txt"], "SHARES_UNLIKE: different shares", id="one twice"),
        pytest.param(["share-1.txt", "none"], "FILE_UNUSABLE", id="one is not there"),
        pytest.param(["share-1.txt", "typo"], "SHARE_WORDS_WRONG: belong together", id="a wrong word"),
        pytest.param(["share-1.txt", "strange"], "SHARE_WORDS_WRONG: words of the list", id="no word of the list"),
    ],
)
def test_each_mistake_has_its_code_and_is_told_as_json(
    chosen: list[str], code: str, shares: Path, tmp_path: Path, capsys: Any
) -> None:
    words = words_of((shares / "share-2.txt").read_text(encoding="ascii"))
    for name, other in (("typo", "zero"), ("strange", "tpm")):
        (tmp_path / name).write_text(" ".join([*words[:16], other, *words[17:]]), encoding="ascii")
    paths = [str((tmp_path if name in {"typo", "strange"} else shares) / name) for name in chosen]
    assert command.main(["secret", "combine", "--json", *paths]) == 1
    told = json.loads(capsys.readouterr().err)
    reason, _colon, said = code.partition(": ")
    assert told["reason"] == reason
    assert said in told["message"]
    assert "word 17" in told["message"] or chosen[1:] not in (["typo"], ["strange"])


def test_a_folder_without_shares_is_no_share(tmp_path: Path, capsys: Any) -> None:
    assert command.main(["secret", "show", str(tmp_path)]) == 1
    assert "SHARE_MALFORMED" in capsys.readouterr().err


def test_a_passphrase_comes_from_a_file_and_is_needed_again(secret: str, tmp_path: Path, capsys: Any) -> None:
    out, words = tmp_path / "safe", tmp_path / "passphrase"
    words.write_text(PASSPHRASE + "\n", encoding="ascii")
    assert command.main(split(secret, out, "--passphrase-file", str(words))) == 0
    assert command.main(["secret", "combine", str(out)]) == 1
    assert "SHARE_PASSPHRASE" in capsys.readouterr().err
    assert command.main(["secret", "combine", str(out), "--passphrase-file", str(words)]) == 0
    words.write_text("short\n", encoding="ascii")
    assert command.main(["secret", "combine", str(out), "--passphrase-file", str(words)]) == 1
    shown = capsys.readouterr()
    assert "PASSPHRASE_UNUSABLE" in shown.err
    assert PASSPHRASE not in shown.out + shown.err


def run_split(secret: str, out: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", command.__name__, *split(secret, out, "--passphrase")],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip


def test_without_a_terminal_no_passphrase_is_asked(secret: str, tmp_path: Path) -> None:
    said, _nothing = run_split(secret, tmp_path / "safe").communicate(timeout=120)
    assert b"PASSPHRASE_UNUSABLE" in said
    assert b"--passphrase-file" in said
    assert not (tmp_path / "safe").exists()


@pytest.mark.parametrize(
    ("second", "code"), [pytest.param(PASSPHRASE, 0, id="twice the same"), pytest.param(PASSPHRASE + "!", 1, id="two")]
)
def test_a_passphrase_is_typed_twice_and_not_echoed(second: str, code: int, secret: str, tmp_path: Path) -> None:
    out = tmp_path / "safe"
    child, terminal = pty.fork()
    if child == 0:
        os.execv(sys.executable, [sys.executable, "-m", command.__name__, *split(secret, out, "--passphrase")])
    seen = b""
    for prompt, words in ((b"Passphrase: ", PASSPHRASE), (b"The same again: ", second)):
        while prompt not in seen:
            seen += os.read(terminal, 4096)
        os.write(terminal, words.encode() + b"\n")
    try:
        while chunk := os.read(terminal, 4096):
            seen += chunk
    except OSError:
        pass  # Linux ends a terminal whose last writer is gone with EIO
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == code
    assert PASSPHRASE.encode() not in seen
    assert out.exists() is (code == 0)
    assert code == 0 or b"PASSPHRASE_UNUSABLE" in seen


def test_the_words_are_all_that_a_stranger_needs(shares: Path, tmp_path: Path, capsys: Any) -> None:
    paths = []
    for place in (1, 3):
        path = tmp_path / f"typed-{place}"
        path.write_text(
            "\n".join(words_of((shares / f"share-{place}.txt").read_text(encoding="ascii"))), encoding="ascii"
        )
        paths.append(str(path))
    assert command.main(["secret", "combine", "--json", *paths]) == 0
    assert json.loads(capsys.readouterr().out)["master secret"] == MASTER.fingerprint()
