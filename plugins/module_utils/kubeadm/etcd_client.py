# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The client of etcd: JSON gateway over TLS, with the certificate of kubeadm's health check.

It needs no program on the machine or in a container. It connects to the member of this machine.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ..core.documents import load_json
from ..errors import EtcdError, KubeadmError
from ..reasons import Reason
from .etcd_members import Member

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from .spec import KubernetesPaths

LOCAL = "https://127.0.0.1:2379"

_CALL_SECONDS = 10.0
_HEALTH_SECONDS = 5.0
"""Short, because a machine that is powered off sends no response at all."""
_AGAIN_SECONDS = 1.0
"""For status 503: etcd has no leader, or a member has been connected for less than five seconds."""
_LIMIT = 1 << 20
_PAGE = 32
_PAGE_SECONDS = 30.0
_MAX_PAGE_BYTES = 64 << 20
"""A page of Secrets of the largest size that the API accepts, in base64."""
_SHOWN_CHARACTERS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdCredentials:
    """PEM files: the CA of etcd, and a client's certificate and key."""

    ca: Path
    certificate: Path
    key: Path

    @classmethod
    def below(cls, directory: Path) -> EtcdCredentials:
        """Return the credentials of kubeadm's etcd health check in ``directory``."""
        return cls(
            ca=directory / "ca.crt",
            certificate=directory / "healthcheck-client.crt",
            key=directory / "healthcheck-client.key",
        )


class EtcdGateway:
    """Calls the member at ``endpoint`` (a URL), and checks other members at their client URLs."""

    def __init__(self, endpoint: str, credentials: EtcdCredentials) -> None:
        """Store the endpoint and the credential files, which are read at each call."""
        self._endpoint = endpoint
        self._credentials = credentials

    @classmethod
    def local(cls, paths: KubernetesPaths, *, endpoint: str = LOCAL) -> EtcdGateway:
        """Return the gateway to the member of this control plane."""
        return cls(endpoint, EtcdCredentials.below(paths.kubernetes / "pki/etcd"))

    def members(self) -> tuple[Member, ...]:
        """Return the members as this member lists them; the list may be slightly out of date."""
        answer = self._call("/v3/cluster/member/list", {"linearizable": False})
        try:
            return tuple(self._member(one) for one in answer["members"])
        except (KeyError, TypeError, ValueError) as error:
            raise _unreachable(self._endpoint, "its list of members is malformed") from error

    def remove(self, member: Member) -> None:
        """Remove a member. etcd also refuses a removal that would cost it the majority of connected members."""
        self._call("/v3/cluster/member/remove", {"ID": str(member.member_id)})

    def require_healthy(self) -> None:
        """Raise ETCD_MEMBER_UNHEALTHY with all members that are unhealthy, not started, or learners."""
        try:
            problems = [f"{one.shown} {one.problem}" for one in self.members() if one.problem]
        except EtcdError as error:
            problems = [error.message]
        if problems:
            raise KubeadmError(
                f"expected every member of etcd to be healthy, {'; '.join(problems)}",
                reason=Reason.ETCD_MEMBER_UNHEALTHY,
            )

    def is_healthy(self) -> bool:
        """Return whether this member answers and can read from a majority."""
        return self._is_healthy(self._endpoint)

    def revision(self) -> int:
        """Return the current revision of this member; raises ETCD_UNREACHABLE, ETCD_REFUSED."""
        answer = self._call("/v3/maintenance/status", {})
        try:
            return int(answer["header"]["revision"])
        except (KeyError, TypeError, ValueError):
            raise _unreachable(self._endpoint, "its status has no revision") from None

    def pages(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys and values from ``first`` up to but excluding ``end``, page by page.

        Raises as `members`.
        """
        while True:
            request = {"key": _text(first), "range_end": _text(end), "limit": str(_PAGE)}
            answer = self._call("/v3/kv/range", request, limit=_MAX_PAGE_BYTES, timeout_seconds=_PAGE_SECONDS)
            try:
                found = [(_bytes(one["key"]), _bytes(one["value"])) for one in answer.get("kvs", ())]
            except (AttributeError, KeyError, TypeError, ValueError):
                raise _unreachable(
                    self._endpoint, "its answer has no keys and values"
                ) from None  # The answer holds Secrets.
            yield from found
            if not found or not answer.get("more"):
                return
            first = found[-1][0] + b"\0"

    def _member(self, document: Mapping[str, Any]) -> Member:
        client_urls = tuple(str(url) for url in document.get("clientURLs", ()))
        return Member(
            member_id=int(document["ID"]),
            name=str(document.get("name", "")),
            peer_urls=tuple(str(url) for url in document.get("peerURLs", ())),
            client_urls=client_urls,
            is_learner=bool(document.get("isLearner", False)),
            healthy=any(self._is_healthy(url) for url in client_urls),
        )

    def _is_healthy(self, url: str) -> bool:
        """Return whether a member answers and can read from a majority, which etcd's /health checks."""
        try:
            status, body = self._exchange(url, "GET", "/health", timeout_seconds=_HEALTH_SECONDS)
            return status == http.client.OK and str(load_json(body)["health"]).lower() == "true"
        except (EtcdError, KeyError, TypeError, ValueError):
            return False

    def _call(
        self, path: str, document: Mapping[str, Any], *, limit: int = _LIMIT, timeout_seconds: float = _CALL_SECONDS
    ) -> dict[str, Any]:
        sent = json.dumps(document).encode()
        status, body = self._exchange(
            self._endpoint, "POST", path, body=sent, limit=limit, timeout_seconds=timeout_seconds
        )
        if status != http.client.OK:
            shown = body.decode("utf-8", "replace")[:_SHOWN_CHARACTERS]
            raise EtcdError(
                f"expected etcd to accept {path}, got status {status}: {shown}",
                reason=Reason.ETCD_REFUSED,
                retry_after_seconds=_AGAIN_SECONDS if status == http.client.SERVICE_UNAVAILABLE else 0.0,
            )
        try:
            answer: dict[str, Any] = load_json(body, limit=limit)
        except ValueError:
            raise _unreachable(self._endpoint, "its answer is not JSON") from None  # The answer may hold a Secret.
        return answer

    def _exchange(
        self,
        url: str,
        method: str,
        path: str,
        *,
        timeout_seconds: float,
        body: bytes | None = None,
        limit: int = _LIMIT,
    ) -> tuple[int, bytes]:
        try:
            with closing(self._connect(urlsplit(url).netloc, timeout_seconds)) as connection:
                connection.request(method, path, body=body, headers={"Content-Type": "application/json"})
                answer = connection.getresponse()
                return answer.status, answer.read(limit)
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise _unreachable(url, str(error)) from error

    def _connect(self, address: str, timeout_seconds: float) -> http.client.HTTPConnection:
        context = ssl.create_default_context(cafile=str(self._credentials.ca))
        context.load_cert_chain(str(self._credentials.certificate), str(self._credentials.key))
        return http.client.HTTPSConnection(address, timeout=timeout_seconds, context=context)


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _unreachable(url: str, why: str) -> EtcdError:
    return EtcdError(f"expected an answer of etcd at {url}: {why}", reason=Reason.ETCD_UNREACHABLE)
