# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find which key each Secret in etcd is encrypted with, from the prefix of its value; nothing else of it is kept."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Protocol

from ..errors import KubeadmError
from ..reasons import Reason
from ..rotation.encryption_key import CLEAR

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .kubectl import Kubectl


_FIRST, _END = b"/registry/secrets/", b"/registry/secrets0"
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

    def except_key(self, name: str) -> tuple[SecretName, ...]:
        """Return those that are not closed by the key ``name``, in order."""
        return tuple(sorted(one for key, found in self.by_key.items() if key != name for one in found))


class Etcd(Protocol):
    """Where values are read from."""

    def pages(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys and values from ``first`` up to and without ``end``; raises ETCD_UNREACHABLE, ETCD_REFUSED."""


def survey(etcd: Etcd) -> StoredSecrets:
    """Return by which key each Secret is closed; raises ETCD_UNREACHABLE, ETCD_REFUSED, ENCRYPTION_FOREIGN."""
    found: dict[str, list[SecretName]] = {}
    for key, value in etcd.pages(_FIRST, _END):
        found.setdefault(key_of(value), []).append(_name(key))
    return StoredSecrets(by_key={name: tuple(names) for name, names in found.items()})


def key_of(value: bytes) -> str:
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

    Raises ENCRYPTION_REWRITE_FAILED where some stay as they are after three tries, ETCD_UNREACHABLE, ETCD_REFUSED.
    """
    found = survey(etcd)
    batch, said = set(found.except_key(key)[:most]), ""
    for _round in range(_ROUNDS):
        if not batch.intersection(found.except_key(key)):
            break
        said = _write(kubectl, sorted(batch.intersection(found.except_key(key)))) or "etcd has them as before"
        found = survey(etcd)
    stuck = sorted(batch.intersection(found.except_key(key)))
    if not stuck:
        return Rewritten(done=len(batch), left=len(found.except_key(key)), total=sum(found.counts.values()))
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
