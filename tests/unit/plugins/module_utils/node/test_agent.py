# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`attested-agent`: each command is that of a unit, and is loaded alone."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import release
from ansible_collections.attested.kubernetes.plugins.module_utils.node import agent, reattest
from ansible_collections.attested.kubernetes.tests.support.house import OURS, ROOT

HEAVY = ("grpc", "OpenSSL", "ansible_runner")


def test_each_command_is_that_of_the_unit_of_its_name():
    found = {}
    for path in ROOT.glob("roles/*/templates/*.service.j2"):
        for name in re.findall(r"^ExecStart=\S+ \S+ \}\}/bin/attested-agent (\S+)", path.read_text(), re.MULTILINE):
            found[name] = path.name
    by_script = {"first-boot"}  # its unit is in the user data, and begins with a script that installs the command
    assert found == {name: f"attested-{name}.service.j2" for name in agent.COMMANDS if name not in by_script}
    assert {path.name for path in ROOT.glob("playbooks/templates/*.service.j2")} == {
        f"attested-{name}.service.j2" for name in by_script
    }


def test_lines_of_the_journal_bear_the_name_of_the_unit():
    texts = {path.name: path.read_text() for path in ROOT.glob("roles/*/templates/*.service.j2")}
    agents = {name for name, text in texts.items() if "/bin/attested-agent " in text}
    assert {name for name, text in texts.items() if "\nSyslogIdentifier=%N\n" in text} == agents


@pytest.mark.parametrize("name", agent.COMMANDS)
def test_a_command_describes_itself(name, capsys):
    with pytest.raises(SystemExit) as caught:
        agent.main([name, "--help"])
    assert caught.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: attested-agent {name} ")


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        pytest.param(["--version"], 0, f"attested-agent {release()}", id="the release"),
        pytest.param(["--help"], 0, "renew-control-plane  renew the certificates", id="the list of commands"),
        pytest.param([], 2, "required: COMMAND", id="no command"),
        pytest.param(["verify"], 2, "invalid choice: 'verify'", id="an unknown command"),
    ],
)
def test_the_program_describes_itself(words, code, text, capsys):
    with pytest.raises(SystemExit) as caught:
        agent.main(words)
    assert caught.value.code == code
    said = capsys.readouterr()
    assert text in said.out + said.err


def test_options_and_exit_code_are_those_of_the_command(monkeypatch):
    given = []
    monkeypatch.setattr(reattest, "main", lambda words: given.append(words) or 78)
    assert agent.main(["reattest", "--config", "/c", "--now"]) == 78
    assert given == [["--config", "/c", "--now"]]


@pytest.mark.parametrize(
    ("name", "loaded"),
    [
        pytest.param("api-endpoint-list", [], id="reads one object of the API"),
        pytest.param("disk-health", [], id="reads the kernel's log"),
        pytest.param("unlock", [], id="unseals keys"),
        pytest.param("witness", [], id="answers on a socket"),
        pytest.param("reattest", ["grpc", "OpenSSL"], id="calls a join service"),
    ],
)
def test_a_command_loads_no_library_that_only_another_one_needs(name, loaded):
    code = (
        f"import sys\nfrom {OURS}.module_utils.node import agent\n"
        f"try:\n    agent.main([{name!r}, '--help'])\nexcept SystemExit:\n    pass\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == str(loaded)
