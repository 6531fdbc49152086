# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an admin derives for one node: from the site and from the recovery kit alike."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.derive import disk_key, measurement_secret
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.master import MasterSecret, SecretBytes
from ansible_collections.attested.kubernetes.plugins.module_utils.services.recovery_client import ClusterKeys
from ansible_collections.attested.kubernetes.plugins.module_utils.services.recovery_messages import RecoverySecrets
from ansible_collections.attested.kubernetes.tests.support.init_bed import make_keys
from ansible_collections.attested.kubernetes.tests.support.recovery_bed import DISK, OTHER_DISK
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of

_CA, BUNDLE = make_keys()
_ROTATED = MasterSecret(key=SecretBytes(b"K" * 32), salt=SecretBytes(b"S" * 32))


def test_a_node_gets_the_key_of_its_disk_and_the_measurement_secret():
    keys = ClusterKeys.of_bundle(BUNDLE)
    one, other = keys.of_node(DISK), keys.of_node(OTHER_DISK)
    assert (one.disk, one.disk_key) == (DISK, disk_key(BUNDLE.master, DISK))
    assert one.disk_key != other.disk_key
    assert one.measurement_secret == measurement_secret(BUNDLE.master)
    assert BUNDLE.master.key.reveal() not in one.to_bytes()


def test_kit_and_site_give_the_same():
    kit = SimpleNamespace(ring=BUNDLE.ring, measurement_salt=BUNDLE.measurement_salt, cluster_id=BUNDLE.cluster_id)
    assert ClusterKeys.of_kit(kit) == ClusterKeys.of_bundle(BUNDLE)


def test_while_the_master_secret_is_rotated_a_node_gets_its_disks_key_under_both_versions():
    rotated = BUNDLE.ring.with_successor(_ROTATED)
    keys = ClusterKeys.of_bundle(replace(BUNDLE, ring=rotated))
    sent = RecoverySecrets.from_bytes(keys.of_node(DISK).to_bytes())
    assert sent.disk_key == disk_key(BUNDLE.master, DISK)
    assert sent.other_disk_keys == (disk_key(_ROTATED, DISK),)
    assert sent.measurement_secret == measurement_secret(BUNDLE.master)
    alone = ClusterKeys.of_bundle(replace(BUNDLE, ring=rotated.ordered(rotated.names[1:]))).of_node(DISK)
    assert (alone.disk_key, alone.other_disk_keys) == (disk_key(_ROTATED, DISK), ())
    assert alone.measurement_secret == measurement_secret(BUNDLE.master)


def test_secrets_of_two_clusters_are_refused_before_a_node_is_asked():
    _ca, other = make_keys()
    mixed = {
        "ring": other.ring,
        "measurement_salt": BUNDLE.measurement_salt,
        "cluster_id": BUNDLE.cluster_id,
    }
    assert code_of(lambda: ClusterKeys(**mixed)) == "CLUSTER_ID_MISMATCH"
