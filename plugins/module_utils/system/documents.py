# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""YAML and JSON that others wrote: plain data only, bounded before it is read, with one kind of error.

PyYAML trusts its input more than we do: an alias lets a small text unfold into a large one, the last of two equal keys
wins, thirty thousand brackets cost it half a minute, a tag chooses a type, and a long number cannot be printed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._deps.yaml import yaml

if TYPE_CHECKING:
    from collections.abc import Hashable

MAX_DEPTH = 32
"""How deep lists and mappings may stand in one another; our deepest document has eight."""

_MAX_NUMBER = 32
_INTEGER = "tag:yaml.org,2002:int"


class _PlainLoader(yaml.SafeLoader):
    """Refuses what is no plain data, and what is nested too deeply."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.events.AliasEvent):
            raise _refused("an alias, which is not allowed here", event.start_mark)
        if event.tag is not None:
            raise _refused("a tag, which is not allowed here", event.start_mark)
        if self.depth > MAX_DEPTH:
            raise _refused(f"more than {MAX_DEPTH} levels", event.start_mark)
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        if isinstance(node, yaml.ScalarNode) and node.tag == _INTEGER and len(node.value) > _MAX_NUMBER:
            raise _refused("a number with too many digits", node.start_mark)
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT002
        members: dict[Hashable, Any] = super().construct_mapping(node, deep=deep)
        if len(members) != len(node.value):
            raise _refused("a key twice in one mapping", node.start_mark)
        return members


def load_documents(text: str) -> list[Any]:
    """Return the documents in ``text``, empty ones left out; raises `ValueError` and nothing else.

    The caller owes the bound of its length.
    """
    require_shallow(text, levels=MAX_DEPTH)  # texts of ours hold few, and all closed
    try:
        return [document for document in yaml.load_all(text, Loader=_PlainLoader) if document is not None]
    except (yaml.YAMLError, RecursionError, OverflowError) as error:
        raise ValueError(" ".join(str(error).split())) from error


def unique_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the members of a JSON object, as ``object_pairs_hook`` of `json.loads`; raises `ValueError` for a twin."""
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a member stands twice in one object")
    return members


def require_shallow(text: str, *, levels: int) -> None:
    """Count brackets before anything else does, wherever they stand; raises `ValueError` for more open ones."""
    depth = 0
    for letter in text:
        if letter in "[{":
            depth += 1
            if depth > levels:
                raise ValueError(f"more than {levels} brackets open at once")
        elif letter in "]}" and depth:
            depth -= 1


def _refused(problem: str, mark: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=mark)
