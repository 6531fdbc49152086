# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Send keys from one control plane to another, sealed to evidence that the admin's machine has verified.

    source → admin    offer: a one-time public key; its private key stays on root-only tmpfs of the source
    target → admin    evidence for the purpose ``share``; the admin's machine verifies it by the site
    admin  → source   order, HPKE to the offer: activation secret, binding and one-time key of that evidence
    source → target   box of the keys (`transport.sealed_box.seal`), to that machine in that state

The admin's machine never has the keys. Only the source can open the order, and only the target can open the box.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.documents import load_json
from ..core.host import SystemClock
from ..errors import SystemFault
from ..kubeadm.ca_files import AuthorityFiles, render_successors
from ..kubeadm.encryption import render_keys
from ..kubeadm.spec import KubernetesPaths
from ..reasons import Reason
from ..result import Result
from ..rotation.authorities import AUTHORITIES
from ..transport.sealed_box import OneTimeKey, open_to_key, seal, seal_to_key
from .answers import decode
from .authorization import OfferStore
from .encryption_rotation import plane_encryption

if TYPE_CHECKING:
    from collections.abc import Mapping

OFFERS = Path("/run/attested/share-offers")

_USE = b"encryption-key-order/"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareOrder:
    """The names of the keys that a source sends, and the arguments of `transport.sealed_box.seal`."""

    names: tuple[str, ...]
    secret: bytes = field(repr=False)
    binding: bytes
    recipient: bytes

    def seal(self, *, offer: bytes) -> bytes:
        """Return the order sealed to the one-time key that the source offered."""
        document = {
            "names": list(self.names),
            "secret": self.secret.hex(),
            "binding": self.binding.hex(),
            "recipient": self.recipient.hex(),
        }
        return seal_to_key(json.dumps(document).encode("ascii"), recipient=offer, binding=_USE + offer)

    def box(self, plaintext: bytes) -> bytes:
        """Return ``plaintext`` sealed to the verified target."""
        return seal(plaintext, secret=self.secret, binding=self.binding, recipient=self.recipient)


def open_orders(sealed: dict[str, bytes], *, handle: str, offers: OfferStore) -> dict[str, ShareOrder]:
    """Return the orders by the name of their target; the offer of ``handle`` is removed.

    Raises ANSWER_UNKNOWN, SEAL_UNOPENABLE, OPTION_INVALID.
    """
    key = offers.take(handle)
    binding = _USE + key.public
    return {node: _parse(open_to_key(box, key=key, binding=binding)) for node, box in sorted(sealed.items())}


def run_share(params: Mapping[str, Any], check_mode: bool) -> Result:  # noqa: ARG001  # writes tmpfs only
    """Offer a one-time key, or seal the keys of this control plane to the targets of the orders."""
    offers = OfferStore(OFFERS)
    if params["orders"] is None:
        key = OneTimeKey.generate()
        return Result(values={"handle": offers.put(key), "offer": _encode(key.public)})
    sealed = {str(node): decode(str(text), "orders") for node, text in params["orders"].items()}
    orders = open_orders(sealed, handle=params["handle"] or "", offers=offers)
    render = _successors if params["kind"] == "authorities" else _keys
    return Result(values={"boxes": {node: _encode(one.box(render(one, params))) for node, one in orders.items()}})


def require_authorities(order: ShareOrder) -> None:
    """Raise OPTION_INVALID unless the order names exactly the successors of all CAs."""
    wanted = {one.name for one in AUTHORITIES}
    if set(order.names) != wanted:
        raise SystemFault(
            f"expected an order for {', '.join(sorted(wanted))}, got one for {', '.join(order.names)[:200]}",
            reason=Reason.OPTION_INVALID,
        )


def _successors(order: ShareOrder, _params: Mapping[str, Any]) -> bytes:
    require_authorities(order)
    return render_successors(AuthorityFiles(KubernetesPaths(), clock=SystemClock()).staged())


def _keys(order: ShareOrder, params: Mapping[str, Any]) -> bytes:
    return render_keys(plane_encryption(params).give(order.names))


def _encode(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _parse(data: bytes) -> ShareOrder:
    try:
        document = load_json(data)
        return ShareOrder(
            names=tuple(str(name) for name in document["names"]),
            secret=bytes.fromhex(document["secret"]),
            binding=bytes.fromhex(document["binding"]),
            recipient=bytes.fromhex(document["recipient"]),
        )
    except (ValueError, KeyError, TypeError):
        raise SystemFault(
            "expected an order as this release writes it, got something else", reason=Reason.OPTION_INVALID
        ) from None  # the cause would contain the text, and with it the secret
