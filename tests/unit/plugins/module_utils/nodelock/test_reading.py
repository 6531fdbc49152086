# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a register's value means under two logs."""

from __future__ import annotations

import hashlib
import json

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import NodeLockError
from ansible_collections.attested.kubernetes.plugins.module_utils.nodelock import (
    LockRecord,
    State,
    lock_digest,
    read_value,
    render_record,
    require_usable_index,
)

CLUSTER = bytes.fromhex("128c164378fe8767f998fbdfe4b4d6463ec5ae1b664ea5999bc27417607ae9b6")
OTHER = bytes.fromhex("1f3d87784b0ce2d13d608d8455627a238acf5c96a62164cf02b236877e0bb0d9")
MACHINE_ID = hashlib.sha256(b"machine-id:3d1f").digest()
LATER = hashlib.sha256(b"file-system:/var").digest()


def extend(*digests):
    """Replay by hand, from the specification and not from the code under test."""
    value = bytes(32)
    for digest in digests:
        value = hashlib.sha256(value + digest).digest()
    return value


def systemd_log(*digests, index=15):
    """The JSON-seq log that systemd writes."""
    body = [{"pcr": index, "digests": [{"hashAlg": "sha256", "digest": digest.hex()}]} for digest in digests]
    return b"".join(b"\x1e" + json.dumps(record).encode() + b"\n" for record in body)


def our_log(cluster_id=CLUSTER, index=15):
    return render_record(LockRecord(cluster_id=cluster_id, index=index, boot_id="b0", timestamp=7))


OURS = lock_digest(CLUSTER)


@pytest.mark.parametrize(
    ("value", "userspace", "nodelock", "state", "cluster_id"),
    [
        pytest.param(extend(), b"", b"", State.UNLOCKED, None, id="zero and no log is unlocked"),
        pytest.param(
            extend(MACHINE_ID), systemd_log(MACHINE_ID), b"", State.UNLOCKED, None, id="machine id alone is unlocked"
        ),
        pytest.param(extend(MACHINE_ID), systemd_log(MACHINE_ID), our_log(), State.UNLOCKED, None,
                     id="a record without its extension is unlocked: the value decides"),
        pytest.param(extend(OURS), b"", our_log(), State.LOCKED, CLUSTER, id="our event from zero is locked"),
        pytest.param(extend(MACHINE_ID, OURS), systemd_log(MACHINE_ID), our_log(), State.LOCKED, CLUSTER,
                     id="our event after the machine id is locked"),
        pytest.param(extend(MACHINE_ID, OURS, LATER), systemd_log(MACHINE_ID, LATER), our_log(), State.LOCKED, CLUSTER,
                     id="systemd may measure after us"),
        pytest.param(extend(OURS, MACHINE_ID), systemd_log(MACHINE_ID), our_log(), State.LOCKED, CLUSTER,
                     id="systemd may measure everything after us"),
        pytest.param(extend(MACHINE_ID, OURS, OURS), systemd_log(MACHINE_ID), our_log(), State.FOREIGN, None,
                     id="our event twice is foreign"),
        pytest.param(extend(MACHINE_ID, OURS), systemd_log(MACHINE_ID), b"", State.FOREIGN, None,
                     id="an event without our record is foreign"),
        pytest.param(extend(MACHINE_ID, OURS), systemd_log(MACHINE_ID), our_log(OTHER), State.FOREIGN, None,
                     id="a record of another cluster does not explain the value"),
        pytest.param(extend(MACHINE_ID, LATER), systemd_log(LATER, MACHINE_ID), our_log(), State.FOREIGN, None,
                     id="systemd's own events in another order are foreign"),
        pytest.param(extend(MACHINE_ID), b"", our_log(), State.FOREIGN, None, id="a lost log of systemd is foreign"),
        pytest.param(extend(OURS), b"", our_log(index=14), State.FOREIGN, None,
                     id="a record of another register does not count"),
        pytest.param(extend(OURS), systemd_log(MACHINE_ID, index=11), our_log(), State.LOCKED, CLUSTER,
                     id="events of other registers do not count"),
    ],
)  # fmt: skip
def test_reading(value, userspace, nodelock, state, cluster_id):
    found = read_value(value, userspace=userspace, nodelock=nodelock)
    assert (state, cluster_id) == (found.state, found.cluster_id)


def test_value_is_the_ancestors():
    """Constellation's value for this cluster id, computed independently and read back from a TPM."""
    wanted = bytes.fromhex("23400370357e846478cce7cc0c76cdfe4da077cc57b36dee0f665ede2c8b3f2f")
    assert read_value(wanted, userspace=b"", nodelock=our_log()).state == State.LOCKED


@pytest.mark.parametrize("index", [16, 17, 22, 23, 24, -1])
def test_resettable_registers_are_refused_by_name(index):
    with pytest.raises(NodeLockError) as caught:
        require_usable_index(index)
    assert caught.value.code == "NODELOCK_REGISTER_RESETTABLE"
    assert str(index) in caught.value.message


def changed_record(**changes):
    """Our record with one thing changed."""
    body = json.loads(our_log()[1:])
    content = {**body["content"], **changes.pop("content", {})}
    return b"\x1e" + json.dumps({**body, "content": content, **changes}).encode() + b"\n"


@pytest.mark.parametrize(
    "log",
    [
        pytest.param(b"\x1enot json\n", id="no JSON"),
        pytest.param(b"\x1e[]\n", id="not an object"),
        pytest.param(b"\xff\xfe", id="not UTF-8"),
        pytest.param(b"\x1e" + b"[" * 200_000, id="nested without end"),
        pytest.param(b" " * ((1 << 20) + 1), id="larger than the limit"),
        pytest.param(our_log() + our_log(), id="two records"),
        pytest.param(changed_record(content_type="systemd"), id="another writer's type"),
        pytest.param(changed_record(content={"version": 2}), id="an unknown version"),
        pytest.param(changed_record(content={"eventType": "phase"}), id="another event"),
        pytest.param(changed_record(content={"clusterId": OTHER.hex()}), id="a digest that is not the id's hash"),
        pytest.param(changed_record(content={"clusterId": "xy"}), id="a cluster id that is not hexadecimal"),
        pytest.param(changed_record(content={"timestamp": "7"}), id="a time that is no number"),
        pytest.param(changed_record(pcr=-1), id="a negative register"),
        pytest.param(changed_record(pcr=True), id="a register that is a truth value"),
        pytest.param(changed_record(digests=[]), id="no digest"),
        pytest.param(changed_record(digests=[{"hashAlg": "sha256", "digest": "00"}]), id="a short digest"),
        pytest.param(changed_record(digests=[{"hashAlg": "sha256", "digest": "zz"}]), id="a digest of other letters"),
    ],
)
def test_malformed_log_is_refused(log):
    with pytest.raises(NodeLockError) as caught:
        read_value(extend(OURS), userspace=b"", nodelock=log)
    assert caught.value.code == "NODELOCK_LOG_MALFORMED"


def test_too_many_records_are_refused():
    with pytest.raises(NodeLockError) as caught:
        read_value(extend(), userspace=b"\x1e{}\n" * 4097, nodelock=b"")
    assert caught.value.code == "NODELOCK_LOG_MALFORMED"
