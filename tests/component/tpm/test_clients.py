# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One client at a time, in every way in which clients come and go, and the device file as the other way in."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import tty
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import TpmError
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.client import open_tpm
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.commands import ResponseError
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.constants import ALG_SHA256, RH_ENDORSEMENT
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.keys import (
    load_attestation_key,
    load_endorsement_key,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.templates import AK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.client import Tpm
    from ansible_collections.attested.kubernetes.tests.support.swtpm import Opened, Swtpm

_FILL_AND_WAIT = """
import sys
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.client import open_tpm
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.constants import RH_ENDORSEMENT, SESSION_POLICY
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.keys import load_endorsement_key
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.keys import AK
with open_tpm(sys.argv[1], lock_directory=sys.argv[2]) as tpm:
    ek = load_endorsement_key(tpm)
    sessions = [tpm.session(ek, SESSION_POLICY) for _ in range(3)]
    for session in sessions:
        session.__enter__()
    for _ in range(3):
        tpm.create_primary(RH_ENDORSEMENT, AK)
    sys.stdout.write("full\\n")
    sys.stdout.flush()
    sys.stdin.read()
"""


def _fail_while_two_keys_are_loaded(client: AbstractContextManager[Tpm]) -> None:
    with client as tpm:
        tpm.create_primary(RH_ENDORSEMENT, AK)
        tpm.create_primary(RH_ENDORSEMENT, AK)
        raise ValueError("inside")


def test_nothing_stays_loaded_after_a_failure(swtpm: Swtpm, opened: Opened) -> None:
    for _unused in range(5):
        with pytest.raises(ValueError, match="inside"):
            _fail_while_two_keys_are_loaded(opened(swtpm))
    with opened(swtpm) as tpm:
        assert tpm.handles(0x80000000) == ()


def test_a_killed_client_does_not_block_the_next_one(swtpm: Swtpm, opened: Opened, tmp_path: Path) -> None:
    client = subprocess.Popen(
        [sys.executable, "-c", _FILL_AND_WAIT, swtpm.tcti, str(tmp_path / "locks")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    with client:
        assert client.stdout is not None
        assert client.stdout.readline() == b"full\n"
        with pytest.raises(TpmError) as caught, opened(swtpm, timeout_seconds=0.1):
            pytest.fail("two clients at once")
        assert caught.value.reason is Reason.TPM_BUSY
        client.send_signal(signal.SIGKILL)
    with opened(swtpm) as tpm:
        assert len(tpm.handles(0x80000000)) == 3
        assert tpm.quote(load_attestation_key(tpm), b"n", [0]).attest
        with tpm.session(load_endorsement_key(tpm), 0):
            pass
        assert len(tpm.handles(0x80000000)) == 1


def test_threads_wait_for_each_other(swtpm: Swtpm, opened: Opened) -> None:
    values: list[bytes] = []

    def extend() -> None:
        with opened(swtpm, timeout_seconds=60) as tpm:
            before = tpm.pcr_read([16])[16]
            tpm.pcr_extend(16, {ALG_SHA256: bytes(32)})
            assert tpm.pcr_read([16])[16] != before
            values.append(tpm.pcr_read([16])[16])

    threads = [threading.Thread(target=extend) for _unused in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(values)) == 16


def test_a_tpm_that_another_program_talks_to_is_busy(swtpm: Swtpm, opened: Opened) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        other.connect(str(swtpm.socket))
        other.sendall(bytes.fromhex("8001"))
        with opened(swtpm, timeout_seconds=0.3) as tpm, pytest.raises(TpmError) as caught:
            tpm.pcr_read([0])
    assert caught.value.reason is Reason.TPM_BUSY


def test_a_tpm_that_nobody_started_says_so(swtpms: Callable[..., Swtpm], opened: Opened) -> None:
    with (
        opened(swtpms("fresh", flags="not-need-init")) as tpm,
        pytest.raises(ResponseError, match="INITIALIZE") as caught,
    ):
        tpm.pcr_read([0])
    assert "startup-clear" in caught.value.hint


def test_a_tpm_that_has_gone_is_unreachable(swtpm: Swtpm, opened: Opened) -> None:
    with opened(swtpm) as tpm:
        ak = load_attestation_key(tpm)
        swtpm.stop()
        with pytest.raises(TpmError) as caught:
            tpm.quote(ak, b"n", [0])
    assert caught.value.reason is Reason.TPM_UNREACHABLE


@contextlib.contextmanager
def _device(swtpm: Swtpm) -> Iterator[str]:
    """A character device in front of ``swtpm``: a raw terminal, since there is no module for a real one here."""
    ours, theirs = os.openpty()
    tty.setraw(theirs)

    def serve() -> None:
        with contextlib.suppress(OSError):
            while command := os.read(ours, 4096):
                os.write(ours, swtpm.raw(command))

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield os.ttyname(theirs)
    finally:
        os.close(theirs)
        thread.join()
        os.close(ours)


def test_a_device_file_works_as_a_socket_does(swtpm: Swtpm, tmp_path: Path) -> None:
    with _device(swtpm) as path, open_tpm(f"device:{path}", lock_directory=tmp_path / "locks") as tpm:
        ek, ak = load_endorsement_key(tpm), load_attestation_key(tpm)
        assert ek.certificates
        assert tpm.quote(ak, b"n", range(24)).attest
        assert len(tpm.pcr_read(range(24))) == 24


def test_a_device_that_goes_away_is_unreachable(tmp_path: Path) -> None:
    ours, theirs = os.openpty()
    with open_tpm(f"device:{os.ttyname(theirs)}", lock_directory=tmp_path / "locks") as tpm:
        os.close(theirs)
        os.close(ours)
        with pytest.raises(TpmError, match="Input/output error") as caught:
            tpm.pcr_read([0])
    assert caught.value.reason is Reason.TPM_UNREACHABLE
