# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What two neighbouring versions must agree on while an upgrade runs: messages, services, and custom resources.

`python tests/support/compatibility.py` records them in tests/vectors/compatibility.json. Run it after a release only:
the next one works beside it.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from ansible_collections.attested.kubernetes.plugins.module_utils._deps.protobuf import descriptor_pb2
from ansible_collections.attested.kubernetes.plugins.module_utils.proto.descriptors import DESCRIPTOR_SET_BASE64

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    Contract = Mapping[str, Mapping[str, str]]

ROOT = Path(__file__).resolve().parents[2]
RECORDED = ROOT / "tests" / "vectors" / "compatibility.json"
CRDS = ROOT / "roles" / "control_plane" / "files" / "crds"
_LIMITS = ("type", "format", "enum", "pattern", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems")
_OF_KUBERNETES = tuple(
    f"x-kubernetes-{name}"
    for name in ("int-or-string", "list-map-keys", "list-type", "preserve-unknown-fields", "validations")
)


def current() -> dict[str, dict[str, str]]:
    """Return the contract of this tree: name, then part, then its form in words."""
    files = descriptor_pb2.FileDescriptorSet.FromString(base64.b64decode(DESCRIPTOR_SET_BASE64)).file
    found: dict[str, dict[str, str]] = {}
    for file in files:
        for service in file.service:
            found[f"service {file.package}.{service.name}"] = {one.name: _call(one) for one in service.method}
        for one in file.message_type:
            found |= _messages(f"{file.package}.{one.name}", one)
    for path in sorted(CRDS.glob("*.yml")):
        found |= _kinds(yaml.safe_load(path.read_text(encoding="utf-8")))
    return found


def _call(method: Any) -> str:
    streams = f"streams {method.client_streaming}/{method.server_streaming}"
    return f"{method.input_type} -> {method.output_type}, {streams}"


def _messages(name: str, message: Any) -> dict[str, dict[str, str]]:
    fields = {
        f"field {one.number}": f"{one.name}, label {one.label}, type {one.type}{one.type_name}"
        + (f", in {message.oneof_decl[one.oneof_index].name}" if one.HasField("oneof_index") else "")
        for one in message.field
    }
    found = {f"message {name}": fields}
    for one in message.nested_type:
        found |= _messages(f"{name}.{one.name}", one)
    return found


def _kinds(crd: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    spec = crd["spec"]
    return {
        f"kind {spec['names']['kind']} {one['name']}": {
            "scope": spec["scope"],
            **dict(_fields("", one["schema"]["openAPIV3Schema"])),
        }
        for one in spec["versions"]
        if one["served"]
    }


def _fields(path: str, schema: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    said = {name: schema[name] for name in (*_LIMITS, *_OF_KUBERNETES) if name in schema}
    said["required"] = sorted(schema.get("required", ()))
    yield path or "object", json.dumps(said, sort_keys=True)
    for name, inner in schema.get("properties", {}).items():
        yield from _fields(f"{path}.{name}", inner)
    for name in ("items", "additionalProperties"):
        if isinstance(inner := schema.get(name), dict):
            yield from _fields(f"{path}[]", inner)


def breaks(before: Contract, now: Contract) -> list[str]:
    """Return what the version ``before`` has and ``now`` lacks or says otherwise; additions break nothing."""
    return [
        f"{name}, {part}: expected {form}, got {now.get(name, {}).get(part, 'nothing')}"
        for name, parts in before.items()
        for part, form in parts.items()
        if now.get(name, {}).get(part) != form
    ]


if __name__ == "__main__":
    RECORDED.write_text(json.dumps(current(), indent=1, sort_keys=True) + "\n", encoding="utf-8")
