# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of a control plane in a directory, with CAs and certificates that are made here."""

from __future__ import annotations

import base64
import datetime as dt
import json

from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.certificate_table import CERTIFICATES
from ansible_collections.attested.kubernetes.tests.unit.fakes.machine import NOW
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

DAY = dt.timedelta(days=1)
YEAR = 365 * DAY


def sign(name, *, issuer, key, begins, ends, ca=False):
    """Return certificate and key of ``name``; ``issuer`` and ``key`` are None for a CA that signs itself."""
    own = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.subject if issuer else subject)
        .public_key(own.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(ends)
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
    )
    return builder.sign(key or own, hashes.SHA256()), own


def pem(thing):
    if isinstance(thing, x509.Certificate):
        return thing.public_bytes(serialization.Encoding.PEM)
    return thing.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


class Pki:
    """The files of one control plane; ``names`` of its certificates are kubeadm's."""

    def __init__(self, root):
        self.root = root
        self.authorities = {}
        for path in sorted({one.authority for one in CERTIFICATES}):
            self.make_authority(path)
        for one in CERTIFICATES:
            self.make(one)

    def make_authority(self, path, *, begins=NOW - YEAR, ends=NOW + 9 * YEAR, keep_key=True):
        old = self.authorities.get(path)
        certificate, key = sign(path.as_posix(), issuer=None, key=None, begins=begins, ends=ends, ca=True)
        if old and keep_key:
            key = old[1]
            builder = x509.CertificateBuilder(
                old[0].subject, old[0].subject, key.public_key(), 7, begins, ends, list(old[0].extensions)
            )
            certificate = builder.sign(key, hashes.SHA256())
        self.authorities[path] = (certificate, key)
        self._write(path, pem(certificate), 0o644)
        self._write(path.with_suffix(".key"), pem(key), 0o600)

    def make(self, one, *, begins=NOW - 100 * DAY, ends=NOW + 265 * DAY, name=None, key_of_another=False):
        issuer, ca_key = self.authorities[one.authority]
        certificate, key = sign(name or one.name, issuer=issuer, key=ca_key, begins=begins, ends=ends)
        if key_of_another:
            key = ec.generate_private_key(ec.SECP256R1())
        if one.path.suffix == ".conf":
            user = {
                "client-certificate-data": base64.b64encode(pem(certificate)).decode(),
                "client-key-data": base64.b64encode(pem(key)).decode(),
            }
            cluster = {"certificate-authority-data": base64.b64encode(pem(issuer)).decode()}
            config = {"clusters": [{"cluster": cluster}], "users": [{"name": one.name, "user": user}]}
            self._write(one.path, json.dumps(config).encode(), 0o600)
        else:
            self._write(one.path, pem(certificate), 0o644)
            self._write(one.path.with_suffix(".key"), pem(key), 0o600)

    def contents(self):
        """Mode and content of every file below /etc/kubernetes."""
        found = (self.root / "etc/kubernetes").rglob("*")
        return {str(path): (path.stat().st_mode, path.read_bytes()) for path in found if path.is_file()}

    def _write(self, path, data, mode):
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        target.chmod(mode)
