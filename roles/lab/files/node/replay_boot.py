# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Give a swtpm the PCR values of a recorded boot: reset it, start it, extend every recorded measurement.

Runs as part of the first process of a lab machine, so at each of its starts, before systemd. The logs are those that
a real firmware and a real systemd wrote; after this they and the TPM agree as they did on the recorded machine.

Formats: TCG PC Client Platform Firmware Profile 10.2 (crypto-agile event log), systemd's measurement log (JSON-seq,
RFC 7464), TPM 2.0 Library Part 3 (TPM2_Startup, TPM2_PCR_Extend), swtpm's control channel.
"""

from __future__ import annotations

import json
import socket
import struct
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

TPM = Path("/srv/tpm/tpm")
CONTROL = Path("/srv/tpm/tpm.ctrl")
FIRMWARE_LOG = Path("/srv/boot/eventlog.bin")
USERSPACE_LOG = Path("/srv/boot/userspace.json")

PATIENCE_SECONDS = 10
EV_NO_ACTION = 3
ALG_SHA256 = 0x000B
HEADER_SIZE = 10
CONTROL_INIT = 2
RC_SUCCESS = 0
STARTUP_CLEAR = struct.pack(">HIIH", 0x8001, 12, 0x0144, 0)
EMPTY_PASSWORD = struct.pack(">IIHBH", 9, 0x40000009, 0, 0, 0)


class ReplayError(Exception):
    """The TPM or a log is not as expected."""


def exchange(path: Path, request: bytes) -> bytes:
    """Send one request on a connection of its own and return the answer."""
    with socket.socket(socket.AF_UNIX) as peer:
        peer.settimeout(PATIENCE_SECONDS)
        peer.connect(str(path))
        peer.sendall(request)
        return peer.recv(4096)


def wait_for_tpm() -> None:
    """Wait until swtpm listens: after a restart of the whole lab both start at the same time."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (TPM.is_socket() and CONTROL.is_socket()):
        if time.monotonic() > deadline:
            raise ReplayError(f"expected swtpm's sockets {TPM} and {CONTROL}, got none")
        time.sleep(0.05)


def reset_tpm() -> None:
    """Do to the TPM what a machine's reset does, then start it as the firmware would."""
    answer = exchange(CONTROL, struct.pack(">II", CONTROL_INIT, 0))
    if answer[:4] != struct.pack(">I", 0):
        raise ReplayError(f"expected swtpm to reset, got {answer.hex()}")
    command("TPM2_Startup", STARTUP_CLEAR)


def command(name: str, request: bytes) -> None:
    """Send a TPM command that must succeed."""
    answer = exchange(TPM, request)
    code = struct.unpack_from(">I", answer, 6)[0] if len(answer) >= HEADER_SIZE else -1
    if code != RC_SUCCESS:
        raise ReplayError(f"expected {name} to succeed, got {code:#x}")


def extend(pcr: int, digest: bytes) -> None:
    """Extend one PCR of the SHA-256 bank."""
    body = struct.pack(">I", pcr) + EMPTY_PASSWORD + struct.pack(">IH", 1, ALG_SHA256) + digest
    command("TPM2_PCR_Extend", struct.pack(">HII", 0x8002, HEADER_SIZE + len(body), 0x0182) + body)


def firmware_events(log: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield PCR and SHA-256 digest of every event of a firmware log that is an extend."""
    sizes, position = _digest_sizes(log)
    while position < len(log):
        pcr, kind, count = struct.unpack_from("<III", log, position)
        position += 12
        digests = {}
        for _unused in range(count):
            (algorithm,) = struct.unpack_from("<H", log, position)
            digests[algorithm] = log[position + 2 : position + 2 + sizes[algorithm]]
            position += 2 + sizes[algorithm]
        (size,) = struct.unpack_from("<I", log, position)
        position += 4 + size
        if kind != EV_NO_ACTION:
            yield pcr, digests[ALG_SHA256]


def _digest_sizes(log: bytes) -> tuple[dict[int, int], int]:
    """Read the header event: the digest size of each algorithm, and where the next event begins."""
    (size,) = struct.unpack_from("<I", log, 28)
    body = log[32 : 32 + size]
    if not body.startswith(b"Spec ID Event03\0"):
        raise ReplayError("expected a crypto-agile event log, got another header")
    (count,) = struct.unpack_from("<I", body, 24)
    return dict(struct.unpack_from("<HH", body, 28 + 4 * index) for index in range(count)), 32 + size


def userspace_events(log: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield PCR and SHA-256 digest of every record of systemd's log."""
    for text in filter(None, log.split(b"\x1e")):
        record = json.loads(text)
        digests = {entry["hashAlg"]: entry["digest"] for entry in record["digests"]}
        yield int(record["pcr"]), bytes.fromhex(digests["sha256"])


def main() -> None:
    """Reset, start, replay."""
    wait_for_tpm()
    firmware = list(firmware_events(FIRMWARE_LOG.read_bytes()))
    userspace = list(userspace_events(USERSPACE_LOG.read_bytes())) if USERSPACE_LOG.exists() else []
    reset_tpm()
    for pcr, digest in firmware + userspace:
        extend(pcr, digest)
    sys.stdout.write(f"lab: replayed {len(firmware)} firmware and {len(userspace)} userspace measurements\n")


if __name__ == "__main__":
    try:
        main()
    except (ReplayError, OSError, ValueError, KeyError, struct.error) as error:
        sys.exit(f"lab: the recorded boot could not be replayed: {error}")
