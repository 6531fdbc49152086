# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A recovery kit: what it holds, how it is closed, and what is refused when it is opened."""

from __future__ import annotations

import base64
import hmac
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.age_file import parse_identities
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.envelope import (
    Cost,
    KitKeys,
    Lock,
    PassphraseFacts,
    close_kit,
    describe_kit,
    open_kit,
    read_envelope,
    seal_envelope,
    stretch,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.kit import Kit
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemRandom
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.master import MasterSecret, SecretBytes
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.ring import MasterVersion
from ansible_collections.attested.kubernetes.tests.support.canary import spellings, spellings_of_pem
from ansible_collections.attested.kubernetes.tests.support.house import ROOT
from ansible_collections.attested.kubernetes.tests.support.kits import (
    CHEAP,
    MASTER,
    PASSPHRASE,
    KeyInMemory,
    altered,
    ended,
    missing_for_age,
    sample_kit,
)
from ansible_collections.attested.kubernetes.tests.support.refusal import Coded
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

if TYPE_CHECKING:
    from collections.abc import Callable

KIT = sample_kit()
LOCK = Lock(passphrase=PASSPHRASE, cost=CHEAP)
RIGHT = KitKeys(passphrase=PASSPHRASE)
VECTOR = ROOT / "tests" / "vectors" / "kits" / "passphrase.kit"
needs_age = pytest.mark.skipif(bool(missing_for_age()), reason=missing_for_age())


@pytest.fixture(scope="module")
def closed() -> bytes:
    return close_kit(KIT, LOCK, random=SystemRandom())


def refused(data: bytes, keys: KitKeys = RIGHT, **expected: bytes) -> str:
    with pytest.raises(AttestedError) as caught:
        open_kit(data, keys, **expected)
    return Coded(caught.value)


def document(**changes: Any) -> bytes:
    return json.dumps({**json.loads(KIT.to_bytes()), **changes}).encode()


def secrets_of(kit: Kit) -> list[bytes]:
    raw = (kit.master.key, kit.master.salt, kit.measurement_secret, kit.emergency_ssh_seed)
    pems = (kit.join_ca_key, kit.policy_key)
    return [
        *(one for value in raw for one in spellings(value.reveal())),
        *(one for value in pems for one in spellings_of_pem(value.reveal())),
    ]


def test_what_is_closed_under_a_passphrase_opens_as_it_was(closed: bytes) -> None:
    assert open_kit(closed, RIGHT, expected=KIT.cluster_id) == KIT
    assert describe_kit(closed) == {
        "closed by": "a passphrase (Argon2id, 64 MiB, 1 passes, 1 lanes)",
        "cluster id": KIT.cluster_id.hex(),
    }


def test_nothing_secret_and_no_passphrase_stands_in_the_file_or_in_a_repr(closed: bytes) -> None:
    needles = [*secrets_of(KIT), *spellings(PASSPHRASE.reveal())]
    shown = (closed, repr((KIT, LOCK, RIGHT, read_envelope(closed))).encode())
    assert [needle for needle in needles if any(needle in one for one in shown)] == []
    assert [needle for needle in secrets_of(KIT) if needle in KIT.to_bytes()] != []  # the search finds what is there


def test_two_kits_of_one_content_share_no_line_of_it(closed: bytes) -> None:
    again = close_kit(KIT, LOCK, random=SystemRandom())
    assert set(again.splitlines()[10:]) & set(closed.splitlines()[10:]) == set()


def test_the_default_cost_is_what_the_decision_says() -> None:
    assert Cost() == Cost(memory_kib=262144, passes=4, lanes=4)


@pytest.mark.parametrize(
    ("alter", "code"),
    [
        pytest.param(lambda data: b"", "KIT_MALFORMED", id="nothing"),
        pytest.param(lambda data: data[1:], "KIT_MALFORMED", id="it does not begin as a kit"),
        pytest.param(
            lambda data: data.replace(b"kit/v1", b"kit/v2", 1),
            "FILE_VERSION_UNKNOWN: expected a kit",
            id="a newer version",
        ),
        pytest.param(lambda data: data[:-1], "KIT_DAMAGED: it is cut off", id="the last byte is missing"),
        pytest.param(lambda data: data[: len(data) // 2], "KIT_DAMAGED: it is cut off", id="half of it is missing"),
        pytest.param(lambda data: data[:20], "KIT_DAMAGED: it is cut off", id="all but the first line is missing"),
        pytest.param(lambda data: data + b"\n", "KIT_DAMAGED: it is cut off", id="something follows"),
        pytest.param(
            lambda data: data.replace(b"lanes: 1", b"lanes: 2"), "KIT_DAMAGED: was altered", id="a line changed"
        ),
        pytest.param(
            lambda data: ended(data.replace(b"lanes: 1", b"lanes: 2")),
            "KIT_KEY_WRONG: got another one",
            id="cost changed",
        ),
        pytest.param(
            lambda data: ended(data.replace(b"lanes: 1\n", b"lanes: 17\n")), "KIT_MALFORMED", id="too many lanes"
        ),
        pytest.param(
            lambda data: ended(data.replace(b"kib: 65536", b"kib: 1048577")), "KIT_MALFORMED", id="too much memory"
        ),
        pytest.param(
            lambda data: ended(data.replace(b"kib: 65536", b"kib: 65535")), "KIT_MALFORMED", id="too little memory"
        ),
        pytest.param(
            lambda data: ended(data.replace(b"passes: 1\n", b"passes: 99\n")), "KIT_MALFORMED", id="too many passes"
        ),
        pytest.param(lambda data: ended(data.replace(b"passes: 1\n", b"")), "KIT_MALFORMED", id="a line is missing"),
        pytest.param(
            lambda data: ended(data.replace(b"by: passphrase", b"by: password")), "KIT_MALFORMED", id="an unknown way"
        ),
        pytest.param(
            lambda data: ended(data.replace(b"\n\n", b"\nmore: 1\n\n")), "KIT_MALFORMED", id="a line of nobody's"
        ),
        pytest.param(
            lambda data: ended(data[:15] + data[data.index(b"\n\n") :]), "KIT_MALFORMED", id="no lines at all"
        ),
        pytest.param(lambda data: ended(data.replace(b"\n\n", b"\n", 1)), "KIT_MALFORMED", id="no empty line"),
        pytest.param(lambda data: ended(data.replace(b"\n\n", b"\n\n!", 1)), "KIT_MALFORMED", id="no base64"),
    ],
)
def test_a_kit_that_was_altered_is_refused_by_name(alter: Callable[[bytes], bytes], code: str, closed: bytes) -> None:
    assert alter(closed) != closed
    assert refused(alter(closed)) == code


@pytest.mark.parametrize(
    ("name", "code"),
    [
        pytest.param(b"cluster-id", "KIT_KEY_WRONG: got another one", id="cluster id: it is part of the derivation"),
        pytest.param(b"salt", "KIT_KEY_WRONG: got another one", id="salt"),
        pytest.param(b"key-check", "KIT_KEY_WRONG: got another one", id="key check"),
        pytest.param(b"nonce", "KIT_DAMAGED: was altered", id="nonce"),
    ],
)
def test_no_line_of_the_head_can_be_changed_unseen(name: bytes, code: str, closed: bytes) -> None:
    assert refused(altered(closed, name)) == code


def test_content_that_was_altered_with_care_is_damaged(closed: bytes) -> None:
    at = closed.index(b"\n\n") + 2
    other = b"A" if closed[at : at + 1] != b"A" else b"B"
    assert refused(ended(closed[:at] + other + closed[at + 1 :])) == "KIT_DAMAGED: was altered"


def test_a_file_that_mail_gave_other_line_ends_still_opens(closed: bytes) -> None:
    assert open_kit(closed.replace(b"\n", b"\r\n"), RIGHT) == KIT


def test_another_passphrase_none_and_another_cluster_are_told_apart(closed: bytes) -> None:
    assert (
        refused(closed, KitKeys(passphrase=SecretBytes(b"correct horse batterY"))) == "KIT_KEY_WRONG: got another one"
    )
    assert refused(closed, KitKeys()) == "KIT_KEY_WRONG: got none"
    assert refused(closed, expected=b"\1" * 32) == "KIT_OTHER_CLUSTER"


def test_a_kit_that_is_too_large_is_refused_before_anything_else() -> None:
    assert refused(b"attested-kit/v1\n" + b"x" * (12 << 20)) == "KIT_MALFORMED"
    with pytest.raises(AttestedError, match="KIT_MALFORMED"):
        Kit.from_bytes(b"{" + b" " * (8 << 20))


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        pytest.param(
            {"format": "attested-kit/v3"}, "FILE_VERSION_UNKNOWN: expected a kit", id="a newer version inside"
        ),
        pytest.param({"format": 1}, "KIT_MALFORMED", id="no format"),
        pytest.param({"extra": 1}, "KIT_MALFORMED", id="a field of nobody's"),
        pytest.param({"policy_generation": True}, "KIT_MALFORMED", id="a truth value as number"),
        pytest.param({"policy_generation": -1}, "KIT_MALFORMED", id="a negative generation"),
        pytest.param({"written": "today"}, "KIT_MALFORMED", id="a time of another form"),
        pytest.param({"cluster_id": "AB" * 32}, "KIT_MALFORMED", id="capital digits"),
        pytest.param({"cluster_id": "ab" * 32}, "CLUSTER_ID_MISMATCH", id="another cluster id"),
        pytest.param({"measurement_salt": "ab" * 32}, "CLUSTER_ID_MISMATCH", id="another salt"),
        pytest.param(
            {"join_ca": sample_kit().join_ca.decode()}, "SITE_SECRET_MALFORMED: join CA", id="another join CA"
        ),
        pytest.param({"files": {}}, "KIT_MALFORMED", id="no public facts"),
        pytest.param({"files": {"cluster.yml": 1}}, "KIT_MALFORMED", id="a file that is no text"),
        pytest.param({"files": {"cluster.yml": "\ud800"}}, "KIT_MALFORMED", id="a file that is no UTF-8"),
        pytest.param({"secrets": {}}, "KIT_MALFORMED", id="no secrets"),
    ],
)
def test_content_that_is_not_whole_is_refused(changes: dict[str, Any], code: str) -> None:
    with pytest.raises(AttestedError) as caught:
        Kit.from_bytes(document(**changes))
    assert Coded(caught.value) == code


@pytest.mark.parametrize(
    ("name", "text", "code"),
    [
        pytest.param("master_key", "!", "KIT_MALFORMED", id="no base64"),
        pytest.param("master_key", "AAAA", "KIT_MALFORMED", id="too short"),
        pytest.param("policy_key", "AAAA", "POLICY_KEY_UNUSABLE", id="no policy key"),
        pytest.param("join_ca_key", "AAAA", "SITE_SECRET_MALFORMED: join CA", id="no join CA key"),
    ],
)
def test_a_secret_that_is_none_is_refused_and_not_quoted(name: str, text: str, code: str) -> None:
    secrets = {**json.loads(KIT.to_bytes())["secrets"], name: text}
    with pytest.raises(AttestedError) as caught:
        Kit.from_bytes(document(secrets=secrets))
    assert Coded(caught.value) == code
    assert (
        caught.value.__suppress_context__
        or caught.value.__context__ is None
        or code == "SITE_SECRET_MALFORMED: join CA"
    )


@pytest.mark.parametrize(
    "name", ["../cluster.yml", "/etc/passwd", "host_vars/../../x/identity.yml", "policy/.hidden.yml", ".secrets/x", ""]
)
def test_a_kit_cannot_name_a_file_outside_of_its_list(name: str) -> None:
    with pytest.raises(AttestedError, match="KIT_MALFORMED"):
        Kit.from_bytes(document(files={"cluster.yml": "", name: ""}))
    with pytest.raises(AttestedError, match="KIT_MALFORMED"):
        close_kit(replace(KIT, files=(*KIT.files, (name, b""))), LOCK, random=SystemRandom())


@pytest.mark.parametrize("data", [b"\xff", b"[]", b"[" * 100000, b'{"a":1,"a":1}', b"1.5", b"NaN", b"9" * 9999])
def test_json_that_is_no_kit_has_the_same_code(data: bytes) -> None:
    with pytest.raises(AttestedError, match="KIT_MALFORMED"):
        Kit.from_bytes(data)


def test_a_measurement_secret_that_was_carried_along_stays() -> None:
    other = MasterSecret(key=SecretBytes(bytes(32)), salt=MASTER.salt)
    rotated = replace(KIT, master=other)
    assert Kit.from_bytes(rotated.to_bytes()) == rotated


def test_a_kit_of_mixed_parts_is_never_closed() -> None:
    with pytest.raises(AttestedError, match="CLUSTER_ID_MISMATCH"):
        close_kit(replace(KIT, measurement_salt=bytes(32)), LOCK, random=SystemRandom())


def test_the_derivation_gives_what_another_program_computed() -> None:
    """Argon2id by argon2-cffi 25.1 (the reference in C), HKDF written out here after RFC 5869."""
    facts = PassphraseFacts(memory_kib=65536, passes=3, lanes=4, salt=bytes(range(16)))
    file_key = stretch(PASSPHRASE, facts)
    assert file_key.reveal().hex() == FILE_KEY
    cluster = b"\5" * 32
    info = b"".join(len(one).to_bytes(8, "big") + one for one in (b"attested.kubernetes/recovery-kit/v1", cluster))
    extracted = hmac.digest(bytes(32), file_key.reveal(), "sha256")
    first = hmac.digest(extracted, info + b"\1", "sha256")
    second = hmac.digest(extracted, first + info + b"\2", "sha256")
    data = seal_envelope(b"content", cluster=cluster, facts=facts, file_key=file_key, nonce=bytes(12))
    assert f"\nkey-check: {second.hex()}\n".encode() in data
    head, body = data[: data.rindex(b"\nend: ") + 1].split(b"\n\n")
    assert AESGCM(first).decrypt(bytes(12), base64.b64decode(body), head + b"\n") == b"content"


FILE_KEY = "5995fc5ddabdb7f10fae2ad796270c269821d70b0efb8fb60262a81f1b6f0eb8"


def test_a_kit_that_version_1_wrote_opens_for_ever() -> None:
    kit = open_kit(VECTOR.read_bytes(), RIGHT)
    assert (kit.master, kit.policy_generation, len(kit.files)) == (MASTER, 3, 3)


def test_a_kit_for_a_token_opens_by_its_key_alone() -> None:
    token = KeyInMemory()
    data = close_kit(KIT, Lock(token_key=token.public_key()), random=SystemRandom())
    assert open_kit(data, KitKeys(token=token)) == KIT
    assert refused(data, KitKeys(token=KeyInMemory())) == "KIT_KEY_WRONG: encrypted to"
    assert refused(data, RIGHT) == "KIT_KEY_WRONG: got none"
    assert refused(altered(data, b"token-key"), KitKeys(token=token)) == "KIT_KEY_WRONG: encrypted to"
    assert describe_kit(data)["closed by"].startswith("the RSA key ")


def test_a_token_key_that_is_too_short_closes_nothing() -> None:
    with pytest.raises(AttestedError, match="KIT_KEY_UNUSABLE"):
        close_kit(KIT, Lock(token_key=KeyInMemory(1024).public_key()), random=SystemRandom())


@pytest.mark.parametrize("text", ["not a key", ""])
def test_what_is_no_key_of_a_token_closes_nothing(text: str) -> None:
    with pytest.raises(AttestedError, match="KIT_KEY_UNUSABLE"):
        close_kit(KIT, Lock(token_key=text.encode()), random=SystemRandom())


# -- recipients of age


def identity() -> tuple[str, bytes]:
    """Return a recipient and the file of its identity, as age-keygen writes it."""
    import pyrage  # noqa: PLC0415  # optional

    secret = pyrage.x25519.Identity.generate()
    recipient = str(secret.to_public())
    return recipient, f"# created: now\n# public key: {recipient}\n{secret}\n".encode()


@needs_age
def test_each_recipient_opens_and_a_stranger_does_not() -> None:
    (one, first), (two, second), (_three, stranger) = (identity() for _number in range(3))
    data = close_kit(KIT, Lock(recipients=(one, two)), random=SystemRandom())
    for words in (first, second):
        assert open_kit(data, KitKeys(identities=parse_identities(words)), expected=KIT.cluster_id) == KIT
    keys = KitKeys(identities=parse_identities(stranger))
    assert refused(data, keys) == "KIT_KEY_WRONG: encrypted to"
    assert refused(data, RIGHT) == "KIT_KEY_WRONG: got none"
    assert refused(data, KitKeys(identities=parse_identities(first)), expected=b"\1" * 32) == "KIT_OTHER_CLUSTER"
    assert "age" in describe_kit(data)["closed by"]
    assert [needle for needle in secrets_of(KIT) if needle in data] == []


@needs_age
@pytest.mark.parametrize(
    ("alter", "code"),
    [
        pytest.param(
            lambda data: data.replace(b"org/v1", b"org/v2", 1),
            "FILE_VERSION_UNKNOWN: expected a kit",
            id="a newer version of age",
        ),
        pytest.param(lambda data: data[:60], "KIT_DAMAGED: it is cut off", id="cut off in its header"),
        pytest.param(lambda data: data[:-1], "KIT_DAMAGED: was altered", id="cut off at its end"),
        pytest.param(
            lambda data: data[:-9] + bytes([data[-9] ^ 1]) + data[-8:], "KIT_DAMAGED: was altered", id="altered"
        ),
        pytest.param(lambda data: data + b"x", "KIT_DAMAGED: was altered", id="something follows"),
        pytest.param(lambda data: data + bytes(12 << 20), "KIT_MALFORMED", id="too large"),
    ],
)
def test_a_file_of_age_that_was_altered_is_refused(alter: Callable[[bytes], bytes], code: str) -> None:
    recipient, words = identity()
    data = close_kit(KIT, Lock(recipients=(recipient,)), random=SystemRandom())
    assert refused(alter(data), KitKeys(identities=parse_identities(words))) == code


@needs_age
@pytest.mark.parametrize(
    "recipients",
    [
        pytest.param(("age1zvkyg2lqzraa2lnjvqej32nkuu0ues2s82hzrye869xeexvn73equnujwk",), id="a mistyped one"),
        pytest.param(("ssh-ed25519 AAAA",), id="a key of ssh"),
        pytest.param(("age1yubikey1abc",), id="one of a plugin"),
        pytest.param(("--help",), id="an option"),
    ],
)
def test_other_recipients_are_refused(recipients: tuple[str, ...]) -> None:
    with pytest.raises(AttestedError, match="KIT_KEY_UNUSABLE"):
        close_kit(KIT, Lock(recipients=recipients), random=SystemRandom())


@needs_age
@pytest.mark.parametrize(
    "data", [b"", b"AGE-SECRET-KEY-1QQQQ\n", b"AGE-SECRET-KEY-1" + b"Q" * 58, b"\xff", b"-----BEGIN X\n"]
)
def test_what_is_no_identity_is_refused_and_not_quoted(data: bytes) -> None:
    with pytest.raises(AttestedError) as caught:
        parse_identities(data)
    assert caught.value.code == "KIT_KEY_UNUSABLE"
    assert "QQQQ" not in str(caught.value)


SECOND = MasterVersion(number=2, secret=MasterSecret(key=SecretBytes(b"K" * 32), salt=SecretBytes(b"S" * 32)))
FIRST = MasterVersion(number=1, secret=KIT.master)


@pytest.mark.parametrize(
    "kit",
    [
        pytest.param(replace(KIT, others=(SECOND,)), id="the old version leads"),
        pytest.param(replace(KIT, master=SECOND.secret, version=2, others=(FIRST,)), id="the new version leads"),
        pytest.param(replace(KIT, master=SECOND.secret, version=2), id="the new version alone"),
    ],
)
def test_a_kit_holds_the_versions_of_a_rotated_master_secret_and_what_stays(kit: Kit) -> None:
    read = Kit.from_bytes(kit.to_bytes())
    assert read == kit
    assert read.ring.carried == KIT.ring.carried
    assert json.loads(kit.to_bytes())["format"] == "attested-kit/v2"
    assert json.loads(KIT.to_bytes())["format"] == "attested-kit/v1"


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        pytest.param({"master_version": 0}, "KIT_MALFORMED", id="number zero"),
        pytest.param({"master_version": True}, "KIT_MALFORMED", id="a truth value"),
        pytest.param({"other_versions": []}, "KIT_MALFORMED", id="a list"),
        pytest.param({"other_versions": {"one": ""}}, "KIT_MALFORMED", id="a number in words"),
        pytest.param({"other_versions": {"2": "AAAA"}}, "KIT_MALFORMED", id="a short secret"),
        pytest.param({"master_version": 2}, "SITE_SECRET_MALFORMED: master secret", id="a number twice"),
        pytest.param({"format": "attested-kit/v1"}, "KIT_MALFORMED", id="the form of before"),
    ],
)
def test_versions_that_no_rotation_leads_to_are_refused(changes: dict[str, Any], code: str) -> None:
    body = json.loads(replace(KIT, others=(SECOND,)).to_bytes())
    with pytest.raises(AttestedError) as caught:
        Kit.from_bytes(json.dumps({**body, **changes}).encode())
    assert Coded(caught.value) == code
