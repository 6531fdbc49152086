# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The key service's secrets on a control plane.

At rest they are encrypted with AES-256-GCM under a wrapping key. Without a state disk the TPM seals that key to the
verified registers and the unlocked nodelock value: only this machine, in the verified boot and not yet locked, can open
it. On a state disk, which opens only after the machine was verified, the wrapping key is stored in the same file
(docs/adr/0048). The opened copy is on root-only tmpfs: it outlives the process, but not the boot.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from .._deps.crypto import aead, exceptions
from ..core.documents import load_json
from ..core.files import make_directory, read_bytes, require_no_swap, require_tmpfs, write_atomic
from ..core.host import SystemRandom
from ..errors import KeyServiceError, TpmError
from ..reasons import Reason
from ..tpm.storage import SealedObject, seal, unseal
from ..transport.binding import label, length_prefixed
from .key_bundle import KeyBundle, KeyPaths

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from ..core.host import Random
    from ..tpm.client import Tpm

_VERSION = 1
_ALGORITHM = "AES-256-GCM"
_KEY_BYTES = 32
_NONCE_BYTES = 12
_USE = "key-service/rest"
_LIMIT = 1 << 20
_ON_DISK = "state-disk:"


class Sealer(Protocol):
    """Binds a short secret to this machine's TPM and to register values."""

    def seal(self, secret: bytes, pcrs: Mapping[int, bytes]) -> str:
        """Return ``secret`` as text that opens only while the registers hold ``pcrs`` (SHA-256 bank)."""

    def unseal(self, sealed: str) -> bytes:
        """Return the secret; raises `TpmError` TPM_POLICY_MISMATCH if the registers differ."""


class TpmSealer:
    """The real sealer, over an open TPM."""

    def __init__(self, tpm: Tpm) -> None:
        """Use ``tpm`` as long as its connection is open."""
        self._tpm = tpm

    def seal(self, secret: bytes, pcrs: Mapping[int, bytes]) -> str:
        """Return ``secret`` sealed under PolicyPCR."""
        return seal(self._tpm, secret, pcrs).to_json()

    def unseal(self, sealed: str) -> bytes:
        """Return the secret, which the TPM sends in an encrypted session."""
        return unseal(self._tpm, SealedObject.from_json(sealed))


class DiskSealer:
    """The sealer for a copy on the node's open state disk: the encryption of the disk protects it."""

    def seal(self, secret: bytes, pcrs: Mapping[int, bytes]) -> str:
        """Return ``secret`` as text, independent of the registers: the disk protects it."""
        del pcrs
        return _ON_DISK + base64.b64encode(secret).decode("ascii")

    def unseal(self, sealed: str) -> bytes:
        """Return the secret; raises KEYS_DAMAGED."""
        try:
            return base64.b64decode(sealed.removeprefix(_ON_DISK), validate=True)
        except binascii.Error as error:
            raise _damaged("a wrapping key in base64") from error


class RestSealer:
    """Opens both kinds of sealed text, and seals for the TPM or for the state disk."""

    def __init__(self, tpm: Tpm, *, on_disk: bool = False) -> None:
        """Use ``tpm`` as long as its connection is open; ``on_disk``: seal for a copy on the open state disk."""
        self._by_tpm, self._by_disk = TpmSealer(tpm), DiskSealer()
        self._on_disk = on_disk

    def seal(self, secret: bytes, pcrs: Mapping[int, bytes]) -> str:
        """Return ``secret`` sealed."""
        return (self._by_disk if self._on_disk else self._by_tpm).seal(secret, pcrs)

    def unseal(self, sealed: str) -> bytes:
        """Return the secret; raises as the two sealers do."""
        return (self._by_disk if sealed.startswith(_ON_DISK) else self._by_tpm).unseal(sealed)


def _in_memory(directory: Path) -> None:
    require_tmpfs(directory)
    require_no_swap()


class KeyStore:
    """The two copies of one cluster's secrets on this control plane."""

    def __init__(self, paths: KeyPaths | None = None, *, require_memory: Callable[[Path], None] = _in_memory) -> None:
        """Store the paths; ``require_memory`` raises unless a directory is on tmpfs and swap is off."""
        self._paths = paths or KeyPaths()
        self._require_memory = require_memory

    @property
    def paths(self) -> KeyPaths:
        """The paths of the two copies."""
        return self._paths

    def write(
        self, bundle: KeyBundle, sealer: Sealer, *, pcrs: Mapping[int, bytes], random: Random | None = None
    ) -> bool:
        """Store ``bundle`` at rest, sealed to ``pcrs``, and opened on tmpfs; return whether anything changed.

        ``pcrs`` are the verified registers and the *unlocked* nodelock register, so write before the lock is taken.
        """
        if self._holds(bundle, pcrs):
            return False
        self._prepare(self._paths.opened)
        _private_directory(self._paths.rest)
        rest = wrap(bundle, sealer, pcrs=pcrs, random=random or SystemRandom())
        write_atomic(self._paths.rest_file, rest)
        write_atomic(self._paths.opened_file, bundle.to_bytes())
        return True

    def opened(self) -> KeyBundle | None:
        """Return the opened copy of this boot, or None."""
        if not self._paths.opened_file.exists():
            return None
        return KeyBundle.from_bytes(read_bytes(self._paths.opened_file, limit=_LIMIT))

    def note_held(self, bundle: KeyBundle) -> None:
        """Store the names of the master secret versions that the key service has loaded; it calls this at its start."""
        write_atomic(self._paths.held_file, json.dumps(list(bundle.ring.names)).encode("ascii") + b"\n")

    def held(self) -> tuple[str, ...]:
        """Return the names that `note_held` stored in this boot; none if the key service did not start."""
        if not self._paths.held_file.exists():
            return ()
        return tuple(map(str, json.loads(read_bytes(self._paths.held_file, limit=_LIMIT))))

    def is_on_disk(self) -> bool:
        """Return whether the copy at rest exists and is one for a state disk; raises KEYS_DAMAGED."""
        if not self._paths.rest_file.exists():
            return False
        return _parse(read_bytes(self._paths.rest_file, limit=_LIMIT)).wrapping_key.startswith(_ON_DISK)

    def unlock(self, sealer: Sealer) -> KeyBundle:
        """Open the copy at rest, unless it was opened in this boot already.

        Raises KEYS_ABSENT (nothing at rest), STATE_CHANGED (another boot, or locked already) and KEYS_DAMAGED.
        """
        found = self.opened()
        if found is not None:
            return found
        if not self._paths.rest_file.exists():
            raise KeyServiceError(f"expected keys in {self._paths.rest_file}, found none", reason=Reason.KEYS_ABSENT)
        bundle = unwrap(read_bytes(self._paths.rest_file, limit=_LIMIT), sealer)
        self._prepare(self._paths.opened)
        write_atomic(self._paths.opened_file, bundle.to_bytes())
        return bundle

    def _holds(self, bundle: KeyBundle, pcrs: Mapping[int, bytes]) -> bool:
        if not self._paths.rest_file.exists() or self.opened() != bundle:
            return False
        rest = _parse(read_bytes(self._paths.rest_file, limit=_LIMIT))
        return rest.cluster_id == bundle.cluster_id and rest.registers == _registers(pcrs)

    def _prepare(self, directory: Path) -> None:
        _private_directory(directory)
        self._require_memory(directory)


def wrap(bundle: KeyBundle, sealer: Sealer, *, pcrs: Mapping[int, bytes], random: Random) -> bytes:
    """Return the copy at rest: JSON with the ciphertext and the sealed wrapping key."""
    key, nonce = random.token(_KEY_BYTES), random.token(_NONCE_BYTES)
    ciphertext = aead.AESGCM(key).encrypt(nonce, bundle.to_bytes(), _associated_data(bundle.cluster_id))
    document = {
        "version": _VERSION,
        "algorithm": _ALGORITHM,
        "cluster_id": bundle.cluster_id.hex(),
        "registers": _registers(pcrs),
        "wrapping_key": sealer.seal(key, pcrs),
        "nonce": base64.b64encode(nonce).decode("ascii"),
        "ciphertext": base64.b64encode(ciphertext).decode("ascii"),
    }
    return json.dumps(document, indent=1, sort_keys=True).encode("ascii") + b"\n"


def unwrap(data: bytes, sealer: Sealer) -> KeyBundle:
    """Return the bundle of a copy at rest; raises STATE_CHANGED and KEYS_DAMAGED."""
    rest = _parse(data)
    try:
        key = sealer.unseal(rest.wrapping_key)
    except TpmError as error:
        if error.reason is not Reason.TPM_POLICY_MISMATCH:
            raise
        raise KeyServiceError(
            "expected the registers that the keys were sealed to, this boot (or an earlier lock of it) has others",
            reason=Reason.STATE_CHANGED,
        ) from error
    try:
        plain = aead.AESGCM(key).decrypt(rest.nonce, rest.ciphertext, _associated_data(rest.cluster_id))
    except (exceptions.InvalidTag, ValueError):
        raise _damaged("a ciphertext that opens") from None
    return KeyBundle.from_bytes(plain)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rest:
    cluster_id: bytes
    registers: str
    wrapping_key: str
    nonce: bytes
    ciphertext: bytes


def _parse(data: bytes) -> _Rest:
    try:
        document = load_json(data, limit=_LIMIT)
        if (document["version"], document["algorithm"]) != (_VERSION, _ALGORITHM):
            raise _damaged(f"version {_VERSION} with {_ALGORITHM}")
        return _Rest(
            cluster_id=bytes.fromhex(document["cluster_id"]),
            registers=str(document["registers"]),
            wrapping_key=str(document["wrapping_key"]),
            nonce=base64.b64decode(document["nonce"], validate=True),
            ciphertext=base64.b64decode(document["ciphertext"], validate=True),
        )
    except (binascii.Error, ValueError, KeyError, TypeError) as error:
        raise _damaged("the JSON that init wrote") from error


def _damaged(expected: str) -> KeyServiceError:
    return KeyServiceError(f"expected {expected} at rest, got something else", reason=Reason.KEYS_DAMAGED)


def _registers(pcrs: Mapping[int, bytes]) -> str:
    parts = [index.to_bytes(4, "big") + value for index, value in sorted(pcrs.items())]
    return hashlib.sha256(length_prefixed(*parts)).hexdigest()


def _associated_data(cluster_id: bytes) -> bytes:
    return length_prefixed(label(_USE), cluster_id)


def _private_directory(directory: Path) -> None:
    make_directory(directory, mode=0o700)
    directory.chmod(0o700)
