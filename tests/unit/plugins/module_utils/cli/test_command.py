# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command `attested`, as a person and as a program see it."""

from __future__ import annotations

import contextlib
import json
import os
from types import SimpleNamespace

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.cli import command
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import TpmError
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.evidence import EventLogs
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.image.next_boot import NextBoot
from ansible_collections.attested.kubernetes.plugins.module_utils.node import boot_entry
from ansible_collections.attested.kubernetes.plugins.module_utils.node.journal import NodePhase, NodeState
from ansible_collections.attested.kubernetes.plugins.module_utils.node.status import NodeStatus
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.tests.support import boots

BOOT = boots.load("deb13-grub")
BOOTED_KERNEL = bytes.fromhex("ed8f0dbdbefe3994093937f5ee934818ae902b88cb0b6bc423811c10d55b87b0")
COMPARE = "before a reboot compare it with the policy: ansible-playbook attested.kubernetes.status"


def test_a_code_is_explained_whatever_its_case(capsys):
    assert command.main(["explain", "nodelock_open"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("NODELOCK_OPEN\n")
    assert "Run the node playbook on it" in " ".join(shown.split())


def test_a_program_gets_json(capsys):
    assert command.main(["explain", "NODELOCK_BUSY", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["what_to_do"] == Reason.NODELOCK_BUSY.value.hint


def test_an_unknown_code_names_its_kin(capsys):
    assert command.main(["explain", "NODELOCK_LOST"]) == 2
    assert "NODELOCK_FOREIGN" in capsys.readouterr().err


def test_all_codes_can_be_listed(capsys):
    assert command.main(["codes", "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)) == set(Reason.__members__)


def test_status_without_a_configuration_says_what_to_do(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert command.main(["status", "--config", str(tmp_path / "node.yml")]) == 1
    assert "FILE_UNUSABLE" in capsys.readouterr().err


def test_status_is_for_root(capsys, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert command.main(["status"]) == 2
    assert "sudo attested status" in capsys.readouterr().err


@pytest.mark.parametrize("words", [[], ["dance"], ["explain"]])
def test_wrong_usage_is_told(words, capsys):
    with pytest.raises(SystemExit) as caught:
        command.main(words)
    assert caught.value.code == 2
    assert "usage" in capsys.readouterr().err


def test_variants_say_what_was_proven_of_them(capsys):
    """Nobody ran the confidential ones on hardware, and the program says so."""
    assert command.main(["variants"]) == 0
    shown = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert shown["tdx"].strip() == "admits no machine; verification only, not proven on hardware"
    assert "admits machines" in shown["tpm2"]


def test_a_program_gets_the_variants_as_json(capsys):
    assert command.main(["variants", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [name for name, row in rows.items() if row["admits"]] == ["tpm2"]
    assert rows["sev-snp"] == {
        "issued": False,
        "admits": False,
        "standing": "verification only, not proven on hardware",
    }


def test_status_names_the_kind_of_evidence(capsys, monkeypatch):
    fresh = NodeStatus(
        state=NodeState(),
        locked=False,
        kubelet_active=False,
        bootstrapper_active=False,
        certificate_expires=None,
        to_do="Nothing.",
        needs_person=False,
    )
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(command, "load_node_config", lambda _path: SimpleNamespace(name="w-1", cluster_name="lab"))
    monkeypatch.setattr(command, "read_status", lambda _machine, _journal: fresh)
    assert command.main(["status"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "evidence tpm2: proven with software TPMs" in shown
    assert "verified only sev-snp, tdx: verification only, not proven on hardware" in shown
    assert command.main(["status", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["verified_only"] == "sev-snp, tdx: verification only, not proven on hardware"


def test_status_shows_which_control_plane_the_proxy_uses(capsys, monkeypatch):
    told = "10.0.0.12:6443 answered last; known: 10.0.0.11:6443, 10.0.0.12:6443"
    state = NodeStatus(
        state=NodeState(),
        locked=True,
        kubelet_active=True,
        bootstrapper_active=False,
        certificate_expires=None,
        api=told,
        to_do="Nothing.",
        needs_person=False,
    )
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(command, "load_node_config", lambda _path: SimpleNamespace(name="w-1", cluster_name="lab"))
    monkeypatch.setattr(command, "read_status", lambda _machine, _journal: state)
    assert command.main(["status"]) == 0
    assert f"API {told}" in " ".join(capsys.readouterr().out.split())


@pytest.fixture
def member(monkeypatch):
    """A member of the cluster that has booted GRUB; the test says what its firmware starts next."""

    @contextlib.contextmanager
    def tpm(_tcti):
        yield SimpleNamespace(pcr_read=lambda registers: {one: BOOT.pcrs[one] for one in registers})

    state = NodeStatus(
        state=NodeState(phase=NodePhase.JOINED),
        locked=True,
        kubelet_active=True,
        bootstrapper_active=False,
        certificate_expires=None,
        to_do="Nothing.",
        needs_person=False,
    )
    logs = EventLogs(firmware=BOOT.firmware, userspace=b"", nodelock=b"", command_line=BOOT.command_line)
    config = SimpleNamespace(name="w-1", cluster_name="lab", tcti="device:/dev/tpmrm0", logs=None)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(command, "load_node_config", lambda _path: config)
    monkeypatch.setattr(command, "read_status", lambda _machine, _journal: state)
    monkeypatch.setattr(command, "read_event_logs", lambda _paths: logs)
    monkeypatch.setattr(command, "open_tpm", tpm)


def told_of(found, capsys, monkeypatch):
    """Return what status says of the next boot, to a program and to a person; neither needs a person for it."""
    monkeypatch.setattr(boot_entry.Machine, "is_uefi", True)
    monkeypatch.setattr(boot_entry, "find_next", lambda _machine: found)
    assert command.main(["status", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["next_boot"]
    assert command.main(["status"]) == 0
    return told, " ".join(capsys.readouterr().out.split())


@pytest.mark.usefixtures("member")
def test_a_next_boot_that_is_the_one_of_now_is_no_word_worth(capsys, monkeypatch):
    told, shown = told_of(NextBoot(path="/boot/vmlinuz-1", kernel=BOOTED_KERNEL), capsys, monkeypatch)
    assert (told, "next boot" in shown) == (None, False)


@pytest.mark.usefixtures("member")
def test_without_uefi_status_names_no_next_boot(capsys, monkeypatch):
    monkeypatch.setattr(boot_entry.Machine, "is_uefi", False)
    assert command.main(["status", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["next_boot"] is None


@pytest.mark.usefixtures("member")
@pytest.mark.parametrize(
    ("found", "told"),
    [
        pytest.param(
            NextBoot(path="/boot/vmlinuz-2", kernel=bytes(32)),
            "/boot/vmlinuz-2 differs from this boot: kernel in no reference event of PCR 9",
            id="another kernel",
        ),
        pytest.param(
            NextBoot(path="the firmware", problem="is asked to do something else first (OsIndications 0x4)"),
            "unknown: the firmware: is asked to do something else first (OsIndications 0x4)",
            id="a capsule that waits",
        ),
    ],
)
def test_a_next_boot_that_is_not_the_one_of_now_is_told(found, told, capsys, monkeypatch):
    said, shown = told_of(found, capsys, monkeypatch)
    assert said == f"{told}; {COMPARE}"
    assert f"next boot {said}" in shown


@pytest.mark.usefixtures("member")
def test_a_tpm_that_does_not_answer_leaves_the_next_boot_unknown(capsys, monkeypatch):
    def fails(_tcti):
        raise TpmError("expected a TPM, found none", reason=Reason.TPM_UNREACHABLE)

    monkeypatch.setattr(command, "open_tpm", fails)
    said, _shown = told_of(NextBoot(path="/boot/vmlinuz-1", kernel=BOOTED_KERNEL), capsys, monkeypatch)
    assert "unknown: " in said
    assert "expected a TPM, found none" in said
