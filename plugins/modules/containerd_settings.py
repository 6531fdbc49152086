#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: containerd_settings
short_description: Configure containerd with the site's registries, runtimes and drop-ins
version_added: 0.2.0
description:
  - Writes C(/etc/containerd/config.toml) in version 2, which containerd 1.6, 1.7 and 2 read, and the files of the
    registries below C(/etc/attested/registries). Other files there are removed.
  - Enables and runs containerd, and restarts it only if C(config.toml) changed. If containerd or its interface for
    Kubernetes does not start with the new file, the former one is put back and the module fails.
  - Fails with V(CONFIG_INVALID) for what this collection sets itself, and with V(COMMAND_FAILED) if containerd does not
    start.
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  sandbox_image:
    description: Image of the sandbox of a Pod. Without it, the one in the present configuration stays.
    type: str
  cni_bin_dir:
    description:
      - Directory of the distribution's CNI plugins.
      - If containerd of the bundle is installed, it looks for plugins in C(/opt/cni/bin), C(/usr/local/libexec/cni) and
        here, in this order.
    type: path
    default: /usr/lib/cni
  restrict_oom_score:
    description: Keep containerd's OOM score for containers; for test machines that cannot lower it.
    type: bool
    default: false
  registries:
    description:
      - Registries with mirrors or a CA of their own. An entry has C(server) (as in the names of images, or
        V(_default)), C(ca) (the text of certificates in PEM) and C(mirrors).
      - A mirror has C(url), C(capabilities) (V(pull) and V(resolve) by default), C(ca) and C(override_path).
      - Credentials and C(skip_verify) are refused, and C(http) except on the loopback interface.
    type: list
    elements: dict
    default: []
  registry_credentials:
    description:
      - Credentials of registries and mirrors. They are in a file that only root reads, and in no diff.
      - Every Pod of the node may pull with them.
    type: list
    elements: dict
    default: []
    suboptions:
      host:
        description: The registry as in the names of images, or host and port of a mirror.
        type: str
        required: true
      username:
        description: Name of the user; with O(registry_credentials[].password).
        type: str
      password:
        description: Password of the user.
        type: str
      token:
        description: A bearer token instead of name and password.
        type: str
  proxy:
    description:
      - Proxies by which containerd reaches registries. Without one, containerd asks them itself.
      - containerd restarts if they change.
    type: dict
    default: {}
    suboptions:
      http:
        description: URL of the proxy for C(http://), without user and password.
        type: str
      https:
        description: URL of the proxy for C(https://), without user and password.
        type: str
      no_proxy:
        description: Names, domains, addresses and networks that are reached without the proxy.
        type: list
        elements: str
        default: []
  own_addresses:
    description: Names, addresses and networks of the cluster, which are reached without O(proxy).
    type: list
    elements: str
    default: []
  runtimes:
    description:
      - Further runtimes of containers. An entry has C(name), C(type) (V(io.containerd.runc.v2) by default), C(binary)
        and C(options) (a mapping, or a text in TOML).
    type: list
    elements: dict
    default: []
  drop_ins:
    description:
      - Further settings by name, each a mapping or a text in TOML of containerd's version 2. They are merged in the
        order of their names.
    type: dict
    default: {}
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
- name: Configure containerd
  attested.kubernetes.containerd_settings:
    sandbox_image: registry.k8s.io/pause:3.10

- name: Pull from a mirror first
  attested.kubernetes.containerd_settings:
    registries:
      - server: docker.io
        mirrors:
          - url: https://mirror.prod.example
            ca: "{{ lookup('ansible.builtin.file', 'mirror-ca.pem') }}"

- name: Pull with a password, by a proxy
  attested.kubernetes.containerd_settings:
    registry_credentials:
      - {host: registry.prod.example, username: nodes, password: "{{ vault_registry_password }}"}
    proxy: {https: "http://proxy.prod.example:3128"}
    own_addresses: [api.prod.example, 10.244.0.0/16]

- name: Offer a runtime and a larger log line
  attested.kubernetes.containerd_settings:
    runtimes:
      - {name: nvidia, binary: /usr/bin/nvidia-container-runtime}
    drop_ins:
      logs: {plugins: {io.containerd.grpc.v1.cri: {max_container_log_line_size: 65536}}}
"""

RETURN = r"""
written:
  description: The files that were written, or in check mode would be.
  returned: success
  type: list
  elements: str
  sample: [/etc/containerd/config.toml]
removed:
  description: What was removed, or in check mode would be.
  returned: success
  type: list
  elements: str
  sample: [/etc/attested/registries/quay.io]
units:
  description: The units that were enabled, started or restarted, or in check mode would be.
  returned: success
  type: list
  elements: str
  sample: [containerd.service]
"""

from ansible_collections.attested.kubernetes.plugins.module_utils.bundle.containerd import apply_settings
from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import ArgumentSpec, Form, run_form

SPEC = ArgumentSpec(
    options={
        "sandbox_image": {"type": "str"},
        "cni_bin_dir": {"type": "path", "default": "/usr/lib/cni"},
        "restrict_oom_score": {"type": "bool", "default": False},
        "registries": {"type": "list", "elements": "dict", "default": []},
        "registry_credentials": {
            "type": "list",
            "elements": "dict",
            "default": [],
            "options": {
                "host": {"type": "str", "required": True},
                "username": {"type": "str"},
                "password": {"type": "str", "no_log": True},
                "token": {"type": "str", "no_log": True},
            },
        },
        "proxy": {
            "type": "dict",
            "default": {},
            "options": {
                "http": {"type": "str"},
                "https": {"type": "str"},
                "no_proxy": {"type": "list", "elements": "str", "default": []},
            },
        },
        "own_addresses": {"type": "list", "elements": "str", "default": []},
        "runtimes": {"type": "list", "elements": "dict", "default": []},
        "drop_ins": {"type": "dict", "default": {}},
    }
)
FORM = Form(spec=SPEC, run=apply_settings)


def main() -> None:
    """Run the module."""
    run_form(FORM)


if __name__ == "__main__":
    main()
