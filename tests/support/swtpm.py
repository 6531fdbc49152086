# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Real swtpm processes for tests: with a CA, machine resets, and an end by process id."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.client import Tpm
from ansible_collections.attested.kubernetes.tests.support.ports import free_port

if TYPE_CHECKING:
    from pathlib import Path

Opened: TypeAlias = Callable[..., AbstractContextManager[Tpm]]
"""The fixture of that name: ``opened(swtpm)`` is our client of it."""

TOOLS = ("swtpm", "swtpm_setup", "swtpm_ioctl", "swtpm_localca", "certtool")
_STARTUP_CLEAR = bytes.fromhex("80010000000c000001440000")
_READY_SECONDS = 900
_SETUP_CONF = """\
create_certs_tool = {localca}
create_certs_tool_config = {folder}/localca.conf
create_certs_tool_options = {folder}/localca.options
active_pcr_banks = {banks}
"""
_LOCALCA_CONF = """\
statedir = {folder}
signingkey = {folder}/signkey.pem
issuercert = {folder}/issuercert.pem
certserial = {folder}/certserial
"""
_LOCALCA_OPTIONS = "--platform-manufacturer test\n--platform-version 1\n--platform-model test\n"


def missing_tools() -> list[str]:
    """Return the missing programs."""
    return [tool for tool in TOOLS if shutil.which(tool) is None]


@dataclass(frozen=True, slots=True)
class CertificateAuthority:
    """swtpm's local CA in its own directory; created at the first certificate."""

    folder: Path

    @property
    def issuer(self) -> Path:
        """The certificate that signs EK certificates, PEM."""
        return self.folder / "issuercert.pem"

    @property
    def root(self) -> Path:
        """The certificate that signs the issuer, PEM."""
        return self.folder / "swtpm-localca-rootca-cert.pem"

    def configuration(self, banks: str) -> Path:
        """Write the configuration of swtpm_setup for these register banks (comma-separated) and return it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        localca = shutil.which("swtpm_localca")
        path = self.folder / f"setup-{banks.replace(',', '-')}.conf"
        path.write_text(_SETUP_CONF.format(localca=localca, folder=self.folder, banks=banks))
        (self.folder / "localca.conf").write_text(_LOCALCA_CONF.format(folder=self.folder))
        (self.folder / "localca.options").write_text(_LOCALCA_OPTIONS)
        return path


def manufacture(state: Path, authority: CertificateAuthority, *, certified: bool = True, banks: str = "sha256") -> None:
    """Create a new TPM in the directory ``state``: new seeds, RSA-2048 and P-384 EKs, optionally certified."""
    state.mkdir(parents=True)
    command = ["swtpm_setup", "--tpm2", "--tpmstate", str(state), "--overwrite"]
    command += ["--create-ek-cert", "--lock-nvram"] if certified else []
    command += ["--pcr-banks", banks, "--config", str(authority.configuration(banks)), "--vmid", state.name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


class Swtpm:
    """One running swtpm: data channel ``socket``, control channel ``socket``.ctrl."""

    def __init__(self, folder: Path, state: Path, *, flags: str = "not-need-init,startup-clear", tcp: bool = False):
        self.socket = folder / "tpm"
        self.state = state
        self.port = free_port() if tcp else 0
        control = f"type=tcp,port={self.port + 1}" if tcp else f"type=unixio,path={self.socket}.ctrl"
        server = f"type=tcp,port={self.port}" if tcp else f"type=unixio,path={self.socket}"
        command = ["swtpm", "socket", "--tpm2", "--tpmstate", f"dir={state}"]
        command += ["--server", f"{server},disconnect", "--ctrl", control]
        command += ["--flags", flags] if flags else []
        with (folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self._wait_until_ready()

    @property
    def tcti(self) -> str:
        """The address for our client and for tpm2-tools."""
        return f"swtpm:host=127.0.0.1,port={self.port}" if self.port else f"swtpm:path={self.socket}"

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def raw(self, command: bytes) -> bytes:
        """Send bytes to the data channel and return the answer, without our client."""
        with self._connect() as link:
            link.sendall(command)
            return link.recv(4096)

    def ioctl(self, *arguments: str) -> None:
        """Send a command to the control channel."""
        where = ["--tcp", f"127.0.0.1:{self.port + 1}"] if self.port else ["--unix", f"{self.socket}.ctrl"]
        done = subprocess.run(["swtpm_ioctl", *where, *arguments], capture_output=True, timeout=900, check=False)
        assert done.returncode == 0, done.stderr.decode()

    def reset(self) -> None:
        """Reset the machine: registers, sessions and transient objects are lost, the seeds stay."""
        self.ioctl("-i")
        self.raw(_STARTUP_CLEAR)

    def stop(self) -> None:
        """End this process."""
        if self._process.poll() is None:
            self._process.terminate()
        self._process.wait(timeout=900)

    def _connect(self) -> socket.socket:
        if self.port:
            return socket.create_connection(("127.0.0.1", self.port), timeout=900)
        link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        link.settimeout(20)
        link.connect(str(self.socket))
        return link

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + _READY_SECONDS
        while True:
            try:
                self._connect().close()
            except OSError:
                assert self._process.poll() is None, f"swtpm ended with {self._process.returncode}"
                assert time.monotonic() < deadline, f"swtpm not ready after {_READY_SECONDS} s"
                time.sleep(0.01)
            else:
                return


class SwtpmFactory:
    """Create TPMs below one directory; all share one CA, each has its own seeds; `close` ends them all."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: list[Swtpm] = []
        self.authority = CertificateAuthority(folder / "ca")

    def state(self, name: str, *, certified: bool = True, banks: str = "sha256") -> Path:
        """Return the state directory of the TPM ``name``, manufactured at the first call."""
        path = self._folder / name / "state"
        if not path.exists():
            manufacture(path, self.authority, certified=certified, banks=banks)
        return path

    def start(
        self,
        name: str,
        *,
        certified: bool = True,
        banks: str = "sha256",
        state: Path | None = None,
        flags: str = "not-need-init,startup-clear",
        tcp: bool = False,
    ) -> Swtpm:
        """Start the TPM ``name``; ``state``: copy the TPM in this directory instead of a new one."""
        if state is not None and not (self._folder / name).exists():
            shutil.copytree(state, self._folder / name / "state")
        own = self.state(name, certified=certified, banks=banks)
        tpm = Swtpm(own.parent, own, flags=flags, tcp=tcp)
        self._running.append(tpm)
        return tpm

    def close(self) -> None:
        """End all swtpm processes of this factory."""
        while self._running:
            self._running.pop().stop()
