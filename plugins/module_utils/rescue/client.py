# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Call unmodified nodes of Constellation: verify, recover, rejoin. Loads grpc, so it is imported only where it is used.

verify    plain text; the node's document over our nonce
recover   attested TLS; the node shows evidence in the handshake, only then the master secret is sent
rejoin    attested TLS; this machine shows evidence in the handshake, the service's certificate has no evidence
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._deps.grpc import grpc
from ..errors import TransportError
from ..evidence.constellation import issue_constellation_document
from ..reasons import Reason
from ..transport.certificate import NONCE_BYTES, AttestedServer, UnknownServer, encode_nonce
from ..transport.client import open_connection, parse_endpoint
from .node import (
    GET_ATTESTATION,
    ISSUE_REJOIN_TICKET,
    QEMU_VTPM_OID,
    RECOVER,
    VERIFY_USER_DATA,
    SeenNode,
    judge_node,
    parse_rejoin_reply,
    parse_verify_reply,
    recover_request,
    rejoin_request,
    require_new,
    verify_request,
)

if TYPE_CHECKING:
    from ..core.host import Clock, Random
    from ..evidence.tpm2 import QuotingTpm
    from ..keyservice.derive import DiskId
    from ..keyservice.master import MasterSecret
    from ..tpm.commands import LoadedKey
    from ..transport.client import AttestedConnection
    from .node import NodeDemands, RejoinSecrets

_CALL_SECONDS = 60.0
"""Constellation's nodes derive keys and write a file before they respond; they try the key (argon2id) afterwards."""

_GONE = frozenset({"DEADLINE_EXCEEDED", "UNAVAILABLE"})


async def verify_node(endpoint: str, demands: NodeDemands, *, random: Random) -> SeenNode:
    """Return the running node at ``endpoint`` (Constellation's port 30081) after `judge_node`; raises as it does.

    The call is in plain text, so a machine in the middle may forward the document of another good node.
    """
    host, port = parse_endpoint(endpoint)
    nonce = random.token(NONCE_BYTES)
    target = f"dns:///[{host}]:{port}" if ":" in host else f"dns:///{host}:{port}"
    async with grpc.aio.insecure_channel(target, options=(("grpc.enable_http_proxy", 0),)) as channel:
        answer = await _call(channel, GET_ATTESTATION, verify_request(nonce), endpoint)
    return judge_node(parse_verify_reply(answer), demands, user_data=VERIFY_USER_DATA, nonce=nonce)


async def look_at_locked_node(endpoint: str, demands: NodeDemands, *, random: Random, clock: Clock) -> SeenNode:
    """Return the locked node at ``endpoint`` (port 9999), verified in the handshake; no secret is sent to it."""
    judge = _Judge(demands)
    check = AttestedServer(judge, random.token(NONCE_BYTES), clock)
    async with open_connection(endpoint, check=check, issuer=None, clock=clock):
        return judge.seen_node()


async def recover_node(
    endpoint: str,
    master: MasterSecret,
    demands: NodeDemands,
    *,
    given: frozenset[bytes] = frozenset(),
    random: Random,
    clock: Clock,
) -> SeenNode:
    """Send the master secret to the locked node at ``endpoint`` (port 9999) after its evidence was verified.

    Its response says only that it has the secret: Constellation's nodes try the disk afterwards and do not report the
    result. Raises as `judge_node`, and RESCUE_ASKS_AGAIN for a key in ``given``, both before anything is sent. Raises
    `TransportError` PEER_UNREACHABLE if no node waits for a key, and RESCUE_CALL_FAILED.
    """
    judge = _Judge(demands)
    check = AttestedServer(judge, random.token(NONCE_BYTES), clock)
    async with open_connection(endpoint, check=check, issuer=None, clock=clock) as connection:
        node = judge.seen_node()
        require_new(node, given)
        await _attested_call(connection, RECOVER, recover_request(master).reveal(), endpoint)
        return node


async def rejoin(
    endpoint: str, disk: DiskId, *, tpm: QuotingTpm, ak: LoadedKey, random: Random, clock: Clock
) -> RejoinSecrets:
    """Return the key of ``disk`` and the measurement secret from Constellation's join service (port 30090).

    The service accepts a machine that booted what its join-config expects and joined no cluster since its reset. It
    does not check which disk the machine has. Raises `TransportError` RESCUE_CALL_FAILED, and others if it refuses.
    """
    check = _SilentService(random.token(NONCE_BYTES))
    async with open_connection(endpoint, check=check, issuer=_Issuer(tpm, ak), clock=clock) as connection:
        return parse_rejoin_reply(await _attested_call(connection, ISSUE_REJOIN_TICKET, rejoin_request(disk), endpoint))


class _Judge:
    """A `Validator` that stores the verified node."""

    oid = QEMU_VTPM_OID

    def __init__(self, demands: NodeDemands) -> None:
        self._demands = demands
        self._seen: SeenNode | None = None

    def validate(self, document: bytes, *, user_data: bytes, nonce: bytes) -> bytes:
        self._seen = judge_node(document, self._demands, user_data=user_data, nonce=nonce)
        return b""

    def seen_node(self) -> SeenNode:
        if self._seen is None:
            raise TransportError("expected a verified node, none was verified", reason=Reason.TLS_HANDSHAKE_FAILED)
        return self._seen


class _SilentService(UnknownServer):
    """The check of Constellation's join service, whose certificate has no evidence; its client sends a nonce too."""

    def __init__(self, nonce: bytes) -> None:
        super().__init__()
        self._nonce = nonce

    @property
    def server_name(self) -> bytes | None:
        return encode_nonce(self._nonce).encode("ascii")


class _Issuer:
    """An issuer of this machine's evidence in Constellation's form."""

    oid = QEMU_VTPM_OID

    def __init__(self, tpm: QuotingTpm, ak: LoadedKey) -> None:
        self._tpm = tpm
        self._ak = ak

    def issue(self, *, user_data: bytes, nonce: bytes) -> bytes:
        return issue_constellation_document(self._tpm, self._ak, nonce=nonce, user_data=user_data)


async def _attested_call(connection: AttestedConnection, method: str, request: bytes, endpoint: str) -> bytes:
    try:
        return await _call(connection.channel(), method, request, endpoint)
    except TransportError as error:
        raise connection.error or error from error


async def _call(channel: Any, method: str, request: bytes, endpoint: str) -> bytes:
    try:
        return bytes(await channel.unary_unary(method)(request, timeout=_CALL_SECONDS))
    except grpc.aio.AioRpcError as error:
        status = error.code().name
        raise TransportError(
            f"expected {endpoint} to respond to {method}, got {status}: {str(error.details())[:300]}",
            reason=Reason.PEER_UNREACHABLE if status in _GONE else Reason.RESCUE_CALL_FAILED,
            retryable=status in _GONE,
        ) from error
