# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hierarchies with passwords: handed over sealed, tried, held, used by whoever opens the TPM, and shown nowhere."""

from __future__ import annotations

import base64
import contextlib
import os
import secrets
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.node.authorization import (
    parse_auth,
    run_tpm_authorization,
    seal_auths,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.in_force import SitePolicy
from ansible_collections.attested.kubernetes.plugins.module_utils.services.handshake_evidence import Attester
from ansible_collections.attested.kubernetes.plugins.module_utils.services.judge import judge
from ansible_collections.attested.kubernetes.plugins.module_utils.services.verification_client import fetch_testimony
from ansible_collections.attested.kubernetes.plugins.module_utils.services.witness import Facts
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm import keys as form
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.authorization import HeldAuths
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.client import open_tpm
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.constants import RH_ENDORSEMENT, RH_OWNER
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.keys import (
    load_attestation_key,
    load_endorsement_key,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.storage import NvCounter
from ansible_collections.attested.kubernetes.tests.support import boots
from ansible_collections.attested.kubernetes.tests.support.canary import ProcessWatch, spellings
from ansible_collections.attested.kubernetes.tests.support.exchange import CLUSTER_ID, identity_of, learned, logs_of
from ansible_collections.attested.kubernetes.tests.support.replay import replay
from ansible_collections.attested.kubernetes.tests.support.verification import lock_log, question, running_node

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ansible_collections.attested.kubernetes.tests.support.swtpm import Swtpm

OWNER, ENDORSEMENT = (f"{name} canary {secrets.token_hex(8)}" for name in ("owner", "endorsement"))
"""Of this process alone: tpm2_changeauth of another run has its own values in its arguments."""
BOTH = {RH_OWNER: OWNER.encode(), RH_ENDORSEMENT: ENDORSEMENT.encode()}
IN_MEMORY = [
    *("unshare", "--mount", "--propagation", "private", "sh", "-c"),
    'mkdir -p /run/attested && mount -t tmpfs -o mode=0700 tmpfs /run/attested && exec "$@"',
    "sh",
]
"""Runs a program that has /run/attested on tmpfs, as on a node, whatever this machine has."""


@pytest.fixture
def guarded(swtpm: Swtpm) -> Iterator[Swtpm]:
    """A TPM with passwords, made by tpm2-tools; what this machine holds for it goes at the end."""
    if shutil.which("tpm2_changeauth") is None:
        pytest.skip("no tpm2_changeauth here (package tpm2-tools)")
    for hierarchy, value in (("owner", OWNER), ("endorsement", ENDORSEMENT)):
        subprocess.run(
            ["tpm2_changeauth", "-T", f"swtpm:path={swtpm.socket}", "-c", hierarchy, value],
            check=True, capture_output=True, timeout=900,
        )  # fmt: skip
    yield swtpm
    HeldAuths(swtpm.tcti).write({})


def anywhere(_directory: Path) -> None:
    """Take any directory for memory: whether it is one, the machine says, and the last test asks it."""


@pytest.fixture
def run(guarded: Swtpm) -> Callable[..., Any]:
    def call(check_mode: bool = False, **changes: Any) -> Any:
        known = {"tcti": guarded.tcti, "tpm_timeout_seconds": 10, "state": "present", "handle": None, "sealed": None}
        return run_tpm_authorization({**known, **changes}, check_mode, require_memory=anywhere)

    return call


def handed(run: Callable[..., Any], auths: dict[int, bytes], **changes: Any) -> Any:
    """Play the whole exchange."""
    offered = run().values
    box = seal_auths(auths, public=base64.b64decode(offered["offer"]))
    return run(handle=offered["handle"], sealed=base64.b64encode(box).decode("ascii"), **changes)


def code_of(call: Callable[[], Any]) -> str:
    with pytest.raises(AttestedError) as caught:
        call()
    return caught.value.code


def test_a_machine_says_which_hierarchies_have_a_password(run: Callable[..., Any]) -> None:
    assert run().values["demanded"] == ["endorsement", "owner"]
    assert run(check_mode=True).values == {"held": [], "demanded": ["endorsement", "owner"]}


def test_what_is_handed_over_is_held_once_and_forgotten_on_request(run: Callable[..., Any], guarded: Swtpm) -> None:
    first, second = handed(run, BOTH), handed(run, BOTH)
    assert (first.changed, second.changed, first.values) == (True, False, {"held": ["endorsement", "owner"]})
    assert HeldAuths(guarded.tcti).read() == BOTH
    assert [run(state="absent").changed, run(state="absent").changed] == [True, False]
    assert HeldAuths(guarded.tcti).read() == {}


def test_every_program_that_opens_the_tpm_uses_what_is_held(run: Callable[..., Any], guarded: Swtpm) -> None:
    keys = {"tcti": guarded.tcti, "tpm_timeout_seconds": 10}
    assert code_of(lambda: form.run(keys, False)) == "TPM_HIERARCHY_AUTH"
    handed(run, BOTH)
    assert form.run(keys, False).changed
    with open_tpm(guarded.tcti) as tpm:
        assert NvCounter(tpm).define() > 0


def test_a_wrong_value_is_refused_by_name_and_not_held(run: Callable[..., Any], guarded: Swtpm) -> None:
    with pytest.raises(AttestedError, match="password of the owner hierarchy") as caught:
        handed(run, {**BOTH, RH_OWNER: b"guessed value"})
    assert caught.value.code == "TPM_HIERARCHY_AUTH"
    assert "guessed value" not in str(caught.value)
    assert HeldAuths(guarded.tcti).read() == {}


def test_an_offer_opens_once_and_only_its_own_box(run: Callable[..., Any]) -> None:
    offered, other = run().values, base64.b64encode(b"p" * 32).decode()
    box = base64.b64encode(seal_auths(BOTH, public=base64.b64decode(offered["offer"]))).decode()
    assert code_of(lambda: run(handle=offered["handle"], sealed=other)) == "SEAL_UNOPENABLE"
    assert code_of(lambda: run(handle=offered["handle"], sealed=box)) == "ANSWER_UNKNOWN"
    assert code_of(lambda: run(handle=run().values["handle"], sealed="no base64!")) == "OPTION_INVALID"
    assert code_of(lambda: run(handle="../../etc/shadow", sealed=box)) == "ANSWER_UNKNOWN"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("plain", b"plain", id="text"),
        pytest.param("hex:00ff", b"\x00\xff", id="hexadecimal"),
        pytest.param("hex:ff00", b"\xff", id="zeros at the end, which a TPM forgets"),
    ],
)
def test_a_value_is_text_or_hexadecimal(text: str, expected: bytes) -> None:
    assert parse_auth(text, name="v") == expected


@pytest.mark.parametrize("text", ["", "hex:", "hex:0", "hex:zz", "hex:00", "x" * 65])
def test_what_cannot_be_a_value_is_refused_without_being_shown(text: str) -> None:
    with pytest.raises(AttestedError) as caught:
        parse_auth(text, name="attested_tpm_owner_auth")
    assert caught.value.code == "OPTION_INVALID"
    assert caught.value.message.startswith("expected 1 to 64 bytes in attested_tpm_owner_auth")
    assert text not in {"hex:zz", "x" * 65} or text not in str(caught.value)


async def test_a_node_with_a_password_is_verified_by_its_witness(run: Callable[..., Any], guarded: Swtpm) -> None:
    """The witness opens the TPM as it does on a node, and so takes what is held; without it it refuses by name."""
    recorded = boots.load("deb13-base")
    with open_tpm(guarded.tcti, auths=BOTH) as tpm:
        replay(tpm, firmware=recorded.firmware, userspace=recorded.userspace)
        tpm.pcr_event(15, CLUSTER_ID)
        policy = SitePolicy(profiles=[learned(recorded)], identities=[identity_of(load_endorsement_key(tpm), "w-1")])

    @contextlib.contextmanager
    def attester() -> Iterator[Attester]:
        with open_tpm(guarded.tcti) as tpm:
            yield Attester(tpm=tpm, ek=load_endorsement_key(tpm), ak=load_attestation_key(tpm))

    logs, asked = logs_of(recorded, nodelock=lock_log(CLUSTER_ID)), question(policy)
    async with running_node(attester, lambda: Facts(cluster_id=CLUSTER_ID, logs=logs)) as bed:
        with pytest.raises(AttestedError):
            await fetch_testimony(bed.endpoint, asked)
        assert "TPM_HIERARCHY_AUTH" in bed.reasons()
        handed(run, BOTH)
        found = judge(await fetch_testimony(bed.endpoint, asked), asked, node="w-1")
    assert found.identity.node_name == "w-1"


# ---- as a playbook does it

PLAY = """
- hosts: localhost
  gather_facts: false
  tasks:
    - attested.kubernetes.tpm_authorization: {tcti: "{{ tcti }}"}
      register: first
    - attested.kubernetes.tpm_authorization: {tcti: "{{ tcti }}"}
      register: second
    - attested.kubernetes.attestation_key: {tcti: "{{ tcti }}"}
    - ansible.builtin.debug: {msg: "told {{ first.changed }} {{ second.changed }} {{ second.held | join(' ') }}"}
"""


def vaulted(folder: Path, name: str, value: str) -> str:
    program = str(Path(sys.executable).parent / "ansible-vault")
    done = subprocess.run(
        [program, "encrypt_string", "--vault-password-file", "password", "--stdin-name", name],
        cwd=folder, input=value, capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    return done.stdout + "\n"


def played(folder: Path, tcti: str) -> subprocess.CompletedProcess[str]:
    program = str(Path(sys.executable).parent / "ansible-playbook")
    environment = {
        **os.environ, "ANSIBLE_STDOUT_CALLBACK": "default", "ANSIBLE_PYTHON_INTERPRETER": sys.executable,
        "ANSIBLE_LOG_PATH": str(folder / "log"), "HOME": str(folder / "home"), "ANSIBLE_KEEP_REMOTE_FILES": "1",
        "ANSIBLE_HOME": str(folder / "home" / ".ansible"), "ANSIBLE_REMOTE_TMP": str(folder / "remote"),
    }  # fmt: skip
    return subprocess.run(
        [*IN_MEMORY, program, "-vvvv", "--diff", "-i", "hosts.yml", "--vault-password-file", "password", "play.yml",
         "-e", f"tcti={tcti}"],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


def test_no_value_shows_at_full_verbosity_in_files_or_processes_and_a_planted_one_would(
    guarded: Swtpm, tmp_path: Path
) -> None:
    if subprocess.run([*IN_MEMORY, "true"], capture_output=True, timeout=900, check=False).returncode:
        pytest.skip("no mount namespace here: needs root and unshare, to have /run/attested on tmpfs")
    if Path("/proc/swaps").read_text(encoding="utf-8").count("\n") > 1:
        pytest.skip("this machine swaps: nothing secret is held on it (SWAP_ACTIVE)")
    folder = tmp_path / "site"
    (folder / "host_vars").mkdir(parents=True)
    (folder / "password").write_text("correct horse", encoding="utf-8")
    (folder / "hosts.yml").write_text("all: {hosts: {localhost: {ansible_connection: local}}}\n", encoding="utf-8")
    (folder / "play.yml").write_text(PLAY, encoding="utf-8")
    names = {"attested_tpm_owner_auth": OWNER, "attested_tpm_endorsement_auth": ENDORSEMENT}
    text = "".join(vaulted(folder, name, value) for name, value in names.items())
    (folder / "host_vars" / "localhost.yml").write_text(text, encoding="utf-8")
    with ProcessWatch() as watch:
        done = played(folder, guarded.tcti)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "told True False endorsement owner" in done.stdout
    needles = [one for value in BOTH.values() for one in spellings(value)]
    texts = [done.stdout.encode(), done.stderr.encode(), *(data for _where, data in watch.seen())]
    files = [path for path in tmp_path.rglob("*") if path.is_file() and not path.is_relative_to(tmp_path / "tpms")]
    assert any("AnsiballZ" in path.name for path in files), "the modules' files were kept, to be looked at"
    texts += [path.read_bytes() for path in files]
    assert [needle for needle in needles if any(needle in text for text in texts)] == []
    planted = folder / "planted"
    planted.write_text(f"x{OWNER}y", encoding="utf-8")
    assert any(needle in planted.read_bytes() for needle in needles)
