# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The file with the keys of Secrets: what is read is what is written, and nobody else's file is rotated."""

from __future__ import annotations

import base64
import json

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import KubeadmError
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.encryption import (
    EncryptionFile,
    EncryptionKey,
    name_key,
    render_encryption,
    require_encryption,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.rotation.encryption_key import key_number

OLD, NEW = EncryptionKey(name="key-1", secret=bytes(range(32))), name_key(b"\x07" * 32, number=2)
FIRST = json.loads(render_encryption(OLD.secret))


def test_what_init_made_is_read_and_written_as_it_was():
    content = render_encryption(OLD.secret)
    found = EncryptionFile.parse(content)
    assert found == EncryptionFile(keys=(OLD,))
    assert found.render() == content


@pytest.mark.parametrize("clear_first", [False, True])
def test_an_order_survives_the_file(clear_first):
    wanted = EncryptionFile(keys=(NEW, OLD), clear_first=clear_first)
    assert EncryptionFile.parse(wanted.render()) == wanted
    assert wanted.order == (*(["identity"] if clear_first else []), NEW.name, "key-1")


def test_init_takes_a_rotated_file_for_one_that_encrypts():
    require_encryption(EncryptionFile(keys=(NEW, OLD)).render())


def test_a_key_has_a_name_that_no_other_can_have():
    assert NEW.name == f"key-2-{NEW.fingerprint}"
    assert name_key(b"\x08" * 32, number=2).name != NEW.name
    assert [key_number(name) for name in ("key-1", NEW.name, "key-1-x", "mine", "key-0")] == [1, 2, 0, 0, 0]


def test_no_key_is_shown():
    shown = f"{EncryptionFile(keys=(OLD, NEW))!r} {OLD!r} {OLD.fingerprint}"
    assert OLD.secret.hex()[:12] not in shown
    assert base64.b64encode(OLD.secret).decode()[:12] not in shown
    assert repr(OLD.secret)[2:12] not in shown


def changed(**entry):
    return json.dumps({**FIRST, "resources": [{**FIRST["resources"][0], **entry}]}).encode()


BOX = FIRST["resources"][0]["providers"][0]


@pytest.mark.parametrize(
    ("content", "code"),
    [
        pytest.param(b"\xff", "ENCRYPTION_FOREIGN", id="no text"),
        pytest.param(changed(resources=["secrets", "configmaps"]), "ENCRYPTION_FOREIGN", id="more resources"),
        pytest.param(changed(providers=[BOX]), "ENCRYPTION_FOREIGN", id="nothing for what is in clear"),
        pytest.param(changed(providers=[BOX, {"kms": {}}]), "ENCRYPTION_FOREIGN", id="another provider"),
        pytest.param(changed(providers=[{"identity": {}}, {"aescbc": {}}]), "ENCRYPTION_FOREIGN", id="another cipher"),
        pytest.param(changed(providers=[{"identity": {}}] * 2), "ENCRYPTION_FOREIGN", id="no key at all"),
        pytest.param(json.dumps({**FIRST, "more": 1}).encode(), "ENCRYPTION_FOREIGN", id="another field"),
        pytest.param(
            changed(providers=[{"secretbox": {"keys": []}}, {"identity": {}}]), "ENCRYPTION_MALFORMED", id="no keys"
        ),
        pytest.param(
            EncryptionFile(keys=(EncryptionKey(name=NEW.name, secret=OLD.secret),)).render(),
            "ENCRYPTION_MALFORMED",
            id="another key under a name",
        ),
    ],
)
def test_what_is_not_ours_is_not_rotated(content, code):
    with pytest.raises(KubeadmError) as caught:
        EncryptionFile.parse(content)
    assert caught.value.code == code
    assert base64.b64encode(OLD.secret).decode() not in caught.value.message
