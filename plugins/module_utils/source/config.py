# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The section `source` of `/etc/attested/node.yml`: the repository from which this machine boots. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from .signature import Signer, parse_signer

TRANSPORTS = ("file", "git", "http", "https")
"""The allowed values of ``transports``. None of them is trusted; the default is https only."""

_BRANCH = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*")
_FIELDS = ("branch", "minimum", "signers", "transports", "url")
_MAX_SIGNERS = 16
_MAX_VERSION = 1 << 53
_MAX_URL = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceConfig:
    """The URL of the site's repository, its signers, and the lowest version that this machine accepts."""

    url: str
    signers: tuple[Signer, ...]
    branch: str = "main"
    minimum: int = 1
    transports: tuple[str, ...] = ("https",)


def parse_source(body: dict[str, Any]) -> SourceConfig:
    """Return the configuration in ``body``; the caller must have checked `source_problems`."""
    return SourceConfig(
        url=body["url"],
        signers=tuple(parse_signer(line) for line in body["signers"]),
        branch=body.get("branch", "main"),
        minimum=body.get("minimum", 1),
        transports=tuple(body.get("transports", ["https"])),
    )


def source_problems(body: Any) -> list[str]:
    """Return all problems of the section, empty if it is valid."""
    if not isinstance(body, dict):
        return [f"expected a mapping, got {body!r:.60}"]
    transports = body.get("transports", ["https"])
    return [
        *(f"unknown field {name}" for name in sorted(set(body) - set(_FIELDS), key=str)),
        *(f"missing field {name}" for name in ("signers", "url") if name not in body),
        *_transports(transports),
        *(_url(body["url"], transports) if "url" in body else []),
        *(_signers(body["signers"]) if "signers" in body else []),
        *_branch(body.get("branch", "main")),
        *_minimum(body.get("minimum", 1)),
    ]


def _transports(value: Any) -> list[str]:
    if not isinstance(value, list) or not value:
        return [f"transports: expected a list, got {value!r:.60}"]
    return [
        f"transports: expected one of {', '.join(TRANSPORTS)}, got {one!r}" for one in value if one not in TRANSPORTS
    ]


def _url(value: Any, transports: Any) -> list[str]:
    if not isinstance(value, str) or not value.isprintable() or " " in value or len(value) > _MAX_URL:
        return [f"url: expected a URL, got {value!r:.60}"]
    try:
        parts = urlsplit(value)
    except ValueError:
        return [f"url: expected a URL, got {value!r:.60}"]
    if "::" in value.partition("//")[0] or parts.scheme not in TRANSPORTS or not value.startswith(f"{parts.scheme}://"):
        return [f"url: expected a URL of {', '.join(TRANSPORTS)}, got {value!r:.60}"]
    if "@" in parts.netloc:
        return ["url: expected no user in it, since this file has no secrets"]
    if isinstance(transports, list) and transports and parts.scheme not in transports:
        return [f"url: {parts.scheme} is not among the transports"]
    return []


def _signers(value: Any) -> list[str]:
    if not isinstance(value, list) or not 1 <= len(value) <= _MAX_SIGNERS:
        return [f"signers: expected 1 to {_MAX_SIGNERS} public keys, got {value!r:.60}"]
    problems = []
    for line in value:
        try:
            parse_signer(line)
        except ValueError as error:
            problems.append(f"signers: {error}")
    return problems


def _branch(value: Any) -> list[str]:
    good = isinstance(value, str) and _BRANCH.fullmatch(value) and ".." not in value and ".lock" not in value
    return [] if good else [f"branch: expected the name of a branch, got {value!r:.60}"]


def _minimum(value: Any) -> list[str]:
    good = isinstance(value, int) and not isinstance(value, bool) and 0 < value < _MAX_VERSION
    return [] if good else [f"minimum: expected a version from 1 on, got {value!r:.60}"]
