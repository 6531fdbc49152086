# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find which key encrypts each Secret in etcd, from the prefix of its value.

The rest of the value is discarded.
"""

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
_ENCRYPTED = b"k8s:enc:"
_BOX = b"k8s:enc:secretbox:v1:"
_NAME_LIMIT = 64


@dataclass(frozen=True, slots=True, order=True)
class SecretName:
    """A Secret by namespace and name."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSecrets:
    """The Secrets in etcd by the name of the key that encrypts them; `CLEAR` for those in clear."""

    by_key: Mapping[str, tuple[SecretName, ...]]

    @property
    def counts(self) -> dict[str, int]:
        """The number of Secrets by the name of their key."""
        return {name: len(found) for name, found in sorted(self.by_key.items())}

    def except_key(self, name: str) -> tuple[SecretName, ...]:
        """Return the Secrets that the key ``name`` does not encrypt, sorted."""
        return tuple(sorted(one for key, found in self.by_key.items() if key != name for one in found))


class Etcd(Protocol):
    """Reads keys and values of etcd."""

    def pages(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys and values from ``first`` up to but excluding ``end``.

        Raises ETCD_UNREACHABLE, ETCD_REFUSED.
        """


def survey(etcd: Etcd) -> StoredSecrets:
    """Return the Secrets by the key that encrypts them.

    Raises ETCD_UNREACHABLE, ETCD_REFUSED, ENCRYPTION_FOREIGN.
    """
    found: dict[str, list[SecretName]] = {}
    for key, value in etcd.pages(_FIRST, _END):
        found.setdefault(key_of(value), []).append(_name(key))
    return StoredSecrets(by_key={name: tuple(names) for name, names in found.items()})


def key_of(value: bytes) -> str:
    """Return the name of the key that encrypts a value of etcd.

    Raises ENCRYPTION_FOREIGN for another cipher.
    """
    if not value.startswith(_ENCRYPTED):
        return CLEAR
    name, colon, _rest = value.removeprefix(_BOX)[: _NAME_LIMIT + 1].partition(b":")
    if not value.startswith(_BOX) or not colon:
        raise KubeadmError(
            "expected Secrets that secretbox encrypts, etcd has a Secret of another provider",
            reason=Reason.ENCRYPTION_FOREIGN,
        )
    return name.decode("ascii", "replace")


def _name(key: bytes) -> SecretName:
    namespace, _slash, name = key.removeprefix(_FIRST).decode("utf-8", "replace").partition("/")
    return SecretName(namespace, name)


# Every Secret is written again, unchanged, so that the first key encrypts it.
#
# An empty patch makes the API server write a Secret again if another key encrypts it in etcd. No value of a Secret is
# read here. If a client changes the Secret at the same time, the API server repeats the patch on the changed Secret.

_ROUNDS = 3
_NAMES_A_CALL = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewritten:
    """The numbers of Secrets that one call has written again, that are left, and that exist."""

    done: int
    left: int
    total: int


def rewrite(etcd: Etcd, kubectl: Kubectl, *, key: str, most: int) -> Rewritten:
    """Write up to ``most`` Secrets again that ``key`` does not encrypt yet.

    Raises ENCRYPTION_REWRITE_FAILED if some are unchanged after three attempts, ETCD_UNREACHABLE, ETCD_REFUSED.
    """
    found = survey(etcd)
    batch, refusals = set(found.except_key(key)[:most]), ""
    for _round in range(_ROUNDS):
        if not batch.intersection(found.except_key(key)):
            break
        refusals = _write(kubectl, sorted(batch.intersection(found.except_key(key)))) or "they are unchanged in etcd"
        found = survey(etcd)
    stuck = sorted(batch.intersection(found.except_key(key)))
    if not stuck:
        return Rewritten(done=len(batch), left=len(found.except_key(key)), total=sum(found.counts.values()))
    raise KubeadmError(
        f"expected {len(batch)} Secrets under {key}, {len(stuck)} are not "
        f"({stuck[0].namespace}/{stuck[0].name}): {refusals}",
        reason=Reason.ENCRYPTION_REWRITE_FAILED,
    )


def _write(kubectl: Kubectl, secrets: list[SecretName]) -> str:
    """Write Secrets again and return the last lines of kubectl for those that failed."""
    refusals = [
        kubectl.write_again("secret", names, namespace=namespace)
        for namespace, found in groupby(secrets, key=lambda one: one.namespace)
        for names in _batches([one.name for one in found])
    ]
    return "\n".join(text for text in refusals if text)


def _batches(names: list[str]) -> list[list[str]]:
    return [names[start : start + _NAMES_A_CALL] for start in range(0, len(names), _NAMES_A_CALL)]
