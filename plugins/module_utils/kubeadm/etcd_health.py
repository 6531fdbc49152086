# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether every member of etcd is well: one is stopped only where the others can do without it."""

from __future__ import annotations

import http.client
import ssl
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ..core.documents import load_json
from ..errors import KubeadmError
from ..reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .spec import KubernetesPaths

_LOCAL = "https://127.0.0.1:2379"
_LIST = "/v3/cluster/member/list"
_TIMEOUT_SECONDS = 5.0
_LIMIT = 1 << 20


class EtcdMembers:
    """The members that the one of this machine knows, asked with the credential of kubeadm's health check."""

    def __init__(self, paths: KubernetesPaths, *, local: str = _LOCAL) -> None:
        """Keep where the credential lies and where this machine's member listens (URL)."""
        self._pki = paths.kubernetes / "pki/etcd"
        self._local = local

    def require_healthy(self) -> None:
        """Raise ETCD_MEMBER_UNHEALTHY naming every member that is not well, not started, or a learner."""
        problems = list(self._problems())
        if problems:
            raise KubeadmError(
                f"expected every member of etcd to be well, {'; '.join(problems)}", reason=Reason.ETCD_MEMBER_UNHEALTHY
            )

    def _problems(self) -> Iterator[str]:
        try:
            members = load_json(self._ask("POST", self._local + _LIST, body=b"{}"))["members"]
        except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError) as error:
            yield f"this machine's does not list them ({type(error).__name__})"
            return
        for member in members:
            if (problem := self._problem(member)) is not None:
                yield f"{member.get('name') or 'one without a name'} {problem}"

    def _problem(self, member: Mapping[str, Any]) -> str | None:
        urls = member.get("clientURLs") or ()
        if not urls:
            return "has not started"
        if member.get("isLearner"):
            return "is a learner"
        try:
            said = load_json(self._ask("GET", f"{urls[0]}/health"))
        except (OSError, http.client.HTTPException, ValueError) as error:
            return f"does not answer ({type(error).__name__})"
        return None if isinstance(said, dict) and said.get("health") == "true" else "says that it is not"

    def _ask(self, method: str, url: str, body: bytes | None = None) -> bytes:
        address = urlsplit(url)
        context = ssl.create_default_context(cafile=str(self._pki / "ca.crt"))
        context.load_cert_chain(self._pki / "healthcheck-client.crt", self._pki / "healthcheck-client.key")
        connection = http.client.HTTPSConnection(
            str(address.hostname), address.port, timeout=_TIMEOUT_SECONDS, context=context
        )
        try:
            connection.request(method, address.path, body=body)
            return connection.getresponse().read(_LIMIT)
        finally:
            connection.close()
