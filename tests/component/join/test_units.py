# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The units of the services as systemd itself judges them, without starting anything."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import jinja2
import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.disk.kernel_log import KERNEL_LOG
from ansible_collections.attested.kubernetes.plugins.module_utils.disk.paths import StatePaths
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.spec import KubernetesPaths

ROLES = Path(__file__).parents[3] / "roles"
VALUES = {
    "api_endpoint_list_seconds": 600,
    "api_endpoint_listen_port": 6444,
    "api_endpoint_venv": "/usr",
    "bootstrapper_init_port": 9000,
    "bootstrapper_init_user": "nobody",
    "bootstrapper_recovery_port": 9999,
    "bootstrapper_recovery_user": "nobody",
    "bootstrapper_venv": "/usr",
    "control_plane_backup_recipients": ["age1a", "age1b"],
    "control_plane_backup_schedule": "daily",
    "control_plane_backups_kept": 7,
    "control_plane_venv": "/usr",
    "state_disk_health_seconds": 60,
    "state_disk_health_venv": "/usr",
    "join_service_user": "nobody",
    "join_service_venv": "/usr",
    "join_service_listen_port": 9090,
    "join_service_metrics_port": 9092,
    "key_service_venv": "/usr",
    "key_service_cluster_id": "00" * 32,
    "key_service_tcti": "device:/dev/tpmrm0",
    "key_service_firmware_log": "/a",
    "key_service_userspace_log": "/b",
    "verification_service_listen_port": 9091,
    "verification_service_reattest_seconds": 3600,
    "verification_service_renew_seconds": 3600,
    "verification_service_figures_seconds": 60,
    "verification_service_tcti": "device:/dev/tpmrm0",
    "verification_service_device": {"stat": {"exists": True, "gid": 117}},
    "verification_service_user": "nobody",
    "verification_service_venv": "/usr",
    "verification_service_insecure_constellation_verify": False,
    "verification_service_insecure_constellation_verify_port": 9093,
}


def text_of(role: str, template: str, **changes: object) -> str:
    """Return a file as the role writes it."""
    text = (ROLES / role / "templates" / f"{template}.j2").read_text(encoding="utf-8")
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, autoescape=False)
    environment.filters |= {"bool": bool, "to_json": json.dumps}
    return environment.from_string(text).render({**VALUES, **changes})


def rendered(role: str, unit: str, directory: Path) -> Path:
    """Write the unit as the role does, with a program that is there."""
    path = directory / unit
    path.write_text(re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", text_of(role, unit), flags=re.MULTILINE))
    return path


@pytest.fixture
def analyze() -> str:
    found = shutil.which("systemd-analyze")
    if found is None:
        pytest.skip("no systemd-analyze here (package systemd)")
    return found


@pytest.mark.parametrize(
    ("role", "unit", "limit"),
    [
        pytest.param("api_endpoint", "attested-api-endpoint.service", 3.0, id="the proxy to the API"),
        pytest.param("api_endpoint", "attested-api-endpoint-list.service", 3.0, id="who asks for its list"),
        pytest.param("bootstrapper", "attested-bootstrapper.service", 8.0, id="the bootstrapper, which runs kubeadm"),
        pytest.param("bootstrapper", "attested-init-service.service", 3.0, id="the init service"),
        pytest.param("bootstrapper", "attested-recovery-service.service", 3.0, id="the recovery service"),
        pytest.param(
            "join_service", "attested-join-service.service", 3.0, id="the join service, which faces strangers"
        ),
        pytest.param("key_service", "attested-key-service.service", 3.0, id="the key service, which is root"),
        pytest.param("key_service", "attested-unlock.service", 6.0, id="the unlocking, which needs the TPM"),
        pytest.param(
            "verification_service",
            "attested-verification-service.service",
            3.0,
            id="the verification service, which faces strangers",
        ),
        pytest.param("verification_service", "attested-witness.service", 3.0, id="the witness, which has the TPM"),
        pytest.param("verification_service", "attested-reattest.service", 3.0, id="the push of fresh evidence"),
        pytest.param("verification_service", "attested-renew.service", 3.0, id="the renewal of the certificate"),
        pytest.param("verification_service", "attested-figures.service", 3.0, id="who writes the figures"),
        pytest.param("state_disk", "attested-disk-health.service", 3.0, id="who reads the kernel's log"),
        pytest.param("control_plane", "attested-backup.service", 3.0, id="the backup, which runs programs of etcd"),
        pytest.param(
            "control_plane",
            "attested-renew-control-plane.service",
            3.0,
            id="the renewal of a control plane's certificates, which runs kubeadm",
        ),
    ],
)
def test_exposure(analyze: str, tmp_path: Path, role: str, unit: str, limit: float) -> None:
    path = rendered(role, unit, tmp_path)
    argv = [analyze, "security", "--offline=true", "--no-pager", str(path)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    found = re.search(r"Overall exposure level for \S+: (\d+\.\d+)", done.stdout)
    assert found, done.stderr
    assert float(found[1]) <= limit


@pytest.mark.parametrize(
    ("role", "unit"),
    [
        pytest.param("api_endpoint", "attested-api-endpoint.service", id="proxy to the API"),
        pytest.param("api_endpoint", "attested-api-endpoint-list.service", id="who asks for its list"),
        pytest.param("api_endpoint", "attested-api-endpoint-list.timer", id="timer of its list"),
        pytest.param("bootstrapper", "attested-bootstrapper.service", id="bootstrapper"),
        pytest.param("bootstrapper", "attested-init-service.service", id="init service"),
        pytest.param("bootstrapper", "attested-recovery-service.service", id="recovery service"),
        pytest.param("state_disk", "attested-disk-health.service", id="health of the state disk"),
        pytest.param("state_disk", "attested-disk-health.timer", id="timer of that"),
        pytest.param("control_plane", "attested-backup.service", id="backup"),
        pytest.param("control_plane", "attested-backup.timer", id="timer of the backup"),
        pytest.param("join_service", "attested-join-service.service", id="join service"),
        pytest.param("key_service", "attested-key-service.service", id="key service"),
        pytest.param("key_service", "attested-unlock.service", id="unlock"),
        pytest.param("verification_service", "attested-verification-service.service", id="verification service"),
        pytest.param("verification_service", "attested-witness.service", id="witness"),
        pytest.param("verification_service", "attested-reattest.service", id="push of fresh evidence"),
        pytest.param("verification_service", "attested-reattest.timer", id="timer of the push"),
        pytest.param("verification_service", "attested-renew.service", id="renewal of the certificate"),
        pytest.param("verification_service", "attested-renew.timer", id="timer of the renewal"),
        pytest.param("verification_service", "attested-figures.service", id="figures"),
        pytest.param("verification_service", "attested-figures.timer", id="timer of the figures"),
        pytest.param("control_plane", "attested-renew-control-plane.service", id="control plane's renewal"),
        pytest.param("control_plane", "attested-renew-control-plane.timer", id="timer of that renewal"),
    ],
)
def test_systemd_understands_every_line(analyze: str, tmp_path: Path, role: str, unit: str) -> None:
    path = rendered(role, unit, tmp_path)
    argv = [analyze, "verify", "--man=no", "--recursive-errors=no", str(path)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert "Unknown key" not in done.stderr
    assert "Failed to parse" not in done.stderr


@pytest.mark.parametrize(
    ("template", "mark"),
    [
        pytest.param("attested-verification-service.service", "tcp:9093", id="the network side's ports"),
        pytest.param("attested-witness.service", "--insecure-constellation-verify", id="what the witness permits"),
        pytest.param("verification-service.yml", "insecure_constellation_verify_port: 9093", id="the configuration"),
    ],
)
def test_constellations_question_is_answered_only_where_a_role_is_told_to(template: str, mark: str) -> None:
    more = {
        "verification_service_listen_address": "0.0.0.0",
        "verification_service_questions_per_second": 1.0,
        "verification_service_question_burst": 16,
    }
    on = {"verification_service_insecure_constellation_verify": True}
    assert mark not in text_of("verification_service", template, **more)
    assert mark in text_of("verification_service", template, **more, **on)


def test_keys_that_no_lock_followed_are_not_opened() -> None:
    """An init keeps its keys, then takes the lock; opened after a reset in between, they would lock a free machine."""
    lines = text_of("key_service", "attested-unlock.service").splitlines()
    signs = [line.partition("=")[2] for line in lines if line.startswith("ConditionPathExists=|")]
    paths = KubernetesPaths()
    assert signs == [f"|{paths.state}/progress.json", f"|{paths.kubelet_credential}"]


@pytest.mark.parametrize("unit", ["attested-witness", "attested-reattest", "attested-renew"])
@pytest.mark.parametrize(
    ("found", "group"),
    [
        pytest.param({"exists": True, "gid": 117}, "117", id="the group that tpm-udev gave it"),
        pytest.param({"exists": False}, "0", id="no device yet"),
    ],
)
def test_who_has_no_capability_is_in_the_group_of_the_tpms_device(
    unit: str, found: dict[str, object], group: str
) -> None:
    text = text_of("verification_service", f"{unit}.service", verification_service_device={"stat": found})
    assert "\nCapabilityBoundingSet=\n" in text
    assert f"\nSupplementaryGroups={group}\n" in text


@pytest.mark.parametrize("unit", ["attested-witness", "attested-reattest", "attested-renew"])
def test_where_the_tpm_is_a_socket_no_device_is_asked_for(unit: str) -> None:
    text = text_of("verification_service", f"{unit}.service", verification_service_tcti="swtpm:path=/run/swtpm")
    assert not [line for line in text.splitlines() if line.startswith(("DeviceAllow", "SupplementaryGroups=0"))]


def test_who_reads_the_kernels_log_waits_for_the_lock_and_the_disk_and_has_nothing_else() -> None:
    """The marker of the disk is that of this boot's counted unlock; the disk itself is no device of this unit."""
    lines = text_of("state_disk", "attested-disk-health.service").splitlines()
    signs = [line.partition("=")[2] for line in lines if line.startswith("ConditionPathExists=")]
    assert signs == [str(KubernetesPaths().lock_marker), str(StatePaths().counted)]
    assert [line for line in lines if line.startswith("DeviceAllow=")] == [f"DeviceAllow={KERNEL_LOG} r"]
    assert "CapabilityBoundingSet=CAP_SYSLOG" in lines
    assert "DevicePolicy=closed" in lines


def confinement(role: str, unit: str) -> list[str]:
    """Return what the unit forbids its program: the lines of its service from the first limit on, without its ports."""
    lines = text_of(role, f"{unit}.service").partition("MemoryMax=")[2].partition("[Install]")[0].splitlines()
    return [line for line in lines if line and not line.startswith("SocketBindAllow=")]


def test_the_init_service_is_confined_as_the_verification_service_is() -> None:
    ours = confinement("bootstrapper", "attested-init-service")
    assert ours == confinement("verification_service", "attested-verification-service")
    assert "SocketBindDeny=any" in ours
    unit = text_of("bootstrapper", "attested-init-service.service", bootstrapper_init_port=9001)
    assert [line for line in unit.splitlines() if "SocketBindAllow" in line] == ["SocketBindAllow=tcp:9001"]


def test_the_proxy_has_one_port_no_root_and_no_way_to_a_credential() -> None:
    """It listens on loopback by its program's constant; systemd holds it to the port alone, and to IPv4."""
    unit = text_of("api_endpoint", "attested-api-endpoint.service", api_endpoint_listen_port=6445)
    assert [line for line in unit.splitlines() if line.startswith("SocketBind")] == [
        "SocketBindAllow=ipv4:tcp:6445",
        "SocketBindDeny=any",
    ]
    for line in ("DynamicUser=yes", "CapabilityBoundingSet=", "ExecReload=/bin/kill -HUP $MAINPID"):
        assert line in unit.splitlines()
    hidden = next(line for line in unit.splitlines() if line.startswith("InaccessiblePaths=")).split("-/")[1:]
    assert {path.strip() for path in hidden} >= {"etc/kubernetes", "var/lib/kubelet", "var/lib/attested"}


def test_the_init_service_lives_and_ends_with_the_bootstrapper() -> None:
    unit = text_of("bootstrapper", "attested-init-service.service")
    assert "BindsTo=attested-bootstrapper.service\nAfter=attested-bootstrapper.service\n" in unit
    assert "[Install]" not in unit


def test_playbooks_of_the_bootstrapper_find_a_home_in_memory_and_utf_8() -> None:
    unit = text_of("bootstrapper", "attested-bootstrapper.service")
    assert "RuntimeDirectory=attested-bootstrapper\nRuntimeDirectoryMode=0700\n" in unit
    assert "Environment=HOME=/run/attested-bootstrapper\n" in unit
    assert "Environment=LC_ALL=C.UTF-8\n" in unit


def test_a_bootstrapper_that_needs_a_person_is_not_started_again() -> None:
    unit = text_of("bootstrapper", "attested-bootstrapper.service")
    assert "Restart=on-failure\nRestartSec=30\nRestartPreventExitStatus=78\n" in unit
