# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Halves of keys: named by what they are, told apart in one file, and given a successor of the same kind."""

from __future__ import annotations

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.ca_files import (
    Successor,
    join,
    make_successor,
    private_name,
    require_pair,
    signer_of,
    split,
)
from ansible_collections.attested.kubernetes.tests.unit.fakes.machine import NOW
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

_PEM = serialization.Encoding.PEM


def bare(key):
    """Return the public half of a key as PEM, as a file of service accounts holds it."""
    return key.public_key().public_bytes(_PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


@pytest.fixture(scope="module")
def first():
    """A CA that followed another key."""
    return make_successor(bare(ec.generate_private_key(ec.SECP256R1())), now=NOW)


@pytest.fixture
def ca(pki):
    return (pki.root / "etc/kubernetes/pki/ca.crt").read_bytes()


def code_of(function):
    with pytest.raises(AttestedError) as caught:
        function()
    return caught.value.code


def test_a_ca_gets_a_successor_that_signed_for_itself_and_is_told_apart(ca):
    made = make_successor(ca, now=NOW)
    name = require_pair(made, certified=True)
    before, after = (x509.load_pem_x509_certificate(one) for one in (ca, made.public))
    assert name != next(iter(split(ca)))
    assert after.subject.rfc4514_string() == f"{before.subject.rfc4514_string()}-{name}"
    assert after.not_valid_before_utc <= NOW < after.not_valid_after_utc
    assert after.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    again = x509.load_pem_x509_certificate(make_successor(made.public, now=NOW).public)
    assert again.subject.rfc4514_string().count("-") == after.subject.rfc4514_string().count("-")


@pytest.mark.parametrize(
    "key",
    [
        pytest.param(rsa.generate_private_key(65537, 2048), id="RSA"),
        pytest.param(ec.generate_private_key(ec.SECP384R1()), id="EC"),
    ],
)
def test_a_bare_key_gets_a_successor_of_its_kind(key):
    made = make_successor(bare(key), now=NOW)
    assert require_pair(made, certified=False) == private_name(made.private)
    successor = serialization.load_pem_private_key(made.private, None)
    assert (type(successor), successor.key_size) == (type(key), key.key_size)
    assert "PRIVATE" not in repr(made)


def test_a_file_names_its_halves_in_their_order(ca, first):
    both = ca + b"\n# a remark\n" + first.public
    names = list(split(both))
    assert names == [*split(ca), private_name(first.private)]
    assert split(join(reversed(names), split(both))).keys() == dict.fromkeys(reversed(names)).keys()
    assert list(split(join(reversed(names), split(both)))) == names[::-1]


def test_a_leaf_is_known_by_who_signed_it(pki, ca):
    leaf = (pki.root / "etc/kubernetes/pki/apiserver.crt").read_bytes()
    (name,) = split(ca)
    successor = make_successor(ca, now=NOW)
    assert signer_of(leaf, {"another": successor.public, **split(ca)}) == name
    assert signer_of(leaf, split(successor.public)) == ""


@pytest.mark.parametrize(
    "deed",
    [
        pytest.param(lambda _ca, _first: split(b"nothing"), id="no PEM"),
        pytest.param(
            lambda _ca, _first: split(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
            id="a certificate that is none",
        ),
        pytest.param(lambda _ca, first: split(first.private), id="a private half in the place of a public one"),
        pytest.param(lambda ca, _first: private_name(ca), id="a public half in the place of a private one"),
        pytest.param(lambda ca, _first: join([], split(ca)), id="a file of nobody"),
        pytest.param(lambda ca, _first: join(["0" * 16], split(ca)), id="a half that nobody has"),
        pytest.param(
            lambda ca, first: require_pair(Successor(public=ca, private=first.private), certified=True), id="two keys"
        ),
        pytest.param(lambda _ca, first: require_pair(first, certified=True), id="a bare key as a CA"),
        pytest.param(
            lambda ca, _first: require_pair(make_successor(ca, now=NOW), certified=False), id="a CA as a bare key"
        ),
        pytest.param(
            lambda _ca, _first: make_successor(bare(ed25519.Ed25519PrivateKey.generate()), now=NOW), id="another kind"
        ),
    ],
)
def test_what_is_not_what_it_should_be_is_refused(deed, ca, first):
    assert code_of(lambda: deed(ca, first)) == "AUTHORITY_UNUSABLE"


def test_a_certificate_of_somebody_else_is_no_ca(pki, ca):
    key = (pki.root / "etc/kubernetes/pki/apiserver.key").read_bytes()
    leaf = (pki.root / "etc/kubernetes/pki/apiserver.crt").read_bytes()
    assert code_of(lambda: require_pair(Successor(public=leaf, private=key), certified=True)) == "AUTHORITY_UNUSABLE"
    del ca
