# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The content of a recovery kit as one strict JSON document, before encryption.

The values that are derived from the first master secret (measurement secret, seed of the emergency SSH CA, cluster id)
are stored as well, because they stay the same when the master secret is rotated.
"""

from __future__ import annotations

import binascii
import json
import re
from base64 import b64decode, b64encode
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from .._deps.crypto import ed25519, exceptions, serialization
from ..core.documents import load_json
from ..errors import KeyServiceError, SiteError
from ..keyservice.ca import JoinCa, load_signing_key
from ..keyservice.derive import cluster_id
from ..keyservice.master import MasterSecret, MeasurementSecret, SecretBytes
from ..keyservice.ring import Carried, MasterRing, MasterVersion
from ..reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Callable

FORMAT = "attested-kit/v1"
ROTATED_FORMAT = "attested-kit/v2"
"""The format for a cluster whose master secret was rotated: it has the versions."""
MAX_CONTENT_BYTES = 8 << 20

_MAX_FILES = 5000
_MAX_GENERATION = 1 << 53
_FAMILY = "attested-kit/v"
_PARTS = {
    "master_key": 32,
    "master_salt": 32,
    "measurement_secret": 32,
    "emergency_ssh_seed": 32,
    "join_ca_key": 0,
    "policy_key": 0,
}  # bytes of each, 0: any
_VERSION_PARTS = 64
_ROTATED_TOP = {"master_version", "other_versions"}
_TOP = {"format", "written", "cluster_id", "measurement_salt", "join_ca", "policy_generation", "secrets", "files"}
_NAME = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,200}"
_FILE = re.compile(
    rf"cluster\.yml|hosts\.yml|group_vars/nodes/cluster\.yml|host_vars/{_NAME}/identity\.yml|policy/{_NAME}\.yml"
)
_NUMBER = re.compile(r"[1-9][0-9]{0,5}")
_TIME = re.compile(r"[0-9]{4}(-[0-9]{2}){2}T[0-9]{2}(:[0-9]{2}){2}Z")
_PUBLIC_FILE = "cluster.yml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kit:
    """All that restores a cluster's site; ``files`` are its public files, paths relative to the site and texts.

    ``written`` is a time in UTC (RFC 3339, seconds), ``join_ca`` the certificate (PEM), the keys are PKCS 8 in PEM.
    ``master`` is the master secret in force with its ``version``; ``others`` are further versions during a rotation.
    """

    written: str
    cluster_id: bytes
    measurement_salt: bytes
    join_ca: bytes
    policy_generation: int
    master: MasterSecret = field(repr=False)
    measurement_secret: MeasurementSecret = field(repr=False)
    emergency_ssh_seed: SecretBytes = field(repr=False)
    join_ca_key: SecretBytes = field(repr=False)
    policy_key: SecretBytes = field(repr=False)
    files: tuple[tuple[str, bytes], ...] = ()
    version: int = 1
    others: tuple[MasterVersion, ...] = field(default=(), repr=False)

    @property
    def ring(self) -> MasterRing:
        """All versions of the master secret, and the values that a rotation keeps."""
        return MasterRing(
            versions=(MasterVersion(number=self.version, secret=self.master), *self.others),
            carried=Carried(measurement_secret=self.measurement_secret, emergency_ssh_seed=self.emergency_ssh_seed),
        )

    def require_whole(self) -> None:
        """Raise unless the parts are of one cluster; checked when a kit is written and when it is read.

        0. The versions of the master secret are possible in a rotation (SITE_SECRET_MALFORMED).
        1. The measurement secret derives the cluster id (CLUSTER_ID_MISMATCH). 2. The join CA's key is that of its
        certificate (SITE_SECRET_MALFORMED). 3. The policy key is an Ed25519 key (POLICY_KEY_UNUSABLE). 4. Each file is
        allowed in a kit, and cluster.yml is one of them (KIT_MALFORMED).
        """
        _ring = self.ring  # 0
        derived = cluster_id(self.measurement_secret, self.measurement_salt)
        if derived != self.cluster_id:  # 1
            raise KeyServiceError(
                f"expected the cluster id {self.cluster_id.hex()}, the secrets derive {derived.hex()}",
                reason=Reason.CLUSTER_ID_MISMATCH,
            )
        load_signing_key(JoinCa(certificate=self.join_ca, private_key=self.join_ca_key.reveal()))  # 2
        self.policy_public_key()  # 3
        names = [name for name, _text in self.files]
        if len(set(names)) != len(names) or _PUBLIC_FILE not in names or not all(map(_FILE.fullmatch, names)):  # 4
            raise malformed("the files of a site, each once, cluster.yml among them")

    def policy_public_key(self) -> bytes:
        """Return the public key of the policy key (PEM); raises POLICY_KEY_UNUSABLE."""
        try:
            key = serialization.load_pem_private_key(self.policy_key.reveal(), password=None)
        except (ValueError, TypeError, exceptions.UnsupportedAlgorithm):
            key = None
        if not isinstance(key, ed25519.Ed25519PrivateKey):
            raise SiteError("expected an Ed25519 key of the policy in the kit", reason=Reason.POLICY_KEY_UNUSABLE)
        return key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )

    def undated(self) -> Kit:
        """Return the kit with a fixed time of writing, to compare two kits."""
        return replace(self, written="1970-01-01T00:00:00Z")

    def to_bytes(self) -> bytes:
        """Return the document; equal kits give equal bytes."""
        secrets = {
            "master_key": self.master.key,
            "master_salt": self.master.salt,
            "measurement_secret": self.measurement_secret,
            "emergency_ssh_seed": self.emergency_ssh_seed,
            "join_ca_key": self.join_ca_key,
            "policy_key": self.policy_key,
        }
        body = {
            "format": FORMAT if self.ring.is_first else ROTATED_FORMAT,
            "written": self.written,
            "cluster_id": self.cluster_id.hex(),
            "measurement_salt": self.measurement_salt.hex(),
            "join_ca": self.join_ca.decode("ascii"),
            "policy_generation": self.policy_generation,
            "secrets": {name: b64encode(value.reveal()).decode("ascii") for name, value in secrets.items()},
            "files": {name: text.decode("utf-8") for name, text in self.files},
        }
        if not self.ring.is_first:
            body |= {"master_version": self.version, "other_versions": dict(map(_packed, self.others))}
        return json.dumps(body, indent=1, ensure_ascii=False).encode("utf-8") + b"\n"

    @classmethod
    def from_bytes(cls, data: bytes) -> Kit:
        """Return the kit of a document.

        1. It is one JSON object within the limits (KIT_MALFORMED). 2. It is of a known version (FILE_VERSION_UNKNOWN).
        3. It has the expected fields and no others (KIT_MALFORMED). 4. Its parts belong together (`require_whole`).
        """
        body = _document(data)  # 1
        rotated = body.get("format") == ROTATED_FORMAT
        if body.get("format") != FORMAT and not rotated:  # 2
            raise wrong_format(body.get("format"))
        _require_fields(body, _TOP | _ROTATED_TOP if rotated else _TOP)  # 3
        parts = {name: _decoded(name, body["secrets"][name], length) for name, length in _PARTS.items()}
        kit = cls(
            written=body["written"],
            cluster_id=bytes.fromhex(body["cluster_id"]),
            measurement_salt=bytes.fromhex(body["measurement_salt"]),
            join_ca=body["join_ca"].encode("ascii"),
            policy_generation=body["policy_generation"],
            master=MasterSecret(key=SecretBytes(parts["master_key"]), salt=SecretBytes(parts["master_salt"])),
            measurement_secret=MeasurementSecret(parts["measurement_secret"]),
            emergency_ssh_seed=SecretBytes(parts["emergency_ssh_seed"]),
            join_ca_key=SecretBytes(parts["join_ca_key"]),
            policy_key=SecretBytes(parts["policy_key"]),
            files=tuple((name, text.encode("utf-8")) for name, text in body["files"].items()),
            version=body.get("master_version", 1),
            others=tuple(_unpacked(*one) for one in body.get("other_versions", {}).items()),
        )
        kit.require_whole()  # 4
        return kit


def malformed(expected: str) -> KeyServiceError:
    """Return the refusal of data that is no kit; it does not quote the data."""
    return KeyServiceError(f"expected {expected}, got something else", reason=Reason.KIT_MALFORMED)


def wrong_format(found: Any) -> KeyServiceError:
    """Return the refusal of another format: FILE_VERSION_UNKNOWN for a later version, KIT_MALFORMED otherwise."""
    text = found if isinstance(found, str) else ""
    if re.fullmatch(rf"{_FAMILY}[0-9]{{1,9}}", text):
        return KeyServiceError(f"expected a kit of format {FORMAT}, got {text}", reason=Reason.FILE_VERSION_UNKNOWN)
    return malformed("a recovery kit")


def _document(data: bytes) -> dict[str, Any]:
    if len(data) > MAX_CONTENT_BYTES:
        raise malformed(f"at most {MAX_CONTENT_BYTES} bytes in a kit")
    try:
        body = load_json(data, limit=MAX_CONTENT_BYTES)
    except ValueError:
        raise malformed("JSON in a kit") from None  # the cause would hold the secret text
    if not isinstance(body, dict):
        raise malformed("one JSON object in a kit")
    return body


def _require_fields(body: dict[str, Any], names: set[str]) -> None:
    checks: dict[str, Callable[[Any], bool]] = {
        "written": lambda value: isinstance(value, str) and _TIME.fullmatch(value) is not None,
        "cluster_id": _is_id,
        "measurement_salt": _is_id,
        "join_ca": lambda value: isinstance(value, str) and value.isascii(),
        "policy_generation": lambda value: (
            isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MAX_GENERATION
        ),
        "secrets": lambda value: _is_texts(value) and set(value) == set(_PARTS),
        "files": lambda value: _is_texts(value) and len(value) <= _MAX_FILES,
        "master_version": lambda value: isinstance(value, int) and not isinstance(value, bool) and value > 0,
        "other_versions": lambda value: _is_texts(value) and all(map(_NUMBER.fullmatch, value)),
    }
    if set(body) != names or not all(checks[name](value) for name, value in body.items() if name in checks):
        raise malformed("the fields of a kit and no others")


def _is_id(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[0-9a-f]{64}", value) is not None


def _is_texts(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(text, str) and _is_encodable(text) for text in value.values())


def _is_encodable(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _packed(version: MasterVersion) -> tuple[str, str]:
    secret = version.secret.key.reveal() + version.secret.salt.reveal()
    return str(version.number), b64encode(secret).decode("ascii")


def _unpacked(number: str, text: str) -> MasterVersion:
    value = _decoded("another version", text, _VERSION_PARTS)
    half = _VERSION_PARTS // 2
    secret = MasterSecret(key=SecretBytes(value[:half]), salt=SecretBytes(value[half:]))
    return MasterVersion(number=int(number), secret=secret)


def _decoded(name: str, text: str, length: int) -> bytes:
    try:
        value = b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise malformed(f"base64 as {name} in a kit") from None
    if length and len(value) != length:
        raise malformed(f"{length} bytes as {name} in a kit")
    return value
