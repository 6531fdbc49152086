# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The secrets that a node keeps between two calls over ssh to open a sealed box: root-only, on tmpfs, read once."""

from __future__ import annotations

import base64
import binascii
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.files import make_directory, read_bytes, remove, require_no_swap, require_tmpfs, write_atomic
from ..errors import SiteError, SystemFault
from ..reasons import Reason
from ..transport.sealed_box import OneTimeKey, open_sealed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..evidence.challenge import Answer


DIRECTORY = Path("/run/attested/answers")
_HANDLE = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptAnswer:
    """The local part of an answer: the keys that open the box, and the quoted register values."""

    one_time_key: OneTimeKey = field(repr=False)
    secret: bytes = field(repr=False)
    binding: bytes
    pcrs: Mapping[int, bytes]

    def open(self, box: bytes) -> bytes:
        """Return what was sealed to this answer; raises SEAL_UNOPENABLE."""
        return open_sealed(box, secret=self.secret, binding=self.binding, one_time_key=self.one_time_key)


def _in_memory(directory: Path) -> None:
    require_tmpfs(directory)
    require_no_swap()


class AnswerStore:
    """Stores answers until their box arrives, each in one file that is removed when it is read."""

    def __init__(self, directory: Path = DIRECTORY, *, require_memory: Callable[[Path], None] = _in_memory) -> None:
        """Store the directory; ``require_memory`` raises unless it is on tmpfs and swap is off."""
        self._directory = directory
        self._require_memory = require_memory

    def put(self, kept: Answer) -> str:
        """Store an answer and return its handle (the challenge's id, 32 hex digits).

        Older answers are removed.
        """
        make_directory(self._directory, mode=0o700)
        self._require_memory(self._directory)
        for old in self._directory.iterdir():
            remove(old)
        handle = kept.bound.challenge_id.hex()
        write_atomic(self._directory / handle, _render(kept))
        return handle

    def take(self, handle: str) -> KeptAnswer:
        """Return the answer of ``handle`` and remove its file; raises ANSWER_UNKNOWN."""
        path = self._directory / handle
        if not _HANDLE.fullmatch(handle) or not path.exists():
            raise SystemFault(
                f"expected an answer that waits, found none for {handle[:64]!r}", reason=Reason.ANSWER_UNKNOWN
            )
        data = read_bytes(path)
        remove(path)
        return _parse(data)


def open_box(params: Mapping[str, Any]) -> bytes:
    """Open the option ``sealed`` with the answer ``handle``.

    Raises as `AnswerStore.take`, `open` and `decode`.
    """
    return AnswerStore().take(params["handle"] or "").open(decode(params["sealed"] or "", "sealed"))


def _render(kept: Answer) -> bytes:
    document = {
        "one_time_key": _text(kept.one_time_key.export()),
        "secret": _text(kept.secret),
        "binding": _text(kept.binding),
        "pcrs": {str(index): value.hex() for index, value in kept.bound.evidence.pcrs.items()},
    }
    return json.dumps(document).encode("ascii")


def _parse(data: bytes) -> KeptAnswer:
    try:
        document = json.loads(data)
        return KeptAnswer(
            one_time_key=OneTimeKey.restore(base64.b64decode(document["one_time_key"])),
            secret=base64.b64decode(document["secret"]),
            binding=base64.b64decode(document["binding"]),
            pcrs={int(index): bytes.fromhex(value) for index, value in document["pcrs"].items()},
        )
    except (binascii.Error, ValueError, KeyError, TypeError, AttributeError):
        raise SystemFault(
            "expected an answer as this release writes it, found something else", reason=Reason.ANSWER_UNKNOWN
        ) from None  # the cause would contain the text, which is the secret


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


# Bytes that the admin's side passes to a module on the node.


def decode(text: str, name: str) -> bytes:
    """Return the bytes of the option ``name``; raises OPTION_INVALID."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise SiteError(f"expected base64 in {name}, got something else", reason=Reason.OPTION_INVALID) from error
