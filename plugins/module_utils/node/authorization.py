# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The work of the module ``tpm_authorization``: TPM auth values arrive sealed to a one-time key and stay on tmpfs.

    admin → node   offer: the node makes a key pair, keeps the private key on root-only tmpfs, returns the public key
    admin → node   box: HPKE to that key; the node opens it once, tries the values on its TPM, and stores them

Ansible's arguments, files and logs contain only the box. The ssh host key authenticates the node.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.documents import load_json
from ..core.files import make_directory, read_bytes, remove, write_atomic
from ..errors import SystemFault
from ..reasons import Reason
from ..result import Result
from ..tpm.authorization import HIERARCHY_NAMES, MAX_AUTH_BYTES, HeldAuths, in_memory
from ..tpm.client import open_tpm
from ..tpm.constants import RH_ENDORSEMENT, RH_OWNER
from ..transport.sealed_box import OneTimeKey, open_to_key, seal_to_key

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..tpm.client import Tpm, TpmProperties

OFFERS = Path("/run/attested/offers")
_HANDLE = re.compile(r"[0-9a-f]{32}")
_HANDLE_BYTES = 16
_NUMBERS = {name: number for number, name in HIERARCHY_NAMES.items()}


class OfferStore:
    """Stores private keys until their box arrives, each in one file that is removed when it is read."""

    def __init__(self, directory: Path = OFFERS, *, require_memory: Callable[[Path], None] = in_memory) -> None:
        """Store the directory; ``require_memory`` raises unless it is on tmpfs and swap is off."""
        self._directory = directory
        self._require_memory = require_memory

    def put(self, key: OneTimeKey) -> str:
        """Store a key and return its handle; older keys are removed."""
        make_directory(self._directory, mode=0o700)
        self._require_memory(self._directory)
        for old in self._directory.iterdir():
            remove(old)
        handle = key.public[:_HANDLE_BYTES].hex()
        write_atomic(self._directory / handle, key.export())
        return handle

    def take(self, handle: str) -> OneTimeKey:
        """Return the key of ``handle`` and remove its file; raises ANSWER_UNKNOWN."""
        path = self._directory / handle
        if not _HANDLE.fullmatch(handle) or not path.exists():
            raise SystemFault(
                f"expected an offer that waits, found none for {handle[:64]!r}", reason=Reason.ANSWER_UNKNOWN
            )
        data = read_bytes(path)
        remove(path)
        return OneTimeKey.restore(data)


def seal_auths(auths: Mapping[int, bytes], *, public: bytes) -> bytes:
    """Return the box of ``auths`` (RH_OWNER, RH_ENDORSEMENT) to the key that a node offered."""
    document = {HIERARCHY_NAMES[hierarchy]: value.hex() for hierarchy, value in auths.items()}
    return seal_to_key(json.dumps(document).encode("ascii"), recipient=public, binding=_binding(public))


def parse_auth(text: str, *, name: str) -> bytes:
    """Return the auth value in ``text``: plain text, or ``hex:…`` as tpm2-tools write it.

    Raises OPTION_INVALID. ``name`` is the name of the variable; no message contains the value. A TPM ignores trailing
    zero bytes, so they are removed.
    """
    try:
        value = bytes.fromhex(text.removeprefix("hex:")) if text.startswith("hex:") else text.encode("utf-8")
    except ValueError:
        value = b""
    value = value.rstrip(b"\0")
    if not 1 <= len(value) <= MAX_AUTH_BYTES:
        raise SystemFault(
            f"expected 1 to {MAX_AUTH_BYTES} bytes in {name}, as text or as hex:…, got something else",
            reason=Reason.OPTION_INVALID,
        )
    return value


def run_tpm_authorization(
    params: Mapping[str, Any], check_mode: bool, *, require_memory: Callable[[Path], None] = in_memory
) -> Result:
    """Offer a key, store the auth values that were sealed to it, or (``state`` absent) remove them.

    ``require_memory`` raises unless a directory is on tmpfs and swap is off.
    """
    held = HeldAuths(params["tcti"], require_memory=require_memory)
    store = OfferStore(require_memory=require_memory)
    if params["state"] == "absent":
        forgets = bool(held.read())
        if not check_mode:
            held.write({})
        return Result(changed=forgets, values={"held": []})
    timeout = params["tpm_timeout_seconds"]
    if params["sealed"] is None:
        with open_tpm(params["tcti"], timeout_seconds=timeout) as tpm:
            return Result(values=_offer(tpm.properties(), held.read(), None if check_mode else store))
    auths = _open(params["sealed"], store.take(params["handle"] or ""))
    with open_tpm(params["tcti"], timeout_seconds=timeout, auths=auths) as tpm:
        _prove(tpm, auths)
    changed = held.read() != auths if check_mode else held.write(auths)
    return Result(changed=changed, values={"held": _names(auths)})


def _offer(known: TpmProperties, held: Mapping[int, bytes], store: OfferStore | None) -> dict[str, Any]:
    demanded = {RH_ENDORSEMENT: known.endorsement_auth_set, RH_OWNER: known.owner_auth_set}
    values: dict[str, Any] = {
        "held": _names(held),
        "demanded": _names([hierarchy for hierarchy, is_set in demanded.items() if is_set]),
    }
    if store is None:
        return values
    key = OneTimeKey.generate()
    return {**values, "handle": store.put(key), "offer": base64.b64encode(key.public).decode("ascii")}


def _open(box: str, key: OneTimeKey) -> dict[int, bytes]:
    try:
        sealed = base64.b64decode(box, validate=True)
    except (binascii.Error, ValueError) as error:
        raise SystemFault("expected base64 in sealed, got something else", reason=Reason.OPTION_INVALID) from error
    document = load_json(open_to_key(sealed, key=key, binding=_binding(key.public)))
    return {_NUMBERS[name]: bytes.fromhex(value) for name, value in document.items()}


def _prove(tpm: Tpm, auths: Mapping[int, bytes]) -> None:
    for hierarchy in auths:
        tpm.prove_authorization(hierarchy)


def _names(hierarchies: Mapping[int, bytes] | list[int]) -> list[str]:
    return sorted(HIERARCHY_NAMES[hierarchy] for hierarchy in hierarchies)


def _binding(public: bytes) -> bytes:
    return b"tpm-authorization/" + public
