# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What etcd has under which key, and Secrets written again until none is left."""

from __future__ import annotations

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import KubeadmError
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.encryption import (
    SecretName,
    key_of,
    rewrite,
    survey,
)

OLD, NEW = "key-1", "key-2-00000000000000ab"


def closed(key):
    return b"k8s:enc:secretbox:v1:" + key.encode() + b":\x93\x04:\xff"


class Store:
    """Etcd and the kubectl of an API server that writes with NEW; some Secrets resist for a while."""

    def __init__(self, secrets, *, resists=None):
        self.secrets = dict(secrets)
        self.resists = dict(resists or {})
        self.calls = []

    def pages(self, first, end):
        assert (first, end) == (b"/registry/secrets/", b"/registry/secrets0")
        for name, key in sorted(self.secrets.items()):
            yield f"/registry/secrets/{name}".encode(), b"k8s\x00in clear" if key == "identity" else closed(key)

    def write_again(self, kind, names, *, namespace):
        self.calls.append((kind, tuple(names), namespace))
        denied = [name for name in names if self._resists(f"{namespace}/{name}")]
        for name in set(names) - set(denied):
            if f"{namespace}/{name}" in self.secrets:
                self.secrets[f"{namespace}/{name}"] = NEW
        return f"denied: {denied}" if denied else ""

    def _resists(self, name):
        self.resists[name] = self.resists.get(name, 0) - 1
        return self.resists[name] >= 0


def test_each_secret_is_counted_under_the_key_that_closes_it():
    found = survey(Store({"a/x": OLD, "a/y": NEW, "b/x": "identity", "b/z": OLD}))
    assert found.counts == {"identity": 1, OLD: 2, NEW: 1}
    assert found.except_key(NEW) == (SecretName("a", "x"), SecretName("b", "x"), SecretName("b", "z"))


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(b"k8s:enc:aescbc:v1:key-1:abc", id="another cipher"),
        pytest.param(b"k8s:enc:kms:v2:name:abc", id="a plugin"),
        pytest.param(b"k8s:enc:secretbox:v1:" + b"a" * 70 + b":", id="no name"),
    ],
)
def test_what_another_provider_closed_is_named(value):
    with pytest.raises(KubeadmError) as caught:
        key_of(value)
    assert caught.value.code == "ENCRYPTION_FOREIGN"


def test_only_what_is_under_another_key_is_written_again():
    store = Store({"a/x": OLD, "a/y": NEW, "b/x": "identity"})
    done = rewrite(store, store, key=NEW, most=10)
    assert (done.done, done.left, done.total) == (2, 0, 3)
    assert store.calls == [("secret", ("x",), "a"), ("secret", ("x",), "b")]
    assert rewrite(store, store, key=NEW, most=10).done == 0
    assert len(store.calls) == 2


def test_many_are_written_in_batches():
    store = Store({f"a/{number:03}": OLD for number in range(130)})
    assert rewrite(store, store, key=NEW, most=120).left == 10
    assert [len(names) for _kind, names, _namespace in store.calls] == [50, 50, 20]


def test_one_that_resists_is_tried_again():
    store = Store({"a/x": OLD, "a/y": OLD}, resists={"a/x": 2})
    assert rewrite(store, store, key=NEW, most=10).left == 0
    assert store.calls[-1] == ("secret", ("x",), "a")


def test_one_that_resists_for_ever_is_named_with_the_words_of_the_api_server():
    store = Store({"a/x": OLD, "a/y": OLD}, resists={"a/x": 99})
    with pytest.raises(KubeadmError) as caught:
        rewrite(store, store, key=NEW, most=10)
    assert caught.value.code == "ENCRYPTION_REWRITE_FAILED"
    assert "a/x" in caught.value.message
    assert "denied" in caught.value.message
