# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a machine gives after its init is taken only where it is the admin's own, and has no key."""

from __future__ import annotations

import json
from copy import deepcopy
from datetime import timedelta
from pathlib import Path
from ssl import DER_cert_to_PEM_cert
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.admin_access import accept_access
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemClock
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import Refusal
from ansible_collections.attested.kubernetes.tests.support.cluster_ca import ClusterCa, dump, request_of, text
from ansible_collections.attested.kubernetes.tests.support.odd_names import odd_certificate
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given, settings
from hypothesis import strategies as st
from jinja2 import Environment, StrictUndefined

if TYPE_CHECKING:
    from collections.abc import Callable

NOW = SystemClock().now()
HOLDS_KEY, MALFORMED = "INIT_KUBECONFIG_HOLDS_KEY", "INIT_KUBECONFIG_MALFORMED"
KEY_PEM = b"-----BEGIN PRIVATE KEY-----\nMC4=\n-----END PRIVATE KEY-----\n"


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> ClusterCa:
    return ClusterCa(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def other_ca(tmp_path_factory: pytest.TempPathFactory) -> ClusterCa:
    return ClusterCa(tmp_path_factory.mktemp("other"))


@pytest.fixture(scope="module")
def request_pem() -> bytes:
    return request_of()


def code_of(data: bytes, request: bytes) -> str:
    with pytest.raises(Refusal) as caught:
        accept_access(data, request=request, now=NOW)
    return caught.value.code


def test_a_good_one_gives_the_ca_and_the_certificate(ca: ClusterCa, request_pem: bytes) -> None:
    body = ca.body(request_pem)
    given_access = accept_access(dump(body), request=request_pem, now=NOW)
    assert given_access.cluster_ca == ca.certificate
    assert text(given_access.certificate) == body["users"][0]["user"]["client-certificate-data"]


TEMPLATE = Path(__file__).parents[5] / "playbooks" / "templates" / "kubeconfig.yml.j2"


@pytest.mark.parametrize("signed", [True, False], ids=["with a certificate", "without one"])
def test_what_the_machines_own_playbook_writes_is_understood(ca: ClusterCa, request_pem: bytes, signed: bool) -> None:
    jinja = Environment(trim_blocks=True, undefined=StrictUndefined, autoescape=False)  # as Ansible does
    jinja.filters |= {"b64encode": lambda one: text(one.encode()), "to_json": json.dumps}
    result = {"cluster_ca": ca.certificate.decode()}
    if signed:
        result["admin_certificate"] = ca.issue(request_pem).decode()
    written = jinja.from_string(TEMPLATE.read_text(encoding="utf-8")).render(
        attested_cluster_name="prod", attested_api_endpoint="api.prod.example:6443", control_plane_result=result
    )
    if signed:
        accepted = accept_access(written.encode(), request=request_pem, now=NOW)
        assert accepted.certificate.decode() == result["admin_certificate"]
    else:
        assert code_of(written.encode(), request_pem) == MALFORMED


def test_only_the_certificates_are_taken_not_what_stands_around_them(ca: ClusterCa, request_pem: bytes) -> None:
    body = ca.body(request_pem)
    body["clusters"][0]["cluster"]["certificate-authority-data"] = text(b"a remark\n" + ca.certificate)
    assert accept_access(dump(body), request=request_pem, now=NOW).cluster_ca == ca.certificate


def user(body: dict[str, Any], **more: Any) -> None:
    body["users"][0]["user"] |= {name.replace("_", "-"): value for name, value in more.items()}


def cluster(body: dict[str, Any], **more: Any) -> None:
    body["clusters"][0]["cluster"] |= {name.replace("_", "-"): value for name, value in more.items()}


@pytest.mark.parametrize(
    ("change", "code"),
    [
        pytest.param(lambda b: user(b, client_key_data=text(KEY_PEM)), HOLDS_KEY, id="a key"),
        pytest.param(lambda b: user(b, client_key="/k.pem"), HOLDS_KEY, id="the name of a key"),
        pytest.param(lambda b: user(b, token="t"), HOLDS_KEY, id="a token"),
        pytest.param(lambda b: user(b, exec={"command": "sh"}), HOLDS_KEY, id="a program"),
        pytest.param(
            lambda b: user(b, client_certificate_data=text(KEY_PEM)),
            HOLDS_KEY,
            id="a key as certificate",
        ),
        pytest.param(
            lambda b: cluster(b, certificate_authority_data=text(KEY_PEM)),
            HOLDS_KEY,
            id="a key as CA",
        ),
        pytest.param(lambda b: b.update(note=KEY_PEM.decode()), HOLDS_KEY, id="a key elsewhere"),
        pytest.param(lambda b: b.update(kind="List"), MALFORMED, id="another kind"),
        pytest.param(lambda b: b["users"].append(deepcopy(b["users"][0])), MALFORMED, id="two users"),
        pytest.param(lambda b: b["clusters"].clear(), MALFORMED, id="no cluster"),
        pytest.param(lambda b: b.update(users={"one": b["users"][0]}), MALFORMED, id="users by name"),
        pytest.param(
            lambda b: user(b, client_certificate_data=b["users"][0]["user"]["client-certificate-data"] + "%"),
            MALFORMED,
            id="a letter that is not base64",
        ),
        pytest.param(lambda b: b.update(users=[1]), MALFORMED, id="a user that is a number"),
        pytest.param(lambda b: b["users"][0].update(user={}), MALFORMED, id="no certificate"),
        pytest.param(
            lambda b: user(b, client_certificate_data="%"),
            MALFORMED,
            id="a certificate not in base64",
        ),
        pytest.param(lambda b: user(b, client_certificate_data=text(b"none")), MALFORMED, id="no PEM"),
        pytest.param(lambda b: user(b, client_certificate_data=3), MALFORMED, id="a number"),
    ],
)
def test_a_change_in_one_point_is_refused(
    ca: ClusterCa, request_pem: bytes, change: Callable[[dict[str, Any]], None], code: str
) -> None:
    body = ca.body(request_pem)
    change(body)
    assert code_of(dump(body), request_pem) == code


@pytest.mark.parametrize(("more", "good"), [pytest.param(0, True, id="64 KiB"), pytest.param(1, False, id="one more")])
def test_a_kubeconfig_has_at_most_64_kib(ca: ClusterCa, request_pem: bytes, more: int, good: bool) -> None:
    data = ca.kubeconfig(request_pem)
    long = data + b"#" * ((1 << 16) - len(data) + more)
    if good:
        assert accept_access(long, request=request_pem, now=NOW).cluster_ca == ca.certificate
    else:
        assert code_of(long, request_pem) == MALFORMED


def test_a_certificate_counts_until_its_last_second_and_not_in_it(ca: ClusterCa, request_pem: bytes) -> None:
    data = ca.kubeconfig(request_pem)
    pem = accept_access(data, request=request_pem, now=NOW).certificate
    end = x509.load_pem_x509_certificate(pem).not_valid_after_utc
    accept_access(data, request=request_pem, now=end - timedelta(seconds=1))
    with pytest.raises(Refusal):
        accept_access(data, request=request_pem, now=end)


def test_two_certificates_where_one_belongs_are_refused(ca: ClusterCa, request_pem: bytes) -> None:
    body = ca.body(request_pem)
    cluster(body, certificate_authority_data=text(ca.certificate * 2))
    assert code_of(dump(body), request_pem) == MALFORMED


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\xff", id="no text"),
        pytest.param(b"a: [", id="no YAML"),
        pytest.param(b"kind: Config\n---\nkind: Config\n", id="two documents"),
        pytest.param(b"kind: Config\n" + b"#" * (1 << 16), id="too long"),
    ],
)
def test_what_is_no_kubeconfig_is_refused(data: bytes, request_pem: bytes) -> None:
    assert code_of(data, request_pem) == MALFORMED


def test_a_certificate_with_a_name_that_cannot_be_read_is_refused(ca: ClusterCa, request_pem: bytes) -> None:
    body = ca.body(request_pem)
    pem = DER_cert_to_PEM_cert(odd_certificate(ec.generate_private_key(ec.SECP256R1())))
    user(body, client_certificate_data=text(pem.encode()))
    assert code_of(dump(body), request_pem) == MALFORMED


def test_a_certificate_for_another_key_is_refused(ca: ClusterCa, request_pem: bytes) -> None:
    assert code_of(ca.kubeconfig(request_of()), request_pem) == "INIT_CERTIFICATE_FOREIGN"


def test_a_certificate_of_another_ca_is_refused(ca: ClusterCa, other_ca: ClusterCa, request_pem: bytes) -> None:
    body = ca.body(request_pem)
    cluster(body, certificate_authority_data=text(other_ca.certificate))
    assert code_of(dump(body), request_pem) == "INIT_CERTIFICATE_UNUSABLE"


def test_a_certificate_that_has_ended_is_refused(ca: ClusterCa, request_pem: bytes) -> None:
    data = ca.kubeconfig(request_pem, hours=1)
    with pytest.raises(Refusal) as caught:
        accept_access(data, request=request_pem, now=NOW + timedelta(hours=2))
    assert caught.value.code == "INIT_CERTIFICATE_UNUSABLE"


def test_a_certificate_of_another_user_is_refused(ca: ClusterCa) -> None:
    request = request_of(name="somebody")
    assert code_of(ca.kubeconfig(request), request) == "INIT_CERTIFICATE_UNUSABLE"


@settings(max_examples=200, deadline=None)
@given(data=st.binary(max_size=300))
def test_whatever_comes_is_refused_by_name(data: bytes) -> None:
    assert code_of(data, REQUEST).startswith("INIT_")


REQUEST = request_of()
