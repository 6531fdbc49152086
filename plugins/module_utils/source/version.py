# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The version of a site, the collection that it is for, and the check that no version is older than before. Pure."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ..core.documents import load_documents, load_json
from ..errors import Refusal, SystemFault
from ..reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .staging import SiteFile

PIN_FILE = "attested-node.yml"
"""A file in the root of the site's repository, which the commit's signature covers."""

_PIN_BYTES = 4096
_MAX_VERSION = 1 << 53
_SHA256 = re.compile(r"[0-9a-f]{64}")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_RELEASE = re.compile(r"[0-9A-Za-z.+-]{1,64}")
_MARK = "attested.source"
_FORM = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """The site's ``version``, and the release and ``bundle`` (hash of the bundle's manifest) that it is for."""

    version: int
    collection: str
    bundle: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """What `prepare` has installed: the release of the collection, and the hash of the bundle's manifest."""

    collection: str
    bundle: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """The latest version that this machine has accepted."""

    version: int
    commit: str

    def to_bytes(self) -> bytes:
        """Return the content of the file."""
        return json.dumps({"form": _FORM, **asdict(self)}, sort_keys=True).encode() + b"\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What is extended into the node lock's register before the lock; machine and verifier use the same form.

    ``node_config`` is the SHA-256 of node.yml, ``signer`` the fingerprint of the key that signed ``commit``.
    """

    commit: str
    version: int
    signer: str
    collection: str
    bundle: str
    node_config: str

    def to_text(self) -> str:
        """Return the text that is hashed; its beginning differs from all other events of that register."""
        return json.dumps({_MARK: _FORM, **asdict(self)}, separators=(",", ":"))


def parse_pin(files: Sequence[SiteFile]) -> Pin:
    """Return the content of the site's `PIN_FILE`; raises SOURCE_PIN_MALFORMED with every problem."""
    content = next((file.content for file in files if file.path == PIN_FILE), None)
    if content is None or len(content) > _PIN_BYTES:
        raise _pin_malformed([f"expected the file {PIN_FILE} of at most {_PIN_BYTES} bytes"])
    try:
        (body,) = load_documents(content.decode())
    except ValueError as error:
        raise _pin_malformed(["expected one document of plain YAML"]) from error
    checks = {"version": _is_version, "collection": _is_release, "bundle": _is_hash}
    if not isinstance(body, dict) or set(body) != set(checks):
        raise _pin_malformed([f"expected {', '.join(checks)} and nothing else"])
    if wrong := [f"{name}: {body[name]!r:.60}" for name, check in checks.items() if not check(body[name])]:
        raise _pin_malformed(wrong)
    return Pin(**body)


def parse_kept(content: bytes) -> Kept:
    """Return the version in the file ``content``; raises SOURCE_STATE_MALFORMED."""
    try:
        body = load_json(content)
        kept = Kept(version=body["version"], commit=body["commit"])
        good = body["form"] == _FORM and _is_version(kept.version) and _COMMIT.fullmatch(kept.commit) is not None
    except (ValueError, KeyError, TypeError) as error:
        raise _state_malformed() from error
    if not good:
        raise _state_malformed()
    return kept


def parse_measured(text: str) -> Measured:
    """Return what was measured; raises SOURCE_STATE_MALFORMED if `Measured.to_text` does not give this text."""
    try:
        body = load_json(text)
        measured = Measured(**{name: value for name, value in body.items() if name != _MARK})
    except (ValueError, AttributeError, TypeError) as error:
        raise _state_malformed() from error
    texts = (measured.commit, measured.signer, measured.collection, measured.bundle, measured.node_config)
    if not _is_version(measured.version) or not all(isinstance(one, str) for one in texts):
        raise _state_malformed()
    if measured.to_text() != text:
        raise _state_malformed()
    return measured


def require_later(pin: Pin, *, commit: str, minimum: int, kept: Kept | None, descends: bool) -> None:
    """Raise SOURCE_ROLLED_BACK if the site is too old, SOURCE_HISTORY_REWRITTEN if it does not follow the last one.

    ``descends``: whether ``commit`` is the kept commit or has it in its history.
    """
    least = max(minimum, kept.version if kept else 0)
    if pin.version < least:
        raise Refusal(f"expected version {least} or later, got {pin.version}", reason=Reason.SOURCE_ROLLED_BACK)
    if kept and not descends:
        raise Refusal(
            f"expected a commit after {kept.commit}, got {commit}, which does not have it in its history",
            reason=Reason.SOURCE_HISTORY_REWRITTEN,
        )


def require_installed(pin: Pin, installed: Installed) -> None:
    """Raise SOURCE_COLLECTION_DIFFERS unless the machine has the collection and bundle that the site is for."""
    if (pin.collection, pin.bundle) != (installed.collection, installed.bundle):
        raise Refusal(
            f"expected collection {pin.collection} from bundle {pin.bundle[:16]}…, "
            f"installed is {installed.collection} from {installed.bundle[:16]}…",
            reason=Reason.SOURCE_COLLECTION_DIFFERS,
        )


def _is_version(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < _MAX_VERSION


def _is_release(value: Any) -> bool:
    return isinstance(value, str) and _RELEASE.fullmatch(value) is not None


def _is_hash(value: Any) -> bool:
    return isinstance(value, str) and _SHA256.fullmatch(value) is not None


def _pin_malformed(problems: list[str]) -> Refusal:
    return Refusal(f"{PIN_FILE} of the site: {'; '.join(problems)}", reason=Reason.SOURCE_PIN_MALFORMED)


def _state_malformed() -> SystemFault:
    return SystemFault("expected the stored state of the source, got other text", reason=Reason.SOURCE_STATE_MALFORMED)
