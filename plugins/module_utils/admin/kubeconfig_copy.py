# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A kubeconfig in clear, as kubectl reads it: a file of its own, or merged into a file with other clusters.

No other entry is lost: a file is changed only if it is a valid kubeconfig, and only the entries with the name of this
admin and cluster are changed.
"""

from __future__ import annotations

import stat
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..core.documents import load_document
from ..core.files import make_directory, read_bytes, write_atomic
from ..errors import SiteError
from ..reasons import Reason
from .admin_access import dump

if TYPE_CHECKING:
    from pathlib import Path

    from .layout import Site

_MODE = 0o600
_LISTS = ("clusters", "users", "contexts")
_HINT = "Repair or move the file, or name another one: kubeconfig=FILE, or the variable KUBECONFIG of the shell."


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """A file and its wanted content."""

    path: Path
    text: bytes = field(repr=False)

    @property
    def is_current(self) -> bool:
        """Whether the file already has that content and mode 0600."""
        if not self.path.is_file() or stat.S_IMODE(self.path.stat().st_mode) != _MODE:
            return False
        return read_bytes(self.path) == self.text

    def write(self) -> None:
        """Write the file by rename, with mode 0600 from the first byte on; raises FILE_UNUSABLE."""
        make_directory(self.path.parent)
        write_atomic(self.path, self.text, mode=_MODE)


def own_file(path: Path, body: dict[str, Any], *, site: Site) -> Copy:
    """Return a file with only the kubeconfig ``body``; raises OPTION_INVALID.

    The file must be outside of the site, which is a repository. It must be absent, or an earlier kubeconfig of this
    user and cluster.
    """
    path = path.resolve()
    if path.is_relative_to(site.root):
        raise _invalid(f"expected kubeconfig as a file outside of the site, which is a repository, got {path}")
    if path.exists():
        found = _parsed(path)
        for plural in _LISTS:
            if _names(found[plural]) != _names(body[plural]):
                raise _invalid(
                    f"expected no file at {path}, or a kubeconfig of {body['users'][0]['name']} for "
                    f"{body['current-context']} alone, got another one, which was left unchanged; merge=true keeps its "
                    "entries"
                )
    return Copy(path=path, text=dump(body))


def merged(path: Path, body: dict[str, Any]) -> Copy:
    """Return a file with its entries and the kubeconfig ``body`` as the context USER@CLUSTER; raises OPTION_INVALID.

    The current context stays, and so do other fields of the entries of that name. If anything changes, comments are
    lost.
    """
    path = path.resolve()
    held = _parsed(path)
    whole = deepcopy(held)
    name = f"{body['users'][0]['name']}@{body['current-context']}"
    cluster = _entry(whole, "clusters", name, "cluster")
    wanted = body["clusters"][0]["cluster"]
    own = ("server", "certificate-authority-data")
    if cluster and not any(cluster.get(key) == wanted[key] for key in own):
        raise _invalid(
            f"expected the cluster {name} in {path} to have the server {wanted['server']} or its CA, got "
            f"{cluster.get('server')!r}: it is another cluster and was left unchanged; rename or remove it"
        )
    cluster |= wanted
    user = _entry(whole, "users", name, "user")
    user.clear()
    user |= body["users"][0]["user"]
    _entry(whole, "contexts", name, "context").update(cluster=name, user=name)
    whole["current-context"] = whole.get("current-context") or name
    return Copy(path=path, text=read_bytes(path) if whole == held else dump(whole))


def _parsed(path: Path) -> dict[str, Any]:
    """Return the kubeconfig of a file, a new one if the file does not exist; its three lists are checked."""
    try:
        body = load_document(read_bytes(path)) if path.exists() else None
    except ValueError as error:
        raise _invalid(f"expected a kubeconfig at {path}, got no supported YAML ({error})") from error
    if body is None:
        body = {"apiVersion": "v1", "kind": "Config"}
    if not isinstance(body, dict) or body.get("kind", "Config") != "Config":
        raise _invalid(f"expected a kubeconfig, of the kind Config, at {path}, got something else")
    for plural in _LISTS:
        entries = body[plural] = body.get(plural) or []
        known = isinstance(entries, list) and all(_is_entry(one, plural.removesuffix("s")) for one in entries)
        if not known:
            raise _invalid(f"expected {plural} in {path} as a list of entries with a name, got something else")
    return body


def _is_entry(one: Any, singular: str) -> bool:
    return isinstance(one, dict) and isinstance(one.get("name"), str) and isinstance(one.get(singular) or {}, dict)


def _names(entries: list[dict[str, Any]]) -> list[str]:
    return [one["name"] for one in entries]


def _entry(body: dict[str, Any], plural: str, name: str, singular: str) -> dict[str, Any]:
    """Return the value of the entry ``name``, which is added if it is missing."""
    found = next((one for one in body[plural] if one["name"] == name), None)
    if found is None:
        found = {"name": name}
        body[plural].append(found)
    found[singular] = found.get(singular) or {}
    value: dict[str, Any] = found[singular]
    return value


def _invalid(message: str) -> SiteError:
    return SiteError(message, reason=Reason.OPTION_INVALID, hint=_HINT)
