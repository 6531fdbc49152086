# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an admin derives for one node: from the site and from the recovery kit alike."""

from __future__ import annotations

from types import SimpleNamespace

from ansible_collections.attested.kubernetes.plugins.module_utils.keys import disk_key, measurement_secret
from ansible_collections.attested.kubernetes.plugins.module_utils.recovery import ClusterKeys
from ansible_collections.attested.kubernetes.tests.support.init_bed import make_keys
from ansible_collections.attested.kubernetes.tests.support.recovery_bed import DISK, OTHER_DISK
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of

_CA, BUNDLE = make_keys()


def test_a_node_gets_the_key_of_its_disk_and_the_measurement_secret():
    keys = ClusterKeys.of_bundle(BUNDLE)
    one, other = keys.of_node(DISK), keys.of_node(OTHER_DISK)
    assert (one.disk, one.disk_key) == (DISK, disk_key(BUNDLE.master, DISK))
    assert one.disk_key != other.disk_key
    assert one.measurement_secret == measurement_secret(BUNDLE.master)
    assert BUNDLE.master.key.reveal() not in one.to_bytes()


def test_kit_and_site_give_the_same():
    kit = SimpleNamespace(
        master=BUNDLE.master,
        measurement_secret=measurement_secret(BUNDLE.master),
        measurement_salt=BUNDLE.measurement_salt,
        cluster_id=BUNDLE.cluster_id,
    )
    assert ClusterKeys.of_kit(kit) == ClusterKeys.of_bundle(BUNDLE)


def test_secrets_of_two_clusters_are_refused_before_a_node_is_asked():
    _ca, other = make_keys()
    mixed = {
        "master": other.master,
        "measurement_secret": measurement_secret(other.master),
        "measurement_salt": BUNDLE.measurement_salt,
        "cluster_id": BUNDLE.cluster_id,
    }
    assert code_of(lambda: ClusterKeys(**mixed)) == "CLUSTER_ID_MISMATCH"
