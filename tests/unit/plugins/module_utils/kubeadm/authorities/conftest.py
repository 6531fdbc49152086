# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fixtures: a control plane's files, as the renewal of its certificates has them, and what further is rotated."""

from __future__ import annotations

import base64
import json

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.ca_files import AuthorityFiles
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.spec import KubernetesPaths
from ansible_collections.attested.kubernetes.tests.unit.fakes.machine import clock
from ansible_collections.attested.kubernetes.tests.unit.fakes.pki import Pki
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

__all__ = ["clock"]

_MANIFEST = b"""spec:
  containers:
  - command:
    - kube-controller-manager
    - --cluster-signing-cert-file=/etc/kubernetes/pki/ca.crt
    - --root-ca-file=/etc/kubernetes/pki/ca.crt
"""


@pytest.fixture
def pki(tmp_path):
    """The files of a control plane, with the key of service accounts, a kubelet's kubeconfig and a manifest."""
    made = Pki(tmp_path)
    kubernetes = tmp_path / "etc/kubernetes"
    key = ec.generate_private_key(ec.SECP256R1())
    (kubernetes / "pki/sa.key").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    (kubernetes / "pki/sa.pub").write_bytes(
        key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    ca = base64.b64encode((kubernetes / "pki/ca.crt").read_bytes()).decode()
    config = {"clusters": [{"cluster": {"certificate-authority-data": ca}}]}
    (kubernetes / "kubelet.conf").write_text(json.dumps(config))
    (kubernetes / "manifests").mkdir()
    (kubernetes / "manifests/kube-controller-manager.yaml").write_bytes(_MANIFEST)
    return made


@pytest.fixture
def paths(tmp_path, pki):
    del pki
    return KubernetesPaths(root=tmp_path)


@pytest.fixture
def files(paths, clock):
    return AuthorityFiles(paths, clock=clock)
