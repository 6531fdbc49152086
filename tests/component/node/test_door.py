# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The init listener of the bootstrapper: its real socket, a real TPM behind it, which callers it accepts, how long."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.command import CommandResult
from ansible_collections.attested.kubernetes.plugins.module_utils.core.runtime import load_config
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.challenge import ChallengeRequest
from ansible_collections.attested.kubernetes.plugins.module_utils.node.boot_program import (
    PLAYBOOKS,
    BootstrapperConfig,
    SocketInitListener,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.node.config import load_node_config
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.services.machine_socket import init_port
from ansible_collections.attested.kubernetes.tests.support.init_bed import Founding, make_keys

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ansible_collections.attested.kubernetes.tests.support.swtpm import Swtpm


class Told:
    """A log that is kept."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def event(self, name: str, /, **_fields: Any) -> None:
        self.events.append(name)


class Units:
    """systemctl that only remembers: no systemd runs here, the real one is in the lab."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, ...]] = []

    def run(self, argv: Any, **_options: Any) -> CommandResult:
        self.calls.append(tuple(argv))
        return CommandResult(argv=tuple(argv), returncode=0, stdout=b"", stderr=b"")


class Bed:
    """A listener at a real socket."""

    def __init__(self, directory: Path, tcti: str, user: str) -> None:
        ca, bundle = make_keys()
        indented = ca.certificate.decode("ascii").replace("\n", "\n  ")
        node = directory / "node.yml"
        node.write_text(
            f"version: 1\nname: cp-1\ncluster_name: prod\ncluster_id: {bundle.cluster_id.hex()}\n"
            f"endpoints: ['10.0.0.11:9090']\ntcti: '{tcti}'\nlogs: {{firmware: /none, userspace: /none}}\n"
            f"join_ca: |\n  {indented}\n"
        )
        self.socket = directory / "desk.sock"
        self.units, self.log = Units(), Told()
        self.listener = SocketInitListener(
            load_node_config(node),
            BootstrapperConfig(node_ip="10.0.0.11", init_user=user),
            node_config=str(node),
            log=self.log,  # type: ignore[arg-type]
            socket=self.socket,
            runner=self.units,
        )


@pytest.fixture
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="init-") as name:  # pytest's own paths are too long for a socket
        directory = Path(name)
        directory.chmod(0o711)
        yield directory


async def test_an_open_listener_answers_with_the_identity_of_the_tpm_and_a_closed_one_is_gone(
    swtpm: Swtpm, directory: Path
) -> None:
    bed = Bed(directory, swtpm.tcti, "root")
    async with bed.listener.opened(Founding()):
        identity = ChallengeRequest.parse(await init_port(bed.socket).identity(correlation_id="c-1"))
        assert bed.units.calls == [("systemctl", "start", "--no-block", "attested-init-service.service")]
    assert len(identity.ek_public.spki_sha256()) == 64
    assert not bed.socket.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
async def test_another_user_is_sent_away(swtpm: Swtpm, directory: Path) -> None:
    bed = Bed(directory, swtpm.tcti, "daemon")
    async with bed.listener.opened(Founding()):
        bed.socket.chmod(0o666)
        os.seteuid(65534)
        try:
            with pytest.raises(AttestedError) as refused:
                await init_port(bed.socket).identity(correlation_id="c-1")
        finally:
            os.seteuid(0)
    assert refused.value.reason is Reason.CALLER_UNKNOWN
    assert bed.log.events == ["caller_refused"]


async def test_without_its_user_nothing_listens(swtpm: Swtpm, directory: Path) -> None:
    bed = Bed(directory, swtpm.tcti, "nobody-of-that-name")
    with pytest.raises(AttestedError) as refused:
        async with bed.listener.opened(Founding()):
            pass
    assert refused.value.reason is Reason.CONFIG_INVALID
    assert not bed.socket.exists()


def test_the_configuration_names_every_mistake(directory: Path) -> None:
    path = directory / "bootstrapper.yml"
    path.write_text("node_ip: 10.0.0.21\nserve_init: true\n")
    assert load_config(BootstrapperConfig, path).serve_init is True
    path.write_text("serve_init: perhaps\nsurprise: 1\n")
    with pytest.raises(AttestedError) as refused:
        load_config(BootstrapperConfig, path)
    assert refused.value.reason is Reason.CONFIG_INVALID
    assert all(word in refused.value.message for word in ("node_ip", "serve_init", "surprise"))


def test_the_playbook_lies_where_the_founder_looks() -> None:
    assert all((PLAYBOOKS / f"{name}.yml").is_file() for name in ("init", "machine_init", "machine_member"))
