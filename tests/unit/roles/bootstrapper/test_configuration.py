# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role writes for a worker with a state disk, as its program reads it; without one it is as before."""

from __future__ import annotations

import json
from pathlib import Path

import jinja2
import yaml
from ansible_collections.attested.kubernetes.plugins.module_utils.core.runtime import load_config
from ansible_collections.attested.kubernetes.plugins.module_utils.node.boot_program import BootstrapperConfig, disk_of
from ansible_collections.attested.kubernetes.plugins.module_utils.services.recovery_service import RecoveryServiceConfig

ROOT = Path(__file__).parents[4]
ROLE = ROOT / "roles" / "bootstrapper"
DEVICE = "/dev/disk/by-id/nvme-eui.0025385b71b0c2d1"
DEFAULTS = yaml.safe_load((ROLE / "defaults" / "main.yml").read_text(encoding="utf-8"))
BEFORE = """\
# Written by attested.kubernetes.prepare.
node_ip: "10.0.0.21"
role: "worker"
ignore_preflight_errors: []
allow_cgroup_v1: false
serve_init: false
"""


def text(name="bootstrapper.yml", **changes):
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, autoescape=False, trim_blocks=True, keep_trailing_newline=True
    )
    environment.filters |= {"bool": bool, "to_json": json.dumps}
    template = environment.from_string((ROLE / "templates" / f"{name}.j2").read_text(encoding="utf-8"))
    return template.render({**DEFAULTS, "bootstrapper_node_ip": "10.0.0.21", **changes})


def read(folder, **changes):
    path = folder / "bootstrapper.yml"
    path.write_text(text(**changes), encoding="utf-8")
    return load_config(BootstrapperConfig, path)


def test_without_a_disk_the_file_is_what_it_was():
    assert text() == BEFORE


def test_the_recovery_service_listens_where_the_role_says_and_its_unit_allows_no_other_port(tmp_path):
    changes = {"bootstrapper_recovery_port": 9998}
    path = tmp_path / "recovery-service.yml"
    path.write_text(text("recovery-service.yml", **changes), encoding="utf-8")
    assert load_config(RecoveryServiceConfig, path) == RecoveryServiceConfig(listen_port=9998)
    unit = text("attested-recovery-service.service", **changes)
    assert [line for line in unit.splitlines() if line.startswith("SocketBind")] == [
        "SocketBindAllow=tcp:9998",
        "SocketBindDeny=any",
    ]


def test_the_recovery_service_is_confined_as_the_init_service_is():
    """Line by line, but for who it is: name, user, program, directory, port."""
    units = [text(f"attested-{name}-service.service").partition("[Service]")[2] for name in ("init", "recovery")]
    init, recovery = (unit.splitlines() for unit in units)
    differing = [ours.partition("=")[0] for theirs, ours in zip(init, recovery, strict=True) if theirs != ours]
    assert differing == ["User", "ExecStart", "RuntimeDirectory", "SocketBindAllow"]


def test_nobody_starts_the_recovery_service_but_the_bootstrapper():
    unit = text("attested-recovery-service.service")
    assert "BindsTo=attested-bootstrapper.service" in unit
    assert "[Install]" not in unit


def test_how_long_it_asks_reaches_the_program(tmp_path):
    config = read(tmp_path, bootstrapper_state_disk=DEVICE, bootstrapper_recovery_after_seconds=60)
    assert (config.recovery_after_seconds, config.recovery_user) == (60.0, "attested-recovery")


def test_a_disk_and_what_may_go_reach_the_program(tmp_path):
    config = read(tmp_path, bootstrapper_state_disk=DEVICE, bootstrapper_state_disk_erase=DEVICE.rpartition("/")[2])
    assert (config.state_disk, config.state_disk_erase) == (DEVICE, "nvme-eui.0025385b71b0c2d1")


def test_a_least_size_reaches_the_program_and_without_one_it_has_its_own(tmp_path):
    assert read(tmp_path, bootstrapper_state_disk=DEVICE).state_disk_minimum_bytes == 16 << 30
    config = read(tmp_path, bootstrapper_state_disk=DEVICE, bootstrapper_state_disk_minimum_bytes=256 << 20)
    found = disk_of(config)
    assert found is not None
    assert found.minimum_bytes == 256 << 20


def test_both_drivers_take_the_variables_of_the_site():
    for playbook, prefix, empty in (("tasks/settings", "bootstrapper_", ""), ("node", " ", " or omit")):
        written = (ROOT / "playbooks" / f"{playbook}.yml").read_text(encoding="utf-8")
        least = "attested_state_disk_minimum_bytes | default(0)" + (" | int or omit" if empty else "")
        assert f"{prefix}state_disk: \"{{{{ attested_state_disk | default(''){empty} }}}}\"" in written
        assert f'{prefix}state_disk_minimum_bytes: "{{{{ {least} }}}}"' in written
        assert f"{prefix}state_disk_erase: \"{{{{ attested_state_disk_erase | default(''){empty} }}}}\"" in written
