# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node of Constellation as a peer: the evidence that it must show, and the messages of the calls. Pure.

The wire facts are those of the variant ``qemu-vtpm`` (QEMU, OpenStack, STACKIT, bare metal); see docs/rescue.md.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..core.documents import load_documents
from ..errors import Refusal, SiteError, TransportError
from ..evidence.constellation import ConstellationPolicy, claimed_key_name, verify_constellation_document
from ..keyservice.master import DiskKey, MeasurementSecret, SecretBytes
from ..proto.messages import message_class, method_path, parse
from ..reasons import Reason
from .values import lock_value

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from ..core.host import Clock
    from ..keyservice.derive import DiskId
    from ..keyservice.master import MasterSecret


# Read the measurements of Constellation's configuration, and compare the values of a node with them. Pure.
#
# The input is ``constellation-conf.yaml`` of the command line program, ``attestationConfig`` of the ConfigMap
# join-config, or only the map of measurements: index to ``{expected: HEX, warnOnly: BOOL}``, or to the value itself.

CLUSTER_REGISTER = 15
_REGISTERS = 24
_BYTES = 32
_HEX = re.compile(r"[0-9a-fA-F]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """Expected values of the SHA-256 bank by register; a difference in a register of ``warn_only`` only warns."""

    expected: Mapping[int, bytes]
    warn_only: frozenset[int]

    def of_member(self, cluster: bytes) -> Measurements:
        """Return the measurements of a node in the cluster with this id, which was measured into register 15 once."""
        before = self.expected.get(CLUSTER_REGISTER, bytes(_BYTES))
        value = lock_value(cluster, "sha256", before=before)
        return Measurements(
            expected={**self.expected, CLUSTER_REGISTER: value}, warn_only=self.warn_only - {CLUSTER_REGISTER}
        )


def parse_measurements(data: bytes) -> Measurements:
    """Return the measurements in ``data``, YAML or JSON; raises RESCUE_FILE_MALFORMED.

    Stricter than Constellation, which accepts any node if no value is enforced: at least one value must be enforced.
    """
    try:
        documents = load_documents(data.decode("utf-8"))
    except ValueError as error:
        raise _malformed(f"they cannot be read: {error}") from error
    if len(documents) != 1 or not isinstance(documents[0], dict):
        raise _malformed("expected one mapping")
    entries = {_index(index): _entry(index, entry) for index, entry in _map_in(documents[0]).items()}
    warn_only = frozenset(index for index, (_value, warns) in entries.items() if warns)
    if not set(entries) - warn_only:
        raise _malformed("expected at least one value that is enforced")
    return Measurements(expected={index: value for index, (value, _warns) in entries.items()}, warn_only=warn_only)


def verify_measurements(pcrs: Mapping[int, bytes], wanted: Measurements) -> tuple[str, ...]:
    """Return the differences that only warn; raises RESCUE_MEASUREMENT_MISMATCH with all other differences."""
    differing = {index: value for index, value in sorted(wanted.expected.items()) if pcrs.get(index) != value}
    sentences = {
        index: f"PCR {index}: expected {value.hex()}, got {pcrs.get(index, b'').hex() or 'none'}"
        for index, value in differing.items()
    }
    wrong = [sentence for index, sentence in sentences.items() if index not in wanted.warn_only]
    if wrong:
        raise Refusal("; ".join(wrong), reason=Reason.RESCUE_MEASUREMENT_MISMATCH)
    return tuple(sentences.values())


def _map_in(document: dict[Any, Any]) -> dict[Any, Any]:
    inner: Any = document
    if "attestation" in inner:
        variants = inner["attestation"]
        if not isinstance(variants, dict) or len(variants) != 1:
            raise _malformed("expected one variant below attestation")
        inner = next(iter(variants.values()))
    if isinstance(inner, dict) and "measurements" in inner:
        inner = inner["measurements"]
    if not isinstance(inner, dict):
        raise _malformed("expected a mapping of measurements")
    return inner


def _index(given: object) -> int:
    text = str(given)
    if isinstance(given, bool) or not text.isascii() or not text.isdecimal() or int(text) >= _REGISTERS:
        raise _malformed(f"expected the number of a register, got {text[:20]!r}")
    return int(text)


def _entry(index: object, entry: object) -> tuple[bytes, bool]:
    fields = entry if isinstance(entry, dict) else {"expected": entry}
    value, warns = fields.get("expected"), fields.get("warnOnly", False)
    if not isinstance(value, str) or not _HEX.fullmatch(value) or not isinstance(warns, bool):
        raise _malformed(f"expected {2 * _BYTES} hex digits and a truth value for register {str(index)[:20]}")
    return bytes.fromhex(value), warns


def _malformed(problem: str) -> SiteError:
    return SiteError(f"the measurements: {problem}", reason=Reason.RESCUE_FILE_MALFORMED)


QEMU_VTPM_OID = "1.3.9900.5.1"
VERIFY_USER_DATA = b"VerifyService"
GET_ATTESTATION = method_path("verify.API", "GetAttestation")
ISSUE_REJOIN_TICKET = method_path("join.API", "IssueRejoinTicket")
RECOVER = method_path("recoverproto.API", "Recover")

_SECRET_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDemands:
    """The demands on a node. ``attestation_keys``: names of the keys of the cluster's known TPMs.

    ``insecure_any_attestation_key`` trusts any key in a document, as Constellation does. Then any peer that knows the
    expected values, which are public, can impersonate a node without a TPM.
    """

    measurements: Measurements
    attestation_keys: frozenset[bytes] = frozenset()
    insecure_any_attestation_key: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenNode:
    """A node whose document was verified: its attestation key, its registers, and the differences that only warn."""

    ak_name: bytes
    pcrs: Mapping[int, bytes]
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RejoinSecrets:
    """The secrets that Constellation's join service returns to a node that joined before."""

    disk_key: DiskKey
    measurement_secret: MeasurementSecret


def judge_node(document: bytes, demands: NodeDemands, *, user_data: bytes, nonce: bytes) -> SeenNode:
    """Return the node of ``document`` after `verify_constellation_document` and `verify_measurements`.

    Raises CONSTELLATION_KEY_UNKNOWN, EVIDENCE_MALFORMED, BINDING_MISMATCH, QUOTE_..., RESCUE_MEASUREMENT_MISMATCH.
    """
    known = demands.attestation_keys
    if demands.insecure_any_attestation_key:
        known = frozenset({claimed_key_name(document)})
    policy = ConstellationPolicy(insecure_constellation_peer=True, attestation_keys=known)
    verified = verify_constellation_document(document, user_data=user_data, nonce=nonce, policy=policy)
    warnings = verify_measurements(verified.pcrs, demands.measurements)
    return SeenNode(ak_name=verified.ak_name, pcrs=verified.pcrs, warnings=warnings)


def master_secret_uri(master: MasterSecret) -> SecretBytes:
    """Return the master secret in the form of Constellation's nodes, ``kms://cluster-kms?key=...&salt=...``."""
    key, salt = (base64.urlsafe_b64encode(part.reveal()) for part in (master.key, master.salt))
    return SecretBytes(b"kms://cluster-kms?key=" + key + b"&salt=" + salt)


def recover_request(master: MasterSecret) -> SecretBytes:
    """Return the message for a locked node of Constellation, which contains the master secret."""
    message = message_class("recoverproto.RecoverMessage")(
        kms_uri=master_secret_uri(master).reveal().decode("ascii"), storage_uri="storage://no-store"
    )
    return SecretBytes(message.SerializeToString())


def verify_request(nonce: bytes) -> bytes:
    """Return the request of a verification."""
    return bytes(message_class("verify.GetAttestationRequest")(nonce=nonce).SerializeToString())


def parse_verify_reply(data: bytes) -> bytes:
    """Return the document in the response to a verification; raises MESSAGE_MALFORMED, MESSAGE_TOO_LARGE."""
    return bytes(parse("verify.GetAttestationResponse", data).attestation)


def rejoin_request(disk: DiskId) -> bytes:
    """Return the request of a rebooted node."""
    return bytes(message_class("join.IssueRejoinTicketRequest")(disk_uuid=disk.uuid).SerializeToString())


def parse_rejoin_reply(data: bytes) -> RejoinSecrets:
    """Return the secrets in a rejoin ticket; raises MESSAGE_MALFORMED, also for secrets of another length."""
    ticket = parse("join.IssueRejoinTicketResponse", data)
    lengths = (len(ticket.state_disk_key), len(ticket.measurement_secret))
    if lengths != (_SECRET_BYTES, _SECRET_BYTES):
        raise Refusal(
            f"expected a disk key and a measurement secret of {_SECRET_BYTES} bytes, got {lengths[0]} and {lengths[1]}",
            reason=Reason.MESSAGE_MALFORMED,
        )
    return RejoinSecrets(
        disk_key=DiskKey(ticket.state_disk_key), measurement_secret=MeasurementSecret(ticket.measurement_secret)
    )


# Send the master secret to every locked node behind one address, and detect that it was wrong.
#
# A node of Constellation responds as soon as it has the secret, and tries its disk afterwards. A node that cannot open
# its disk does not report this: it waits a minute, reboots, and requests the secret again. So the attestation key of
# each node is remembered, and a second request is an error instead of a loop.


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """``pause_seconds`` between two attempts; ``watch_seconds``: the wait for more nodes after the last one."""

    pause_seconds: float = 5.0
    watch_seconds: float = 180.0


async def recover_nodes(
    push: Callable[[frozenset[bytes]], Awaitable[SeenNode]],
    *,
    patience: Patience,
    clock: Clock,
    sleep: Callable[[float], Awaitable[None]],
    report: Callable[[SeenNode], None],
) -> tuple[SeenNode, ...]:
    """Return the nodes that got the secret by ``push``, which gets the keys of the earlier nodes; ``report`` each.

    Ends when no node requests the secret for ``watch_seconds``. Raises RESCUE_ASKS_AGAIN, the errors of ``push``, and
    PEER_UNREACHABLE if no node requests it at all.
    """
    given: dict[bytes, SeenNode] = {}
    until = clock.monotonic() + patience.watch_seconds
    while True:
        try:
            node = await push(frozenset(given))
        except TransportError as error:
            if not error.retryable or not given:
                raise
            if clock.monotonic() >= until:
                return tuple(given.values())
        else:
            given[node.ak_name] = node
            report(node)
            until = clock.monotonic() + patience.watch_seconds
        await sleep(patience.pause_seconds)


def require_new(node: SeenNode, given: frozenset[bytes]) -> None:
    """Raise RESCUE_ASKS_AGAIN for a node that has the secret already."""
    if node.ak_name in given:
        raise Refusal(
            f"expected a node that was not given the secret yet, got the one with the key {node.ak_name.hex()} again",
            reason=Reason.RESCUE_ASKS_AGAIN,
        )
