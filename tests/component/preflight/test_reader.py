# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A machine with a real TPM is looked at, with and without libraries, and is the same afterwards."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.preflight import run_preflight
from ansible_collections.attested.kubernetes.plugins.module_utils.bundle.store import this_architecture
from ansible_collections.attested.kubernetes.tests.support.boots import BOOTS
from ansible_collections.attested.kubernetes.tests.support.house import SOURCES
from ansible_collections.attested.kubernetes.tests.support.replay import replay

if TYPE_CHECKING:
    from collections.abc import Callable

    from ansible_collections.attested.kubernetes.tests.support.swtpm import Opened, Swtpm

BOOT = BOOTS / "deb13-base"
WITHOUT_LIBRARIES = """
import json, sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("cryptography", "google", "grpc", "kubernetes", "yaml", "OpenSSL"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.preflight import run_preflight
print(json.dumps(dict(run_preflight(json.load(sys.stdin), False).values)))
"""

# a network and a system bus of its own, in which firewalld runs and opens one port
WITH_FIREWALLD = """
mount -t tmpfs tmpfs /run
mkdir /run/dbus
dbus-daemon --system --nofork --nopidfile &
bus=$!
until [ -S /run/dbus/system_bus_socket ]; do sleep 0.1; done
firewalld --nofork --nopid &
firewall=$!
for _ in $(seq 100); do firewall-cmd --state && break; sleep 0.2; done
firewall-cmd --add-port=10250/tcp
"$@"
code=$?
kill $firewall $bus
wait
exit $code
"""


@pytest.fixture
def booted(swtpm: Swtpm, opened: Opened) -> Swtpm:
    """A TPM that a machine with firmware and systemd has booted with."""
    with opened(swtpm) as tpm:
        replay(tpm, firmware=log("firmware"), userspace=log("userspace"))
    return swtpm


def log(kind: str) -> bytes:
    """Return one of the logs of the recorded boot."""
    return place(kind).read_bytes()


def place(kind: str) -> Path:
    """Return where a log of the recorded boot lies."""
    return BOOT / {"firmware": "eventlog.bin", "userspace": "userspace.json"}[kind]


def options(tcti: str, **changed: Any) -> dict[str, Any]:
    """Return the options of the module for this machine."""
    return {
        "node_name": "cp-1",
        "role": "worker",
        "packages": [],
        "install_packages": False,
        "python_version": ".".join(map(str, sys.version_info[:2])),
        "architecture": this_architecture().value,
        "allow_cgroup_v1": True,
        "ignore_preflight_errors": [],
        "tcti": tcti,
        "firmware_log": str(place("firmware")),
        "userspace_log": str(place("userspace")),
        "node_ip": "127.0.0.1",
        "second_node_ip": "",
        "pod_subnet": "10.244.0.0/16",
        "service_subnet": "10.96.0.0/16",
        "api_endpoint": "localhost:6443",
        "peers": [],
        "state_disk": "",
        "state_disk_erase": "",
        "pod_security": "baseline",
        "kubelet_serving_certificates": True,
        "state_disk_minimum_bytes": 0,
        "ports": [],
        "remote_tmp": "/dev/shm/.ansible-admin",
        "admin_time": time.time(),
        **changed,
    }


def findings(values: Any, *, checks: set[str]) -> list[tuple[str, str]]:
    """Return level and text of the findings of these checks; the rest is about the machine that runs the test."""
    return [(one["level"], one["text"]) for one in values["findings"] if one["check"] in checks]


TPM_CHECKS = {"tpm", "endorsement key", "event log", "node lock", "boot"}


def test_a_machine_that_booted_as_its_log_says_lacks_nothing_of_its_tpm(booted: Swtpm):
    values = run_preflight(options(booted.tcti), False).values
    assert findings(values, checks=TPM_CHECKS) == []
    assert values["machine"]["ek_certificates"] == ["RSA-2048 (L-1)"]
    assert values["machine"]["nodelock"] == "unlocked"
    assert values["machine"]["secure_boot"] is False


def test_nothing_but_python_itself_is_needed(booted: Swtpm):
    given = json.dumps(options(booted.tcti))
    argv = [sys.executable, "-c", WITHOUT_LIBRARIES]
    done = subprocess.run(argv, input=given, cwd=SOURCES, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert findings(json.loads(done.stdout), checks=TPM_CHECKS) == []


def test_reading_leaves_no_object_session_or_file_behind(booted: Swtpm, opened: Opened, tmp_path: Path):
    before = sorted(Path("/dev/shm").iterdir())
    with opened(booted) as tpm:
        registers = tpm.pcr_read(range(24))
    run_preflight(options(booted.tcti), False)
    with opened(booted) as tpm:
        assert (tpm.handles(0x80000000), tpm.handles(0x02000000)) == ((), ())
        assert tpm.pcr_read(range(24)) == registers
    assert [
        path for path in sorted(Path("/dev/shm").iterdir()) if path not in before and path.name.startswith("tmp")
    ] == []


def test_a_register_that_no_event_explains_is_named(booted: Swtpm, opened: Opened):
    with opened(booted) as tpm:
        tpm.pcr_event(4, b"somebody")
    (finding,) = findings(run_preflight(options(booted.tcti), False).values, checks=TPM_CHECKS)
    assert finding[0] == "missing"
    assert "PCR 4: logs give" in finding[1]


def test_a_lock_register_that_somebody_else_used_wants_a_reboot(booted: Swtpm, opened: Opened):
    with opened(booted) as tpm:
        tpm.pcr_event(15, b"somebody")
    (finding,) = findings(run_preflight(options(booted.tcti), False).values, checks=TPM_CHECKS)
    assert finding[0] == "missing"
    assert "PCR 15" in finding[1]


@pytest.mark.parametrize(
    ("certified", "banks", "expected"),
    [
        pytest.param(False, "sha256", [("note", "the TPM has no certificate for it")], id="no certificate"),
        pytest.param(
            True,
            "sha1",
            [("missing", "expected an active SHA-256 bank, it has none (TPM_PCR_UNAVAILABLE)")],
            id="an old bank only",
        ),
    ],
)
def test_a_tpm_without_certificate_or_bank(
    swtpms: Callable[..., Swtpm], certified: bool, banks: str, expected: list[tuple[str, str]]
):
    tpm = swtpms("other", certified=certified, banks=banks)
    values = run_preflight(options(tpm.tcti), False).values
    assert findings(values, checks={"tpm", "endorsement key"}) == expected


def test_a_tpm_in_lockout_is_told_and_keeps_nobody_out(booted: Swtpm, lock_out: Callable[[Swtpm], None]):
    lock_out(booted)
    ((level, text),) = findings(run_preflight(options(booted.tcti), False).values, checks={"tpm"})
    assert (level, text) == ("note", "in lockout after wrong passwords of its objects (TPM_LOCKOUT)")


@pytest.mark.parametrize(
    ("words", "name"),
    [
        pytest.param(("e", "ehEnable"), "endorsement", id="endorsement"),
        pytest.param(("o", "shEnable"), "owner", id="owner"),
    ],
)
def test_a_hierarchy_that_is_off_keeps_a_machine_out(
    booted: Swtpm, tool: Callable[..., str], words: tuple[str, str], name: str
):
    tool(booted, "hierarchycontrol", "-C", *words, "clear")
    ((level, text),) = findings(run_preflight(options(booted.tcti), False).values, checks={"tpm"})
    assert level == "missing"
    assert text == f"expected owner and endorsement hierarchy enabled, off: {name} (TPM_HIERARCHY_DISABLED)"


def test_no_tpm_and_no_log_are_told_and_raise_nothing(tmp_path: Path):
    values = run_preflight(options("device:/dev/no-such-tpm"), False).values
    ((level, text),) = findings(values, checks=TPM_CHECKS)
    assert level == "missing"
    assert "/dev/no-such-tpm" in text
    assert values["ready"] is False


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(None, id="no log"),
        pytest.param(b"", id="an empty log"),
        pytest.param(b"\x01" * 100, id="no log at all"),
    ],
)
def test_a_firmware_log_that_is_none(booted: Swtpm, tmp_path: Path, content: bytes | None):
    file = tmp_path / "eventlog.bin"
    if content is not None:
        file.write_bytes(content)
    values = run_preflight(options(booted.tcti, firmware_log=str(file)), False).values
    assert [level for level, _text in findings(values, checks={"event log"})] == ["missing"]


def test_ports_peers_addresses_and_the_clock_are_really_tried(booted: Swtpm):
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.create_server(("127.0.0.1", 0)) as closed:
        port, free = taken.getsockname()[1], closed.getsockname()[1]
        closed.close()
        given = options(
            booted.tcti,
            ports=[port, free],
            peers=[f"127.0.0.1:{port}", f"127.0.0.1:{free}", "no-such-host.invalid:22"],
            node_ip="192.0.2.7",
            api_endpoint="no-such-host.invalid:6443",
            admin_time=time.time() - 4000,
        )
        values = run_preflight(given, False).values
    texts = dict(findings(values, checks={"ports"}))
    assert texts == {"missing": f"expected the ports {port} to be free, they are taken"}
    assert findings(values, checks={"network"}) == [
        ("note", "expected an answer of no-such-host.invalid:22, none came")
    ]
    assert [level for level, _text in findings(values, checks={"address", "endpoint", "clock"})] == ["missing"] * 3


def test_a_firewalld_that_opens_one_of_two_ports_is_told_with_its_command():
    missing = [one for one in ("dbus-daemon", "firewall-cmd", "unshare") if shutil.which(one) is None]
    if missing or os.geteuid() != 0:
        pytest.skip(f"firewalld cannot run here: needs root, and lacks {' '.join(missing) or 'nothing else'}")
    given = json.dumps(options("device:/dev/no-such-tpm", ports=[9091, 10250, 10257]))
    apart = ["unshare", "--net", "--mount", "--propagation", "private", "sh", "-c", WITH_FIREWALLD, "sh"]
    argv = [*apart, sys.executable, "-c", WITHOUT_LIBRARIES]
    done = subprocess.run(argv, input=given, cwd=SOURCES, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    ((level, text),) = findings(said, checks={"firewall"})
    assert (level, text) == ("note", "firewalld runs, and its default zone does not open the ports 9091")
    (step,) = [one["next_step"] for one in said["findings"] if one["check"] == "firewall"]
    assert "firewall-cmd --permanent --add-port=9091/tcp && firewall-cmd --reload" in step
