# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The init secret, for whoever has no certificate: hashed at rest, compared in constant time, delayed per source."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import Refusal, SiteError
from ..reasons import Reason

if TYPE_CHECKING:
    from ..core.host import Clock, Random

MAX_WAIT_SECONDS = 60.0
"""A source waits at most this long: whoever mistypes is delayed and never locked out."""

_KIND = "scrypt"
_LOG2_N, _R, _P = 14, 8, 1
_MAX_LOG2_N = 17
_SALT_BYTES = 16
_HASH_BYTES = 32
_MAX_SECRET_BYTES = 256
_MAX_SOURCES = 4096


@dataclass(frozen=True, slots=True)
class _Hashed:
    log2_n: int
    salt: bytes
    digest: bytes


def hash_init_secret(secret: bytes, *, random: Random) -> str:
    """Return ``scrypt$<log2 N>$<salt>$<hash>`` (base64; r = 8, p = 1) of a secret of at most 256 bytes."""
    salt = random.token(_SALT_BYTES)
    digest = _scrypt(secret, _Hashed(_LOG2_N, salt, b""))
    return "$".join((_KIND, str(_LOG2_N), _text(salt), _text(digest)))


def verify_init_secret(secret: bytes, hashed: str) -> None:
    """Raise unless ``secret`` is the one that was hashed: INIT_SECRET_WRONG, INIT_SECRET_HASH_MALFORMED."""
    wanted = _parsed(hashed)
    if not hmac.compare_digest(_scrypt(secret[:_MAX_SECRET_BYTES], wanted), wanted.digest):
        raise Refusal("expected the init secret of this machine, got another", reason=Reason.INIT_SECRET_WRONG)


class SourceDelays:
    """Lets a source that was wrong wait: 1, 2, 4 … `MAX_WAIT_SECONDS`; may be used by several threads."""

    def __init__(self, *, clock: Clock) -> None:
        """Begin with nobody."""
        self._clock = clock
        self._lock = threading.Lock()
        self._failures: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def require(self, source: str) -> None:
        """Raise INIT_SECRET_DELAYED, with the time that is left, while ``source`` has to wait."""
        with self._lock:
            count, last = self._failures.get(source, (0, 0.0))
        if not count:
            return
        left = last + min(MAX_WAIT_SECONDS, 2.0 ** min(count - 1, 10)) - self._clock.monotonic()
        if left > 0:
            raise Refusal(
                f"expected no further try from {source} for {left:.1f} s, got one",
                reason=Reason.INIT_SECRET_DELAYED,
                retry_after_seconds=left,
            )

    def failed(self, source: str) -> None:
        """Note that ``source`` was wrong."""
        with self._lock:
            count, _last = self._failures.pop(source, (0, 0.0))
            self._failures[source] = (count + 1, self._clock.monotonic())
            if len(self._failures) > _MAX_SOURCES:
                self._failures.popitem(last=False)

    def passed(self, source: str) -> None:
        """Forget what ``source`` did wrong."""
        with self._lock:
            self._failures.pop(source, None)


def _scrypt(secret: bytes, form: _Hashed) -> bytes:
    # scrypt needs 128 · r · N bytes (RFC 7914, 5), and OpenSSL wants to be told that it may have them
    memory = 128 * _R * ((1 << form.log2_n) + _P + 2)
    return hashlib.scrypt(secret, salt=form.salt, n=1 << form.log2_n, r=_R, p=_P, maxmem=memory, dklen=_HASH_BYTES)


def _parsed(hashed: str) -> _Hashed:
    try:
        kind, log2_n, salt, digest = hashed.split("$")
        form = _Hashed(int(log2_n), base64.b64decode(salt, validate=True), base64.b64decode(digest, validate=True))
    except (binascii.Error, ValueError):
        raise _malformed() from None
    known = kind == _KIND and _LOG2_N <= form.log2_n <= _MAX_LOG2_N
    if not known or len(form.salt) != _SALT_BYTES or len(form.digest) != _HASH_BYTES:
        raise _malformed()
    return form


def _malformed() -> SiteError:
    return SiteError(
        "expected the hash of an init secret (scrypt$14$<salt>$<hash>), found something else",
        reason=Reason.INIT_SECRET_HASH_MALFORMED,
    )


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
