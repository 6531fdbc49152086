# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rescue kit: what follows from a master secret, a disk opened with it, calls to Constellation's nodes.

Needs no cluster. `client` loads grpc and is imported by name. Private to the collection.
"""

from __future__ import annotations

from .disk import DiskCopy, copy_header, disk_id_of, find_disk, find_disks, judge_copy, require_key
from .extract import ETCD, MANIFEST, PKI, SUMS, extract_data
from .keyspace import Entry, entries, open_keyspace
from .measurements import Measurements, parse_measurements, verify_measurements
from .mount import Mounted, mount_disk, unmount_disk
from .node import (
    NodeDemands,
    RejoinSecrets,
    SeenNode,
    judge_node,
    master_secret_uri,
    parse_rejoin_reply,
    parse_verify_reply,
    recover_request,
    rejoin_request,
    verify_request,
)
from .partitions import Partition, read_partitions
from .recovering import Patience, recover_nodes
from .state import ClusterValues, parse_state
from .values import ClusterSecrets, PublicValues, check_cluster, derive_cluster, lock_value

__all__ = [
    "ETCD",
    "MANIFEST",
    "PKI",
    "SUMS",
    "ClusterSecrets",
    "ClusterValues",
    "DiskCopy",
    "Entry",
    "Measurements",
    "Mounted",
    "NodeDemands",
    "Partition",
    "Patience",
    "PublicValues",
    "RejoinSecrets",
    "SeenNode",
    "check_cluster",
    "copy_header",
    "derive_cluster",
    "disk_id_of",
    "entries",
    "extract_data",
    "find_disk",
    "find_disks",
    "judge_copy",
    "judge_node",
    "lock_value",
    "master_secret_uri",
    "mount_disk",
    "open_keyspace",
    "parse_measurements",
    "parse_rejoin_reply",
    "parse_state",
    "parse_verify_reply",
    "read_partitions",
    "recover_nodes",
    "recover_request",
    "rejoin_request",
    "require_key",
    "unmount_disk",
    "verify_measurements",
    "verify_request",
]
