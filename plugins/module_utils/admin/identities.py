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
from typing import TYPE_CHECKING, Any

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
    """Return the addresses of the node's identity, which the kubelet's serving certificate names.

    Without the variable of the site, only if a certificate can name the first one; none if the site turned it off.
    """
    setting, address = variables.get(_SERVING), _node_ip(host, variables)
    wanted = _can_be_certified(address) if setting is None else str(setting).lower() in _TRUE
    second = str(variables.get("attested_second_node_ip") or "")
    return tuple(filter(None, (address, second))) if wanted else ()


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
        f"expected attested_node_ip and attested_second_node_ip of {host} as IP addresses in their shortest form that "
        f"the other nodes reach, since attested_kubelet_serving_certificates puts them into a certificate, "
        f"got {one[:80]!r}"
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


# Record the disk id that the cluster assigned to each machine, in the host variables of the site. Pure.
#
# A disk's key is derived from its id, and a cluster that is down cannot be read. So the site stores the ids, and with
# its files the recovery kit has them. The key service writes the id into the identity's status; what a machine reports
# is never used.

_HEADER = b"---\n# Written by attested.kubernetes.node: which id the cluster assigned to the disk. Commit it.\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedDisk:
    """The disk id of one node as the site has it (empty: none), and as the cluster assigned it."""

    node: str
    before: str
    disk: DiskId

    @property
    def exchanged(self) -> str:
        """Return a message for the admin if the site had another id, else an empty text."""
        if self.before in {"", self.disk.uuid}:
            return ""
        return f"the site had the disk {self.before} of {self.node}, the cluster assigned {self.disk.uuid}"


def plan_disks(nodes: Iterable[InventoryNode], identities: Iterable[Mapping[str, Any]]) -> tuple[AssignedDisk, ...]:
    """Return each node whose machine has an assigned disk; ``identities`` are those of `policy_record`.

    A machine without a disk in the cluster stays as the site has it: it may have taken over the disk of the machine
    before it. Raises IDENTITY_AMBIGUOUS for two ids of one machine, and SITE_INVENTORY for two nodes with one disk,
    because each would get the other's key.
    """
    known = _by_key(identities)
    every = tuple(nodes)
    found = tuple(
        AssignedDisk(node=one.name, before=one.disk, disk=known[one.ek_sha256])
        for one in every
        if one.ek_sha256 in known
    )
    require_own_disks({**{one.name: one.disk for one in every}, **{one.node: one.disk.uuid for one in found}})
    return found


def disk_in(text: bytes, *, place: str) -> str:
    """Return the disk id in a file of host variables, empty if it has none; raises SITE_INVENTORY."""
    return str(variables_in(text, place=place).get(DISK_VARIABLE) or "")


def with_disk(text: bytes, disk: DiskId, *, place: str) -> bytes:
    """Return a file of host variables with ``disk``, otherwise unchanged; b"" is a file that does not exist yet.

    Raises SITE_INVENTORY with the line to write by hand if the variable cannot be a line of its own.
    """
    before = variables_in(text, place=place)
    if before.get(DISK_VARIABLE) == disk.uuid:
        return text
    kept = b"".join(line for line in _lines(text or _HEADER) if not line.startswith(f"{DISK_VARIABLE}:".encode()))
    after = kept + f"{DISK_VARIABLE}: {disk.uuid}\n".encode()
    if variables_in(after, place=place) != {**before, DISK_VARIABLE: disk.uuid}:
        raise malformed_variables(place, f"a line a variable, so that {DISK_VARIABLE}: {disk.uuid} can be added")
    return after


def _by_key(identities: Iterable[Mapping[str, Any]]) -> dict[str, DiskId]:
    known: dict[str, DiskId] = {}
    for one in identities:
        key, reported = str(one["ek_sha256"]), str(one.get("disk_id") or "")
        if not reported:
            continue
        disk = known.setdefault(key, DiskId(reported))
        if disk.uuid != reported:
            raise PolicyError(
                f"expected one disk of the machine {key}, the control planes report {disk.uuid} and {reported}",
                reason=Reason.IDENTITY_AMBIGUOUS,
            )
    return known


def _lines(text: bytes) -> list[bytes]:
    whole = text if text.endswith(b"\n") else text + b"\n"
    return whole.splitlines(keepends=True)


# The nodes of an inventory to recover and their disks, control planes first. Pure.
#
# A machine that is not admitted is no node of the cluster: no key is sent to it, and its silence is no failure.


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A node to recover; ``disk`` is None if neither the site nor the kit has its disk id."""

    name: str
    role: Role
    disk: DiskId | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Roster:
    """The nodes to recover, in order, and each named node that is left out with the reason in words."""

    candidates: tuple[Candidate, ...]
    left_out: Mapping[str, str]


def make_roster(names: Iterable[str], nodes: Iterable[InventoryNode], files: Mapping[str, bytes]) -> Roster:
    """Return the nodes of ``names`` to recover; ``files`` are a recovery kit's, for ids that the site does not have.

    Raises SITE_INVENTORY for a name that is no node, if no node is left, and for two nodes with one disk.
    """
    known = {one.name: one for one in nodes}
    wanted = sorted(set(names))
    strange = [name for name in wanted if name not in known]
    if strange:
        raise SiteError(
            f"expected hosts of control_planes or workers, got {', '.join(strange)}", reason=Reason.SITE_INVENTORY
        )
    disks = {name: one.disk or _kept(name, files) for name, one in known.items()}
    require_own_disks(disks)
    left_out = {name: why for name in wanted if (why := _left_out(known[name]))}
    chosen = [known[name] for name in wanted if name not in left_out]
    if not chosen:
        raise SiteError(f"expected at least one admitted node, got {_listed(left_out)}", reason=Reason.SITE_INVENTORY)
    candidates = tuple(
        Candidate(name=one.name, role=one.role, disk=DiskId(disks[one.name]) if disks[one.name] else None)
        for one in sorted(chosen, key=lambda one: one.role is not Role.CONTROL_PLANE)
    )
    return Roster(candidates=candidates, left_out=left_out)


def _kept(name: str, files: Mapping[str, bytes]) -> str:
    place = f"host_vars/{name}/identity.yml"
    return disk_in(files.get(place, b""), place=f"{place} of the kit")


def _left_out(node: InventoryNode) -> str:
    if node.ek_sha256 is None:
        return "its machine is not enrolled"
    return "" if node.admission is Admission.APPROVED else f"its machine is {node.admission.value}"


def _listed(left_out: Mapping[str, str]) -> str:
    return "; ".join(f"{name}: {why}" for name, why in left_out.items()) or "none"
