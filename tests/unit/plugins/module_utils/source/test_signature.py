# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A commit's signature, changed in one point each; commits of real git are in tests/component/source."""

from __future__ import annotations

import base64
import hashlib

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import Refusal
from ansible_collections.attested.kubernetes.plugins.module_utils.source.signature import (
    object_id,
    parse_signer,
    verify_commit,
)
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

KEY = ed25519.Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
P256 = ec.derive_private_key(7, ec.SECP256R1())
TREE = "ab" * 20
HEAD = f"tree {TREE}\nauthor A <a@x> 1 +0000\ncommitter A <a@x> 1 +0000\n".encode()
MESSAGE = b"\nChange the site\n"


def line(key=KEY):
    return key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


def blob(key=KEY):
    return base64.b64decode(line(key).split(" ")[1])


def string(part):
    return len(part).to_bytes(4, "big") + part


def signature(signed, *, namespace=b"git", hash_name=b"sha512", magic=b"SSHSIG", version=1, algorithm=b"ssh-ed25519"):
    digest = hashlib.new(hash_name.decode() if hash_name in {b"sha256", b"sha512"} else "sha512", signed).digest()
    value = KEY.sign(b"SSHSIG" + string(namespace) + string(b"") + string(hash_name) + string(digest))
    fields = (blob(), namespace, b"", hash_name, string(algorithm) + string(value))
    return magic + version.to_bytes(4, "big") + b"".join(map(string, fields))


def number(value):
    """Return an mpint of SSH."""
    return string(value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True))


def ecdsa_signature(signed, *, change=lambda r, s: (r, s)):
    """Return a signature of `P256`, its two numbers changed."""
    digest = string(hashlib.sha256(signed).digest())
    value = P256.sign(b"SSHSIG" + string(b"git") + string(b"") + string(b"sha256") + digest, ec.ECDSA(hashes.SHA256()))
    numbers = b"".join(map(number, change(*decode_dss_signature(value))))
    fields = (blob(P256), b"git", b"", b"sha256", string(b"ecdsa-sha2-nistp256") + string(numbers))
    return b"SSHSIG" + (1).to_bytes(4, "big") + b"".join(map(string, fields))


def armoured(data):
    text = base64.b64encode(data).decode()
    lines = [text[at : at + 70] for at in range(0, len(text), 70)]
    return "\n ".join(["-----BEGIN SSH SIGNATURE-----", *lines, "-----END SSH SIGNATURE-----"]).encode()


def commit(armour, *, head=HEAD, message=MESSAGE):
    return head + b"gpgsig " + armour + b"\n" + message


def verify(content, *, name=None, signers=(KEY,)):
    keys = [parse_signer(line(key)) for key in signers]
    return verify_commit(content, commit=name or object_id("commit", content), signers=keys)


def code(content, **more):
    with pytest.raises(Refusal) as caught:
        verify(content, **more)
    return caught.value.code


def test_a_signed_commit_names_its_tree_and_signer():
    found = verify(commit(armoured(signature(HEAD + MESSAGE))))
    assert (found.tree, found.signer.blob) == (TREE, blob())


def test_step_1_another_object_is_refused():
    assert code(commit(armoured(signature(HEAD + MESSAGE))), name="00" * 20) == "SOURCE_OBJECT_BROKEN"


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(HEAD + MESSAGE, id="no signature"),
        pytest.param(HEAD + MESSAGE + b"gpgsig " + armoured(signature(HEAD + MESSAGE)), id="one in the message"),
        pytest.param(HEAD + b"gpgsig -----BEGIN PGP SIGNATURE-----\n x\n" + MESSAGE, id="one of PGP"),
        pytest.param(
            commit(armoured(signature(HEAD + MESSAGE)), head=HEAD + b"gpgsig " + armoured(b"x") + b"\n"), id="two"
        ),
        pytest.param(HEAD + b"gpgsig-sha256 " + armoured(signature(HEAD + MESSAGE)) + b"\n" + MESSAGE, id="another's"),
    ],
)
def test_step_2_what_carries_no_one_signature_is_refused(content):
    assert code(content) == "SOURCE_UNSIGNED"


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(signature(HEAD + MESSAGE, namespace=b"file"), id="made for a file"),
        pytest.param(signature(HEAD + MESSAGE, version=2), id="of another version"),
        pytest.param(signature(HEAD + MESSAGE, magic=b"SSHSIX"), id="of another kind"),
        pytest.param(signature(HEAD + MESSAGE, hash_name=b"sha1"), id="of a hash that is broken"),
        pytest.param(signature(HEAD + MESSAGE) + b"x", id="with something behind it"),
        pytest.param(signature(HEAD + MESSAGE)[:-1], id="cut off"),
        pytest.param(b"", id="empty"),
        pytest.param(b"SSHSIG" + bytes(4), id="without fields"),
    ],
)
def test_step_3_a_form_of_another_kind_is_refused(data):
    assert code(commit(armoured(data))) == "SOURCE_SIGNATURE"


def test_step_3_what_is_no_base64_is_refused():
    armour = armoured(signature(HEAD + MESSAGE)).replace(b"U1NI", b"U1N*")
    assert code(commit(armour)) == "SOURCE_SIGNATURE"
    assert code(commit(armour.replace(b"-----END SSH SIGNATURE-----", b"-----END"))) == "SOURCE_SIGNATURE"


def test_step_4_a_key_that_is_not_pinned_is_refused():
    other = ed25519.Ed25519PrivateKey.from_private_bytes(bytes(32))
    content = commit(armoured(signature(HEAD + MESSAGE)))
    assert code(content, signers=(other,)) == "SOURCE_SIGNER_UNKNOWN"
    assert code(content, signers=()) == "SOURCE_SIGNER_UNKNOWN"


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(commit(armoured(signature(HEAD + MESSAGE)), message=b"\nChange the sity\n"), id="another message"),
        pytest.param(commit(armoured(signature(HEAD + MESSAGE)), head=HEAD.replace(b"ab", b"cd")), id="another tree"),
        pytest.param(commit(armoured(signature(HEAD + MESSAGE)), head=HEAD + b"encoding x\n"), id="one header more"),
        pytest.param(commit(armoured(signature(HEAD + MESSAGE, algorithm=b"ssh-rsa"))), id="another algorithm's name"),
    ],
)
def test_step_5_a_signature_that_does_not_fit_is_refused(content):
    assert code(content) == "SOURCE_SIGNATURE"


def test_a_key_of_p256_signs_as_well():
    content = commit(armoured(ecdsa_signature(HEAD + MESSAGE)))
    assert verify(content, signers=(P256,)).signer.blob == blob(P256)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda r, s: (-r, s), id="first number negative"),
        pytest.param(lambda r, s: (r, -s), id="second number negative"),
        pytest.param(lambda r, s: (r, 0), id="nought"),
        pytest.param(lambda r, s: (s, r), id="exchanged"),
        pytest.param(lambda r, s: (r, s << 8000), id="a long number"),
    ],
)
def test_step_5_two_other_numbers_of_p256_are_refused(change):
    content = commit(armoured(ecdsa_signature(HEAD + MESSAGE, change=change)))
    assert code(content, signers=(P256,)) == "SOURCE_SIGNATURE"


def test_step_6_a_commit_that_does_not_begin_with_its_tree_is_refused():
    head = b"author A <a@x> 1 +0000\n" + HEAD
    assert code(commit(armoured(signature(head + MESSAGE)), head=head)) == "SOURCE_OBJECT_BROKEN"


def test_a_key_of_rsa_cannot_be_pinned():
    with pytest.raises(ValueError, match="expected a public key of ssh-ed25519"):
        parse_signer(line(rsa.generate_private_key(public_exponent=65537, key_size=2048)))
