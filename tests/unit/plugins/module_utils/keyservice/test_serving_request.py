# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A kubelet's request for a serving certificate: the good one, and each point of it changed."""

from __future__ import annotations

import dataclasses
import datetime as dt
from typing import Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.serving_approver import (
    ServingRequest,
    check_serving_request,
    require_own,
    require_ready,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.identity import (
    Admission,
    EvidenceRefusal,
    IdentityStatus,
    NodeIdentity,
    Role,
)
from ansible_collections.attested.kubernetes.tests.support.odd_names import ODD_DIRECTORY
from ansible_collections.attested.kubernetes.tests.support.serving_requests import (
    ADDRESS,
    MACHINE,
    NODE,
    Wanted,
    encoded,
    spec_of,
    subject_of,
    twice,
    weak_key,
)
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import AttributeOID, ExtensionOID, NameOID

NOW = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)
OVERDUE = dt.timedelta(hours=3)
MICROSOFTS = x509.ObjectIdentifier("1.3.6.1.4.1.311.2.1.14")
GOOD = ServingRequest(node_name=NODE, machine=MACHINE, names=frozenset({NODE}), addresses=frozenset({ADDRESS}))
IDENTITY = NodeIdentity(
    ek_sha256="ab" * 32,
    node_name=NODE,
    role=Role.WORKER,
    admission=Admission.APPROVED,
    addresses=(ADDRESS, "fd00::21"),
    status=IdentityStatus(phase="Joined", attested_at=NOW - dt.timedelta(hours=1)),
)


def code_of(spec: dict[str, Any]) -> str:
    with pytest.raises(AttestedError) as caught:
        check_serving_request(spec)
    return caught.value.code


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(spec_of(), id="as a kubelet asks"),
        pytest.param(spec_of(usages=["server auth", "digital signature"]), id="in another order"),
        pytest.param(
            spec_of(
                Wanted(key=rsa.generate_private_key(65537, 2048)),
                usages=["key encipherment", "digital signature", "server auth"],
            ),
            id="with a key of RSA",
        ),
        pytest.param(spec_of(Wanted(text=lambda pem: pem.rstrip(b"\n"))), id="without the last line's end"),
    ],
)
def test_what_a_kubelet_asks_for_is_read(spec: dict[str, Any]) -> None:
    assert check_serving_request(spec) == GOOD


def test_a_request_of_a_certificate_that_names_no_machine_is_read_as_such() -> None:
    found = check_serving_request(spec_of(groups=["system:nodes", "system:authenticated"]))
    assert found == dataclasses.replace(GOOD, machine="")


def test_a_dotted_name_and_an_address_of_version_6_are_read() -> None:
    wanted = Wanted(node="w-1.rack.example", names=("w-1.rack.example",), addresses=("fd00:0::21",))
    found = check_serving_request(spec_of(wanted, username="system:node:w-1.rack.example"))
    assert (found.names, found.addresses) == ({"w-1.rack.example"}, {"fd00::21"})


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"username": None}, id="nobody"),
        pytest.param({"username": "alice"}, id="a person"),
        pytest.param({"username": "system:node:"}, id="a node without a name"),
        pytest.param({"username": "system:node:W-1"}, id="a name that no node has"),
        pytest.param({"username": f"system:node:{NODE}\n"}, id="a name with a line's end"),
        pytest.param({"groups": [f"attested:{MACHINE}"]}, id="no node by its group"),
        pytest.param({"groups": None}, id="no groups"),
        pytest.param({"groups": ["system:nodes", f"attested:{MACHINE}", "attested:ek-x"]}, id="two machines at once"),
    ],
)
def test_1_who_is_no_node_is_refused(changes: dict[str, Any]) -> None:
    assert code_of(spec_of(**changes)) == "SERVING_REQUESTER_REFUSED"


@pytest.mark.parametrize(
    "usages",
    [
        pytest.param([], id="none"),
        pytest.param(None, id="nothing"),
        pytest.param(["server auth"], id="one too few"),
        pytest.param(["digital signature", "server auth", "client auth"], id="to be a client as well"),
        pytest.param(["digital signature", "client auth"], id="to be a client"),
        pytest.param(["digital signature", "server auth", "server auth"], id="one twice"),
        pytest.param(["digital signature", "key encipherment", "server auth", "cert sign"], id="to sign"),
    ],
)
def test_2_other_usages_are_refused(usages: list[str] | None) -> None:
    assert code_of(spec_of(usages=usages)) == "SERVING_USAGE_REFUSED"


def spoiled(pem: bytes) -> bytes:
    """Return a request whose signature is another one."""
    lines = pem.splitlines()
    lines[-2] = (b"A" if lines[-2][:1] != b"A" else b"B") + lines[-2][1:]
    return b"\n".join(lines) + b"\n"


BROKEN = {
    "two blocks": lambda pem: pem + pem,
    "words before it": lambda pem: b"hello\n" + pem,
    "words behind it": lambda pem: pem + b"hello\n",
    "headers": lambda pem: pem.replace(b"REQUEST-----\n", b"REQUEST-----\nProc-Type: 4\n\n", 1),
    "another block": lambda pem: pem.replace(b"CERTIFICATE REQUEST", b"CERTIFICATE"),
    "the older name of the block": lambda pem: pem.replace(b"CERTIFICATE REQ", b"NEW CERTIFICATE REQ"),
    "lines' ends of another system": lambda pem: pem.replace(b"\n", b"\r\n"),
    "another signature": spoiled,
    "half of it": lambda pem: pem[: len(pem) // 2],
    "nothing": lambda _pem: b"",
    "a block of no request": lambda _pem: (
        b"-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n"
    ),
    "a padding within": lambda pem: pem.replace(b"\n", b"==\n", 3).replace(b"-----==", b"-----"),
}


@pytest.mark.parametrize("text", [pytest.param(change, id=what) for what, change in BROKEN.items()])
def test_3_what_is_not_one_whole_request_is_refused(text: Any) -> None:
    assert code_of(spec_of(Wanted(text=text))) == "CSR_MALFORMED"


@pytest.mark.parametrize(
    "request_text",
    [
        pytest.param(None, id="nothing"),
        pytest.param("!", id="no base64"),
        pytest.param(encoded(Wanted().pem()) + "\n", id="a line's end behind it"),
        pytest.param("A" * 33000, id="too long"),
        pytest.param("ü" * 8, id="no ASCII"),
    ],
)
def test_3_what_is_not_base64_of_a_bounded_size_is_refused(request_text: str | None) -> None:
    assert code_of(spec_of(request=request_text)) == "CSR_MALFORMED"


def test_3_the_largest_request_is_still_read() -> None:
    with pytest.raises(AttestedError, match="one block of PEM"):
        check_serving_request(spec_of(request="A" * 32768))


def test_3_a_request_that_is_too_large_is_not_even_decoded() -> None:
    with pytest.raises(AttestedError, match="at most 32768 characters, got 33000"):
        check_serving_request(spec_of(request="!" * 33000))
    with pytest.raises(AttestedError, match="at most 32768 characters, got 32769"):
        check_serving_request(spec_of(request="A" * 32769))


@pytest.mark.parametrize("key", [pytest.param(weak_key, id="RSA of 1024 bits"), pytest.param(None, id="P-384")])
def test_4_a_weak_or_unknown_key_is_refused(key: Any) -> None:
    made = key() if key else ec.generate_private_key(ec.SECP384R1())
    assert code_of(spec_of(Wanted(key=made))) == "CSR_KEY_UNSUPPORTED"


@pytest.mark.parametrize(
    "subject",
    [
        pytest.param(subject_of("w-2"), id="another node's"),
        pytest.param(subject_of(NODE, group="system:masters"), id="of another group"),
        pytest.param(subject_of(NODE, (NameOID.ORGANIZATION_NAME, "system:masters")), id="of a second group"),
        pytest.param(subject_of(NODE, (NameOID.ORGANIZATION_NAME, "system:nodes")), id="of its group twice"),
        pytest.param(subject_of(NODE, (NameOID.ORGANIZATIONAL_UNIT_NAME, "x")), id="with a unit"),
        pytest.param(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"system:node:{NODE}")]), id="of no group"),
        pytest.param(x509.Name([]), id="none"),
    ],
)
def test_5_another_subject_is_refused(subject: x509.Name) -> None:
    assert code_of(spec_of(Wanted(subject=subject))) == "CSR_NAME_MISMATCH"


def authority(builder: x509.CertificateSigningRequestBuilder) -> x509.CertificateSigningRequestBuilder:
    return builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)


def raw_names(der: bytes) -> Any:
    """Return what adds an extension of alternative names with these bytes."""
    raw = x509.UnrecognizedExtension(ExtensionOID.SUBJECT_ALTERNATIVE_NAME, der)
    return lambda builder: builder.add_extension(raw, critical=False)


def test_6_one_extension_twice_is_refused() -> None:
    assert code_of(spec_of(request=encoded(twice(Wanted())))) == "SERVING_EXTENSION_REFUSED"


@pytest.mark.parametrize(
    "wanted",
    [
        pytest.param(Wanted(names=(), addresses=(), also=raw_names(b"\x05\x00")), id="names that are none"),
        pytest.param(
            Wanted(names=(), addresses=(), also=raw_names(b"\x30\x04\xa3\x02\x30\x00")), id="an address of X.400"
        ),
        pytest.param(Wanted(names=(), addresses=(), also=raw_names(ODD_DIRECTORY.value)), id="a name of bits"),
        pytest.param(Wanted(also=authority), id="to be an authority"),
        pytest.param(Wanted(names=(), addresses=()), id="no extension"),
        pytest.param(Wanted(names=(), addresses=(), also=authority), id="another extension alone"),
        pytest.param(
            Wanted(also=lambda one: one.add_attribute(AttributeOID.CHALLENGE_PASSWORD, b"x")),
            id="a second attribute",
        ),
        pytest.param(Wanted(also=lambda one: one.add_attribute(MICROSOFTS, b"x")), id="a second list of extensions"),
    ],
)
def test_6_other_extensions_and_attributes_are_refused(wanted: Wanted) -> None:
    assert code_of(spec_of(wanted)) == "SERVING_EXTENSION_REFUSED"


@pytest.mark.parametrize(
    "others",
    [
        pytest.param((x509.RFC822Name("root@example.com"),), id="an address of mail"),
        pytest.param((x509.UniformResourceIdentifier("spiffe://x"),), id="a URI"),
        pytest.param((x509.DNSName(NODE),), id="its name twice"),
    ],
)
def test_7_other_kinds_of_names_are_refused(others: tuple[x509.GeneralName, ...]) -> None:
    assert code_of(spec_of(Wanted(others=others))) == "SERVING_SAN_REFUSED"


def test_7_an_empty_list_of_names_is_refused() -> None:
    empty = Wanted(names=(), addresses=(), also=raw_names(b"\x30\x00"))
    assert code_of(spec_of(empty)) == "SERVING_SAN_REFUSED"


# ---- whose they are


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="all of it"),
        pytest.param({"names": frozenset()}, id="an address alone"),
        pytest.param({"addresses": frozenset()}, id="the name alone"),
        pytest.param({"addresses": frozenset({ADDRESS, "fd00::21"})}, id="both addresses"),
    ],
)
def test_a_machine_gets_a_subset_of_what_is_its_own(changes: dict[str, Any]) -> None:
    require_own(dataclasses.replace(GOOD, **changes), IDENTITY)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        pytest.param({"machine": "ek-" + "cd" * 10}, "SERVING_REQUESTER_REFUSED", id="the machine before"),
        pytest.param({"machine": ""}, "SERVING_REQUESTER_REFUSED", id="a worker without a machine"),
        pytest.param({"names": frozenset({NODE, "w-2"})}, "SERVING_SAN_REFUSED", id="another node's name too"),
        pytest.param({"names": frozenset({"*"})}, "SERVING_SAN_REFUSED", id="all names"),
        pytest.param({"names": frozenset({NODE.upper()})}, "SERVING_SAN_REFUSED", id="its name in capitals"),
        pytest.param({"names": frozenset({ADDRESS})}, "SERVING_SAN_REFUSED", id="its address as a name"),
        pytest.param({"addresses": frozenset({ADDRESS, "10.0.0.22"})}, "SERVING_SAN_REFUSED", id="one address more"),
        pytest.param({"addresses": frozenset({NODE})}, "SERVING_SAN_REFUSED", id="its name as an address"),
        pytest.param(
            {"addresses": frozenset({f"::ffff:{ADDRESS}"})}, "SERVING_SAN_REFUSED", id="its address in version 6"
        ),
    ],
)
def test_what_is_not_its_own_is_refused(changes: dict[str, Any], code: str) -> None:
    with pytest.raises(AttestedError) as caught:
        require_own(dataclasses.replace(GOOD, **changes), IDENTITY)
    assert caught.value.code == code
    if code == "SERVING_SAN_REFUSED":
        assert f"out of {NODE}, {ADDRESS}, fd00::21, got " in caught.value.message


def test_an_identity_without_addresses_gets_its_name_alone() -> None:
    bare = dataclasses.replace(IDENTITY, addresses=())
    require_own(dataclasses.replace(GOOD, addresses=frozenset()), bare)
    with pytest.raises(AttestedError) as caught:
        require_own(GOOD, bare)
    assert caught.value.code == "SERVING_SAN_REFUSED"


def test_the_first_certificate_of_a_control_plane_names_no_machine() -> None:
    control_plane = dataclasses.replace(IDENTITY, role=Role.CONTROL_PLANE)
    require_own(dataclasses.replace(GOOD, machine=""), control_plane)
    with pytest.raises(AttestedError) as caught:
        require_own(dataclasses.replace(GOOD, machine="ek-" + "cd" * 10), control_plane)
    assert caught.value.code == "SERVING_REQUESTER_REFUSED"


# ---- in which state


@pytest.mark.parametrize(
    ("status", "code"),
    [
        pytest.param({}, "", id="good"),
        pytest.param({"phase": "Admitted"}, "SERVING_NOT_JOINED", id="not joined yet"),
        pytest.param({"phase": ""}, "SERVING_NOT_JOINED", id="new"),
        pytest.param({"attested_at": None}, "SERVING_NOT_PROVEN", id="nothing proven"),
        pytest.param({"attested_at": NOW - OVERDUE}, "REATTESTATION_OVERDUE", id="overdue"),
        pytest.param({"attested_at": NOW + dt.timedelta(hours=1)}, "REATTESTATION_OVERDUE", id="of the future"),
        pytest.param({"refusal": EvidenceRefusal("PCR_MISMATCH", NOW)}, "REATTESTATION_FAILED", id="refused"),
        pytest.param(
            {"phase": "Admitted", "refusal": EvidenceRefusal("PCR_MISMATCH", NOW)}, "SERVING_NOT_JOINED", id="both"
        ),
    ],
)
def test_only_a_joined_machine_with_good_recent_evidence_is_ready(status: dict[str, Any], code: str) -> None:
    identity = dataclasses.replace(IDENTITY, status=dataclasses.replace(IDENTITY.status, **status))
    if not code:
        return require_ready(identity, now=NOW, overdue_after=OVERDUE)
    with pytest.raises(AttestedError) as caught:
        require_ready(identity, now=NOW, overdue_after=OVERDUE)
    assert caught.value.code == code
    return None
