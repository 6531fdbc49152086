# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Manifests: profiles and identities as YAML documents in a site, and as objects of the Kubernetes API.

Both have one form, group ``attested-kubernetes.dev/v1alpha1``, kinds MeasurementProfile and NodeIdentity. Reading is
strict (an unknown field is a problem) and lists every problem in one error. Metadata other than the name and unknown
parts of ``status`` belong to the API and are ignored.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .._deps.yaml import yaml
from ..core.documents import load_documents
from ..errors import PolicyError
from ..reasons import Reason
from .assertions import Assertions, Loader, Lockdown
from .fields import Fields, listed, moment_of
from .identity import Admission, EvidenceRefusal, IdentityStatus, NodeIdentity, Role, TpmRecord, is_address
from .profile import (
    FIRST_RESETTABLE_REGISTER,
    MAX_REFERENCE_EVENTS,
    AllowedValue,
    MeasuredEvent,
    MeasurementProfile,
    Posture,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime


API_VERSION = "attested-kubernetes.dev/v1alpha1"
IDENTITY_KIND = "NodeIdentity"
PROFILE_KIND = "MeasurementProfile"
REVOKED_LABEL = "attested-kubernetes.dev/revoked"

MAX_VALUES = 64
MAX_MACHINES = 256
MAX_LABEL = 128
MAX_EVENT_TEXT = 1025
MAX_EVENT_KIND = 64
MAX_KNOWN_BY = 256
MAX_ADDRESSES = 8
MAX_ADDRESS = 45
MAX_BOOT_OPTIONS = 128
MAX_KERNELS = 64
MAX_COMPONENTS = 16
MAX_SIGNERS = 16
MAX_WORD = 256
MAX_GENERATION = 1 << 40

_VERSION = re.compile(r"[!-~]{0,64}[0-9][!-~]{0,64}")
OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_NODE_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*")


@dataclass(frozen=True, slots=True)
class Manifests:
    """The profiles and identities of a set of documents, in their order."""

    profiles: tuple[MeasurementProfile, ...]
    identities: tuple[NodeIdentity, ...]


def parse_objects(objects: Iterable[tuple[str, object]]) -> Manifests:
    """Return the profiles and identities of ``objects``: pairs of a place for messages and the object as a mapping.

    Raises `PolicyError` MANIFEST_INVALID that lists every problem, also two profiles of one name.
    """
    problems: list[str] = []
    profiles: dict[str, MeasurementProfile] = {}
    identities: list[NodeIdentity] = []
    for place, document in objects:
        fields = Fields(document, place=place, problems=problems)
        kind = _envelope(fields)
        name = _object_name(fields)
        if kind == IDENTITY_KIND:
            identities.append(_identity(fields, name))
        elif kind == PROFILE_KIND:
            if name in profiles:
                fields.note(f"metadata.name: {name} is the name of another profile as well")
            profiles[name] = _profile(fields.mapping("spec"), name)
            fields.take("status")
        fields.finish()
    if problems:
        raise PolicyError(f"expected valid manifests, got {listed(problems)}", reason=Reason.MANIFEST_INVALID)
    return Manifests(tuple(profiles.values()), tuple(identities))


def _envelope(fields: Fields) -> str:
    """Return the kind; if it is unknown, skip the rest of the document and return an empty string."""
    version, kind = fields.take("apiVersion"), fields.take("kind")
    if version != API_VERSION:
        fields.note(f"apiVersion: expected {API_VERSION}, got {version!r:.80}")
    if isinstance(kind, str) and kind in {IDENTITY_KIND, PROFILE_KIND}:
        return kind
    fields.note(f"kind: expected {PROFILE_KIND} or {IDENTITY_KIND}, got {kind!r:.80}")
    fields.take("spec")
    fields.take("status")
    return ""


def _object_name(fields: Fields) -> str:
    return fields.mapping("metadata").matching("name", OBJECT_NAME, "a DNS name in lower case")


def _identity(fields: Fields, name: str) -> NodeIdentity:
    spec = fields.mapping("spec")
    identity = NodeIdentity(
        ek_sha256=spec.sha256("ekSha256").hex(),
        node_name=spec.matching("nodeName", _NODE_NAME, "a node name (DNS, lower case)"),
        role=spec.choice("role", Role),
        admission=spec.choice("admission", Admission),
        known_by=spec.text("knownBy", limit=MAX_KNOWN_BY, default=""),
        replaced_by=spec.text("replacedBy", limit=MAX_KNOWN_BY, default=""),
        ek_alias=spec.sha256("ekAliasSha256").hex() if spec.has("ekAliasSha256") else "",
        addresses=_addresses(spec),
        status=_status(fields),
    )
    spec.finish()
    if identity.ek_alias and identity.ek_alias == identity.ek_sha256:
        fields.note("spec.ekAliasSha256: expected another key than spec.ekSha256, got the same")
    if identity.ek_sha256 and name and name != identity.name:
        fields.note(f"metadata.name: expected {identity.name}, which the endorsement key gives, got {name}")
    return identity


def _addresses(spec: Fields) -> tuple[str, ...]:
    """Return the node's addresses; empty if the field is missing."""
    found = spec.texts("addresses", limit=MAX_ADDRESSES, each=MAX_ADDRESS) or ()
    wrong = [one for one in found if not is_address(one)]
    if wrong or len(set(found)) != len(found):
        spec.note(f"addresses: expected IP addresses, each in its shortest form and once, got {list(found)}"[:200])
    return found


def _status(fields: Fields) -> IdentityStatus:
    """Return the fields of a status; only the key service writes it, so unreadable fields count as missing.

    An unreadable ``tpm`` is a problem, since the next quote must be compared with it.
    """
    taken = fields.take("status")
    status = taken if isinstance(taken, dict) else {}
    texts = {name: value for name, value in status.items() if isinstance(value, str)}
    last = status.get("lastAttestation")
    shown = {name: value for name, value in last.items() if isinstance(value, str)} if isinstance(last, dict) else {}
    return IdentityStatus(
        phase=texts.get("phase", ""),
        disk_id=texts.get("diskId", ""),
        ak_name=texts.get("akName", ""),
        tpm=_tpm_record(fields, status.get("tpm")),
        attested_at=_time_in(status, "lastAttestation"),
        profile=shown.get("profile", ""),
        posture=shown.get("posture", ""),
        refusal=_refusal(status),
    )


def _refusal(status: object) -> EvidenceRefusal | None:
    """Return the recorded refusal, also if its reason or time cannot be read."""
    found = status.get("lastRefusal") if isinstance(status, dict) else None
    if found is None:
        return None
    return EvidenceRefusal(
        str(found.get("reason", "")) if isinstance(found, dict) else "", _time_in(status, "lastRefusal")
    )


def _time_in(status: object, name: str) -> datetime | None:
    """Return the ``time`` of a part of the status, None if it is missing or cannot be read."""
    found = status.get(name) if isinstance(status, dict) else None
    time = found.get("time") if isinstance(found, dict) else None
    return moment_of(time) or moment_of(f"{time}+00:00")


def _tpm_record(fields: Fields, found: object) -> TpmRecord | None:
    """Return the recorded clock information of a TPM, None if there is none."""
    if found is None:
        return None
    members = found if isinstance(found, dict) else {}
    counts = [members.get(name, 0) for name in ("clock", "resetCount", "restartCount")]
    if members is not found or not all(isinstance(one, int) and not isinstance(one, bool) for one in counts):
        fields.note("status.tpm: expected whole numbers")
        return None
    clock, resets, restarts = counts
    return TpmRecord(clock=clock, reset_count=resets, restart_count=restarts)


def _profile(spec: Fields, name: str) -> MeasurementProfile:
    registers: dict[int, tuple[AllowedValue, ...]] = {}
    for register in spec.sequence("registers", limit=FIRST_RESETTABLE_REGISTER):
        pcr = register.number("pcr", below=FIRST_RESETTABLE_REGISTER)
        if pcr in registers:
            register.note(f"pcr: {pcr} is listed twice")
        registers[pcr] = tuple(
            AllowedValue(value.sha256("sha256"), value.text("label", limit=MAX_LABEL))
            for value in register.sequence("values", limit=MAX_VALUES)
        )
    profile = MeasurementProfile(
        name=name,
        posture=spec.choice("posture", Posture),
        registers=registers,
        reference_events=tuple(
            MeasuredEvent(
                pcr=event.number("pcr", below=FIRST_RESETTABLE_REGISTER),
                digest=event.sha256("sha256"),
                text=event.text("text", limit=MAX_EVENT_TEXT),
                kind=event.text("type", limit=MAX_EVENT_KIND, default=""),
                proven=True,
            )
            for event in spec.sequence("referenceEvents", limit=MAX_REFERENCE_EVENTS, optional=True)
        ),
        assertions=_assertions(spec.mapping("assertions")) if spec.has("assertions") else Assertions(),
        loader=spec.choice("loader", Loader) if spec.has("loader") else None,
        expires=spec.moment("expires"),
        retired=spec.flag("retired"),
        roles=_roles(spec),
        machines=_machines(spec),
    )
    spec.finish()
    return profile


def _roles(spec: Fields) -> tuple[Role, ...]:
    """Return the roles that a profile is limited to, sorted; an empty list is a problem, since it limits nothing."""
    if not spec.has("roles"):
        return ()
    known = {role.value: role for role in Role}
    names = spec.texts("roles", limit=len(known), each=MAX_WORD) or ()
    if not names or set(names) - set(known) or len(set(names)) != len(names):
        spec.note(f"roles: expected one or more of {', '.join(sorted(known))}, each once")
    return tuple(known[one] for one in sorted(set(names) & set(known)))


def _machines(spec: Fields) -> tuple[str, ...]:
    if not spec.has("machines"):
        return ()
    machines = spec.digests("machines", limit=MAX_MACHINES)
    if not machines:
        spec.note("machines: expected the SHA-256 of one or more endorsement keys")
    return tuple(sorted(machines))


def _assertions(fields: Fields) -> Assertions:
    found = Assertions(
        secure_boot=fields.flag("secureBoot"),
        lockdown=fields.choice("lockdown", Lockdown) if fields.has("lockdown") else None,
        boot_options=fields.texts("bootOptions", limit=MAX_BOOT_OPTIONS, each=MAX_WORD),
        firmware_minimum=fields.matching("firmwareMinimum", _VERSION, "a version with a number in it")
        if fields.has("firmwareMinimum")
        else "",
        kernels=fields.texts("kernels", limit=MAX_KERNELS, each=MAX_WORD) or (),
        sbat_minimum=_sbat_minimum(fields),
        source_signers=fields.texts("sourceSigners", limit=MAX_SIGNERS, each=MAX_WORD) or (),
        source_minimum=fields.number("sourceMinimum", below=MAX_GENERATION) if fields.has("sourceMinimum") else 0,
        node_configs=fields.digests("nodeConfigs", limit=MAX_MACHINES) if fields.has("nodeConfigs") else (),
    )
    fields.finish()
    return found


def _sbat_minimum(fields: Fields) -> dict[str, int]:
    found: dict[str, int] = {}
    for one in fields.sequence("sbatMinimum", limit=MAX_COMPONENTS, optional=True):
        component = one.text("component", limit=MAX_WORD)
        if component in found:
            one.note(f"component: {component} is listed twice")
        found[component] = one.number("generation", below=MAX_GENERATION)
    return found


def render_profile(profile: MeasurementProfile) -> dict[str, Any]:
    """Return the manifest of a profile, for YAML or the API; `parse_objects` reads it back."""
    spec: dict[str, Any] = {
        "posture": profile.posture.value,
        "registers": [
            {"pcr": pcr, "values": [{"sha256": value.digest.hex(), "label": value.label} for value in allowed]}
            for pcr, allowed in sorted(profile.registers.items())
        ],
    }
    if profile.reference_events:
        spec["referenceEvents"] = [_event(event) for event in profile.reference_events]
    rendered = _rendered_assertions(profile.assertions)
    if rendered:
        spec["assertions"] = rendered
    if profile.loader is not None:
        spec["loader"] = profile.loader.value
    if profile.expires is not None:
        spec["expires"] = _moment(profile.expires)
    if profile.retired:
        spec["retired"] = True
    if profile.roles:
        spec["roles"] = sorted(role.value for role in profile.roles)
    if profile.machines:
        spec["machines"] = sorted(profile.machines)
    return _manifest(PROFILE_KIND, profile.name, spec)


def _event(event: MeasuredEvent) -> dict[str, Any]:
    kind = {"type": event.kind} if event.kind else {}
    return {"pcr": event.pcr, "sha256": event.digest.hex(), "text": event.text, **kind}


def _rendered_assertions(assertions: Assertions) -> dict[str, Any]:
    """Return the assertions that are not empty; an empty list of boot options is kept, since it is a demand."""
    every: dict[str, Any] = {
        "secureBoot": assertions.secure_boot,
        "lockdown": assertions.lockdown.value if assertions.lockdown else "",
        "firmwareMinimum": assertions.firmware_minimum,
        "kernels": list(assertions.kernels),
        "sbatMinimum": [
            {"component": name, "generation": least} for name, least in sorted(assertions.sbat_minimum.items())
        ],
        "sourceSigners": list(assertions.source_signers),
        "sourceMinimum": assertions.source_minimum,
        "nodeConfigs": list(assertions.node_configs),
    }
    kept = {name: value for name, value in every.items() if value}
    if assertions.boot_options is not None:
        kept["bootOptions"] = list(assertions.boot_options)
    return kept


def _moment(time: datetime) -> str:
    return time.isoformat(timespec="seconds").replace("+00:00", "Z")


def render_identity(identity: NodeIdentity) -> dict[str, Any]:
    """Return the manifest of an identity without its status, which only the key service writes.

    A revoked identity has the label by which the API server finds it when its node's user writes.
    """
    spec: dict[str, Any] = {
        "ekSha256": identity.ek_sha256,
        "nodeName": identity.node_name,
        "role": identity.role.value,
        "admission": identity.admission.value,
        "knownBy": identity.known_by,
    }
    if identity.replaced_by:
        spec["replacedBy"] = identity.replaced_by
    if identity.ek_alias:
        spec["ekAliasSha256"] = identity.ek_alias
    if identity.addresses:
        spec["addresses"] = list(identity.addresses)
    document = _manifest(IDENTITY_KIND, identity.name, spec)
    if identity.admission is Admission.REVOKED:
        document["metadata"]["labels"] = {REVOKED_LABEL: "true"}
    return document


def _manifest(kind: str, name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": dict(spec)}


# YAML text to manifests and back; bounded, without aliases, duplicate keys or anything but plain data.

MAX_TEXT_BYTES = 1 << 20
"""A profile with a thousand reference events has about 200 KiB."""


def parse_documents(texts: Iterable[tuple[str, str]]) -> Manifests:
    """Return the manifests in ``texts``: pairs of a file name for messages and its YAML; empty documents are skipped.

    Raises `PolicyError` MANIFEST_INVALID with every problem of every document.
    """
    objects: list[tuple[str, object]] = []
    unreadable: list[str] = []
    for name, text in texts:
        try:
            objects += _documents(name, text)
        except ValueError as error:
            unreadable.append(f"{name}: {error}")
    if unreadable:
        raise PolicyError(f"expected YAML, got {listed(unreadable)}", reason=Reason.MANIFEST_INVALID)
    return parse_objects(objects)


def _documents(name: str, text: str) -> list[tuple[str, object]]:
    if len(text.encode()) > MAX_TEXT_BYTES:
        raise ValueError(f"a text of more than {MAX_TEXT_BYTES} bytes")
    loaded = load_documents(text)
    if len(loaded) == 1:
        return [(name, loaded[0])]
    return [(f"{name}[{number}]", document) for number, document in enumerate(loaded)]


def render_document(manifest: dict[str, Any]) -> str:
    """Return a manifest as one YAML document, keys in their order."""
    return str(yaml.safe_dump(manifest, explicit_start=True, sort_keys=False, width=120, allow_unicode=True))
