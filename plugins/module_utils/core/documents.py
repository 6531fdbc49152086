# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read YAML and JSON of other parties: plain data only, bounded before and during parsing, with one kind of error.

The libraries trust their input too much: with aliases a small text becomes large data, the last of two equal keys wins,
thirty thousand brackets take half a minute, a tag chooses a type, and dates of the year 0 or numbers of five thousand
digits raise unexpected errors. Here both formats give only text, numbers, true, false, null, lists and mappings; dates
stay text. `load_documents`, `load_document` and `load_json` read every text that is not a node's own state.
"""

from __future__ import annotations

import functools
import json
import math
import re
from typing import TYPE_CHECKING, Any

from .._deps.yaml import yaml

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

MAX_BYTES = 1 << 20
"""The default limit of a text; a profile with a thousand events has about 200 KiB."""
MAX_DEPTH = 32
"""The maximum nesting of lists and mappings; our deepest document has eight levels."""
MAX_NODES = 50_000
"""The maximum number of values in a YAML text; PyYAML needs a third of a second for so many objects."""
MAX_ANSWER_BYTES = 64 << 20
"""The limit of a complete list of the Kubernetes API."""
MAX_ANSWER_LEVELS = 128
"""The maximum nesting of an object of the Kubernetes API; the schema of a CRD alone has thirty levels."""
MAX_DOCUMENTS = 1000
"""The maximum number of documents in one YAML text."""

_MAX_NUMBER = 32
_BRACKETS = re.compile(r"[\[\]{}]")
_STRINGS = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_TAG = "tag:yaml.org,2002:"


def load_documents(text: str | bytes, *, limit: int = MAX_BYTES) -> list[Any]:
    """Return the YAML documents in ``text`` without empty ones; raises only `ValueError`.

    The text has at most ``limit`` bytes of UTF-8, `MAX_DEPTH` levels, `MAX_NODES` values and `MAX_DOCUMENTS`; libyaml
    parses it if it is installed.
    """
    plain = _decoded(text, limit)
    require_shallow(plain, levels=MAX_DEPTH)  # valid texts have few brackets, all closed
    try:
        events = yaml.parse(plain, Loader=getattr(yaml, "CBaseLoader", yaml.BaseLoader))
        return [document for document in _Reader(events).documents() if document is not None]
    except yaml.YAMLError as error:
        problem = _problem_of(error)
    raise ValueError(problem)  # outside of the handler: a cause would carry the text, which may contain a secret


def load_document(text: str | bytes, *, limit: int = MAX_BYTES) -> Any:
    """Return the only YAML document in ``text``, None if the text is empty; raises only `ValueError`."""
    found = load_documents(text, limit=limit)
    if len(found) > 1:
        raise ValueError(f"{len(found)} documents in one text")
    return found[0] if found else None


def load_json(text: str | bytes, *, limit: int = MAX_BYTES, levels: int = MAX_DEPTH) -> Any:
    """Return the JSON value of ``text``; raises only `ValueError`.

    The text has at most ``limit`` bytes of UTF-8 and ``levels`` of lists and objects. Duplicate members, numbers that
    are not finite or have too many digits, and lone surrogates are refused. The values take at most thirty times the
    text's memory.
    """
    plain = _decoded(text, limit)
    if plain.count("[") + plain.count("{") > levels:
        require_shallow(_STRINGS.sub("", plain), levels=levels)
    try:
        value = _decoder().decode(plain)
        if "\\u" in plain and _SURROGATE.search(plain):
            json.dumps(value, ensure_ascii=False).encode()  # raises for a lone surrogate
    except json.JSONDecodeError as error:
        problem = f"{error.msg}, line {error.lineno}, column {error.colno}"
    except UnicodeEncodeError:
        problem = "a lone surrogate in a text"
    else:
        return value
    raise ValueError(problem)  # as above


def unique_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object's members (``object_pairs_hook`` of `json.loads`); raises `ValueError` for duplicates."""
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a member twice in one object")
    return members


def require_shallow(text: str, *, levels: int) -> None:
    """Raise `ValueError` if more than ``levels`` brackets are open at once, in strings too, before parsing."""
    depth = 0
    for letter in _BRACKETS.findall(text):
        if letter in "[{":
            depth += 1
            if depth > levels:
                raise ValueError(f"more than {levels} brackets open at once")
        elif depth:
            depth -= 1


def _decoded(text: str | bytes, limit: int) -> str:
    try:
        data = text if isinstance(text, bytes) else text.encode()
        if len(data) <= limit:
            return data.decode()
        problem = f"a text of more than {limit} bytes"
    except UnicodeError:
        problem = "no text in UTF-8"
    raise ValueError(problem)


@functools.cache
def _decoder() -> json.JSONDecoder:
    return json.JSONDecoder(
        object_pairs_hook=unique_members, parse_int=_integer, parse_float=_fraction, parse_constant=_fraction
    )


def _integer(digits: str) -> int:
    if len(digits) > _MAX_NUMBER:
        raise ValueError("a number with too many digits")
    return int(digits)


def _fraction(digits: str) -> float:
    number = float(digits) if len(digits) <= _MAX_NUMBER else math.inf
    if not math.isfinite(number):
        raise ValueError("a number that is not finite, or has too many digits")
    return number


class _Reader:
    """Builds plain data from a parser's events one by one, so that nothing after an error is processed."""

    def __init__(self, events: Iterator[yaml.Event]) -> None:
        self._events = events
        self._nodes = 0
        self._words = yaml.resolver.Resolver()
        self._made = yaml.constructor.SafeConstructor()

    def documents(self) -> Iterator[Any]:
        """Yield each document; raises `yaml.YAMLError`."""
        begun = 0
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                begun += 1
                if begun > MAX_DOCUMENTS:
                    raise _refused(f"more than {MAX_DOCUMENTS} documents", event)
                yield self._value(self._next(), depth=0)

    def _value(self, event: yaml.Event, *, depth: int) -> Any:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise _refused(f"more than {MAX_NODES} values", event)
        if isinstance(event, yaml.AliasEvent):
            raise _refused("an alias, which is not allowed here", event)
        if getattr(event, "tag", None) is not None:
            raise _refused("a tag, which is not allowed here", event)
        if depth > MAX_DEPTH:
            raise _refused(f"more than {MAX_DEPTH} levels", event)
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event)
        if isinstance(event, yaml.SequenceStartEvent):
            return [self._value(one, depth=depth + 1) for one in self._until(yaml.SequenceEndEvent)]
        return self._mapping(event, depth=depth)

    def _mapping(self, begin: yaml.Event, *, depth: int) -> dict[Hashable, Any]:
        members: dict[Hashable, Any] = {}
        for event in self._until(yaml.MappingEndEvent):
            if not isinstance(event, (yaml.ScalarEvent, yaml.AliasEvent)):
                raise _refused("a list or a mapping as a key", event)
            key = self._value(event, depth=depth + 1)
            if key in members:
                raise _refused("a key twice in one mapping", begin)
            members[key] = self._value(self._next(), depth=depth + 1)
        return members

    def _until(self, end: type[yaml.Event]) -> Iterator[yaml.Event]:
        while not isinstance(event := self._next(), end):
            yield event

    def _next(self) -> yaml.Event:
        return next(self._events)

    def _scalar(self, event: yaml.ScalarEvent) -> Any:
        if not event.implicit[0]:
            return event.value
        tag = self._words.resolve(yaml.ScalarNode, event.value, event.implicit)  # type: ignore[no-untyped-call]
        kind = tag.removeprefix(_TAG)
        if kind == "merge":
            raise _refused("a merge, which is not allowed here", event)
        if kind in {"int", "float"} and len(event.value) > _MAX_NUMBER:
            raise _refused("a number with too many digits", event)
        if kind not in {"null", "bool", "int", "float"}:  # dates stay text
            return event.value
        node = yaml.ScalarNode(tag, event.value)
        try:
            value = getattr(self._made, f"construct_yaml_{kind}")(node)
        except ValueError:  # 0x, 0b and similar texts, which the resolver takes for numbers
            raise _refused("an invalid number", event) from None
        if isinstance(value, float) and not math.isfinite(value):
            raise _refused("a number that is not finite", event)
        return value


def _problem_of(error: yaml.YAMLError) -> str:
    """Return the problem and its position, without the line of the text that PyYAML shows."""
    mark = getattr(error, "problem_mark", None)
    problem = str(getattr(error, "problem", None) or "no YAML")
    return problem if mark is None else f"{problem}, line {mark.line + 1}, column {mark.column + 1}"


def _refused(problem: str, event: yaml.Event) -> yaml.MarkedYAMLError:
    mark: Any = event.start_mark
    return yaml.MarkedYAMLError(problem=problem, problem_mark=mark)
