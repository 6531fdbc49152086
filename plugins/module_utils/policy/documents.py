# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""YAML text to manifests and back; bounded, without aliases, duplicate keys or anything but plain data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._deps.yaml import yaml
from ..errors import PolicyError
from ..reasons import Reason
from ..system import load_documents
from .fields import listed
from .manifest import Manifests, parse_objects

if TYPE_CHECKING:
    from collections.abc import Iterable

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
