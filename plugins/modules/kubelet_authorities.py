#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: kubelet_authorities
short_description: Renew the certificate of this node's kubelet and the CAs that it trusts
version_added: 0.2.0
description:
  - Requests a new kubelet certificate from a join service with new evidence, as C(attested renew --now) does. It also
    installs the cluster CAs of that ticket, so that the kubelet trusts the old and the new CA during a rotation. The
    kubelet is restarted. The Pods of the node keep running.
  - On a control plane only the certificate is installed, because a rotation writes the CAs there.
  - The module fails as a renewal does, with V(NODELOCK_NOT_HELD), V(KUBELET_CREDENTIAL_MISSING),
    V(KUBELET_CREDENTIAL_REFUSED), V(KUBELET_NOT_RUNNING) or the reason of a join service. The kubelet then keeps its
    certificate and CAs.
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
      - Each run fetches a ticket. The result of M(attested.kubernetes.rotation) lists the nodes whose kubelets need
        one.
"""

EXAMPLES = r"""
- name: Renew the certificate and the trusted CAs of the kubelet
  attested.kubernetes.kubelet_authorities:
  when: inventory_hostname in rotation.kubelets

- name: Check the renewal without a change
  attested.kubernetes.kubelet_authorities:
  check_mode: true

- name: Renew with another configuration of the node
  attested.kubernetes.kubelet_authorities:
    node_config: /etc/attested/node.yml
"""

RETURN = r"""
serial:
  description: Serial number of the kubelet's certificate, hexadecimal.
  returned: if the certificate was renewed
  type: str
  sample: 542e27e84c1a5982
expires:
  description: Time until which the certificate is valid, ISO 8601.
  returned: if the certificate was renewed
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
