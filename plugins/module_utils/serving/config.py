# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Configuration of a service: a YAML file into a frozen dataclass, every mistake named at once."""

from __future__ import annotations

import dataclasses
import types
import typing
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

from ..errors import SiteError
from ..reasons import Reason
from ..system import load_document, read_bytes

_MAX_CONFIG_BYTES = 1 << 16

Config = TypeVar("Config")


def load_config(kind: type[Config], path: str | Path) -> Config:
    """Return ``path`` as an instance of the dataclass ``kind``; raises `SiteError` CONFIG_INVALID, FILE_UNUSABLE.

    Fields may be str, int, float, bool, Path, an enumeration of strings, ``tuple[str, ...]``, or one of these ``|
    None``; a field without default is required, an unknown entry is a mistake.
    """
    entries = _mapping(path)
    fields = {field.name: field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    hints = typing.get_type_hints(kind)
    problems = [f"unknown entry {name!r}" for name in entries if name not in fields]
    values: dict[str, Any] = {}
    for name, field in fields.items():
        if name not in entries:
            problems += [f"missing entry {name!r}"] if _is_required(field) else []
            continue
        try:
            values[name] = _converted(entries[name], hints[name])
        except TypeError as error:
            problems.append(f"{name!r}: {error}")
    if problems:
        raise SiteError(f"expected a correct {path}, got {'; '.join(problems)}", reason=Reason.CONFIG_INVALID)
    return kind(**values)


def _mapping(path: str | Path) -> dict[str, Any]:
    try:
        entries = load_document(read_bytes(path, limit=_MAX_CONFIG_BYTES))
    except ValueError as error:
        raise SiteError(f"expected YAML in {path}, got: {error}", reason=Reason.CONFIG_INVALID) from error
    if not isinstance(entries, dict) or not all(isinstance(name, str) for name in entries):
        raise SiteError(f"expected a mapping in {path}, got {type(entries).__name__}", reason=Reason.CONFIG_INVALID)
    return entries


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _converted(value: object, hint: Any) -> Any:
    if isinstance(hint, types.UnionType):
        some = next(kind for kind in hint.__args__ if kind is not types.NoneType)
        return None if value is None and types.NoneType in hint.__args__ else _converted(value, some)
    if typing.get_origin(hint) is tuple:
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise TypeError(f"expected a list of strings, got {_shown(value)}")
        return tuple(value)
    if hint is Path:
        return Path(_exactly(value, str))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _chosen(value, hint)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return _exactly(value, hint)


def _chosen(value: object, kind: type[Enum]) -> Enum:
    try:
        return kind(value)
    except ValueError:
        words = ", ".join(str(one.value) for one in kind)
        raise TypeError(f"expected one of {words}, got {_shown(value)}") from None


def _exactly(value: object, kind: type[Any]) -> Any:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise TypeError(f"expected {kind.__name__}, got {_shown(value)}")
    return value


def _shown(value: object) -> str:
    return f"{type(value).__name__} {value!r:.60}"
