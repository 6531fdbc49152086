# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`/etc/attested/node.yml`: what a node knows of itself and of its cluster before the first request.

The role `node_runtime` writes it from the site. It holds no secret, and no service trusts it: a node that was sent to
another cluster gets nothing of this one. A machine that boots from the signed site measures the file's digest before
the first request, and a profile may list the accepted digests (``nodeConfigs``). A machine that joins by the
bootstrapper or a playbook does not measure it (docs/adr/0053).
"""

from __future__ import annotations

import binascii
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from ..core.documents import load_documents
from ..core.files import read_bytes
from ..errors import SystemFault
from ..reasons import Reason
from ..source.config import SourceConfig, parse_source, source_problems

VERSION = 1
DEFAULT_PATH = "/etc/attested/node.yml"
_LIMIT = 64 << 10
_HASH_BYTES = 32
_MAX_ENDPOINTS = 64
_MAX_PINS = 2  # two while the join CA is being replaced, one otherwise
_MAX_PORT = 65535
_CERTIFICATE = "-----BEGIN CERTIFICATE-----\n"
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*")
_ENDPOINT = re.compile(r"(?P<host>[A-Za-z0-9.-]+|\[[0-9a-fA-F:]+\]):(?P<port>[0-9]{1,5})")
_FIELDS = ("version", "name", "cluster_name", "cluster_id", "endpoints", "join_ca", "tcti", "logs")
_OPTIONAL = ("source",)
_LOGS = ("firmware", "userspace")
_COMMAND_LINE = "/proc/cmdline"


@dataclass(frozen=True, slots=True, kw_only=True)
class EventLogPaths:
    """The paths of the two event logs of the boot: the firmware's (TCG) and systemd's (JSON-seq).

    ``command_line`` is the kernel's command line as text; a verifier shows it if its hash is in the firmware's log.
    """

    firmware: Path
    userspace: Path
    command_line: Path = Path(_COMMAND_LINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """The node's configuration.

    ``cluster_id`` is 32 bytes. ``endpoints`` are (host, port) of join services or of load balancers, in any order.
    ``join_ca`` is the pinned certificate in PEM (two while the CA is being replaced), ``tcti`` the address of the TPM.
    ``source`` is the repository that the machine boots from, None if an admin's playbook or the bootstrapper makes a
    node of the machine.
    """

    name: str
    cluster_name: str
    cluster_id: bytes
    endpoints: tuple[tuple[str, int], ...]
    join_ca: bytes
    tcti: str
    logs: EventLogPaths
    source: SourceConfig | None = None


def load_node_config(path: str | Path = DEFAULT_PATH) -> NodeConfig:
    """Read the configuration at ``path``.

    Raises FILE_UNUSABLE or NODE_CONFIG_MALFORMED with every problem.
    """
    return parse_node_config(read_bytes(path, limit=_LIMIT), where=str(path))


def parse_node_config(data: bytes, *, where: str = DEFAULT_PATH) -> NodeConfig:
    """Return the configuration in ``data``; raises NODE_CONFIG_MALFORMED, which names every problem."""
    try:
        (body,) = load_documents(data.decode())
    except ValueError as error:  # also if there is no document, or more than one
        raise _malformed(where, ["expected one document of plain YAML, got something else"]) from error
    if problems := _problems(body):
        raise _malformed(where, problems)
    return NodeConfig(
        name=body["name"],
        cluster_name=body["cluster_name"],
        cluster_id=bytes.fromhex(body["cluster_id"]),
        endpoints=tuple(_endpoint(text) for text in body["endpoints"]),
        join_ca=body["join_ca"].encode("ascii"),
        tcti=body["tcti"],
        logs=EventLogPaths(**{name: Path(path) for name, path in body["logs"].items()}),
        source=parse_source(body["source"]) if "source" in body else None,
    )


def _problems(body: Any) -> list[str]:
    if not isinstance(body, dict):
        return ["expected a mapping"]
    return [
        *(f"unknown field {name}" for name in sorted(set(body) - {*_FIELDS, *_OPTIONAL}, key=str)),
        *(f"missing field {name}" for name in _FIELDS if name not in body),
        *(problem for name, check in _CHECKS.items() if name in body for problem in check(name, body[name])),
    ]


def _check_version(name: str, value: Any) -> list[str]:
    return [] if value == VERSION and value is not True else [f"{name}: expected {VERSION}, got {value!r}"]


def _check_name(name: str, value: Any) -> list[str]:
    good = isinstance(value, str) and _NAME.fullmatch(value) is not None
    return [] if good else [f"{name}: expected a lower-case DNS name, got {value!r}"]


def _check_id(name: str, value: Any) -> list[str]:
    return [] if _is_hash(value) else [f"{name}: expected 64 hexadecimal digits, got {value!r}"]


def _check_certificates(name: str, value: Any) -> list[str]:
    good = isinstance(value, str) and value.isascii() and 1 <= value.count(_CERTIFICATE) <= _MAX_PINS
    return [] if good else [f"{name}: expected one or two certificates in PEM, got {str(value)[:40]!r}"]


def _check_endpoints(name: str, value: Any) -> list[str]:
    if not isinstance(value, list) or not 1 <= len(value) <= _MAX_ENDPOINTS:
        return [f"{name}: expected 1 to {_MAX_ENDPOINTS} entries, got {value!r}"]
    return [f"{name}: expected host:port, got {text!r}" for text in value if not _is_endpoint(text)]


def _check_path(name: str, value: Any) -> list[str]:
    good = isinstance(value, str) and PurePosixPath(value).is_absolute() and "\0" not in value
    return [] if good else [f"{name}: expected an absolute path, got {value!r}"]


def _check_tcti(name: str, value: Any) -> list[str]:
    good = isinstance(value, str) and value.startswith(("device:", "swtpm:")) and value.isprintable()
    return [] if good else [f"{name}: expected device:PATH or swtpm:..., got {value!r}"]


def _check_logs(name: str, value: Any) -> list[str]:
    if not isinstance(value, dict) or set(value) - {"command_line"} != set(_LOGS):
        return [f"{name}: expected {' and '.join(_LOGS)}, got {value!r}"]
    return [problem for log in value for problem in _check_path(f"{name}.{log}", value[log])]


def _check_source(name: str, value: Any) -> list[str]:
    return [f"{name}.{problem}" for problem in source_problems(value)]


_CHECKS = {
    "cluster_id": _check_id,
    "cluster_name": _check_name,
    "endpoints": _check_endpoints,
    "join_ca": _check_certificates,
    "logs": _check_logs,
    "name": _check_name,
    "source": _check_source,
    "tcti": _check_tcti,
    "version": _check_version,
}


def _is_hash(value: Any) -> bool:
    try:
        return isinstance(value, str) and len(binascii.unhexlify(value)) == _HASH_BYTES
    except (binascii.Error, ValueError):
        return False


def _is_endpoint(value: Any) -> bool:
    match = _ENDPOINT.fullmatch(value) if isinstance(value, str) else None
    return match is not None and 0 < int(match["port"]) <= _MAX_PORT


def _endpoint(text: str) -> tuple[str, int]:
    host, _colon, port = text.rpartition(":")
    return host.strip("[]"), int(port)


def _malformed(where: str, problems: list[str]) -> SystemFault:
    return SystemFault(f"{where}: {'; '.join(problems)}", reason=Reason.NODE_CONFIG_MALFORMED)
