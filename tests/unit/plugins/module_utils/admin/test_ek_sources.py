# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files that say which TPM was delivered; none of them is believed without the machine's own proof."""

from __future__ import annotations

import datetime as dt
import hashlib
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.ek_sources import Delivered, read_delivered
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from pathlib import Path

EK = "ab" * 32
PEM, DER = serialization.Encoding.PEM, serialization.Encoding.DER
SPKI = serialization.PublicFormat.SubjectPublicKeyInfo
KEYS = [
    pytest.param(ec.generate_private_key(ec.SECP256R1()), id="P-256"),
    pytest.param(rsa.generate_private_key(65537, 2048), id="RSA-2048"),
]


def certificate(key):
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "maker")])
    now = dt.datetime(2026, 11, 21, tzinfo=dt.UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    made = builder.serial_number(5).not_valid_before(now).not_valid_after(now + dt.timedelta(days=1))
    return made.sign(key, hashes.SHA256())


@pytest.mark.parametrize("encoding", [PEM, DER])
@pytest.mark.parametrize("key", KEYS)
def test_a_certificate_or_a_key_names_its_key(tmp_path: Path, key, encoding) -> None:
    ek = hashlib.sha256(key.public_key().public_bytes(DER, SPKI)).hexdigest()
    (tmp_path / "w-1.crt").write_bytes(certificate(key).public_bytes(encoding))
    (tmp_path / "w-1.pub").write_bytes(key.public_key().public_bytes(encoding, SPKI))
    assert read_delivered(tmp_path / "w-1.crt") == Delivered(ek, "EK certificate w-1.crt")
    assert read_delivered(tmp_path / "w-1.pub") == Delivered(ek, "EK public key w-1.pub")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        pytest.param("list.yml", f"A1: {'cd' * 32}\nB2: sha256:{EK}\n", id="YAML"),
        pytest.param("list.csv", f"serial,model,ek_sha256\nA1,x,{'cd' * 32}\nB2,x,{EK}\n", id="CSV"),
        pytest.param("list.csv", f"\ufeffserial,ek_sha256\r\nB2, sha256:{EK}\r\n", id="CSV as spreadsheets write it"),
    ],
)
def test_a_list_names_the_key_of_a_serial_number(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8", newline="")
    assert read_delivered(tmp_path / name, serial="B2") == Delivered(EK, f"delivery list {name}, serial B2")


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        pytest.param("a.yml", b"A1: " + EK.encode(), "the serial number 'B2'", id="a list without this machine"),
        pytest.param("a.yml", b"B2: 1234", "64 lower-case hex digits", id="a hash that is none"),
        pytest.param("a.yml", b"- B2", "a mapping", id="a list of another form"),
        pytest.param("a.yml", b"{", "YAML", id="no YAML"),
        pytest.param("a.csv", b"number,hash\nB2,x\n", "the columns", id="other columns"),
        pytest.param("a.csv", f"serial,ek_sha256\nB2,{EK}\nB2,{EK}\n".encode(), "twice", id="a serial number twice"),
        pytest.param("a.csv", b"\xff\xfe", "CSV", id="no text"),
        pytest.param("a.pem", b"-----BEGIN CERTIFICATE-----\n", "one certificate", id="half a certificate"),
        pytest.param("a.pem", b"-----BEGIN PUBLIC KEY-----\n", "a certificate or a public key", id="half a key"),
        pytest.param("a.der", b"\x30\x80", "a certificate or a public key", id="bytes of neither"),
    ],
)
def test_a_file_that_says_nothing_is_refused_by_name(tmp_path: Path, name: str, data: bytes, said: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(AttestedError, match=said) as caught:
        read_delivered(tmp_path / name, serial="B2")
    assert caught.value.code == "EK_SOURCE_UNUSABLE"
