#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: addon_release
short_description: Change a Helm release without losing custom objects
version_added: 0.2.0
description:
  - With O(state=planned) renders the chart by a dry run at the API server and changes nothing.
  - With O(state=saved) writes the CustomResourceDefinitions that the release brings or owns, and all their objects,
    into an encrypted file.
  - With O(state=applied) installs or upgrades the release, or uninstalls it where there is no O(chart). Before that,
    definitions and objects are written in clear
    into O(journal_directory), which only root reads. If the change fails, Helm rolls back, and everything that is
    absent is put back. If it succeeds, objects are put back whose definition was deleted. A run that was interrupted is
    finished by the next one.
  - Usually called by M(attested.kubernetes.addon), which sends the chart and fetches the file.
  - Needs C(helm) and C(kubectl), which the bundle installs on control planes, and the Python package C(pyrage).
  - Fails with V(ADDON_INVALID), V(ADDON_FAILED), V(ADDON_BUSY), V(ADDON_OBJECTS_LOST), V(KIT_KEY_UNUSABLE) or
    V(KUBECTL_FAILED).
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  state:
    description: Whether the change is shown, the custom objects are saved, or the change is made.
    type: str
    choices: [planned, saved, applied]
    default: applied
  name:
    description: Name of the release.
    type: str
    required: true
  namespace:
    description: Namespace of the release. It is created if it is absent.
    type: str
    required: true
  chart:
    description:
      - Archive of a chart on this machine (C(.tgz)), a chart packed from a directory (C(.tar)), or a reference
        C(oci://). Empty for a release that is not to be there.
    type: str
    default: ""
  chart_digest:
    description: SHA-256 of the file, or the digest of the manifest that the reference C(oci://) names.
    type: str
    default: ""
  registry_config:
    description: Configuration of a registry client in JSON, with the credential for the registry of O(chart).
    type: str
    default: ""
  values:
    description: Values of the chart, base64 of JSON. They may hold secrets, and reach Helm by standard input.
    type: str
    default: e30=
  timeout_seconds:
    description: How long Helm waits for the objects of the release.
    type: int
    default: 300
  adopt:
    description: Lets the release take over objects of another release, or of none (C(helm --take-ownership)).
    type: bool
    default: false
  path:
    description: The encrypted file, with O(state=saved). Its directory exists.
    type: path
  recipients:
    description: Recipients of age, C(age1...), of which each opens the file.
    type: list
    elements: str
  journal_directory:
    description: Directory of the record of a change that is under way.
    type: path
    default: /var/lib/etcd
extends_documentation_fragment:
  - attested.kubernetes.attributes
  - attested.kubernetes.kubectl
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: partial
    details: Each run with O(state=saved) writes the file again.
"""

EXAMPLES = r"""
- name: Show what a chart would change
  attested.kubernetes.addon_release:
    state: planned
    name: ingress
    namespace: ingress-nginx
    chart: /var/tmp/ingress-nginx-4.12.0.tgz
    chart_digest: 1b4f0e9851971998e732078544c96b36c3d01cedf7caa332359d6f1d83567014
    values: "{{ {'controller': {'replicaCount': 2}} | to_json | b64encode }}"
  diff: true
"""

RETURN = r"""
definitions:
  description: CustomResourceDefinitions that are saved before the change.
  returned: success
  type: list
  elements: str
  sample: [certificates.cert-manager.io]
objects:
  description: Number of their objects.
  returned: success
  type: int
  sample: 200
put_back:
  description: What the change had lost and was put back.
  returned: success
  type: dict
  sample: {"definitions": [], "objects": []}
file_sha256:
  description: SHA-256 of the encrypted file.
  returned: with O(state=saved)
  type: str
  sample: 1b4f0e9851971998e732078544c96b36c3d01cedf7caa332359d6f1d83567014
"""

from ansible_collections.attested.kubernetes.plugins.module_utils.core.installed import installed
from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import (
    ArgumentSpec,
    kubectl_spec,
    run_module,
)

SPEC = ArgumentSpec(
    options={
        "state": {"type": "str", "choices": ["planned", "saved", "applied"], "default": "applied"},
        "name": {"type": "str", "required": True},
        "namespace": {"type": "str", "required": True},
        "chart": {"type": "str", "default": ""},
        "chart_digest": {"type": "str", "default": ""},
        "registry_config": {"type": "str", "default": "", "no_log": True},
        "values": {"type": "str", "default": "e30=", "no_log": True},
        "timeout_seconds": {"type": "int", "default": 300},
        "adopt": {"type": "bool", "default": False},
        "path": {"type": "path"},
        "recipients": {"type": "list", "elements": "str"},
        "journal_directory": {"type": "path", "default": "/var/lib/etcd"},
    },
    required_if=(("state", "saved", ("path", "recipients")),),
).merged(kubectl_spec())


def main() -> None:
    """Run the module."""
    run_module(SPEC, installed("node.addon:run"), libraries=("pyrage", "yaml"))


if __name__ == "__main__":
    main()
