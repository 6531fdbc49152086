# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Constellation's question in plain text: off by default; where it is on, through both processes to a real TPM."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils._deps.yaml import yaml
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.constellation import (
    ConstellationPolicy,
    verify_constellation_document,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.ca import make_join_ca
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.keys import load_attestation_key
from ansible_collections.attested.kubernetes.tests.support import constellation_client as theirs
from ansible_collections.attested.kubernetes.tests.support.boots import BOOTS
from ansible_collections.attested.kubernetes.tests.support.constellation_client import NONCE, ask
from ansible_collections.attested.kubernetes.tests.support.exchange import CLUSTER_ID, NOW
from ansible_collections.attested.kubernetes.tests.support.ports import free_port
from ansible_collections.attested.kubernetes.tests.support.verification import SoftNode, running_node

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ansible_collections.attested.kubernetes.tests.support.swtpm import Opened, Swtpm

PLENTY = {"questions_per_second": 1000.0, "question_burst": 1000, "quotes_per_second": 4000.0, "quote_burst": 4000}
ON = {**PLENTY, "insecure_constellation_verify_port": 0}
IDENTIFY = "/attested.v1.Verification/Identify"


def verified(document: bytes, ak_name: bytes, *, nonce: bytes = NONCE, user_data: bytes = theirs.USER_DATA) -> Any:
    """Judge a document by our own verifier of their form."""
    policy = ConstellationPolicy(insecure_constellation_peer=True, attestation_keys=frozenset({ak_name}))
    return verify_constellation_document(document, user_data=user_data, nonce=nonce, policy=policy)


async def status_of(endpoint: str, nonce: bytes | None = NONCE, **changes: Any) -> grpc.StatusCode:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await ask(endpoint, nonce, **changes)
    return caught.value.code()


# ---- two processes, a real TPM


class Processes:
    """Witness and verification service as processes of their own, joined by their socket alone."""

    def __init__(self, folder: Path, tcti: str, *, witness_permits: bool) -> None:
        self.folder, self.port, self.plain_port = folder, free_port(), free_port()
        (folder / "node.yml").write_text(yaml.safe_dump(node_config(tcti)), encoding="utf-8")
        settings = {
            "listen_address": "127.0.0.1", "listen_port": self.port, "runtime_directory": str(folder),
            "witness_socket": str(folder / "witness.sock"), "insecure_constellation_verify_port": self.plain_port,
        }  # fmt: skip
        (folder / "service.yml").write_text(yaml.safe_dump(settings), encoding="utf-8")
        flags = ["--insecure-constellation-verify"] if witness_permits else []
        self._all = [
            self._start(
                "node.witness_service", "--config", "node.yml", "--socket", "witness.sock", "--user", "root", *flags
            ),
            self._start("services.verification_service", "--config", "service.yml"),
        ]

    def _start(self, name: str, *options: str) -> subprocess.Popen[bytes]:
        module = f"ansible_collections.attested.kubernetes.plugins.module_utils.{name}"
        program = f"import sys; from {module} import main; sys.exit(main())"
        with (self.folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-c", program, *options], cwd=self.folder, stdout=log, stderr=log, env=os.environ
            )

    def wait(self) -> str:
        """Return where to ask, once both answer."""
        until = time.monotonic() + 90
        while not ((self.folder / "witness.sock").exists() and listens(self.plain_port)):
            assert all(one.poll() is None for one in self._all), self.log()
            assert time.monotonic() < until, self.log()
            time.sleep(0.1)
        return f"127.0.0.1:{self.plain_port}"

    def log(self) -> str:
        return "".join(path.read_text() for path in sorted(self.folder.glob("*.log")))

    def stop(self) -> None:
        for one in self._all:
            one.terminate()
        for one in self._all:
            one.wait(timeout=900)


def node_config(tcti: str) -> dict[str, Any]:
    recorded = BOOTS / "deb13-base"
    return {
        "version": 1, "name": "w-1", "cluster_name": "prod", "cluster_id": CLUSTER_ID.hex(), "tcti": tcti,
        "endpoints": ["192.0.2.11:9090"], "join_ca": make_join_ca("prod", now=NOW).certificate.decode("ascii"),
        "logs": {"firmware": str(recorded / "eventlog.bin"), "userspace": str(recorded / "userspace.json")},
    }  # fmt: skip


def listens(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def processes(swtpm: Swtpm, opened: Opened) -> Iterator[Callable[..., tuple[str, bytes, Processes]]]:
    """Lock a TPM to the cluster and start both processes: where to ask, the key's name, and the processes."""
    if os.getuid() != 0:
        pytest.skip("the witness answers root and its own user only: needs root")
    with opened(swtpm) as tpm:
        tpm.pcr_event(15, CLUSTER_ID)
        ak_name = load_attestation_key(tpm).name
    started: list[Processes] = []
    with tempfile.TemporaryDirectory(prefix="cv-") as name:

        def start(*, witness_permits: bool = True) -> tuple[str, bytes, Processes]:
            both = Processes(Path(name), swtpm.tcti, witness_permits=witness_permits)
            started.append(both)
            return both.wait(), ak_name, both

        yield start
        for both in started:
            both.stop()


async def test_a_document_for_their_program_comes_through_both_processes_from_a_real_tpm(
    processes: Callable[..., tuple[str, bytes, Processes]],
) -> None:
    endpoint, ak_name, both = await asyncio.to_thread(processes)
    document = await ask(endpoint)
    found = verified(document, ak_name)
    told = theirs.read(document)
    assert (told.user_data, told.extra_data) == (b"VerifyService", theirs.expected_extra_data(NONCE))
    assert told.pcrs == dict(found.pcrs)
    assert sorted(told.pcrs) == list(range(24))
    assert told.digest == hashlib.sha256(b"".join(told.pcrs[index] for index in range(24))).digest()
    assert told.pcrs[15] == theirs.extended(bytes(32), CLUSTER_ID)
    assert [await status_of(endpoint, wrong) for wrong in (None, b"", b"n" * 65)] == [
        grpc.StatusCode.INVALID_ARGUMENT
    ] * 3
    lines = [json.loads(line) for line in both.log().splitlines() if line.startswith("{")]
    assert [line["event"] for line in lines].count("witness_document") == 1, "a wrong nonce never reaches the TPM"
    warned = [line for line in lines if line.get("warning")]
    assert {line["event"] for line in warned} == {"insecure_constellation_verify", "call"}, (
        "at its start and at each use"
    )


async def test_a_witness_that_was_not_told_to_refuses_whatever_the_network_side_asks(
    processes: Callable[..., tuple[str, bytes, Processes]],
) -> None:
    endpoint, _ak_name, both = await asyncio.to_thread(processes, witness_permits=False)
    assert await status_of(endpoint) == grpc.StatusCode.PERMISSION_DENIED
    assert "CONSTELLATION_VERIFY_OFF" in both.log()


# ---- the listener


async def test_it_is_off_by_default() -> None:
    node = SoftNode()
    async with running_node(node.attester, node.facts, **PLENTY) as bed:
        assert bed.constellation_port is None
        assert not list(bed.directory.glob("constellation*"))
        assert await status_of(bed.endpoint) == grpc.StatusCode.UNAVAILABLE, "9091 speaks TLS and nothing else"


async def test_the_plain_listener_has_this_one_call() -> None:
    node = SoftNode()
    async with running_node(node.attester, node.facts, witness_permits=True, **ON) as bed:
        endpoint = f"127.0.0.1:{bed.constellation_port}"
        for method in (IDENTIFY, "/attested.v1.Verification/Testify", "/grpc.health.v1.Health/Check"):
            assert await status_of(endpoint, method=method) == grpc.StatusCode.UNIMPLEMENTED
        verified(await ask(endpoint), node.tpm.ak.name)


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        pytest.param(b"", "INVALID_ARGUMENT", id="no nonce"),
        pytest.param(b"\x12\x00", "INVALID_ARGUMENT", id="an empty nonce"),
        pytest.param(theirs.request_of(b"n" * 65), "INVALID_ARGUMENT", id="a nonce of 65 bytes"),
        pytest.param(theirs.request_of(b"n" * 600), "RESOURCE_EXHAUSTED", id="a request that is too large to be read"),
        pytest.param(b"\xff\xff\xff", "INVALID_ARGUMENT", id="no message"),
        pytest.param(b"\x0a\x20" + bytes(32), "INVALID_ARGUMENT", id="another field, and no nonce"),
    ],
)
async def test_what_is_no_question_of_theirs_is_refused_before_the_witness_hears_of_it(
    request_bytes: bytes, status: str
) -> None:
    node = SoftNode()
    async with running_node(node.attester, node.facts, witness_permits=True, **ON) as bed:
        found = await status_of(f"127.0.0.1:{bed.constellation_port}", request=request_bytes)
        assert not [line for line in bed.lines() if line["event"] == "witness_document"]
    assert found.name == status


@pytest.mark.parametrize(
    ("change", "code"),
    [
        pytest.param({"nonce": b"another nonce"}, "BINDING_MISMATCH", id="a recording, for another nonce"),
        pytest.param({"user_data": b"Constellation"}, "BINDING_MISMATCH", id="a document for another use"),
        pytest.param({"ak_name": b"\x00\x0b" + bytes(32)}, "CONSTELLATION_KEY_UNKNOWN", id="another machine's"),
    ],
)
async def test_a_document_that_is_not_what_was_asked_for_is_refused(change: dict[str, Any], code: str) -> None:
    node = SoftNode()
    async with running_node(node.attester, node.facts, witness_permits=True, **ON) as bed:
        document = await ask(f"127.0.0.1:{bed.constellation_port}")
    with pytest.raises(AttestedError) as caught:
        verified(document, **{"ak_name": node.tpm.ak.name, **change})
    assert caught.value.code == code


async def test_a_document_is_no_evidence_for_a_channel_and_can_be_passed_on() -> None:
    """What the documents say of it: whoever stands in between hands on the nonce and the answer, and nobody notices."""
    node = SoftNode()
    async with running_node(node.attester, node.facts, witness_permits=True, **ON) as bed:
        genuine = f"127.0.0.1:{bed.constellation_port}"

        async def relayed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            there_reader, there_writer = await asyncio.open_connection("127.0.0.1", bed.constellation_port)
            await asyncio.gather(carry(reader, there_writer), carry(there_reader, writer))

        between = await asyncio.start_server(relayed, "127.0.0.1", 0)
        document = await ask(f"127.0.0.1:{between.sockets[0].getsockname()[1]}")
        verified(document, node.tpm.ak.name)
        assert genuine != between.sockets[0].getsockname()
        between.close()


async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(4096):
        writer.write(data)
        await writer.drain()
    writer.close()


async def test_a_flood_in_plain_text_is_bounded_and_takes_no_bound_quote_away() -> None:
    """A quarter of the quotes, and out of a bucket of its own."""
    node = SoftNode()
    bounds = {"questions_per_second": 1000.0, "question_burst": 1000, "quotes_per_second": 0.001, "quote_burst": 8}
    settings = {**bounds, "insecure_constellation_verify_port": 0}
    async with running_node(node.attester, node.facts, witness_permits=True, **settings) as bed:
        endpoint = f"127.0.0.1:{bed.constellation_port}"
        for _unused in range(2):
            await ask(endpoint)
        assert await status_of(endpoint) == grpc.StatusCode.RESOURCE_EXHAUSTED, "too many requests, try again later"
        assert bed.reasons() == ["VERIFICATION_RATE"]


async def test_silent_connections_of_one_address_are_bounded() -> None:
    """Four at a time; the fifth is closed at once, and nobody keeps a place for longer than his time."""
    node = SoftNode()
    async with running_node(node.attester, node.facts, witness_permits=True, **ON) as bed:
        held = [await asyncio.open_connection("127.0.0.1", bed.constellation_port) for _unused in range(4)]
        await asyncio.sleep(0.2)
        reader, writer = await asyncio.open_connection("127.0.0.1", bed.constellation_port)
        try:
            ended = await reader.read(1)
        except ConnectionResetError:
            ended = b""
        assert ended == b""
        assert "CONNECTION_LIMIT" in {line.get("reason") for line in bed.lines()}
        for _reader, one in (*held, (reader, writer)):
            one.close()
