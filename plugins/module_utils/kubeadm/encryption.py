# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Encryption at rest: the file with the key that encrypts Secrets before they reach etcd (ADR 0023).

The file is made once, on the first control plane, and is the same on all control planes. With the file, every Secret in
a copy of etcd can be read. Without it, no Secret can be read.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from ..core.documents import load_documents
from ..core.files import make_directory, read_bytes, write_atomic
from ..errors import KubeadmError
from ..reasons import Reason
from .render import ENCRYPTION_ARGUMENT, documents, encryption_path

if TYPE_CHECKING:
    from ..core.host import Random
    from .spec import KubernetesPaths

API_VERSION = "apiserver.config.k8s.io/v1"
KIND = "EncryptionConfiguration"
RESOURCES = ("secrets",)
KEY_BYTES = 32
FIRST_KEY = "key-1"

_LIMIT = 1 << 16
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


class EncryptionAction(Enum):
    """What to do with the encryption file."""

    KEEP = "keep"
    MAKE = "make"


@dataclass(frozen=True, slots=True, kw_only=True)
class EncryptionState:
    """The state of the machine: whether the file exists, and whether etcd has data.

    ``configured`` is whether the API server names the file. It is None if there is no API server.
    """

    file: bool
    data: bool
    configured: bool | None

    @property
    def is_in_clear(self) -> bool:
        """Whether the API server writes Secrets in clear: the cluster was made before Secrets were encrypted."""
        return self.configured is False


def observe_encryption(paths: KubernetesPaths) -> EncryptionState:
    """Return the state of the machine; raises ENCRYPTION_MALFORMED if the file exists and is unusable."""
    place = encryption_path(paths)
    found = place.exists()
    if found:
        require_encryption(read_bytes(place, limit=_LIMIT))
    manifest = paths.kubernetes / "manifests/kube-apiserver.yaml"
    configured = ENCRYPTION_ARGUMENT.encode() in read_bytes(manifest, limit=_LIMIT) if manifest.exists() else None
    has_data = (paths.root / "var/lib/etcd/member").exists()
    return EncryptionState(file=found, data=has_data, configured=configured)


def plan_encryption(state: EncryptionState) -> EncryptionAction:
    """Return whether to make a key; raises ENCRYPTION_KEY_LOST. Pure.

    With a new key instead of a lost key, the API server would start, but could not read a single Secret. If etcd has
    data and there is no API server, it is unknown whether Secrets are encrypted, so no key is made either.
    """
    if state.file:
        return EncryptionAction.KEEP
    if state.data and not state.is_in_clear:
        raise KubeadmError(
            "expected the file with the key that encrypts the Secrets in etcd, found none",
            reason=Reason.ENCRYPTION_KEY_LOST,
        )
    return EncryptionAction.MAKE


def make_encryption(paths: KubernetesPaths, *, random: Random) -> bool:
    """Make the file with a new key if there is none; return whether it was made.

    Raises the errors of `observe_encryption` and `plan_encryption`.
    """
    if plan_encryption(observe_encryption(paths)) is EncryptionAction.KEEP:
        return False
    target = encryption_path(paths)
    make_directory(target.parent, mode=0o755)
    return write_atomic(target, render_encryption(random.token(KEY_BYTES)))


def render_encryption(key: bytes) -> bytes:
    """Return the configuration that encrypts with ``key`` (32 bytes) and still reads unencrypted Secrets."""
    return documents(
        {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "resources": [
                {
                    "resources": list(RESOURCES),
                    "providers": [
                        {"secretbox": {"keys": [{"name": FIRST_KEY, "secret": base64.b64encode(key).decode()}]}},
                        {"identity": {}},
                    ],
                }
            ],
        }
    )


def require_encryption(content: bytes) -> None:
    """Raise ENCRYPTION_MALFORMED unless ``content`` encrypts Secrets with secretbox.

    Messages never quote ``content``. Required are one document of the kind, secrets among its resources, and secretbox
    as the first provider of secrets, with named keys of 32 bytes. An admin may add further resources and providers.
    """
    try:
        (document,) = load_documents(content.decode("utf-8"))
        _require_kind(document)
        _require_keys(_writer(document)["secretbox"]["keys"])
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        # The message of the parser may quote a line of the file, hence "from None".
        raise KubeadmError(
            f"expected an {KIND} with secretbox and keys of {KEY_BYTES} bytes for secrets, found something else",
            reason=Reason.ENCRYPTION_MALFORMED,
        ) from None


def _require_kind(document: Any) -> None:
    if (document["apiVersion"], document["kind"]) != (API_VERSION, KIND):
        raise ValueError(KIND)


def _writer(document: Any) -> Any:
    """Return the provider that encrypts Secrets: the first provider of the first entry that names secrets."""
    entries = [entry for entry in document["resources"] if "secrets" in entry["resources"]]
    return entries[0]["providers"][0]


def _require_keys(keys: Any) -> None:
    if not keys or len({key["name"] for key in keys}) != len(keys):
        raise ValueError("keys")
    for key in keys:
        if not _NAME.fullmatch(key["name"]) or len(_decoded(key["secret"])) != KEY_BYTES:
            raise ValueError("key")


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError("base64") from error
