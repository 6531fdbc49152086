# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kits and the programs of others: `age` opens what we closed to recipients, SoftHSM2 holds the key of a token."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.age_file import parse_identities
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.envelope import (
    KitKeys,
    Lock,
    close_kit,
    open_kit,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.kit import Kit
from ansible_collections.attested.kubernetes.plugins.module_utils.cli import command
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemRandom
from ansible_collections.attested.kubernetes.tests.support import kits
from ansible_collections.attested.kubernetes.tests.support.canary import ProcessWatch

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

KIT = kits.sample_kit()
needs_age_program = pytest.mark.skipif(
    bool(kits.missing_for_age() or not shutil.which("age-keygen")),
    reason=kits.missing_for_age() or "the program age is not there (tests/support/prerequisites more)",
)
needs_token = pytest.mark.skipif(bool(kits.missing_for_token()), reason=kits.missing_for_token())


@needs_age_program
def test_age_itself_opens_a_kit_for_recipients_and_we_open_what_age_closed(tmp_path: Path) -> None:
    identity, kit, plain = (tmp_path / name for name in ("identity.txt", "prod.age", "kit.json"))
    subprocess.run(["age-keygen", "-o", identity], check=True, capture_output=True, timeout=900)
    recipient = identity.read_text(encoding="ascii").split("public key: ")[1].split()[0]
    kit.write_bytes(close_kit(KIT, Lock(recipients=(recipient,)), random=SystemRandom()))
    done = subprocess.run(["age", "-d", "-i", identity, kit], check=True, capture_output=True, timeout=900)
    assert Kit.from_bytes(done.stdout) == KIT
    plain.write_bytes(KIT.to_bytes())
    subprocess.run(["age", "-r", recipient, "-o", kit, plain], check=True, timeout=900)
    assert open_kit(kit.read_bytes(), KitKeys(identities=parse_identities(identity.read_bytes()))) == KIT


KEY_MAKER = """
import sys
import pkcs11
with pkcs11.lib(sys.argv[1]).get_token(token_label=sys.argv[2]).open(user_pin=sys.stdin.read(), rw=True) as session:
    session.generate_keypair(pkcs11.KeyType.RSA, 2048, store=True, label="kit")
"""


@pytest.fixture(scope="module")
def token(tmp_path_factory: pytest.TempPathFactory) -> kits.SoftToken:
    """A token with one RSA key, made in a process of its own: the library keeps what it first loaded."""
    made = kits.soft_token(tmp_path_factory.mktemp("hsm"))
    subprocess.run(
        [sys.executable, "-c", KEY_MAKER, made.module, made.label],
        input=kits.PIN, env=made.environment, text=True, check=True, capture_output=True, timeout=120,
    )  # fmt: skip
    return made


@pytest.fixture
def pin(tmp_path: Path) -> Path:
    path = tmp_path / "pin"
    path.write_text(kits.PIN + "\n", encoding="ascii")
    return path


def attested(*words: str | Path, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", command.__name__, *words], env=environment, capture_output=True, text=True, check=False,
        timeout=120,
    )  # fmt: skip


@pytest.fixture
def kit(token: kits.SoftToken, tmp_path: Path, pin: Path) -> Path:
    """A kit that was closed to the public half of the token's key, without the token."""
    done = attested(
        "kit", "token-keys", "--module", token.module, "--token", token.label, "--pin-file", pin,
        environment=token.environment,
    )  # fmt: skip
    assert done.stdout.count("BEGIN PUBLIC KEY") == 1, done.stderr
    path = tmp_path / "prod.kit"
    path.write_bytes(close_kit(KIT, Lock(token_key=done.stdout.encode()), random=SystemRandom()))
    return path


@needs_token
def test_a_token_of_softhsm_opens_what_was_closed_to_its_key(
    token: kits.SoftToken, kit: Path, pin: Path, tmp_path: Path
) -> None:
    with ProcessWatch() as watch:
        done = attested(
            "kit", "open", kit, "--module", token.module, "--pin-file", pin, "--out", tmp_path / "opened",
            environment=token.environment,
        )  # fmt: skip
        seen = watch.seen()
    assert done.returncode == 0, done.stderr
    assert Kit.from_bytes((tmp_path / "opened" / "kit.json").read_bytes()) == KIT
    assert kits.PIN not in done.stdout + done.stderr
    assert not [channel for channel, data in seen if kits.PIN.encode() in data]


@needs_token
@pytest.mark.parametrize(
    ("change", "code"),
    [
        pytest.param({"pin": "27182818"}, "KIT_TOKEN_UNUSABLE", id="a wrong PIN"),
        pytest.param({"token": "another"}, "KIT_TOKEN_UNUSABLE", id="no such token"),
        pytest.param({"module": "/etc/hostname"}, "KIT_TOKEN_UNUSABLE", id="a module that is none"),
        pytest.param({"key": True}, "KIT_KEY_WRONG: encrypted to", id="a kit for another key"),
        pytest.param({"wrapped": True}, "KIT_DAMAGED: was altered", id="a wrapped key that was altered"),
    ],
)
def test_what_a_token_cannot_open_has_its_code(
    change: dict[str, str | bool], code: str, token: kits.SoftToken, kit: Path, pin: Path
) -> None:
    if change.get("pin"):
        pin.write_text(str(change["pin"]), encoding="ascii")
    if change.get("key"):
        lock = Lock(token_key=kits.KeyInMemory().public_key())
        kit.write_bytes(close_kit(KIT, lock, random=SystemRandom()))
    if change.get("wrapped"):
        kit.write_bytes(kits.altered(kit.read_bytes(), b"wrapped-key"))
    done = attested(
        "kit", "open", "--json", kit, "--module", str(change.get("module", token.module)),
        "--token", str(change.get("token", token.label)), "--pin-file", pin, environment=token.environment,
    )  # fmt: skip
    assert done.returncode == 1
    told = json.loads(done.stderr)
    reason, _colon, said = code.partition(": ")
    assert told["reason"] == reason
    assert said in told["message"]
