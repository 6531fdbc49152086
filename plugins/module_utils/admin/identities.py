# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The identities of a site: the role comes from the inventory's group, the TPM from host_vars."""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.documents import load_document
from ..core.files import read_bytes
from ..errors import PolicyError, Refusal, SiteError
from ..keyservice.derive import DiskId
from ..policy.identity import Admission, NodeIdentity, Role, identity_name, is_address, require_own_aliases
from ..policy.in_force import SitePolicy
from ..policy.manifest import parse_documents, render_document, render_identity, render_profile
from ..reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from ..policy.profile import MeasurementProfile


DISK_VARIABLE = "attested_disk_id"
BY_CONSOLE = "console fingerprint"
_ROLES = {"control_planes": Role.CONTROL_PLANE, "workers": Role.WORKER}
_EK = re.compile(r"sha256:([0-9a-f]{64})")
_SERVING = "attested_kubelet_serving_certificates"
_TRUE = frozenset({"true", "yes", "on", "1"})
_WRITTEN = frozenset(
    {
        "attested_ek",
        "attested_ek_known_by",
        "attested_admission",
        "attested_ek_aliases",
        "attested_ek_replaced",
        DISK_VARIABLE,
    }
)
_NODE_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class InventoryNode:
    """One host of the group ``nodes``; ``ek_sha256`` (64 hex digits) is None until enroll wrote it.

    ``known_by``: by what the TPM is vouched for; the console fingerprint if an admin wrote only the key.
    ``replaced`` are the endorsement keys of the machines that were this node before; they are revoked for good.
    ``aliases``: endorsement key to the second key of its TPM, of this machine and of the replaced ones.
    ``addresses``: addresses for the other nodes; empty unless the kubelet's certificate must name them.
    ``disk``: the id that the cluster assigned to its disk, empty until one is assigned.
    """

    name: str
    role: Role
    ek_sha256: str | None
    known_by: str
    admission: Admission = Admission.APPROVED
    replaced: tuple[str, ...] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)
    addresses: tuple[str, ...] = ()
    disk: str = ""

    @property
    def ek_alias(self) -> str:
        """The second key of the machine that is this node now, empty if none is known."""
        return self.aliases.get(self.ek_sha256 or "", "")

    @property
    def keys_before(self) -> frozenset[str]:
        """All keys of the machines that were this node before."""
        return frozenset({*self.replaced, *(self.aliases[one] for one in self.replaced if one in self.aliases)})


def read_nodes(
    hosts: Mapping[str, Mapping[str, Any]], groups: Mapping[str, Iterable[str]]
) -> tuple[InventoryNode, ...]:
    """Return the nodes of an inventory; raises SITE_INVENTORY naming every problem.

    ``hosts``: host name to its variables; ``groups``: group name to its hosts.
    """
    roles = {str(host): role for group, role in _ROLES.items() for host in groups.get(group, ())}
    problems = [
        *_in_two_groups(groups),
        *(problem for host in roles for problem in _problems(host, hosts.get(host, {}))),
    ]
    if problems:
        raise SiteError("; ".join(problems), reason=Reason.SITE_INVENTORY)
    nodes = tuple(_node(host, role, hosts.get(host, {})) for host, role in sorted(roles.items()))
    _require_own_addresses(nodes)
    require_own_disks({one.name: one.disk for one in nodes})
    return nodes


def enrolled_identities(nodes: Iterable[InventoryNode]) -> tuple[NodeIdentity, ...]:
    """Return the identities of all enrolled nodes; two nodes with one TPM raise IDENTITY_AMBIGUOUS, EK_ALIAS_TAKEN."""
    found: dict[str, NodeIdentity] = {}
    for node in nodes:
        if node.ek_sha256 is None:
            continue
        if node.ek_sha256 in found:
            raise PolicyError(
                f"expected one node a TPM, {found[node.ek_sha256].node_name} and {node.name} have the same",
                reason=Reason.IDENTITY_AMBIGUOUS,
            )
        found[node.ek_sha256] = _identity(node, node.ek_sha256)
        for ek in node.replaced:
            found[ek] = _replaced(node, ek, heir=node.ek_sha256)
    require_own_aliases(found.values())
    return tuple(found.values())


def render_identity_file(
    *,
    ek_sha256: str,
    known_by: str,
    admission: Admission = Admission.APPROVED,
    replaced: Iterable[str] = (),
    aliases: Mapping[str, str] | None = None,
    disk: str = "",
) -> bytes:
    """Return host_vars/<node>/identity.yml; ``replaced`` are endorsement keys (hex) of the machines before this one.

    ``aliases``: endorsement key (hex) to the second key of its TPM, of this machine and of the replaced ones.
    ``disk``: the id that the cluster assigned to its disk, if any.
    """
    lines = [
        "---",
        "# Written by attested.kubernetes.enroll: which TPM is in this machine. Commit it.",
        f"attested_ek: sha256:{ek_sha256}",
        f"attested_ek_known_by: {json.dumps(known_by, ensure_ascii=False)}",
    ]
    if admission is not Admission.APPROVED:
        lines.append(f"attested_admission: {admission.value}")
    second = [f"  sha256:{ek}: sha256:{alias}" for ek, alias in sorted((aliases or {}).items())]
    if second:
        lines += ["attested_ek_aliases:", *second]
    before = [f"  - sha256:{ek}" for ek in replaced]
    if before:
        lines += ["attested_ek_replaced:", *before]
    if disk:
        lines.append(f"{DISK_VARIABLE}: {disk}")
    return ("\n".join(lines) + "\n").encode()


def require_only_identity(text: bytes, *, place: str) -> None:
    """Raise SITE_INVENTORY if a file has variables that `render_identity_file` would remove."""
    others = sorted(set(map(str, variables_in(text, place=place))) - _WRITTEN)
    if others:
        raise SiteError(
            f"expected only the identity in {place}, which is overwritten, got {', '.join(others)[:200]}; "
            "move these variables into another file of the directory",
            reason=Reason.SITE_INVENTORY,
        )


def _identity(node: InventoryNode, ek_sha256: str) -> NodeIdentity:
    return NodeIdentity(
        ek_sha256=ek_sha256,
        node_name=node.name,
        role=node.role,
        admission=node.admission,
        known_by=node.known_by,
        ek_alias=node.ek_alias,
        addresses=node.addresses,
    )


def _replaced(node: InventoryNode, ek_sha256: str, *, heir: str) -> NodeIdentity:
    return NodeIdentity(
        ek_sha256=ek_sha256,
        node_name=node.name,
        role=node.role,
        admission=Admission.REVOKED,
        known_by=node.known_by,
        replaced_by=identity_name(heir),
        ek_alias=node.aliases.get(ek_sha256, ""),
    )


def _node(host: str, role: Role, variables: Mapping[str, Any]) -> InventoryNode:
    ek = variables.get("attested_ek")
    return InventoryNode(
        name=host,
        role=role,
        ek_sha256=_hex(ek) if ek else None,
        known_by=str(variables.get("attested_ek_known_by") or (BY_CONSOLE if ek else "")),
        admission=Admission(str(variables.get("attested_admission", Admission.APPROVED.value))),
        replaced=tuple(_hex(one) for one in variables.get("attested_ek_replaced", ())),
        aliases={_hex(one): _hex(second) for one, second in (variables.get("attested_ek_aliases") or {}).items()},
        addresses=_addresses(host, variables),
        disk=str(variables.get(DISK_VARIABLE) or ""),
    )


def _addresses(host: str, variables: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the address of the node's identity, which the kubelet's serving certificate names.

    Without the variable of the site, only an address that a certificate can name; none if the site turned it off.
    """
    setting, address = variables.get(_SERVING), _node_ip(host, variables)
    wanted = _can_be_certified(address) if setting is None else str(setting).lower() in _TRUE
    return (address,) if wanted else ()


def _node_ip(host: str, variables: Mapping[str, Any]) -> str:
    return str(variables.get("attested_node_ip") or variables.get("ansible_host") or host)


def _require_own_addresses(nodes: Iterable[InventoryNode]) -> None:
    """Raise SITE_INVENTORY if two nodes have one address: each could show a certificate for the other."""
    owners: dict[str, str] = {}
    for node, address in ((one, address) for one in nodes for address in one.addresses):
        owner = owners.setdefault(address, node.name)
        if owner != node.name:
            raise SiteError(
                f"expected an address of its own for each node, {owner} and {node.name} have {address}",
                reason=Reason.SITE_INVENTORY,
            )


def _hex(ek: object) -> str:
    return str(ek).removeprefix("sha256:")


def _in_two_groups(groups: Mapping[str, Iterable[str]]) -> list[str]:
    both = set(groups.get("control_planes", ())) & set(groups.get("workers", ()))
    return [f"expected {host} in one of control_planes and workers, it is in both" for host in sorted(both)]


def _problems(host: str, variables: Mapping[str, Any]) -> list[str]:
    problems = []
    if not _NODE_NAME.fullmatch(host):
        problems.append(f"expected a node name of lower-case letters, digits, '-' and '.', got {host!r}")
    ek = variables.get("attested_ek")
    if ek and not _EK.fullmatch(str(ek)):
        problems.append(f"expected attested_ek of {host} as sha256:<64 hex digits>, got {str(ek)[:80]!r}")
    problems += [
        f"expected attested_ek_replaced of {host} as sha256:<64 hex digits>, got {str(one)[:80]!r}"
        for one in variables.get("attested_ek_replaced", ())
        if not _EK.fullmatch(str(one))
    ]
    disk = str(variables.get(DISK_VARIABLE) or "")
    if disk and not _is_disk_id(disk):
        problems.append(f"expected {DISK_VARIABLE} of {host} as a lower-case UUID, got {disk[:80]!r}")
    problems += _alias_problems(host, variables)
    problems += _address_problems(host, variables)
    admission = str(variables.get("attested_admission", Admission.APPROVED.value))
    if admission not in {one.value for one in Admission} - {Admission.PENDING.value}:
        problems.append(
            f"expected attested_admission of {host} as Approved, Refused or Revoked, got {admission[:80]!r}"
        )
    return problems


def _address_problems(host: str, variables: Mapping[str, Any]) -> list[str]:
    return [
        f"expected attested_node_ip of {host} as an IP address in its shortest form that the other nodes reach, since "
        f"attested_kubelet_serving_certificates puts it into a certificate, got {one[:80]!r}"
        for one in _addresses(host, variables)
        if not _can_be_certified(one)
    ]


def _can_be_certified(address: str) -> bool:
    if not is_address(address):
        return False
    found = ipaddress.ip_address(address)
    return not (found.is_loopback or found.is_unspecified or found.is_multicast)


def _alias_problems(host: str, variables: Mapping[str, Any]) -> list[str]:
    """Return the problems of the second keys: each must belong to a key of this host, and must be no such key."""
    aliases = variables.get("attested_ek_aliases") or {}
    if not isinstance(aliases, Mapping):
        return [f"expected attested_ek_aliases of {host} as a mapping of keys, got {str(aliases)[:80]!r}"]
    own = {str(one) for one in (variables.get("attested_ek"), *variables.get("attested_ek_replaced", ())) if one}
    return [
        f"expected attested_ek_aliases of {host} from one of its own keys to another, each as "
        f"sha256:<64 hex digits>, got {str(one)[:80]!r}: {str(second)[:80]!r}"
        for one, second in aliases.items()
        if str(one) not in own or str(second) in own or not _EK.fullmatch(str(second))
    ]


# The policy of a site: the active profiles of ``policy/`` and the identities of the inventory, as one `SitePolicy`.

_LIMIT = 4 << 20


def load_profiles(directory: str | Path, active: Sequence[str]) -> tuple[MeasurementProfile, ...]:
    """Return the profiles that ``active`` names, from the manifests in ``directory``.

    Raises POLICY_EMPTY if none is named, PROFILE_UNKNOWN for a name without manifest, MANIFEST_INVALID.
    """
    if not active:
        raise PolicyError("expected at least one name in attested_profiles, found none", reason=Reason.POLICY_EMPTY)
    texts = [(path.name, _text(path)) for path in sorted(Path(directory).glob("*.yml"))]
    found = {profile.name: profile for profile in parse_documents(texts).profiles}
    missing = [name for name in active if name not in found]
    if missing:
        raise PolicyError(
            f"expected the profiles {', '.join(missing)} in {directory}, found {', '.join(sorted(found)) or 'none'}",
            reason=Reason.PROFILE_UNKNOWN,
        )
    return tuple(found[name] for name in active)


def site_policy(profiles: Iterable[MeasurementProfile], nodes: Iterable[InventoryNode]) -> SitePolicy:
    """Return the policy of a site, which needs no cluster."""
    return SitePolicy(profiles=profiles, identities=enrolled_identities(nodes))


def render_objects(profiles: Iterable[MeasurementProfile], identities: Iterable[NodeIdentity]) -> str:
    """Return the site's objects as one YAML stream, in exactly the form that is applied to the cluster."""
    documents = [*map(render_profile, profiles), *map(render_identity, identities)]
    return "".join(map(render_document, documents))


def _text(path: Path) -> str:
    try:
        return read_bytes(path, limit=_LIMIT).decode("utf-8")
    except UnicodeDecodeError as error:
        raise PolicyError(
            f"expected YAML in UTF-8 in {path}, got other bytes", reason=Reason.MANIFEST_INVALID
        ) from error


def require_own_disks(disks: Mapping[str, str]) -> None:
    """Raise SITE_INVENTORY if two nodes have one disk; ``disks`` maps a node to its disk id, empty without one."""
    owners: dict[str, str] = {}
    for node, disk in disks.items():
        owner = owners.setdefault(disk, node) if disk else node
        if owner != node:
            raise SiteError(
                f"expected a disk of its own for each node, {owner} and {node} have {disk}",
                reason=Reason.SITE_INVENTORY,
            )


def variables_in(text: bytes, *, place: str) -> dict[str, Any]:
    """Return the variables in a file of host variables; raises SITE_INVENTORY."""
    try:
        found = load_document(text)
    except ValueError as error:
        raise malformed_variables(place, "YAML") from error
    if found is not None and not isinstance(found, dict):
        raise malformed_variables(place, "a mapping of variables")
    return found or {}


def malformed_variables(place: str, expected: str) -> SiteError:
    """Return the error for a file of host variables that is not as ``expected``."""
    return SiteError(f"expected {expected} in {place}, got something else", reason=Reason.SITE_INVENTORY)


def _is_disk_id(text: str) -> bool:
    """Return whether ``text`` is a disk id in canonical form."""
    try:
        DiskId(text)
    except Refusal:
        return False
    return True
