#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: kubelet_authorities
short_description: Renew the certificate of this node's kubelet and the CAs that it trusts
version_added: 0.1.0
description:
  - Asks a join service for a new certificate of the kubelet with fresh evidence, as C(attested renew --now) does, and
    installs the cluster CAs of that ticket too, so that the kubelet trusts both while they are replaced. The kubelet is
    restarted; the Pods of the node are not.
  - On a control plane, whose CAs a rotation writes itself, only the certificate is taken.
  - Fails as a renewal does, with V(NODELOCK_NOT_HELD), V(KUBELET_CREDENTIAL_MISSING), V(KUBELET_CREDENTIAL_REFUSED),
    V(KUBELET_NOT_RUNNING) or what the join services refuse; the kubelet then keeps its certificate and CAs.
author:
  - The attested.kubernetes authors (@attested-kubernetes)
extends_documentation_fragment:
  - attested.kubernetes.attributes
  - attested.kubernetes.node_config
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: none
    details:
      - Each run takes a ticket; M(attested.kubernetes.rotation) says whose kubelets need one.
"""

EXAMPLES = r"""
- name: Take a ticket of the control planes as they are now
  attested.kubernetes.kubelet_authorities:
  when: inventory_hostname in rotation.kubelets

- name: Only see that it would
  attested.kubernetes.kubelet_authorities:
  check_mode: true

- name: Do so with another configuration of the node
  attested.kubernetes.kubelet_authorities:
    node_config: /etc/attested/node.yml
"""

RETURN = r"""
serial:
  description: Serial number of the kubelet"s certificate, hexadecimal.
  returned: when it was renewed
  type: str
  sample: 542e27e84c1a5982
expires:
  description: Until when it is good, ISO 8601.
  returned: when it was renewed
  type: str
  sample: "2026-11-25T12:00:00+00:00"
"""

from ansible_collections.attested.kubernetes.plugins.module_utils.core.installed import installed
from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import (
    ArgumentSpec,
    node_config_spec,
    run_module,
)

SPEC = ArgumentSpec(options={}).merged(node_config_spec())


def main() -> None:
    """Run the module."""
    run_module(SPEC, installed("node.renew:run_kubelet"), libraries=("cryptography", "grpc", "yaml"))


if __name__ == "__main__":
    main()
