# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files that say which TPM was delivered; none of them is believed without the machine's own proof."""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import json
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.enrolment import (
    Delivered,
    read_delivered,
    read_list,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.tests.support.ek import Authority, ek_extensions, ek_public, key_usage
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
ECC, RSA = (one.values[0] for one in KEYS)
AUTHORITY = Authority.root()


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
        pytest.param(
            "a.csv", f"serial,ek_sha256\nB2,{EK}\nA1,{EK}\n".encode(), "of its own for each", id="a key twice"
        ),
        pytest.param("a.csv", b"serial,ek_certificate\nB2,AAA\n", "base64", id="a certificate that is no base64"),
        pytest.param("a.csv", b"serial,ek_certificate\nB2,AAAA\n", "an endorsement key", id="base64 of no certificate"),
        pytest.param("a.json", b"{", "JSON", id="no JSON"),
        pytest.param("a.json", b'["B2"]', "an object", id="a list of texts"),
        pytest.param("a.json", b'{"results": {"ek_tpm": "AAAA"}}', "agents by their UUID", id="one agent, nameless"),
        pytest.param("a.json", b'{"results": {"uuids": ["B2"]}}', "agents by their UUID", id="a list of UUIDs alone"),
        pytest.param(
            "a.json", b'{"results": {"B2": {"ek_tpm": "AAAA"}}}', "an endorsement key", id="half a public area"
        ),
        pytest.param(
            "a.json", b'{"/redfish/v1/Chassis/1": {"SerialNumber": "B2"}}', "0 others", id="a BMC without a TPM"
        ),
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


def hash_of(key) -> str:
    return hashlib.sha256(key.public_key().public_bytes(DER, SPKI)).hexdigest()


def tpm2b(key) -> str:
    area = ek_public(key.public_key()).marshal()
    return base64.b64encode(len(area).to_bytes(2, "big") + area).decode()


def endorsement(key) -> str:
    usage = key_usage("key_encipherment" if key is RSA else "key_agreement")
    return AUTHORITY.issue("", key.public_key(), ek_extensions(usage=usage)).public_bytes(PEM).decode()


def chassis(serial: str, *certificates: str) -> dict[str, object]:
    """Return resources as a BMC's Redfish service has them, one of them with a certificate of another kind."""
    at = "/redfish/v1/Chassis/1"
    held = {
        f"{at}/TrustedComponents/TPM/Certificates/{number}": {"CertificateString": text, "CertificateType": "PEM"}
        for number, text in enumerate(certificates)
    }
    web = {"CertificateString": certificate(ECC).public_bytes(PEM).decode()}
    other = {f"{at}/TrustedComponents/TPM/Certificates/web": web, f"{at}/Sensors": {"Members": []}}
    return {at: {"SerialNumber": serial}, **held, **other}


@pytest.mark.parametrize("key", KEYS)
def test_a_list_may_have_certificates(tmp_path: Path, key) -> None:
    path = tmp_path / "rack.csv"
    der = base64.b64encode(certificate(key).public_bytes(DER)).decode()
    text = certificate(ECC if key is RSA else RSA).public_bytes(PEM).decode()
    path.write_text(f'serial,ek_certificate\nA1,"{text}"\nB2,{der}\n', encoding="utf-8")
    assert read_delivered(path, serial="B2") == Delivered(hash_of(key), "delivery list rack.csv, serial B2")
    assert read_delivered(path, serial="A1").ek_sha256 == hash_of(ECC if key is RSA else RSA)


@pytest.mark.parametrize("key", KEYS)
def test_a_registrar_names_the_key_that_an_agent_proved(tmp_path: Path, key) -> None:
    """The certificate beside it was proven by nobody there, so another one changes nothing."""
    pem = ECC.public_key().public_bytes(PEM, SPKI).decode() if key is RSA else tpm2b(RSA)
    answers = [
        {"code": 200, "results": {"d432fbb3": {"ek_tpm": tpm2b(key), "ekcert": "emulator", "regcount": 1}}},
        {"code": 200, "results": {"5e600bce": {"ek_tpm": pem, "aik_tpm": "ARgAAQ=="}}},
    ]
    (tmp_path / "agents.json").write_text(json.dumps(answers), encoding="utf-8")
    listed = read_list(tmp_path / "agents.json")
    assert listed.find("d432fbb3").ek_sha256 == hash_of(key)
    assert listed.find("5e600bce").ek_sha256 == hash_of(ECC if key is RSA else RSA)


def test_a_bmc_names_the_key_of_its_chassis(tmp_path: Path) -> None:
    """Of both keys of a chip the RSA key counts; a chain goes on behind the certificate."""
    chain = endorsement(ECC) + AUTHORITY.certificate.public_bytes(PEM).decode()
    path = tmp_path / "racks.json"
    path.write_text(json.dumps([chassis("A1", chain), {**chassis("B2", endorsement(RSA))}]), encoding="utf-8")
    listed = read_list(path)
    assert [listed.find(one).ek_sha256 for one in ("A1", "B2")] == [hash_of(ECC), hash_of(RSA)]
    path.write_text(json.dumps(chassis("A1", endorsement(ECC), endorsement(RSA))), encoding="utf-8")
    assert read_list(path).find("A1").ek_sha256 == hash_of(RSA)
    nameless = chassis("", endorsement(ECC))
    path.write_text(json.dumps(nameless), encoding="utf-8")
    with pytest.raises(AttestedError, match="a SerialNumber of /redfish/v1/Chassis/1"):
        read_list(path)


def test_one_wrong_entry_spoils_no_other(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f"serial,ek_sha256\nA1,nonsense\nB2,{EK}\n", encoding="utf-8")
    assert read_delivered(tmp_path / "a.csv", serial="B2").ek_sha256 == EK


def test_a_list_has_the_name_of_one(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(f"B2: {EK}", encoding="utf-8")
    with pytest.raises(AttestedError, match=r"a list that ends in \.csv, \.json") as caught:
        read_list(tmp_path / "a.txt")
    assert caught.value.code == "EK_SOURCE_UNUSABLE"
