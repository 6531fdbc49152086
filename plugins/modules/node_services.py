#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_services
short_description: Run the services of this collection from a prepared release
version_added: 0.2.0
description:
  - Switches the link O(path) to the environment of O(release) by one rename, restarts the services that run from
    another environment, and waits until they are healthy.
  - A service is healthy if systemd reports it as ready, it keeps running, and the node's new evidence is accepted.
  - If the services are not healthy, the module switches back to the previous environment, restarts the services again
    and fails with V(SERVICES_NOT_HEALTHY).
  - The module fails with V(RELEASE_NOT_PREPARED), and changes nothing, if the node does not have the release.
  - The next run continues an interrupted run. Kubernetes is not changed.
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  release:
    description: Name of the release, as M(attested.kubernetes.node_runtime) returns it.
    type: str
    required: true
  path:
    description: Path of the link to the environment in use.
    type: path
    default: /opt/attested/venv
  wait_seconds:
    description: How long to wait for healthy services, in seconds, and again after switching back.
    type: int
    default: 120
extends_documentation_fragment:
  - attested.kubernetes.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
"""

EXAMPLES = r"""
- name: Switch to a release that was prepared
  attested.kubernetes.node_services:
    release: 9f2c1d5e9f2c

- name: Show which services would be restarted
  attested.kubernetes.node_services:
    release: 9f2c1d5e9f2c
  check_mode: true
  diff: true

- name: Allow a slow machine more time
  attested.kubernetes.node_services:
    release: 9f2c1d5e9f2c
    wait_seconds: 600
"""

RETURN = r"""
release:
  description: The release whose environment is in use.
  returned: success
  type: str
  sample: 9f2c1d5e9f2c
restarted:
  description: Services that were restarted.
  returned: success
  type: list
  elements: str
  sample: [attested-witness.service]
"""

from ansible_collections.attested.kubernetes.plugins.module_utils.bundle.services import run_services
from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import ArgumentSpec, run_module

SPEC = ArgumentSpec(
    options={
        "release": {"type": "str", "required": True},
        "path": {"type": "path", "default": "/opt/attested/venv"},
        "wait_seconds": {"type": "int", "default": 120},
    }
)


def main() -> None:
    """Run the module."""
    run_module(SPEC, run_services)


if __name__ == "__main__":
    main()
