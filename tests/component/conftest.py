# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fixtures of all component tests: real TPMs (swtpm), each test with as many as it asks for."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.client import open_tpm
from ansible_collections.attested.kubernetes.tests.support.swtpm import Swtpm, SwtpmFactory, missing_tools
from ansible_collections.attested.kubernetes.tests.support.tpm_machine import Boots

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from ansible_collections.attested.kubernetes.plugins.module_utils.policy.in_force import SitePolicy
    from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.client import Tpm
    from ansible_collections.attested.kubernetes.tests.support.swtpm import Opened
    from ansible_collections.attested.kubernetes.tests.support.tpm_machine import TpmMachine


@pytest.fixture(scope="session")
def manufactured(tmp_path_factory: pytest.TempPathFactory) -> SwtpmFactory:
    """TPM states made once a run (making one costs half a second); the tests start copies of them."""
    missing = missing_tools()
    if missing:
        pytest.skip(f"no real TPM here: {', '.join(missing)} not installed (packages swtpm, swtpm-tools, gnutls-bin)")
    return SwtpmFactory(tmp_path_factory.mktemp("tpms"))


@pytest.fixture
def swtpms(manufactured: SwtpmFactory, tmp_path: Path) -> Iterator[Callable[..., Swtpm]]:
    """Start TPMs: ``swtpms("a")``, ``swtpms("b", certified=False)``; another name is another TPM."""
    factory = SwtpmFactory(tmp_path / "tpms")

    def start(name: str = "a", *, certified: bool = True, banks: str = "sha256", **options: object) -> Swtpm:
        if "state" not in options:
            kind = f"{name}-{'certified' if certified else 'plain'}-{banks.replace(',', '-')}"
            options["state"] = manufactured.state(kind, certified=certified, banks=banks)
        return factory.start(name, **options)  # type: ignore[arg-type]

    yield start
    factory.close()


@pytest.fixture
def swtpm(swtpms: Callable[..., Swtpm]) -> Swtpm:
    """One TPM with an EK certificate and the SHA-256 bank."""
    return swtpms()


@pytest.fixture
def opened(tmp_path: Path) -> Callable[..., AbstractContextManager[Tpm]]:
    """`open_tpm` with its lock files in the test's own folder."""

    def open_one(tpm: Swtpm, **options: object) -> AbstractContextManager[Tpm]:
        return open_tpm(tpm.tcti, lock_directory=tmp_path / "locks", **options)  # type: ignore[arg-type]

    return open_one


@pytest.fixture
def booted(swtpms: Callable[..., Swtpm], opened: Opened) -> Iterator[Boots]:
    """Boot machines with real TPMs."""
    made = Boots(swtpms, opened)
    with made.stack:
        yield made


@pytest.fixture
def machine(booted: Boots) -> TpmMachine:
    """A machine with a real TPM and a good boot."""
    return booted()


@pytest.fixture
def policy(machine: TpmMachine) -> SitePolicy:
    """A site that enrolled the machine and learned its boot."""
    return machine.policy()


@pytest.fixture
def tool(tmp_path: Path) -> Callable[..., str]:
    """Run ``tool(swtpm, "quote", …)`` in the test's folder; return its output, fail with its message."""
    if shutil.which("tpm2") is None:
        pytest.skip("no independent opinion here: tpm2 not installed (package tpm2-tools)")

    def run(swtpm: Swtpm | None, command: str, *arguments: str) -> str:
        environment = {**os.environ, "TPM2TOOLS_TCTI": swtpm.tcti if swtpm else "none"}
        done = subprocess.run(
            ["tpm2", command, *arguments], cwd=tmp_path, env=environment, capture_output=True, timeout=900, check=False
        )
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    return run


@pytest.fixture
def lock_out(tool: Callable[..., str], tmp_path: Path) -> Callable[[Swtpm], None]:
    """Put a TPM into lockout: one wrong password of a protected object is enough for it then."""

    def change(swtpm: Swtpm) -> None:
        (tmp_path / "data").write_bytes(b"data")
        tool(swtpm, "dictionarylockout", "--setup-parameters", "-n", "1", "-t", "1000", "-l", "1000")
        tool(swtpm, "createprimary", "-C", "o", "-c", "parent.ctx")
        tool(swtpm, "create", "-C", "parent.ctx", "-p", "right", "-i", "data", "-u", "data.pub", "-r", "data.priv")
        tool(swtpm, "flushcontext", "-t")
        tool(swtpm, "load", "-C", "parent.ctx", "-u", "data.pub", "-r", "data.priv", "-c", "data.ctx")
        tool(swtpm, "flushcontext", "-t")
        with pytest.raises(AssertionError, match="DA counter incremented"):
            tool(swtpm, "unseal", "-c", "data.ctx", "-p", "wrong")
        tool(swtpm, "flushcontext", "-t")

    return change
