# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Shared code of the actions on the admin's machine: the site, its verifier, its policy, and the node's connection."""

from __future__ import annotations

import base64
import shlex
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ansible_collections.attested.kubernetes.plugins.module_utils.admin import site_directory
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.attest import Verifier
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.etcd_archive import digest_of
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.identities import (
    load_profiles,
    read_nodes,
    site_policy,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.site_directory import Site
from ansible_collections.attested.kubernetes.plugins.module_utils.core.files import read_bytes
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemClock, SystemRandom
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import SiteError, SystemFault
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.ek_profile import load_ek_store
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.verify import Demands
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.plugin_utils.action import AttestedAction
from ansible_collections.attested.kubernetes.plugins.plugin_utils.node_port import AnsibleNodePort, run_module_there

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from ansible_collections.attested.kubernetes.plugins.module_utils.admin.identities import InventoryNode
    from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.verify import VerifiedNode
    from ansible_collections.attested.kubernetes.plugins.module_utils.policy.profile import MeasurementProfile
    from ansible_collections.attested.kubernetes.plugins.module_utils.transport.binding import Purpose


class SiteAction(AttestedAction):
    """An action that judges the node of its task by the site."""

    def verifier(self, params: Mapping[str, Any]) -> Verifier:
        """Return the verifier of the site's nodes."""
        store = load_ek_store(params["endorsement_authorities"])
        facts = site_directory.parse(read_bytes(Site.at(params["site"]).cluster_file))
        return Verifier(
            cluster_id=facts.cluster_id,
            demands=Demands(ek_roots=store.roots, ek_intermediates=store.intermediates),
            clock=SystemClock(),
            random=SystemRandom(),
        )

    def port(self, params: Mapping[str, Any], **options: str) -> AnsibleNodePort:
        """Return the connection to the node of this task; ``options`` are added to every call."""
        known = {name: params[name] for name in ("node_config", "tpm_timeout_seconds")}
        return AnsibleNodePort(self.execute, {**known, **options})

    def execute(self, module: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Run a module on the node of this task."""
        result: Mapping[str, Any] = self._execute_module(
            module_name=module, module_args=dict(arguments), task_vars=self.task_vars
        )
        return result

    def control_plane(self, params: Mapping[str, Any], *, purpose: Purpose) -> tuple[VerifiedNode, str]:
        """Return the control plane of this task, judged for ``purpose``, and the handle of its open answer.

        Raises what judging raises, and ROLE_NOT_REGISTERED for a worker.
        """
        policy = site_policy(self.profiles(params), self.nodes())
        verified, handle = self.verifier(params).verify(
            self.port(params), purpose=purpose, node=self.node_name, policy=policy
        )
        verified.require_control_plane()
        return verified, handle

    def hand_over(
        self, data: bytes, module: str, params: Mapping[str, Any], *, to: VerifiedNode, handle: str, **options: str
    ) -> Mapping[str, Any]:
        """Seal ``data`` to a judged node and run ``module``, which opens it there with the open answer ``handle``.

        ``options`` are options of the module.
        """
        known = {name: params[name] for name in ("node_config", "tpm_timeout_seconds")}
        return run_module_there(
            self.execute, module, {"handle": handle, "sealed": self.seal(data, to=to), **known, **options}
        )

    @staticmethod
    def seal(data: bytes, *, to: VerifiedNode) -> str:
        """Return ``data`` sealed to a judged node, base64."""
        return base64.b64encode(to.machine.seal(data)).decode("ascii")

    @contextmanager
    def folder_there(self) -> Iterator[str]:
        """Make a directory on the node for files in transfer, and remove it at the end of the block.

        It belongs to the user of the connection, who may not be root, so that both this user and root can read and
        write it. It is not in memory, so its files must be encrypted.
        """
        made = self._low_level_execute_command("mktemp -d /var/tmp/attested-transfer-XXXXXXXXXX", sudoable=False)
        folder = str(made["stdout"]).strip()
        if made["rc"] != 0 or not folder.startswith("/var/tmp/"):  # noqa: S108  # made by mktemp
            raise SystemFault("expected mktemp to make a directory in /var/tmp", reason=Reason.COMMAND_FAILED)
        try:
            yield folder
        finally:
            self._low_level_execute_command(f"rm -rf {shlex.quote(folder)}", sudoable=False)

    def fetch(self, remote: str, target: Path, digest: str) -> None:
        """Fetch a file and rename it once its digest matches; raises BACKUP_DAMAGED, and FILE_UNUSABLE."""
        part = target.with_name(f".{target.name}.part")
        try:
            part.touch(mode=0o600)
            self._connection.fetch_file(remote, str(part))
            if digest_of(part) != digest:
                raise SystemFault(f"expected {remote} with SHA-256 {digest}", reason=Reason.BACKUP_DAMAGED)
            part.chmod(0o600)
            part.replace(target)
        except OSError as error:
            raise SystemFault(f"cannot write {target}: {error.strerror}", reason=Reason.FILE_UNUSABLE) from error
        finally:
            part.unlink(missing_ok=True)

    def nodes(self) -> tuple[InventoryNode, ...]:
        """Return the nodes of the inventory."""
        return read_nodes(self.task_vars["hostvars"], self.task_vars["groups"])

    def require_founder(self) -> None:
        """Raise CLUSTER_FOUNDER_GONE if the node of this task is not the founder of the cluster.

        A machine that replaced the founder must join, or there would be two clusters of one name.
        """
        founder = self.task_vars.get("attested_founder", self.node_name)
        replaced = next((one.replaced for one in self.nodes() if one.name == self.node_name), ())
        if founder != self.node_name or (replaced and "attested_founder" not in self.task_vars):
            raise SiteError(
                f"expected the machine that makes the cluster, {self.node_name} is "
                + ("the replacement of that machine" if replaced else f"none, the site says {founder}"),
                reason=Reason.CLUSTER_FOUNDER_GONE,
            )

    def profiles(self, params: Mapping[str, Any]) -> tuple[MeasurementProfile, ...]:
        """Return the active profiles of the site."""
        directory = Site.at(params["site"]).policy_directory(params["policy_directory"])
        return load_profiles(directory, params["profiles"])

    def endpoint(self, name: str, port: int) -> str:
        """Return the address of a service of the node ``name``, host:port."""
        host = str(self.task_vars["hostvars"][name].get("ansible_host", name))
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    @property
    def node_name(self) -> str:
        """The name of the task's host, which is the name of the node."""
        return str(self.task_vars["inventory_hostname"])
