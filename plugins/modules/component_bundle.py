#!/usr/bin/python
# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: component_bundle
short_description: Make and verify an offline bundle of Kubernetes, images and wheels
version_added: 0.2.0
description:
  - A bundle is one directory with everything that a node installs, and a C(manifest.json) that names each file
    with its SHA-256, size, architecture and origin. It is the only input of the playbook C(prepare).
  - Programs are built from Go modules that are pinned by hash, or brought from where O(sources) says; images are
    written from these programs. The Python packages of a node are downloaded against pinned hashes; the collection's
    own wheel is built from its tree.
  - C(runc) needs a C compiler and is never built. It is part of a bundle that brings it; nodes of another bundle use
    the package of their distribution.
  - Every part is kept in a cache under the hash of what it is made from, so a run that was cut off is continued
    and a second run makes nothing.
  - Runs on the admin's machine and needs C(mmdebstrap) and C(zstd) there; Go 1.26 is taken from the path or
    installed into the cache.
author:
  - The attested.kubernetes authors (@attested-kubernetes)
options:
  state:
    description:
      - V(cached) makes one O(part) and keeps it in the cache, which gives a long run its visible steps.
      - V(present) makes whatever is missing and puts the bundle into O(path).
      - V(verified) holds every file below O(path) against the manifest and changes nothing; it fails with
        V(BUNDLE_INCOMPLETE), V(BUNDLE_MALFORMED) or V(BUNDLE_HASH_MISMATCH).
    type: str
    choices: [cached, present, verified]
    default: present
  path:
    description: Directory of the bundle. Required unless O(state=cached).
    type: path
  part:
    description:
      - The part to make, one of the programs, base layers or the wheels for one version of Python.
      - Required with O(state=cached).
    type: str
    choices:
      - etcd
      - kube-apiserver
      - kubectl
      - kube-controller-manager
      - kubeadm
      - kubelet
      - kube-scheduler
      - kube-proxy
      - etcdctl
      - etcdutl
      - coredns
      - helm
      - containerd
      - containerd-shim-runc-v2
      - ctr
      - runc
      - cni-bridge
      - cni-dummy
      - cni-host-device
      - cni-ipvlan
      - cni-loopback
      - cni-macvlan
      - cni-ptp
      - cni-tap
      - cni-vlan
      - cni-dhcp
      - cni-host-local
      - cni-static
      - cni-bandwidth
      - cni-firewall
      - cni-portmap
      - cni-sbr
      - cni-tuning
      - cni-vrf
      - crictl
      - pause
      - flannel
      - proxy-base
      - tour-base
      - wheels-3.11
      - wheels-3.12
      - wheels-3.13
      - wheels-3.14
  kubernetes_version:
    description:
      - A minor version, which selects its default patch in the table of releases, or a patch of the table.
      - Anything else fails with V(RELEASE_UNKNOWN), which lists the known versions. So does a patch whose Go modules
        this collection does not pin. A damaged table fails with V(RELEASE_TABLE_MALFORMED).
    type: str
    default: "1.35"
  steps:
    description:
      - Releases that the control planes of a cluster go through before O(kubernetes_version), one a minor version, the
        oldest first. The bundle has C(kubeadm) and the images of the control plane of each.
      - Anything that does not rise by one minor version each, up to the one before O(kubernetes_version), fails with
        V(RELEASE_SKEW).
      - They are built, or downloaded with O(download); O(sources) is for O(kubernetes_version) alone.
    type: list
    elements: str
    default: []
  sources:
    description:
      - Programs that are brought instead of built, for example those that Kubernetes publishes. Each is believed by its
        hash alone, wherever it came from.
      - Places that do not answer are asked again after pauses, five times in all; what came is kept, and the next run
        goes on there. Fails with V(COMPONENT_UNREACHABLE), V(COMPONENT_NOT_FOUND), V(COMPONENT_INCOMPLETE),
        V(COMPONENT_IS_A_PAGE), V(COMPONENT_TOO_LARGE), V(COMPONENT_HASH_MISMATCH) or V(COMPONENT_NOT_INSIDE), and with
        V(OPTION_INVALID) for a row that cannot be meant.
      - Its version is not looked at but by kubeadm's own list of images; name those of the table of releases.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: The program.
        type: str
        required: true
        choices:
          - etcd
          - kube-apiserver
          - kubectl
          - kube-controller-manager
          - kubeadm
          - kubelet
          - kube-scheduler
          - kube-proxy
          - etcdctl
          - etcdutl
          - coredns
          - helm
          - containerd
          - containerd-shim-runc-v2
          - ctr
          - runc
          - cni-bridge
          - cni-dummy
          - cni-host-device
          - cni-ipvlan
          - cni-loopback
          - cni-macvlan
          - cni-ptp
          - cni-tap
          - cni-vlan
          - cni-dhcp
          - cni-host-local
          - cni-static
          - cni-bandwidth
          - cni-firewall
          - cni-portmap
          - cni-sbr
          - cni-tuning
          - cni-vrf
          - crictl
          - pause
          - flannel
      urls:
        description: Where it lies, C(https://), C(http://) or an absolute path on this machine, in the order to try.
        type: list
        elements: str
        required: true
      sha256:
        description: SHA-256 of the file, in hex.
        type: str
        required: true
      extract:
        description: How the program comes out of it.
        type: str
        choices: [none, gzip, tar]
        default: none
      member:
        description: Its name in the tar; for O(sources[].extract=tar) only.
        type: str
  network_plugin:
    description: The network plugin whose program and image are part of the bundle.
    type: str
    choices: [none, flannel]
    default: none
  download:
    description:
      - Download the programs whose hash is in the table of releases from their publishers instead of building them.
      - A program that O(sources) names comes from there. The others are built.
    type: bool
    default: false
  architecture:
    description: Machine type of the nodes.
    type: str
    choices: [amd64, arm64]
    default: amd64
  python_versions:
    description: Minor versions of Python on the nodes; the bundle has the wheels for each.
    type: list
    elements: str
    choices: ["3.11", "3.12", "3.13", "3.14"]
    default: ["3.11"]
  keep_build_cache:
    description:
      - If false, the sources and objects of the Go toolchain (about 7 GB) are removed when the bundle is complete.
      - They stay while another run builds a program with them.
      - Only with O(state=present).
    type: bool
    default: true
  cache_dir:
    description: Where parts are kept. Required unless O(state=verified).
    type: path
  files_dir:
    description:
      - Directory with the table of releases and the pinned inputs (C(releases/), C(go/), C(python/)).
      - Required unless O(state=verified).
    type: path
  collection_dir:
    description: Root of the collection, from which its own wheel is built. Required unless O(state=verified).
    type: path
extends_documentation_fragment:
  - attested.kubernetes.attributes
attributes:
  check_mode:
    support: full
    details:
      - Parts that would have to be made are listed in RV(missing_parts).
  diff_mode:
    support: full
  idempotent:
    support: full
"""

EXAMPLES = r"""
- name: Build the bundle of a site
  attested.kubernetes.component_bundle:
    path: /srv/sites/prod/bundle
    cache_dir: ~/.cache/attested-kubernetes
    files_dir: /usr/share/attested/bundle_builder/files
    collection_dir: /srv/attested-kubernetes

- name: Build one program into the cache
  attested.kubernetes.component_bundle:
    state: cached
    part: kubelet
    cache_dir: ~/.cache/attested-kubernetes
    files_dir: /usr/share/attested/bundle_builder/files
    collection_dir: /srv/attested-kubernetes

- name: Use the published kubelet, from a mirror first
  attested.kubernetes.component_bundle:
    path: /srv/sites/prod/bundle
    cache_dir: ~/.cache/attested-kubernetes
    files_dir: /usr/share/attested/bundle_builder/files
    collection_dir: /srv/attested-kubernetes
    sources:
      - name: kubelet
        urls:
          - https://mirror.example/kubernetes/v1.35.4/bin/linux/amd64/kubelet
          - https://dl.k8s.io/v1.35.4/bin/linux/amd64/kubelet
        sha256: "{{ kubelet_sha256 }}"

- name: Download what is published instead of building it
  attested.kubernetes.component_bundle:
    path: /srv/sites/prod/bundle
    cache_dir: ~/.cache/attested-kubernetes
    files_dir: /usr/share/attested/bundle_builder/files
    collection_dir: /srv/attested-kubernetes
    download: true

- name: Verify a bundle on a medium
  attested.kubernetes.component_bundle:
    state: verified
    path: /media/bundle
"""

RETURN = r"""
path:
  description: Directory of the bundle.
  returned: O(state) is V(present) or V(verified)
  type: str
  sample: /srv/sites/prod/bundle
manifest_sha256:
  description: SHA-256 of the manifest. It covers the whole bundle.
  returned: O(state) is V(present) or V(verified)
  type: str
  sample: 9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e9f2c1d5e
kubernetes_version:
  description: Exact version of Kubernetes in the bundle.
  returned: O(state) is V(present) or V(verified)
  type: str
  sample: 1.35.4
files:
  description: Number of stored files.
  returned: O(state) is V(present) or V(verified)
  type: int
  sample: 6
bytes:
  description: Size of all stored files.
  returned: O(state) is V(present) or V(verified)
  type: int
  sample: 232583217
images:
  description: Image references by component.
  returned: O(state) is V(present) or V(verified)
  type: dict
  sample: {tour: "localhost/attested-tour:1"}
missing_parts:
  description: >-
    Parts that are not in the cache, in the order in which they would be made, each with the release that it is for. The
    release of base layers and wheels is that of the bundle.
  returned: O(state=present) in check mode
  type: list
  elements: dict
  sample: [{part: kubelet, kubernetes_version: 1.35.4}]
part:
  description: The part that was asked for.
  returned: O(state=cached)
  type: str
  sample: kubelet
file:
  description: Path of the part in the cache.
  returned: O(state=cached), not in check mode
  type: str
  sample: /home/admin/.cache/attested-kubernetes/programs/1f9c/kubelet
sha256:
  description: SHA-256 of the part.
  returned: O(state=cached), not in check mode
  type: str
  sample: 82b7a19b89b6e81ddc374fd4c60a7f3b1455a33cbd0351e860bb24c18ee4641e
size:
  description: Size of the part in bytes.
  returned: O(state=cached), not in check mode
  type: int
  sample: 82624674
"""

from ansible_collections.attested.kubernetes.plugins.module_utils.bundle.bundle import PARTS, PYTHONS, make_bundle
from ansible_collections.attested.kubernetes.plugins.module_utils.bundle.versions import SOURCES
from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import ArgumentSpec, run_module

SPEC = ArgumentSpec(
    options={
        "state": {"type": "str", "choices": ["cached", "present", "verified"], "default": "present"},
        "path": {"type": "path"},
        "part": {"type": "str", "choices": list(PARTS)},
        "kubernetes_version": {"type": "str", "default": "1.35"},
        "steps": {"type": "list", "elements": "str", "default": []},
        "sources": {
            "type": "list",
            "elements": "dict",
            "default": [],
            "options": {
                "name": {"type": "str", "required": True, "choices": [source.name for source in SOURCES]},
                "urls": {"type": "list", "elements": "str", "required": True},
                "sha256": {"type": "str", "required": True},
                "extract": {"type": "str", "choices": ["none", "gzip", "tar"], "default": "none"},
                "member": {"type": "str"},
            },
        },
        "network_plugin": {"type": "str", "choices": ["none", "flannel"], "default": "none"},
        "download": {"type": "bool", "default": False},
        "architecture": {"type": "str", "choices": ["amd64", "arm64"], "default": "amd64"},
        "python_versions": {"type": "list", "elements": "str", "choices": list(PYTHONS), "default": ["3.11"]},
        "keep_build_cache": {"type": "bool", "default": True},
        "cache_dir": {"type": "path"},
        "files_dir": {"type": "path"},
        "collection_dir": {"type": "path"},
    },
    required_if=(
        ("state", "cached", ("part", "cache_dir", "files_dir", "collection_dir")),
        ("state", "present", ("path", "cache_dir", "files_dir", "collection_dir")),
        ("state", "verified", ("path",)),
    ),
)


def main() -> None:
    """Run the module."""
    run_module(SPEC, make_bundle)


if __name__ == "__main__":
    main()
