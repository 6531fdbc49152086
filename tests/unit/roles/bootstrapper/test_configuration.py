# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role writes for a worker with a state disk, as its program reads it; without one it is as before."""

from __future__ import annotations

import json
from pathlib import Path

import jinja2
import yaml
from ansible_collections.attested.kubernetes.plugins.module_utils.bootstrap.boot import BootstrapperConfig
from ansible_collections.attested.kubernetes.plugins.module_utils.serving import load_config

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


def text(**changes):
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, autoescape=False, trim_blocks=True, keep_trailing_newline=True
    )
    environment.filters |= {"bool": bool, "to_json": json.dumps}
    template = environment.from_string((ROLE / "templates" / "bootstrapper.yml.j2").read_text(encoding="utf-8"))
    return template.render({**DEFAULTS, "bootstrapper_node_ip": "10.0.0.21", **changes})


def read(folder, **changes):
    path = folder / "bootstrapper.yml"
    path.write_text(text(**changes), encoding="utf-8")
    return load_config(BootstrapperConfig, path)


def test_without_a_disk_the_file_is_what_it_was():
    assert text() == BEFORE


def test_a_disk_and_what_may_go_reach_the_program(tmp_path):
    config = read(tmp_path, bootstrapper_state_disk=DEVICE, bootstrapper_state_disk_erase=DEVICE.rpartition("/")[2])
    assert (config.state_disk, config.state_disk_erase) == (DEVICE, "nvme-eui.0025385b71b0c2d1")


def test_both_drivers_take_the_variables_of_the_site():
    for playbook, role in (("prepare", "bootstrapper"), ("node", "worker")):
        written = (ROOT / "playbooks" / f"{playbook}.yml").read_text(encoding="utf-8")
        assert f"{role}_state_disk: \"{{{{ attested_state_disk | default('') }}}}\"" in written
        assert f"{role}_state_disk_erase: \"{{{{ attested_state_disk_erase | default('') }}}}\"" in written
