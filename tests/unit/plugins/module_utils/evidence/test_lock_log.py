# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lock's record, byte for byte: a verifier and systemd's own tools read it."""

from __future__ import annotations

import hashlib
import json
import time

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import SystemFault
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.node_lock import (
    _content,
    with_lock,
    with_source,
)

CLUSTER = bytes(range(32))
OTHERS = [
    pytest.param({"pcr": 11, "content": {"eventType": "nodelock"}}, id="for another register"),
    pytest.param({"content": "eventType"}, id="whose content is a word"),
    pytest.param({"content_type": "pcclient_std"}, id="without content"),
]


def test_the_record_is_this_and_nothing_else():
    before = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000
    log = with_lock(b"", register=14, cluster_id=CLUSTER)
    after = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000
    body = json.loads(log[1:])
    microseconds = body["content"].pop("timestamp")
    assert body == {
        "pcr": 14,
        "digests": [
            {"hashAlg": "sha256", "digest": hashlib.sha256(CLUSTER).hexdigest()},
            {"hashAlg": "sha384", "digest": hashlib.sha384(CLUSTER).hexdigest()},
            {"hashAlg": "sha512", "digest": hashlib.sha512(CLUSTER).hexdigest()},
        ],
        "content_type": "attested",
        "content": {"eventType": "nodelock", "version": 1, "clusterId": CLUSTER.hex()},
    }
    assert before <= microseconds <= after
    assert (log[:1], log[-2:], b" " in log) == (b"\x1e", b"}\n", False)


@pytest.mark.parametrize("other", OTHERS)
def test_a_record_of_somebody_else_stays(other):
    theirs = b"\x1e" + json.dumps(other).encode() + b"\n"
    assert with_lock(theirs, register=15, cluster_id=CLUSTER).startswith(theirs + b"\x1e")


def test_a_lock_that_never_happened_goes():
    once = with_lock(b"", register=15, cluster_id=bytes(32))
    assert with_lock(once, register=15, cluster_id=CLUSTER).count(b"\x1e") == 1


def test_what_happened_stays_in_front_of_the_lock():
    measured = with_source(b"", register=15, text="the site")
    log = with_lock(measured, register=15, cluster_id=CLUSTER, extended=1)
    assert (log.startswith(measured), log.count(b"\x1e")) == (True, 2)
    assert with_lock(measured, register=15, cluster_id=CLUSTER, extended=0).count(b"\x1e") == 1


def test_the_record_of_a_site_says_what_was_hashed():
    body = json.loads(with_source(b"", register=15, text="the site")[1:])
    del body["content"]["timestamp"]
    assert body["digests"][0] == {"hashAlg": "sha256", "digest": hashlib.sha256(b"the site").hexdigest()}
    assert body["content"] == {"eventType": "source", "version": 1, "string": "the site"}


def test_a_log_of_a_mebibyte_is_read_and_a_byte_more_is_not(tmp_path):
    log = tmp_path / "log"
    log.write_bytes(bytes(1 << 20))
    assert len(_content(log)) == 1 << 20
    log.write_bytes(bytes((1 << 20) + 1))
    with pytest.raises(SystemFault) as caught:
        _content(log)
    assert caught.value.code == "FILE_UNUSABLE"
