# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Store tickets and the kubelet's key until they are used, on tmpfs, readable by root only, behind handles.

A handle is 32 hex digits. Modules and tasks pass on handles, so that no secret is a fact or a result. The kubelet's
key is made once a boot, so that a repeated request is answered with the same ticket.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from .._deps.crypto import ec, serialization
from ..core.files import make_directory, read_bytes, remove, require_no_swap, require_tmpfs, write_atomic
from ..core.host import SystemRandom
from ..errors import SystemFault
from ..keyservice.master import SecretBytes
from ..keyservice.ticket import TicketSecrets, parse_ticket
from ..proto.messages import message_class, parse
from ..reasons import Reason
from .received_ticket import TicketMaterial

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..core.host import Random

DIRECTORY = Path("/run/attested/tickets")

_KEY_FILE = "kubelet-key.pem"
_SUFFIX = ".ticket"
_HANDLE = re.compile(r"[0-9a-f]{32}")
_LIMIT = 1 << 20
_OWN_PARTS = 3
_STORED = "attested.v1.TicketSecrets"


def _in_memory(directory: Path) -> None:
    require_tmpfs(directory)
    require_no_swap()


class TicketStore:
    """The directory of a node's tickets; only root can read it, and it is gone after a reboot."""

    def __init__(
        self,
        directory: Path = DIRECTORY,
        *,
        random: Random | None = None,
        require_memory: Callable[[Path], None] = _in_memory,
    ) -> None:
        """Use ``directory``; ``require_memory`` raises unless it is on tmpfs and swap is off."""
        self._directory = directory
        self._random = random or SystemRandom()
        self._require_memory = require_memory

    def kubelet_key(self) -> SecretBytes:
        """Return the kubelet's key (P-256, PKCS 8 PEM), made at the first call of a boot."""
        self._prepare()
        path = self._directory / _KEY_FILE
        if not path.exists():
            key = ec.generate_private_key(ec.SECP256R1())
            encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
            write_atomic(path, key.private_bytes(encoding, form, serialization.NoEncryption()))
        return SecretBytes(read_bytes(path, limit=_LIMIT))

    def discard_kubelet_key(self) -> bool:
        """Remove the kubelet's key once the kubelet has it; the next request makes a new one."""
        return remove(self._directory / _KEY_FILE)

    def put(self, material: TicketMaterial) -> str:
        """Store ``material`` and return its handle."""
        self._prepare()
        handle = self._random.token(16).hex()
        write_atomic(self._path(handle), _pack(material))
        return handle

    def load(self, handle: str) -> TicketMaterial:
        """Return the stored material; raises TICKET_HANDLE_UNKNOWN."""
        path = self._path(handle)
        if not path.exists():
            raise _unknown(handle)
        return _unpack(read_bytes(path, limit=_LIMIT))

    def discard(self, handle: str) -> bool:
        """Remove a ticket; return whether it existed."""
        return remove(self._path(handle))

    def handles(self) -> tuple[str, ...]:
        """Return the handles of all tickets, to clean up after a killed run."""
        return tuple(sorted(path.stem for path in self._directory.glob(f"*{_SUFFIX}")))

    def _path(self, handle: str) -> Path:
        if not _HANDLE.fullmatch(handle):
            raise _unknown(handle)
        return self._directory / f"{handle}{_SUFFIX}"

    def _prepare(self) -> None:
        make_directory(self._directory, mode=0o700)
        self._directory.chmod(0o700)
        self._require_memory(self._directory)


def _pack(material: TicketMaterial) -> bytes:
    """Return the material as one message: the secrets; public part, key and registers are three more named files."""
    message = message_class(_STORED).FromString(material.secrets.to_bytes())
    message.control_plane_files.add(name="", data=material.public.to_bytes(b""))
    message.control_plane_files.add(name="", data=material.kubelet_key.reveal())
    registers = {str(index): value.hex() for index, value in material.registers.items()}
    message.control_plane_files.add(name="", data=json.dumps(registers).encode())
    return bytes(message.SerializeToString())


def _unpack(data: bytes) -> TicketMaterial:
    message = parse(_STORED, data)
    public, key, registers = (entry.data for entry in message.control_plane_files[-_OWN_PARTS:])
    del message.control_plane_files[-_OWN_PARTS:]
    return TicketMaterial(
        public=parse_ticket(public)[0],
        secrets=TicketSecrets.from_bytes(message.SerializeToString()),
        kubelet_key=SecretBytes(key),
        registers={int(index): bytes.fromhex(value) for index, value in json.loads(registers).items()},
    )


def _unknown(handle: str) -> SystemFault:
    return SystemFault(
        f"expected the handle of a ticket of this boot, got {handle[:40]!r}", reason=Reason.TICKET_HANDLE_UNKNOWN
    )
