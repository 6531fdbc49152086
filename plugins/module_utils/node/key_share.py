# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A key for Secrets at rest goes from one control plane to another, sealed to what the admin's machine has judged.

    source → admin    offer: a one-time public key; its private half stays on root-only tmpfs of the source
    target → admin    evidence for the purpose ``share``; the admin's machine judges it by the site
    admin  → source   order, HPKE to the offer: activation secret, binding and one-time key of that evidence
    source → target   box of the keys (`transport.sealed_box.seal`), to that machine in that state

The admin's machine never has the key, and what it carries (offer, order, box) nobody else can open.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.documents import load_json
from ..errors import SystemFault
from ..reasons import Reason
from ..transport.sealed_box import open_to_key, seal, seal_to_key

if TYPE_CHECKING:
    from .authorization import OfferStore

OFFERS = Path("/run/attested/share-offers")

_USE = b"encryption-key-order/"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareOrder:
    """To whom a source gives which keys (names): what `transport.sealed_box.seal` takes."""

    names: tuple[str, ...]
    secret: bytes = field(repr=False)
    binding: bytes
    recipient: bytes

    def seal(self, *, offer: bytes) -> bytes:
        """Return it sealed to the one-time key that the source offered."""
        document = {
            "names": list(self.names),
            "secret": self.secret.hex(),
            "binding": self.binding.hex(),
            "recipient": self.recipient.hex(),
        }
        return seal_to_key(json.dumps(document).encode("ascii"), recipient=offer, binding=_USE + offer)

    def box(self, plaintext: bytes) -> bytes:
        """Return ``plaintext`` sealed to the machine that was judged."""
        return seal(plaintext, secret=self.secret, binding=self.binding, recipient=self.recipient)


def open_orders(sealed: dict[str, bytes], *, handle: str, offers: OfferStore) -> dict[str, ShareOrder]:
    """Return the orders by name of their target; the offer of ``handle`` is used up.

    Raises ANSWER_UNKNOWN, SEAL_UNOPENABLE, OPTION_INVALID.
    """
    key = offers.take(handle)
    binding = _USE + key.public
    return {node: _parse(open_to_key(box, key=key, binding=binding)) for node, box in sorted(sealed.items())}


def encode(data: bytes) -> str:
    """Return ``data`` in base64."""
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
        ) from None  # the cause would carry the text, and the secret is in it
