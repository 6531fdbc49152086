# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rescue kit's calls against a stand-in for Constellation's nodes that was written from their wire facts alone.

Not one of their programs takes part, so nothing here shows that a node of theirs was opened by the kit: it shows that
the kit keeps to the facts, over real sockets and real TLS, and what it refuses before a secret leaves. The stand-in and
the facts are in tests/support/constellation_node.py.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import io
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.cli import command
from ansible_collections.attested.kubernetes.tests.support.canary import spellings
from ansible_collections.attested.kubernetes.tests.support.constellation_node import (
    RECOVER,
    REJOIN,
    SHA256,
    SHA384,
    Machine,
    fields_of,
    join_service,
    recovery_server,
    ticket,
    verification_service,
)
from ansible_collections.attested.kubernetes.tests.support.house import SOURCES

if TYPE_CHECKING:
    from collections.abc import Callable

    from ansible_collections.attested.kubernetes.tests.support.swtpm import Swtpm

KEY, SALT = bytes(range(0x40, 0x60)), bytes(range(0x60, 0x80))
MEASUREMENT_SALT = bytes(range(0x20, 0x40))
# its known answers, recomputed with a program of its own
MEASUREMENT_SECRET = bytes.fromhex("4790578891f3fe6cc22cb661ecdc1b7e33121b1287546a52ba33a9136719c213")
CLUSTER = bytes.fromhex("1f3d87784b0ce2d13d608d8455627a238acf5c96a62164cf02b236877e0bb0d9")
UUID = "51111111-2222-4333-8444-555555555555"
BOOTED = {4: b"\x04" * 32, 9: b"\x09" * 32, 11: b"\x0b" * 32}
PROGRAM = (sys.executable, "-m", "ansible_collections.attested.kubernetes.plugins.module_utils.cli.command")


def booted(*, member: bool = False, banks: tuple[int, ...] = (SHA256,), **changes: bytes) -> Machine:
    """A machine that booted the expected image; register 15 holds the cluster's id once it is a member."""
    fifteen = hashlib.sha256(bytes(32) + hashlib.sha256(CLUSTER).digest()).digest() if member else bytes(32)
    pcrs = {index: bytes(32) for index in range(24)} | BOOTED | {15: fifteen}
    return Machine(pcrs=pcrs | {int(name[3:]): value for name, value in changes.items()}, banks=banks)


class Desk:
    """A folder with what an owner has: master secret, state file, configuration; and the program."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.secret = folder / "constellation-mastersecret.json"
        self.secret.write_text(json.dumps({"key": _b64(KEY), "salt": _b64(SALT)}), encoding="utf-8")
        self.state = folder / "constellation-state.yaml"
        values = f"  clusterID: {CLUSTER.hex()}\n  measurementSalt: {MEASUREMENT_SALT.hex()}\n"
        self.state.write_text(f"version: v1\nclusterValues:\n{values}", encoding="utf-8")
        self.config = folder / "constellation-conf.yaml"
        entries = "".join(
            f'      {index}:\n        expected: "{value.hex()}"\n        warnOnly: {str(index == 1).lower()}\n'
            for index, value in sorted({**BOOTED, 1: b"\x01" * 32, 15: bytes(32)}.items())
        )
        self.config.write_text(
            f"version: v4\nattestation:\n  qemuVTPM:\n    measurements:\n{entries}", encoding="utf-8"
        )

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run the program's `main` in this process: a process of its own imports for a second."""
        with contextlib.redirect_stdout(io.StringIO()) as said, contextlib.redirect_stderr(io.StringIO()) as told:
            code = command.main(["rescue", *words])
        return subprocess.CompletedProcess(words, code, said.getvalue(), told.getvalue())

    def run_apart(self, *words: str, stdin: bytes) -> subprocess.CompletedProcess[str]:
        """Run the program in a process of its own, with what it reads from standard input."""
        env = {**os.environ, "PYTHONPATH": str(SOURCES)}
        argv = [*PROGRAM, "rescue", *words]
        done = subprocess.run(argv, input=stdin, capture_output=True, env=env, cwd=self.folder, check=False)
        return subprocess.CompletedProcess(argv, done.returncode, done.stdout.decode(), done.stderr.decode())

    def verify(self, endpoint: str, machine: Machine, *words: str) -> subprocess.CompletedProcess[str]:
        known = ("--attestation-key", machine.name.hex())
        return self.run("verify", "--endpoint", endpoint, "--measurements", str(self.config), *known, *words)

    def recover(self, endpoint: str, *words: str, secret: str = "") -> subprocess.CompletedProcess[str]:
        files = ("--measurements", str(self.config), "--master-secret", secret or str(self.secret))
        return self.run("recover", "--endpoint", endpoint, *files, "--state", str(self.state), "--watch", "0", *words)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


# ---- verify


@pytest.mark.parametrize("banks", [(SHA256,), (SHA384, SHA256)], ids=["one bank", "two banks"])
def test_a_member_is_verified_in_plain_text(desk: Desk, banks: tuple[int, ...]) -> None:
    machine = booted(member=True, banks=banks)
    with verification_service(machine) as node:
        done = desk.verify(node.endpoint, machine, "--state", str(desk.state), "--json")
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert (shown["verified"], shown["attestation key"]) == ("yes", machine.name.hex())
    assert shown["PCR 4"] == "04" * 32
    assert "PCR 1: expected" in done.stderr
    assert len(node.told[0][1][2]) == 32


@pytest.mark.parametrize(
    ("machine", "words", "code"),
    [
        pytest.param(booted(), ["--cluster-id", CLUSTER.hex()], "RESCUE_MEASUREMENT_MISMATCH", id="not a member"),
        pytest.param(
            booted(member=True), ["--cluster-id", "ab" * 32], "RESCUE_MEASUREMENT_MISMATCH", id="of another cluster"
        ),
        pytest.param(
            booted(member=True, pcr4=b"x" * 32),
            ["--cluster-id", CLUSTER.hex()],
            "RESCUE_MEASUREMENT_MISMATCH",
            id="another image",
        ),
    ],
)
def test_a_node_that_is_not_what_is_expected_is_refused(
    desk: Desk, machine: Machine, words: list[str], code: str
) -> None:
    with verification_service(machine) as node:
        done = desk.verify(node.endpoint, machine, *words)
    assert done.returncode == 1
    assert code in done.stderr


def test_an_unknown_key_is_refused_and_named(desk: Desk) -> None:
    machine, other = booted(member=True), booted(member=True)
    with verification_service(machine) as node:
        done = desk.verify(node.endpoint, other, "--state", str(desk.state))
        assert (done.returncode, "CONSTELLATION_KEY_UNKNOWN" in done.stderr) == (1, True)
        assert machine.name.hex() in done.stderr.replace("\n", "").replace(" ", "")
        words = ("--measurements", str(desk.config), "--state", str(desk.state), "--insecure-any-attestation-key")
        any_key = desk.run("verify", "--endpoint", node.endpoint, *words)
    assert any_key.returncode == 0
    assert "warning: any attestation key is trusted" in any_key.stderr


# ---- recover


def test_a_locked_node_proves_itself_and_only_then_gets_the_secret(desk: Desk) -> None:
    machine = booted()
    with recovery_server(machine) as node:
        done = desk.recover(node.endpoint, "--attestation-key", machine.name.hex(), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["nodes"] == [machine.name.hex()]
    ((method, told),) = node.told
    assert method == RECOVER
    uri = "kms://cluster-kms?key={}&salt={}"
    expected = uri.format(*(base64.urlsafe_b64encode(part).decode() for part in (KEY, SALT)))
    assert told == {3: expected.encode(), 4: b"storage://no-store"}
    (name,) = node.names
    assert len(base64.b64decode(name, validate=True)) == 32


def test_a_locked_node_is_looked_at_and_nothing_is_sent(desk: Desk) -> None:
    machine = booted()
    with recovery_server(machine) as node:
        done = desk.verify(node.endpoint, machine, "--locked")
    assert done.returncode == 0, done.stderr
    assert node.told == []


def test_nodes_behind_one_address_get_it_one_after_the_other(desk: Desk) -> None:
    """The load balancer hands on to whoever still waits; the last one gone, nobody listens."""
    machines = [booted(), booted()]
    turn = iter(machines)
    with recovery_server(machines[0], forge=lambda data, nonce: next(turn).document(data, nonce), asks=2) as node:
        keys = [word for machine in machines for word in ("--attestation-key", machine.name.hex())]
        done = desk.recover(node.endpoint, *keys, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["nodes"] == [machine.name.hex() for machine in machines]


def test_who_asks_twice_did_not_get_his_disk_open(desk: Desk) -> None:
    machine = booted()
    with recovery_server(machine, asks=99) as node:
        done = desk.recover(node.endpoint, "--attestation-key", machine.name.hex())
    assert done.returncode == 1
    assert "RESCUE_ASKS_AGAIN" in done.stderr
    assert len(node.told) == 1, "the second time nothing was sent"


LIES = {
    "another image": (lambda one: lambda data, nonce: booted_like(one, pcr11=b"x" * 32).document(data, nonce)),
    "a member already": (lambda one: lambda data, nonce: booted_like(one, pcr15=b"x" * 32).document(data, nonce)),
    "a recording for another nonce": (lambda one: lambda data, _nonce: one.document(data, bytes(32))),
    "a document for another key": (lambda one: lambda _data, nonce: one.document(bytes(32), nonce)),
    "no document": (lambda _one: lambda _data, _nonce: b"{}"),
    "values of a bank that nothing signed": (lambda one: lambda data, nonce: confused(one, data, nonce)),
}


def booted_like(machine: Machine, **changes: bytes) -> Machine:
    return Machine(pcrs=booted(**changes).pcrs, key=machine.key)


def confused(machine: Machine, data: bytes, nonce: bytes) -> bytes:
    """A genuine quote of SHA-384 over what was booted, beside invented values of SHA-256."""
    bad = Machine(pcrs=booted(pcr4=b"x" * 32).pcrs, key=machine.key, banks=(SHA384, SHA256))
    document = json.loads(bad.document(data, nonce))
    document["Attestation"]["quotes"][1]["pcrs"]["pcrs"]["4"] = _b64(BOOTED[4])
    return json.dumps(document).encode()


@pytest.mark.parametrize("lie", LIES)
def test_who_does_not_prove_himself_hears_no_secret(desk: Desk, lie: str) -> None:
    machine = booted()
    with recovery_server(machine, forge=LIES[lie](machine)) as node:
        done = desk.recover(node.endpoint, "--attestation-key", machine.name.hex())
    assert done.returncode == 1
    assert node.told == []
    codes = {"RESCUE_MEASUREMENT_MISMATCH", "BINDING_MISMATCH", "EVIDENCE_MALFORMED", "QUOTE_DIGEST"}
    assert any(code in done.stderr for code in codes), done.stderr


def test_evidence_of_another_kind_is_told(desk: Desk) -> None:
    """A node in a cloud shows another object id, and the kit says which one it wants."""
    machine = booted()
    with recovery_server(machine, oid="1.3.9900.4.1") as node:
        done = desk.recover(node.endpoint, "--insecure-any-attestation-key")
    assert (done.returncode, "EVIDENCE_MISSING" in done.stderr, node.told) == (1, True, [])


def test_the_secret_of_another_cluster_is_not_sent(desk: Desk) -> None:
    machine = booted()
    other = desk.folder / "other.json"
    other.write_text(json.dumps({"key": _b64(bytes(32)), "salt": _b64(bytes(32))}), encoding="utf-8")
    with recovery_server(machine) as node:
        done = desk.recover(node.endpoint, "--attestation-key", machine.name.hex(), secret=str(other))
    assert (done.returncode, "CLUSTER_ID_MISMATCH" in done.stderr, node.names) == (1, True, [])


def test_where_nobody_waits_it_is_said(desk: Desk) -> None:
    with recovery_server(booted()) as node:
        endpoint = node.endpoint
    done = desk.recover(endpoint, "--insecure-any-attestation-key")
    assert (done.returncode, "PEER_UNREACHABLE" in done.stderr) == (1, True)


def test_the_secret_is_in_no_argument_no_environment_and_no_output(desk: Desk) -> None:
    """Looked at in /proc while the call lasts; the secret comes over standard input."""
    machine = booted()
    seen: list[bytes] = []

    def slow(data: bytes, nonce: bytes) -> bytes:
        for process in Path("/proc").glob("[0-9]*"):
            try:
                command = (process / "cmdline").read_bytes()
                if b"recover" in command:
                    seen.append(command + (process / "environ").read_bytes())
            except OSError:
                continue
        time.sleep(0.2)
        return machine.document(data, nonce)

    words = ("--measurements", str(desk.config), "--state", str(desk.state), "--watch", "0")
    with recovery_server(machine, forge=slow) as node:
        keys = ("--attestation-key", machine.name.hex(), "--master-secret", "-")
        done = desk.run_apart("recover", "--endpoint", node.endpoint, *words, *keys, stdin=desk.secret.read_bytes())
    assert done.returncode == 0, done.stderr
    assert seen
    assert node.told
    for needle in (*spellings(KEY), *spellings(SALT)):
        assert needle not in b"".join(seen)
        assert needle not in (done.stdout + done.stderr).encode()


# ---- rejoin


@pytest.fixture
def rejoin(desk: Desk, swtpm: Swtpm) -> Callable[..., subprocess.CompletedProcess[str]]:
    def run(endpoint: str, *words: str) -> subprocess.CompletedProcess[str]:
        out = ("--out", str(desk.folder / "keys"))
        return desk.run("rejoin", "--endpoint", endpoint, "--disk", UUID, *out, "--tcti", swtpm.tcti, *words)

    return run


def test_a_machine_with_a_tpm_gets_the_key_of_a_disk(desk: Desk, rejoin: Callable[..., object]) -> None:
    disk_key = b"d" * 32
    asked: list[str] = []

    def answer(uuid: str) -> bytes:
        asked.append(uuid)
        return ticket(disk_key, MEASUREMENT_SECRET)

    with join_service(answer, expected={15: bytes(32)}) as node:
        done = rejoin(node.endpoint, "--state", str(desk.state), "--json")
    assert isinstance(done, subprocess.CompletedProcess)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["cluster id"] == CLUSTER.hex()
    assert asked == [UUID]
    assert [method for method, _fields in node.told] == [REJOIN]
    assert sorted(node.clients[0]["pcrs"]) == list(range(24))
    assert (desk.folder / "keys" / f"{UUID}.key").read_bytes() == disk_key
    assert (desk.folder / "keys" / f"{UUID}.key").stat().st_mode & 0o777 == 0o600
    assert fields_of(ticket(disk_key, b"")) == {1: disk_key, 2: b""}
    for needle in spellings(disk_key):
        assert needle not in (done.stdout + done.stderr).encode()


@pytest.mark.parametrize(
    ("secrets", "code"),
    [
        pytest.param((b"d" * 32, bytes(32)), "CLUSTER_ID_MISMATCH", id="another cluster answers"),
        pytest.param((b"d" * 31, MEASUREMENT_SECRET), "MESSAGE_MALFORMED", id="a short key"),
        pytest.param((b"", b""), "MESSAGE_MALFORMED", id="nothing"),
    ],
)
def test_what_a_stranger_answers_is_not_written(
    desk: Desk, rejoin: Callable[..., object], secrets: tuple[bytes, bytes], code: str
) -> None:
    with join_service(lambda _uuid: ticket(*secrets), expected={}) as node:
        done = rejoin(node.endpoint, "--state", str(desk.state))
    assert isinstance(done, subprocess.CompletedProcess)
    assert (done.returncode, code in done.stderr) == (1, True)
    assert not (desk.folder / "keys").exists()


def test_a_service_that_does_not_believe_this_machine_is_told(desk: Desk, rejoin: Callable[..., object]) -> None:
    with join_service(lambda _uuid: b"", expected={4: b"another image".ljust(32)}) as node:
        done = rejoin(node.endpoint)
    assert isinstance(done, subprocess.CompletedProcess)
    assert (done.returncode, node.told) == (1, [])
    assert "CONNECTION_CLOSED" in done.stderr
