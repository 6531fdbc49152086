#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: addon
short_description: Make a Helm release what addons.yml of the site says
version_added: 0.2.0
description:
  - Reads one add-on of C(addons.yml), sends its chart to the control plane of the task, and installs or upgrades the
    release there with the Helm of the bundle. Helm rolls a failed change back. Plain C(helm) can go on managing it.
  - An add-on with C(state=absent) is uninstalled.
  - A release whose newest revision was made from the same chart and values is left alone.
  - Before a change the CustomResourceDefinitions that the chart brings or owns, and all their objects, are saved into
    an encrypted file of O(directory). Where the change fails, or deletes a definition that has objects, they are put
    back with status, finalizers and owner references (M(attested.kubernetes.addon_release)).
  - In check mode the chart is rendered by a dry run at the API server, and the diff shows the manifests
    without their Secrets. What a chart renders into other objects is shown.
  - Fails with V(ADDON_INVALID), V(ADDON_FAILED), V(ADDON_BUSY), V(ADDON_OBJECTS_LOST), V(KIT_KEY_UNUSABLE) or
    V(KUBECTL_FAILED).
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  name:
    description: Name of the release in C(addons.yml). Without it nothing is done, and RV(addons) lists all of them.
    type: str
  namespace:
    description: Namespace of the release, where several have this name.
    type: str
  directory:
    description:
      - Directory of the backups on the machine that runs the playbook. It is created with mode 0700. Required with
        O(name).
    type: path
  keep:
    description: How many copies of the custom objects of an add-on stay there, the newest.
    type: int
    default: 7
  recipients:
    description: Recipients of age, C(age1...), of which each opens a copy. Needed where there are custom objects.
    type: list
    elements: str
    default: []
  registry_credentials:
    description:
      - Credentials of registries, as in M(attested.kubernetes.containerd_settings). The one for the registry of the
        chart is sent to the control plane, which holds it in memory while it fetches the chart.
    type: list
    elements: dict
    default: []
  network_plugin:
    description:
      - The network plugin of this collection that the site uses. It is the first of the add-ons, in the namespace
        C(kube-system), with the chart of this collection.
      - With its O(name) and O(namespace) the files of O(site) are not read.
    type: str
    choices: [none, flannel]
    default: none
  bundle:
    description:
      - Directory of the bundle on the machine that runs the playbook, whose manifest names the image of the network
        plugin. Fails with V(BUNDLE_INCOMPLETE) where the bundle has no such image.
      - This or O(image) is required unless O(network_plugin=none).
    type: path
  image:
    description: The image of the network plugin, where there is no bundle.
    type: str
  pod_subnet:
    description:
      - Addresses of Pods, for O(network_plugin).
      - Flannel needs an IPv4 network, or an IPv4 and an IPv6 network with a comma between them.
    type: str
    default: 10.244.0.0/16
extends_documentation_fragment:
  - attested.kubernetes.attributes
  - attested.kubernetes.kubectl
  - attested.kubernetes.site
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
"""

EXAMPLES = r"""
- name: List the add-ons of the site
  attested.kubernetes.addon:
    site: "{{ inventory_dir }}"
  register: site_addons

- name: Install or upgrade the ingress controller
  attested.kubernetes.addon:
    name: ingress
    site: "{{ inventory_dir }}"
    directory: "{{ inventory_dir }}/backups"
    recipients: "{{ attested_recovery_kit_recipients }}"
"""

RETURN = r"""
addons:
  description: The add-ons in their order; C(network) says which one is the network plugin.
  returned: without O(name)
  type: list
  elements: dict
  sample: [{"name": "ingress", "namespace": "ingress-nginx", "network": false}]
chart_digest:
  description: Digest of the chart, for C(addons.yml).
  returned: with O(name)
  type: str
  sample: sha256:1b4f0e9851971998e732078544c96b36c3d01cedf7caa332359d6f1d83567014
definitions:
  description: CustomResourceDefinitions that were saved before the change, or would be.
  returned: with O(name)
  type: list
  elements: str
  sample: [certificates.cert-manager.io]
objects:
  description: Number of their objects.
  returned: with O(name)
  type: int
  sample: 200
put_back:
  description: What the change had lost and was put back.
  returned: with O(name)
  type: dict
  sample: {"definitions": [], "objects": []}
path:
  description: The encrypted copy of the custom objects; empty if none was written.
  returned: with O(name)
  type: str
  sample: /srv/prod/backups/addon-ingress.ingress-20261127T101500Z.age
removed:
  description: Older copies that were removed.
  returned: with O(name)
  type: list
  elements: str
  sample: []
"""
