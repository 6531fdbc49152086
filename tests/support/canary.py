# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Search for leaked secrets: all encodings of a secret, and a watch on the processes of this host."""

from __future__ import annotations

import base64
import contextlib
import re
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Self

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key

if TYPE_CHECKING:
    from types import TracebackType

_PEM = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----\n(.*?)-----END", re.DOTALL)
_LINE_BYTES = 32
_LINE_OF_DER = 48
_PAUSE_SECONDS = 0.05
_ROUNDS = 20


def spellings(secret: bytes) -> list[bytes]:
    """Return a raw secret as bytes, in hex, and in base64 at each of the three alignments."""
    aligned = [base64.b64encode(b"\0" * shift + secret)[4 * (shift > 0) : -4] for shift in range(3)]
    return [secret, secret.hex().encode(), secret.hex().upper().encode(), *aligned]


def spellings_of_pem(text: bytes) -> list[bytes]:
    """Return a private key as lines of its PEM body, as DER, and as both in base64 (as in a kubeconfig).

    The public key, which is not secret, contains none of them.
    """
    body = b"".join(found.group(1) for found in _PEM.finditer(text))
    if not body:
        raise ValueError("expected a private key in PEM, found none")
    der = base64.b64decode(body)
    secret = der[len(der) // 3 : len(der) // 3 + _LINE_BYTES]
    lines = [line for line in body.split() if len(line) >= _LINE_BYTES]
    # the first line has the kind of key, which is the same for all keys of that kind
    own = lines[1:] or lines
    with contextlib.suppress(ValueError, UnsupportedAlgorithm):  # the OpenSSH format has no DER
        scalar = _scalar(load_pem_private_key(text, None))
        secret = scalar or secret
        place = der.index(secret) // _LINE_OF_DER
        own = body.split()[place : place + (1 if scalar else 3)]
    return [*own[:3], *spellings(secret), *(one for line in own[:2] for one in spellings(line)[3:])]


def _scalar(key: object) -> bytes:
    """Return the secret number of an elliptic-curve key, which is a part of its DER; nothing for other keys."""
    if isinstance(key, ec.EllipticCurvePrivateKey):
        return key.private_numbers().private_value.to_bytes((key.key_size + 7) // 8)
    return b""


class ProcessWatch:
    """Read argv and environment of all processes of this host, including those in containers, until it is stopped.

    A process is read again during its first second: until its program has started, it shows nothing or its parent's.
    """

    def __init__(self) -> None:
        """Set empty results."""
        self._seen: set[tuple[str, bytes]] = set()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Stop."""
        self._ended.set()
        self._thread.join()

    def seen(self) -> list[tuple[str, bytes]]:
        """Return channel and bytes of everything seen so far."""
        return list(self._seen)

    def _watch(self) -> None:
        rounds: dict[str, int] = {}
        while not self._ended.wait(_PAUSE_SECONDS):
            rounds = {path.name: rounds.get(path.name, 0) + 1 for path in Path("/proc").glob("[0-9]*")}
            for name, count in rounds.items():
                if count <= _ROUNDS:
                    self._read(name)

    def _read(self, process: str) -> None:
        for channel, name in (("argv", "cmdline"), ("environment", "environ")):
            try:
                self._seen.add((channel, Path(f"/proc/{process}/{name}").read_bytes()))
            except OSError:
                continue  # the process has ended
