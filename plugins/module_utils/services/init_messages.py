# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The messages of init as bytes: Constellation's, with fields of this collection from 1000 on.

admin → machine  Identify, Testify       the two calls of a verification, for the purpose `init`
admin → machine  Init(InitRequest)       metadata attested-admin-bin: the admin's proof for this exchange
machine → admin  InitResponse …          progress; at the end success, or failure and the last lines of its step
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..errors import Refusal, visible
from ..proto.messages import message_class, method_path, parse
from ..reasons import Reason
from ..transport.binding import label, length_prefixed

if TYPE_CHECKING:
    from ..errors import AttestedError

IDENTIFY = method_path("attested.v1.Initiation", "Identify")
TESTIFY = method_path("attested.v1.Initiation", "Testify")
INIT = method_path("init.API", "Init")
ADMIN_METADATA = "attested-admin-bin"

MAX_ORDER_BYTES = 1 << 16
"""Room for names, hashes and one sealed box of 1 KB, and for Constellation's data: URLs."""

MAX_POLICY_BYTES = 7 << 17
"""A policy with its profiles and identities. A whole frame to the bootstrapper is at most 1 MiB."""

MAX_REQUEST_BYTES = MAX_ORDER_BYTES + MAX_POLICY_BYTES

_REQUEST = "init.InitRequest"
_RESPONSE = "init.InitResponse"
_MAX_ITEMS = 64
_MAX_TEXT = 2048
_VARYING = ("challenge_id", "sealed", "admin_request", "policy", "policy_objects")


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """One file of Kubernetes: source URL, hash (``sha256:<hex>``), destination, and whether it is unpacked there."""

    url: str
    hash: str
    install_path: str
    extract: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class InitOrder:
    """The admin's request.

    ``challenge_id`` names the exchange, ``sealed`` is the box with the cluster's keys, ``admin_request`` (PEM) is a
    certificate request for the admin's key.
    `BroughtPolicy` reads ``policy`` and ``policy_objects`` (JSON); both are empty without a policy.
    """

    cluster_name: str
    kubernetes_version: str
    service_cidr: str
    measurement_salt: bytes
    challenge_id: bytes
    sealed: bytes = field(repr=False)
    extra_sans: tuple[str, ...] = ()
    components: tuple[Component, ...] = ()
    conformance_mode: bool = False
    admin_request: bytes = b""
    policy: bytes = field(default=b"", repr=False)
    policy_objects: bytes = field(default=b"", repr=False)

    def to_bytes(self) -> bytes:
        """Return the serialised ``init.InitRequest``."""
        message = message_class(_REQUEST)(
            measurement_salt=self.measurement_salt,
            kubernetes_version=self.kubernetes_version,
            conformance_mode=self.conformance_mode,
            cluster_name=self.cluster_name,
            apiserver_cert_sans=self.extra_sans,
            service_cidr=self.service_cidr,
            challenge_id=self.challenge_id,
            sealed=self.sealed,
            admin_request=self.admin_request,
            policy=self.policy,
            policy_objects=self.policy_objects,
        )
        for one in self.components:
            message.kubernetes_components.add(
                url=one.url, hash=one.hash, install_path=one.install_path, extract=one.extract
            )
        return bytes(message.SerializeToString())

    @classmethod
    def parse(cls, data: bytes) -> InitOrder:
        """Return the order in ``data``; raises MESSAGE_MALFORMED, MESSAGE_TOO_LARGE, SECRETS_IN_CLEAR."""
        message = parse(_REQUEST, data, limit=MAX_REQUEST_BYTES)
        if message.kms_uri or message.storage_uri:
            raise Refusal(
                "expected the master secret sealed to this machine, got a URI that holds it in clear",
                reason=Reason.SECRETS_IN_CLEAR,
            )
        _require_bounded(message, len(data))
        return cls(
            cluster_name=message.cluster_name,
            kubernetes_version=message.kubernetes_version,
            service_cidr=message.service_cidr,
            measurement_salt=message.measurement_salt,
            challenge_id=message.challenge_id,
            sealed=message.sealed,
            extra_sans=tuple(message.apiserver_cert_sans),
            components=tuple(
                Component(url=one.url, hash=one.hash, install_path=one.install_path, extract=one.extract)
                for one in message.kubernetes_components
            ),
            conformance_mode=message.conformance_mode,
            admin_request=message.admin_request,
            policy=message.policy,
            policy_objects=message.policy_objects,
        )


def digest_of(request: bytes, *, cluster_id: bytes) -> str:
    """Return a digest (64 hex digits) that is equal for two requests of the same init, whoever sends them and when.

    The cluster id represents the secrets from which it is derived. The policy is left out (docs/adr/0041). Raises
    MESSAGE_MALFORMED.
    """
    message = parse(_REQUEST, request, limit=MAX_REQUEST_BYTES)
    for name in _VARYING:
        message.ClearField(name)
    parts = length_prefixed(label("init/request"), cluster_id, message.SerializeToString(deterministic=True))
    return hashlib.sha256(parts).hexdigest()


# ---- the responses


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The stage and the task that begins, ``elapsed_seconds`` after the job began."""

    stage: str
    task: str
    elapsed_seconds: float

    def to_bytes(self) -> bytes:
        """Return the serialised ``init.InitResponse``."""
        message = message_class(_RESPONSE)()
        message.progress.stage = self.stage[:_MAX_TEXT]
        message.progress.task = self.task[:_MAX_TEXT]
        message.progress.elapsed_milliseconds = int(self.elapsed_seconds * 1000)
        return bytes(message.SerializeToString())


@dataclass(frozen=True, slots=True, kw_only=True)
class Success:
    """The cluster is made: ``kubeconfig`` is YAML without the private key, which never left the admin's machine.

    ``policy_generation``: of the policy that came with the request and is in force, 0 if none came.
    """

    kubeconfig: bytes
    cluster_id: bytes
    policy_generation: int = 0

    def to_bytes(self) -> bytes:
        """Return the serialised ``init.InitResponse``."""
        message = message_class(_RESPONSE)()
        message.init_success.kubeconfig = self.kubeconfig
        message.init_success.cluster_id = self.cluster_id
        message.init_success.policy_generation = self.policy_generation
        return bytes(message.SerializeToString())


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why an init failed, for an authenticated admin; ``log`` is already redacted."""

    code: str
    message: str
    hint: str
    stage: str = ""
    task: str = ""
    log: str = ""

    @classmethod
    def of(cls, error: AttestedError, *, stage: str = "", task: str = "", log: str = "") -> Failure:
        """Return the failure message for ``error``."""
        return cls(code=error.code, message=error.message, hint=error.hint, stage=stage, task=task, log=log)

    def to_messages(self) -> tuple[bytes, ...]:
        """Return the serialised ``init.InitResponse`` of the failure, and of the log if there is one."""
        failed = message_class(_RESPONSE)()
        failed.init_failure.error = self.message[:_MAX_TEXT]
        failed.init_failure.code = self.code
        failed.init_failure.hint = self.hint
        failed.init_failure.stage = self.stage[:_MAX_TEXT]
        failed.init_failure.task = self.task[:_MAX_TEXT]
        if not self.log:
            return (bytes(failed.SerializeToString()),)
        lines = message_class(_RESPONSE)()
        lines.log.log = self.log.encode()
        return (bytes(failed.SerializeToString()), bytes(lines.SerializeToString()))


def parse_response(data: bytes) -> Progress | Success | Failure | str:
    """Return a response of the machine, a log as text, with control characters escaped; raises MESSAGE_MALFORMED."""
    message = parse(_RESPONSE, data)
    kind = message.WhichOneof("kind")
    if kind == "progress":
        one = message.progress
        return Progress(stage=_line(one.stage), task=_line(one.task), elapsed_seconds=one.elapsed_milliseconds / 1000)
    if kind == "init_success":
        made = message.init_success
        return Success(kubeconfig=made.kubeconfig, cluster_id=made.cluster_id, policy_generation=made.policy_generation)
    if kind == "init_failure":
        failure = message.init_failure
        return Failure(
            code=_line(failure.code),
            message=_text(failure.error),
            hint=_text(failure.hint),
            stage=_line(failure.stage),
            task=_line(failure.task),
        )
    if kind == "log":
        return _text(message.log.log.decode("utf-8", "replace"))
    raise Refusal("expected an answer of the init server, got none", reason=Reason.MESSAGE_MALFORMED)


def _text(text: str) -> str:
    """Return ``text`` for a terminal: its lines, with control characters and marks of direction escaped."""
    return visible(text.expandtabs())


def _line(text: str) -> str:
    return _text(text.replace("\n", " "))


def _require_bounded(message: Any, size: int) -> None:
    policy = len(message.policy) + len(message.policy_objects)
    if policy > MAX_POLICY_BYTES or size - policy > MAX_ORDER_BYTES:
        raise Refusal(
            f"expected at most {MAX_POLICY_BYTES} bytes of policy and {MAX_ORDER_BYTES} of other fields, "
            f"got {policy} and {size - policy}",
            reason=Reason.MESSAGE_TOO_LARGE,
        )
    texts = [message.cluster_name, message.kubernetes_version, message.service_cidr, *message.apiserver_cert_sans]
    lists = (message.apiserver_cert_sans, message.kubernetes_components)
    if max(map(len, lists)) > _MAX_ITEMS or max(map(len, texts)) > _MAX_TEXT:
        raise Refusal(
            f"expected at most {_MAX_ITEMS} names and components and texts of {_MAX_TEXT} characters, got more",
            reason=Reason.MESSAGE_TOO_LARGE,
        )
