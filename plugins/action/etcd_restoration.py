# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Action of the module ``etcd_restoration``: send a backup to a control plane that is verified first.

The identity of the recovery kit stays on the admin's machine. The backup is encrypted again, to an identity of this
run, which is sealed to the machine in the state that was verified.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible_collections.attested.kubernetes.plugins.module_utils.admin.age_file import parse_identities
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.etcd_archive import hand_on
from ansible_collections.attested.kubernetes.plugins.module_utils.core.files import read_bytes
from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import (
    ArgumentSpec,
    node_config_spec,
    site_policy_spec,
    site_spec,
    site_verifier_spec,
    tpm_timeout_spec,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.result import Result
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.binding import Purpose
from ansible_collections.attested.kubernetes.plugins.plugin_utils.node_port import run_module_there
from ansible_collections.attested.kubernetes.plugins.plugin_utils.site_action import SiteAction

if TYPE_CHECKING:
    from collections.abc import Mapping

_NODE_MODULE = "attested.kubernetes.etcd_snapshot"
_MAX_KEY_BYTES = 65536


class ActionModule(SiteAction):
    """Decrypt the backup, verify the machine, send the backup and its new identity."""

    SPEC = site_spec().merged(
        site_policy_spec(),
        site_verifier_spec(),
        node_config_spec(),
        tpm_timeout_spec(),
        ArgumentSpec(
            options={
                "backup": {"type": "path", "required": True},
                "identity_file": {"type": "path", "required": True},
                "confirm_healthy": {"type": "bool", "default": False},
            },
        ),
    )

    def perform(self, params: Mapping[str, Any], check_mode: bool) -> Result:
        """Restore the backup on the node of this task; in check mode check everything and send nothing."""
        cluster_id = self.verifier(params).cluster_id
        options = {"state": "restored", **{name: params[name] for name in ("node_config", "confirm_healthy")}}
        with tempfile.TemporaryDirectory(prefix="attested-restore-") as scratch:
            sent = Path(scratch) / "etcd.age"
            manifest, identity = hand_on(
                Path(params["backup"]),
                sent,
                parse_identities(read_bytes(params["identity_file"], limit=_MAX_KEY_BYTES)),
                begin=lambda one: one.require_cluster(cluster_id),
            )
            verified, handle = self.control_plane(params, purpose=Purpose.SHARE)
            if check_mode:
                run_module_there(self.execute, _NODE_MODULE, options)
            else:
                with self.folder_there() as folder:
                    self._connection.put_file(str(sent), f"{folder}/etcd.age")
                    sealed = {"handle": handle, "sealed": self.seal(identity.reveal(), to=verified)}
                    run_module_there(self.execute, _NODE_MODULE, {**options, **sealed, "path": f"{folder}/etcd.age"})
        return Result(changed=True, values={"manifest": manifest.values(), "profile": verified.verdict.profile})
