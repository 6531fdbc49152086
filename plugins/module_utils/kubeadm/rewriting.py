# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every Secret is written again under the first key, as it is.

The API server does it, by a patch that changes nothing: what etcd has under another key it writes anew. No value of a
Secret comes here, and a Secret that somebody changes at the same moment is his: the API server tries again.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from ..errors import KubeadmError
from ..reasons import Reason
from .stored import survey

if TYPE_CHECKING:
    from .kubectl import Kubectl
    from .stored import Etcd, SecretName

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
