# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Under which key etcd has each Secret, read of etcd itself: of a value only the words before its ciphertext are kept.

Asked is etcd's JSON gateway, so that no client of its own protocol is needed.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from ..core.documents import load_json
from ..errors import KubeadmError
from ..reasons import Reason
from ..rotation.encryption_key import CLEAR

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .kubectl import Kubectl
    from .spec import KubernetesPaths


_FIRST, _END = b"/registry/secrets/", b"/registry/secrets0"
_PAGE = 32
_MAX_ANSWER_BYTES = 64 << 20
"""A page of Secrets of the largest size that the API takes, in base64."""

_TIMEOUT_SECONDS = 30
_LOCAL = "https://127.0.0.1:2379"
_CLOSED = b"k8s:enc:"
_BOX = b"k8s:enc:secretbox:v1:"
_NAME_LIMIT = 64


@dataclass(frozen=True, slots=True, order=True)
class SecretName:
    """A Secret by namespace and name."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSecrets:
    """The Secrets in etcd by the name of the key that closes them, `CLEAR` for those in clear."""

    by_key: Mapping[str, tuple[SecretName, ...]]

    @property
    def counts(self) -> dict[str, int]:
        """How many there are under each name."""
        return {name: len(found) for name, found in sorted(self.by_key.items())}

    def but(self, name: str) -> tuple[SecretName, ...]:
        """Return those that are not closed by the key ``name``, in order."""
        return tuple(sorted(one for key, found in self.by_key.items() if key != name for one in found))


class Etcd(Protocol):
    """Where values are read from."""

    def pages(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys and values from ``first`` up to and without ``end``; raises ETCD_UNREADABLE."""


class EtcdGateway:
    """One member of etcd over its JSON gateway."""

    def __init__(self, url: str, *, context: ssl.SSLContext | None = None) -> None:
        """Keep where it listens; ``context`` has the client's certificate."""
        self._url = urlsplit(url)
        self._context = context

    @classmethod
    def local(cls, paths: KubernetesPaths) -> EtcdGateway:
        """Return the member of this control plane, asked with the API server's own certificate."""
        pki = paths.kubernetes / "pki"
        try:
            context = ssl.create_default_context(cafile=str(pki / "etcd/ca.crt"))
            context.load_cert_chain(pki / "apiserver-etcd-client.crt", pki / "apiserver-etcd-client.key")
        except OSError as error:
            raise _unreadable(f"cannot use {pki}: {error.strerror or type(error).__name__}") from error
        return cls(_LOCAL, context=context)

    def pages(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys and values, read page by page; raises ETCD_UNREADABLE."""
        while True:
            found, more = self._page(first, end)
            yield from found
            if not found or not more:
                return
            first = found[-1][0] + b"\0"

    def _page(self, first: bytes, end: bytes) -> tuple[list[tuple[bytes, bytes]], bool]:
        asked = {"key": _text(first), "range_end": _text(end), "limit": str(_PAGE)}
        try:
            answer = load_json(self._post("/v3/kv/range", json.dumps(asked).encode()), limit=_MAX_ANSWER_BYTES)
            found = [(base64.b64decode(one["key"]), base64.b64decode(one["value"])) for one in answer.get("kvs", ())]
        except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError, AttributeError) as error:
            raise _unreadable(f"etcd did not answer: {type(error).__name__}") from None
        return found, bool(answer.get("more"))

    def _post(self, path: str, body: bytes) -> bytes:
        connection = self._connect()
        try:
            connection.request("POST", path, body=body, headers={"Content-Type": "application/json"})
            answer = connection.getresponse()
            data = answer.read(_MAX_ANSWER_BYTES + 1)
        finally:
            connection.close()
        if answer.status != http.client.OK or len(data) > _MAX_ANSWER_BYTES:
            raise ValueError(answer.status)
        return data

    def _connect(self) -> http.client.HTTPConnection:
        host, port = str(self._url.hostname), self._url.port
        if self._context is None:
            return http.client.HTTPConnection(host, port, timeout=_TIMEOUT_SECONDS)
        return http.client.HTTPSConnection(host, port, timeout=_TIMEOUT_SECONDS, context=self._context)


def survey(etcd: Etcd) -> StoredSecrets:
    """Return by which key each Secret is closed; raises ETCD_UNREADABLE, ENCRYPTION_FOREIGN."""
    found: dict[str, list[SecretName]] = {}
    for key, value in etcd.pages(_FIRST, _END):
        found.setdefault(closed_by(value), []).append(_name(key))
    return StoredSecrets(by_key={name: tuple(names) for name, names in found.items()})


def closed_by(value: bytes) -> str:
    """Return the name of the key that closes a value of etcd; raises ENCRYPTION_FOREIGN for another cipher."""
    if not value.startswith(_CLOSED):
        return CLEAR
    name, colon, _rest = value.removeprefix(_BOX)[: _NAME_LIMIT + 1].partition(b":")
    if not value.startswith(_BOX) or not colon:
        raise KubeadmError(
            "expected Secrets that secretbox closed, etcd has one of another provider", reason=Reason.ENCRYPTION_FOREIGN
        )
    return name.decode("ascii", "replace")


def _name(key: bytes) -> SecretName:
    namespace, _slash, name = key.removeprefix(_FIRST).decode("utf-8", "replace").partition("/")
    return SecretName(namespace, name)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _unreadable(message: str) -> KubeadmError:
    return KubeadmError(f"expected to read etcd on this control plane, {message}", reason=Reason.ETCD_UNREADABLE)


# Every Secret is written again under the first key, as it is.
#
# The API server does it, by a patch that changes nothing: what etcd has under another key it writes anew. No value of a
# Secret comes here, and a Secret that somebody changes at the same moment is his: the API server tries again.

_ROUNDS = 3
_NAMES_A_CALL = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewritten:
    """How many Secrets were written again in one go, how many are left, and how many there are."""

    done: int
    left: int
    total: int


def rewrite(etcd: Etcd, kubectl: Kubectl, *, key: str, most: int) -> Rewritten:
    """Write up to ``most`` Secrets again that another key than ``key`` closes.

    Raises ENCRYPTION_REWRITE_FAILED where some stay as they are after three tries, ETCD_UNREADABLE.
    """
    found = survey(etcd)
    batch, said = set(found.but(key)[:most]), ""
    for _round in range(_ROUNDS):
        if not batch.intersection(found.but(key)):
            break
        said = _write(kubectl, sorted(batch.intersection(found.but(key)))) or "etcd has them as before"
        found = survey(etcd)
    stuck = sorted(batch.intersection(found.but(key)))
    if not stuck:
        return Rewritten(done=len(batch), left=len(found.but(key)), total=sum(found.counts.values()))
    raise KubeadmError(
        f"expected {len(batch)} Secrets under {key}, {len(stuck)} are not "
        f"({stuck[0].namespace}/{stuck[0].name}): {said}",
        reason=Reason.ENCRYPTION_REWRITE_FAILED,
    )


def _write(kubectl: Kubectl, secrets: list[SecretName]) -> str:
    """Have Secrets written again and return what kubectl said of those that were not."""
    said = [
        kubectl.write_again("secret", names, namespace=namespace)
        for namespace, found in groupby(secrets, key=lambda one: one.namespace)
        for names in _batches([one.name for one in found])
    ]
    return "\n".join(text for text in said if text)


def _batches(names: list[str]) -> list[list[str]]:
    return [names[start : start + _NAMES_A_CALL] for start in range(0, len(names), _NAMES_A_CALL)]
