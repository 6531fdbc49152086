# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S38: another machine answers an admin's ssh: without the known host key, a play stops before it logs in."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import asyncssh
import jinja2
import pytest
from ansible_collections.attested.kubernetes.tests.support import house
from ansible_collections.attested.kubernetes.tests.support.house import ROOT
from ansible_collections.attested.kubernetes.tests.support.threats import Threat

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

THREAT = Threat(
    id="S38",
    title="ssh host key not checked",
    case="Kubespray's ansible.cfg: host_key_checking=False",
    bed="sockets",
    stops=(("roles/site_directory/templates/ansible.cfg.j2", ""),),
)

UNCHECKED = re.compile(
    r"host_key_checking\s*[=:]\s*(false|no|0)|stricthostkeychecking[\s=]+(no|off|accept)"
    r"|userknownhostsfile[\s=]+\S*/dev/null|host_key_checking.*false",
    re.IGNORECASE,
)
PLAY = """\
- name: Log in
  hosts: all
  gather_facts: false
  tasks:
    - name: Run a command
      ansible.builtin.raw: "true"
"""


@dataclass(kw_only=True)
class Machine:
    """A machine with an ssh server: its host key, its port, and who logged in with which commands."""

    key: asyncssh.SSHKey
    port: int = 0
    connections: int = 0
    logins: list[str] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)


class Server(asyncssh.SSHServer):
    """Notes each connection, and each request to log in, which it lets in."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._machine.connections += 1

    def begin_auth(self, username: str) -> bool:
        self._machine.logins.append(username)
        return False


@contextmanager
def serving() -> Iterator[Machine]:
    """Run the ssh server of a machine with a new host key in a thread."""
    machine = Machine(key=asyncssh.generate_private_key("ssh-ed25519"))
    loop, started = asyncio.new_event_loop(), threading.Event()

    def run(process: asyncssh.SSHServerProcess[Any]) -> None:
        machine.commands.append(process.command or "")
        process.exit(0)

    async def serve() -> None:
        listener = await asyncssh.create_server(
            lambda: Server(machine), "127.0.0.1", 0, server_host_keys=[machine.key], process_factory=run
        )
        machine.port = listener.get_port()
        started.set()
        await ended.wait()
        listener.close()
        await listener.wait_closed()

    ended = asyncio.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    try:
        assert started.wait(60)
        yield machine
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join()
        loop.close()


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A site directory with the settings for Ansible that `scaffold` writes."""
    template = (ROOT / "roles/site_directory/templates/ansible.cfg.j2").read_text()
    text = jinja2.Template(template).render(site_directory_vault_password_file="")
    (tmp_path / "ansible.cfg").write_text(text)
    (tmp_path / "play.yml").write_text(PLAY)
    return tmp_path


def play(site: Path, machine: Machine, known: str) -> subprocess.CompletedProcess[str]:
    """Run the play on the machine as an admin who knows the host keys ``known``."""
    (site / "known_hosts").write_text(known)
    words = f"-F none -o UserKnownHostsFile={site}/known_hosts -o GlobalKnownHostsFile=none -o ControlPath=none"
    host = {
        "ansible_host": "127.0.0.1",
        "ansible_port": machine.port,
        "ansible_user": "admin",
        "ansible_ssh_common_args": words,
    }
    (site / "hosts.yml").write_text(json.dumps({"all": {"hosts": {"node": host}}}))
    environ = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_HOST_KEY")}
    argv = ("ansible-playbook", "play.yml")
    return subprocess.run(argv, cwd=site, env=environ, capture_output=True, text=True, check=False, timeout=300)


def known_as(key: asyncssh.SSHKey, port: int) -> str:
    """Return the line of known_hosts for a key of a server on this host."""
    return f"[127.0.0.1]:{port} {key.export_public_key().decode().strip()}\n"


def test_the_machine_with_the_known_key_is_reached(site: Path) -> None:
    with serving() as machine:
        done = play(site, machine, known_as(machine.key, machine.port))
    assert done.returncode == 0, done.stdout + done.stderr
    assert (set(machine.logins), len(machine.commands)) == ({"admin"}, 1)


@pytest.mark.parametrize("known", ["another", "none"])
def test_a_machine_with_another_key_gets_no_login(site: Path, known: str) -> None:
    """The connection reached it: its key was refused, before a name, a key or a command was sent."""
    other = asyncssh.generate_private_key("ssh-ed25519")
    with serving() as machine:
        done = play(site, machine, known_as(other, machine.port) if known == "another" else "")
    assert done.returncode == 4, done.stdout + done.stderr
    assert "Host key verification failed" in done.stdout + done.stderr
    assert machine.connections >= 1
    assert (machine.logins, machine.commands) == ([], [])


def test_nothing_that_is_shipped_turns_the_check_off() -> None:
    assert UNCHECKED.search("-o StrictHostKeyChecking=no")
    found = [
        house.shown(path)
        for folder in ("plugins", "roles", "playbooks", "inventory", "meta")
        for path in house.tracked(folder)
        if UNCHECKED.search(path.read_text(encoding="utf-8", errors="replace"))
    ]
    assert found == []
