# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`attested kit`: kits from the command line, what is shown of them, and where nothing may be written."""

from __future__ import annotations

import json
import os
import pty
import stat
import sys
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.admin import site_directory
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.envelope import Lock, close_kit
from ansible_collections.attested.kubernetes.plugins.module_utils.cli import command
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemRandom
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.master import import_master_secret
from ansible_collections.attested.kubernetes.tests.support.canary import spellings, spellings_of_pem
from ansible_collections.attested.kubernetes.tests.support.kits import CHEAP, MASTER, PASSPHRASE, SALT, sample_kit

if TYPE_CHECKING:
    from pathlib import Path

    from ansible_collections.attested.kubernetes.plugins.module_utils.admin.kit import Kit

KIT = sample_kit()
WORDS = PASSPHRASE.reveal().decode()
PEM = b"-----BEGIN CERTIFICATE-----\n"


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("kits") / "prod.kit"
    path.write_bytes(close_kit(KIT, Lock(passphrase=PASSPHRASE, cost=CHEAP), random=SystemRandom()))
    (path.parent / "passphrase").write_text(WORDS + "\n", encoding="ascii")
    return path


def by_file(kit: Path) -> list[str]:
    return ["--passphrase-file", str(kit.parent / "passphrase")]


def secrets_of(kit: Kit) -> list[str]:
    raw = (kit.master.key, kit.master.salt, kit.measurement_secret, kit.emergency_ssh_seed, PASSPHRASE)
    pems = (kit.join_ca_key, kit.policy_key)
    needles = [one for value in raw for one in spellings(value.reveal())]
    needles += [one for value in pems for one in spellings_of_pem(value.reveal())]
    return [one.decode("latin-1") for one in needles]


def modes(folder: Path) -> set[int]:
    return {stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*") if path.is_file()}


def test_a_kit_is_shown_tried_and_opened_into_a_folder_of_its_owner(kit: Path, tmp_path: Path, capsys: Any) -> None:
    assert command.main(["kit", "show", str(kit)]) == 0
    assert command.main(["kit", "open", str(kit), *by_file(kit)]) == 0
    assert list(tmp_path.iterdir()) == []
    out = tmp_path / "opened"
    assert command.main(["kit", "open", str(kit), *by_file(kit), "--out", str(out)]) == 0
    told = capsys.readouterr()
    for public in (
        KIT.cluster_id.hex(),
        SALT.hex(),
        MASTER.fingerprint(),
        "generation 3",
        "host_vars/w-1/identity.yml",
    ):
        assert public in told.out
    assert not [needle for needle in secrets_of(KIT) if needle in told.out + told.err]
    assert import_master_secret((out / "secrets" / "master-secret.json").read_bytes()) == MASTER
    assert (out / "secrets" / "join-ca-key.pem").read_bytes() == KIT.join_ca_key.reveal()
    assert (out / "secrets" / "policy-key.pem").read_bytes() == KIT.policy_key.reveal()
    assert {name: (out / "site" / name).read_bytes() for name, _text in KIT.files} == dict(KIT.files)
    assert modes(out) == {0o600}
    assert {stat.S_IMODE(path.stat().st_mode) for path in (out, *out.rglob("*")) if path.is_dir()} == {0o700}
    assert command.main(["rescue", "keys", "--master-secret", str(out / "secrets" / "master-secret.json")]) == 0


def test_what_was_opened_is_closed_again_under_another_passphrase(kit: Path, tmp_path: Path, capsys: Any) -> None:
    out, new, words = tmp_path / "opened", tmp_path / "new.kit", tmp_path / "words"
    words.write_text("another passphrase\n", encoding="ascii")
    assert command.main(["kit", "open", str(kit), *by_file(kit), "--out", str(out)]) == 0
    new.write_bytes(kit.read_bytes())  # an older kit of the cluster is replaced
    assert (
        command.main(["kit", "write", str(out / "kit.json"), "--out", str(new), "--passphrase-file", str(words)]) == 0
    )
    assert stat.S_IMODE(new.stat().st_mode) == 0o600
    assert b"\nmemory-kib: 262144\npasses: 4\nlanes: 4\n" in new.read_bytes()  # what a guess shall cost
    capsys.readouterr()
    assert command.main(["kit", "open", "--json", str(new), "--passphrase-file", str(words)]) == 0
    assert json.loads(capsys.readouterr().out)["master secret"] == MASTER.fingerprint()


@pytest.mark.parametrize("sign", [".git", "hosts.yml"])
def test_nothing_is_opened_into_a_repository_or_a_site(sign: str, kit: Path, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / sign).write_text("", encoding="utf-8")
    assert command.main(["kit", "open", str(kit), *by_file(kit), "--out", str(tmp_path / "deep")]) == 1
    assert "SHARES_EXPOSED" in capsys.readouterr().err
    assert not (tmp_path / "deep").exists()


def test_a_folder_that_holds_something_and_a_file_that_is_no_kit_stay(kit: Path, tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "full"
    out.mkdir()
    (out / "precious").write_text("x", encoding="utf-8")
    assert command.main(["kit", "open", str(kit), *by_file(kit), "--out", str(out)]) == 1
    assert "PLACE_TAKEN" in capsys.readouterr().err
    content = tmp_path / "kit.json"
    content.write_bytes(KIT.to_bytes())
    assert command.main(["kit", "write", str(content), "--out", str(out / "precious"), *by_file(kit)]) == 1
    assert "PLACE_TAKEN" in capsys.readouterr().err
    assert (out / "precious").read_text(encoding="utf-8") == "x"


def public_file(path: Path, cluster: bytes) -> str:
    facts = site_directory.ClusterFile(cluster_id=cluster, measurement_salt=SALT, join_ca=PEM, policy_key=PEM)
    path.write_bytes(site_directory.render(facts))
    return str(path)


def test_the_kit_of_another_cluster_is_told_before_its_passphrase(kit: Path, tmp_path: Path, capsys: Any) -> None:
    ours, theirs = public_file(tmp_path / "a", KIT.cluster_id), public_file(tmp_path / "b", b"\1" * 32)
    assert command.main(["kit", "open", str(kit), *by_file(kit), "--cluster-file", ours]) == 0
    assert command.main(["kit", "open", str(kit), *by_file(kit), "--cluster-file", theirs]) == 1
    assert "KIT_OTHER_CLUSTER" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "code"),
    [
        pytest.param(["open", "{kit}"], "KIT_KEY_WRONG: got none", id="no key to open"),
        pytest.param(["open", "{kit}.none", "--passphrase"], "FILE_UNUSABLE", id="no such file"),
        pytest.param(["open", "{half}", "--passphrase"], "KIT_DAMAGED: it is cut off",
                     id="half a kit, before anybody is asked"),
        pytest.param(["show", "{kit}", "{half}"], "KIT_DAMAGED: it is cut off", id="half a kit is shown"),
        pytest.param(["write", "{content}", "--out", "{out}"], "KIT_KEY_WRONG: got none", id="no key to close"),
        pytest.param(
            ["write", "{content}", "--out", "{out}", "--recipient", "age1x", "--passphrase-file", "{words}"],
            "KIT_KEY_WRONG: got none", id="two ways to close",
        ),
        pytest.param(["write", "{kit}", "--out", "{out}", "--passphrase"], "KIT_MALFORMED", id="a kit as content"),
        pytest.param(["open", "{kit}", "--module", "none.so", "--pin-file", "{words}"], "KIT_TOKEN_UNUSABLE",
                     id="a module by a relative path"),
    ],
)  # fmt: skip
def test_each_mistake_has_its_code_and_writes_nothing(
    words: list[str], code: str, kit: Path, tmp_path: Path, capsys: Any
) -> None:
    half, content = tmp_path / "half", tmp_path / "kit.json"
    half.write_bytes(kit.read_bytes()[:800])
    content.write_bytes(KIT.to_bytes())
    places = {"kit": kit, "half": half, "content": content, "out": tmp_path / "out", "words": kit.parent / "passphrase"}
    assert command.main(["kit", *(word.format(**places) for word in words), "--json"]) == 1
    told = json.loads(capsys.readouterr().err)
    reason, _colon, said = code.partition(": ")
    assert told["reason"] == reason
    assert said in told["message"]
    assert not (tmp_path / "out").exists()


def typed(words: list[str], answers: list[tuple[bytes, str]]) -> tuple[int, bytes]:
    """Run `attested` at a terminal of its own; return its code and all that the terminal showed."""
    child, terminal = pty.fork()
    if child == 0:
        os.execv(sys.executable, [sys.executable, "-m", command.__name__, *words])
    seen = b""
    for prompt, answer in answers:
        while prompt not in seen:
            seen += os.read(terminal, 4096)
        os.write(terminal, answer.encode() + b"\n")
    try:
        while chunk := os.read(terminal, 4096):
            seen += chunk
    except OSError:
        pass  # Linux ends a terminal whose last writer is gone with EIO
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), seen


def test_a_passphrase_is_typed_and_not_echoed(kit: Path, tmp_path: Path) -> None:
    code, seen = typed(["kit", "open", str(kit), "--passphrase"], [(b"Passphrase: ", WORDS)])
    assert (code, MASTER.fingerprint().encode() in seen) == (0, True)
    assert WORDS.encode() not in seen
    content = tmp_path / "kit.json"
    content.write_bytes(KIT.to_bytes())
    out = tmp_path / "new.kit"
    twice = [(b"Passphrase: ", WORDS), (b"The same again: ", WORDS + "!")]
    code, seen = typed(["kit", "write", str(content), "--out", str(out), "--passphrase"], twice)
    assert (code, b"PASSPHRASE_UNUSABLE" in seen, out.exists()) == (1, True, False)


def test_the_help_names_every_verb(capsys: Any) -> None:
    with pytest.raises(SystemExit):
        command.main(["kit", "--help"])
    told = capsys.readouterr().out
    assert all(word in told for word in ("show", "open", "write", "token-keys"))
