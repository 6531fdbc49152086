# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""YAML text to manifests and back; bounded, without aliases, duplicate keys or anything but plain data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._deps.yaml import yaml
from ..errors import PolicyError
from ..reasons import Reason
from .manifest import Manifests, parse_objects

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

MAX_TEXT_BYTES = 1 << 20
"""A profile with a thousand reference events has about 200 KiB."""


class _StrictLoader(yaml.SafeLoader):
    """Plain data only: no alias (a small text could unfold to a large one) and no key twice (the last would win)."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.events.AliasEvent):
            raise yaml.MarkedYAMLError(
                problem="an alias, which is not allowed here",
                problem_mark=self.peek_event().start_mark,  # type: ignore[no-untyped-call]
            )
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT002
        members: dict[Hashable, Any] = super().construct_mapping(node, deep=deep)
        if len(members) != len(node.value):
            raise yaml.MarkedYAMLError(problem="a key twice in one mapping", problem_mark=node.start_mark)
        return members


def parse_documents(texts: Iterable[tuple[str, str]]) -> Manifests:
    """Return the manifests in ``texts``: pairs of a file name for messages and its YAML; empty documents are skipped.

    Raises `PolicyError` MANIFEST_INVALID with every problem of every document.
    """
    objects: list[tuple[str, object]] = []
    unreadable: list[str] = []
    for name, text in texts:
        try:
            objects += _documents(name, text)
        except (yaml.YAMLError, RecursionError, ValueError) as error:
            unreadable.append(f"{name}: {' '.join(str(error).split())}")
    if unreadable:
        raise PolicyError(f"expected YAML, got {'; '.join(unreadable)}", reason=Reason.MANIFEST_INVALID)
    return parse_objects(objects)


def _documents(name: str, text: str) -> list[tuple[str, object]]:
    if len(text.encode()) > MAX_TEXT_BYTES:
        raise ValueError(f"a text of more than {MAX_TEXT_BYTES} bytes")
    loaded = [document for document in yaml.load_all(text, Loader=_StrictLoader) if document is not None]
    if len(loaded) == 1:
        return [(name, loaded[0])]
    return [(f"{name}[{number}]", document) for number, document in enumerate(loaded)]


def render_document(manifest: dict[str, Any]) -> str:
    """Return a manifest as one YAML document, keys in their order."""
    return str(yaml.safe_dump(manifest, explicit_start=True, sort_keys=False, width=120, allow_unicode=True))
