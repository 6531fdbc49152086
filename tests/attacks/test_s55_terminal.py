# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S55: what a machine says of itself clears the admin's terminal and writes a success there that never was."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.cli import command, kit
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError, Refusal
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.ek_certificate import verify_ek_certificate
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.services.page import plain
from ansible_collections.attested.kubernetes.plugins.plugin_utils.stage_lines import Stage, failure_lines, make_visible
from ansible_collections.attested.kubernetes.tests.support.ek import NOW, Authority, der, ek_extensions
from ansible_collections.attested.kubernetes.tests.support.soft_tpm import SoftTpm
from ansible_collections.attested.kubernetes.tests.support.threats import Threat

if TYPE_CHECKING:
    from collections.abc import Iterable

THREAT = Threat(
    id="S55",
    title="Escape sequences on the admin's terminal",
    case="found here: the issuer's name of an endorsement certificate shows a false success",
    bed="bytes",
    stops=(
        ("errors.py", "EK_CERTIFICATE_UNTRUSTED"),
        ("plugins/callback/stages.py", ""),
        ("cli/command.py", ""),
        ("services/page.py", ""),
    ),
)

SUCCESS = "Done in 12.0 s: 3 hosts, 3 changed."
HOSTILE = [
    pytest.param(f"\x1b[2J\x1b[H\x1b[1;32m{SUCCESS}\x1b[8m", id="clears, writes a success, hides the rest"),
    pytest.param("\x9b2J\x9b1A", id="the same in one byte"),
    pytest.param("\r" + SUCCESS + "\x08\x08\x0b\x0c", id="goes back over its line"),
    pytest.param("\u202egnp.exe\u2066\u200f", id="turns the line round"),
    pytest.param("\x1b]0;root\x07\x1b]8;;https://x\x1b\\", id="names the window and a link"),
    pytest.param("\u2028\u2029\x85\x7f\x00", id="other ends of a line, and none"),
]
TPM = SoftTpm()


def obeyed(text: str) -> set[str]:
    """Return every character that a terminal would act on: controls and marks of direction; the line feed is ours."""
    return {one for one in text if unicodedata.category(one) in {"Cc", "Cf", "Zl", "Zp", "Cs"}} - {"\n"}


def refusal_of(issuer: str) -> AttestedError:
    """Return how an endorsement certificate is refused whose issuer, known to nobody, has this name."""
    maker = Authority.root()
    good = der(maker.issue("", TPM.ek.public.key(), ek_extensions()))
    assert verify_ek_certificate(TPM.ek.public, [good], roots=[maker.certificate], now=NOW) is not None
    stranger = Authority(issuer)
    bad = der(stranger.issue("", TPM.ek.public.key(), ek_extensions()))
    with pytest.raises(Refusal) as caught:
        verify_ek_certificate(TPM.ek.public, [bad], roots=[maker.certificate], now=NOW)
    return caught.value


@pytest.mark.parametrize("name", HOSTILE)
def test_an_issuers_name_is_shown_and_not_obeyed(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    error = refusal_of(name)
    assert error.code == "EK_CERTIFICATE_UNTRUSTED"
    assert obeyed(error.message) == obeyed(str(error)) == set()
    command._fail(error, as_json=False)
    assert obeyed(capsys.readouterr().err) == set()


@pytest.mark.parametrize("name", HOSTILE)
def test_every_error_is_fit_for_a_terminal(name: str) -> None:
    """Whichever check put a foreign text into its message or hint."""
    error = Refusal(f"expected w-1, got {name}", reason=Reason.IDENTITY_UNKNOWN, hint=f"Look at {name}.")
    assert obeyed(error.message) == obeyed(error.hint) == set()
    assert len(Refusal(name * 50_000, reason=Reason.IDENTITY_UNKNOWN).message) < 200_000


@pytest.mark.parametrize("name", HOSTILE)
def test_what_a_module_returned_is_printed_and_not_obeyed(name: str) -> None:
    """The whole result of a task on a machine that is not admitted yet is that machine's word."""
    result: dict[str, Any] = {"msg": name, "hint": name, "reason": name, "stdout": name, "log": [name], name: {name: 1}}
    make_visible(result)
    rows = failure_lines("w-1", result, stage=Stage(name="x", began=0.0), playbook="x.yml")
    assert obeyed("\n".join(rows)) == obeyed(json.dumps(result, ensure_ascii=False)) == set()


@pytest.mark.parametrize("name", HOSTILE)
def test_programs_and_pages_print_and_obey_not(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    kit.print_values({"node": name, name: [{"label": name}]}, as_json=False)
    assert obeyed(capsys.readouterr().out) == obeyed(plain(name)) == set()


PLAY = """
- name: Look
  hosts: all
  gather_facts: false
  connection: local
  vars:
    ansible_python_interpreter: "{{{{ ansible_playbook_python }}}}"
    said: "{said}"
  tasks:
    - name: Say {{{{ said }}}}
      ansible.builtin.debug: {{msg: "{{{{ said }}}}"}}
    - name: Refuse
      ansible.builtin.fail: {{msg: "expected, got {{{{ said }}}}"}}
"""


@pytest.mark.parametrize("arguments", [(), ("-v",), ("-v", "--diff")], ids=" ".join)
def test_a_run_prints_and_obeys_not(tmp_path: Path, arguments: Iterable[str]) -> None:
    """A real run of ansible-playbook with the callback, quiet and as Ansible prints it."""
    book = tmp_path / "book.yml"
    book.write_text(PLAY.format(said="\\x1b[2J\\x9b1A\\u202e\\rfine"), encoding="utf-8")
    done = subprocess.run(
        [Path(sys.executable).parent / "ansible-playbook", "-i", "w-1,", *arguments, book],
        cwd=tmp_path,
        env={**os.environ, "ANSIBLE_STDOUT_CALLBACK": "attested.kubernetes.stages", "ANSIBLE_NOCOLOR": "1"},
        capture_output=True,
        check=False,
    )
    said = (done.stdout + done.stderr).decode("utf-8")
    assert obeyed(said) == set()
    assert "expected, got \\x1b[2J" in said.replace("\\\\", "\\")
