# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keys of a cluster: the derivation, the master secret, and the service that alone gives them out.

Utilities of this package are private to the collection.
"""

from __future__ import annotations

from .bundle import KeyBundle, make_bundle
from .derive import DiskId, cluster_id, disk_key, emergency_ssh_seed, measurement_secret
from .master import (
    MasterSecret,
    generate_master_secret,
    generate_measurement_salt,
    import_master_secret,
)
from .ring import Carried, MasterRing, MasterVersion, NamedDiskKey, import_ring, require_version_name
from .secret import DiskKey, MeasurementSecret, SecretBytes

__all__ = [
    "Carried",
    "DiskId",
    "DiskKey",
    "KeyBundle",
    "MasterRing",
    "MasterSecret",
    "MasterVersion",
    "MeasurementSecret",
    "NamedDiskKey",
    "SecretBytes",
    "cluster_id",
    "disk_key",
    "emergency_ssh_seed",
    "generate_master_secret",
    "generate_measurement_salt",
    "import_master_secret",
    "import_ring",
    "make_bundle",
    "measurement_secret",
    "require_version_name",
]
