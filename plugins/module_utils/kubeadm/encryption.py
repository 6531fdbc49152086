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
import hashlib
import json
import re
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, Protocol

from ..core.documents import load_documents, load_json
from ..core.files import make_directory, read_bytes, write_atomic
from ..errors import KubeadmError
from ..reasons import Reason
from ..rotation.encryption_key import CLEAR, KEY_NAME, PlaneKeys, next_number
from ..transport.binding import label
from .render import ENCRYPTION_ARGUMENT, documents, encryption_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from ..core.host import Random
    from .api_server import ApiServer
    from .kubectl import Kubectl
    from .spec import KubernetesPaths

    Arguments = Callable[[Mapping[str, str]], Mapping[str, str]]


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


# The file as an ordered list of keys: parse and render it, name keys. Pure.
#
# Each value in etcd holds the *name* of the key that encrypts it, so a name must never mean two keys. The name of every
# key after the first therefore contains a number, which orders the keys by age, and a fingerprint of the key.

_FINGERPRINT_DIGITS = 16
_USE = "secrets-at-rest/key"


@dataclass(frozen=True, slots=True, kw_only=True)
class EncryptionKey:
    """A key, and its name in the values of etcd."""

    name: str
    secret: bytes = field(repr=False)

    @property
    def fingerprint(self) -> str:
        """16 hexadecimal digits that identify the key and do not reveal it."""
        return fingerprint(self.secret)


@dataclass(frozen=True, slots=True, kw_only=True)
class EncryptionFile:
    """The keys of one control plane.

    The first key, or no key if ``clear_first``, encrypts. The other keys only decrypt.
    """

    keys: tuple[EncryptionKey, ...]
    clear_first: bool = False

    @property
    def order(self) -> tuple[str, ...]:
        """The names of the keys in order, with `CLEAR` first if Secrets are written in clear."""
        return (*((CLEAR,) if self.clear_first else ()), *(key.name for key in self.keys))

    @classmethod
    def parse(cls, content: bytes) -> EncryptionFile:
        """Parse a file that init or a rotation made. Messages never quote ``content``.

        Raises ENCRYPTION_MALFORMED, and ENCRYPTION_FOREIGN if an admin added other resources or providers: a rotation
        cannot know their purpose.
        """
        try:
            (document,) = load_documents(content.decode("utf-8"))
            first, second = _providers(document)
        except (ValueError, KeyError, IndexError, TypeError, AttributeError):
            raise _foreign() from None  # The message of the parser may quote a line of the file.
        clear_first = first == {CLEAR: {}}
        box, other = (second, first) if clear_first else (first, second)
        if other != {CLEAR: {}} or set(box) != {"secretbox"}:
            raise _foreign()
        require_encryption(_rendered(box, {CLEAR: {}}))
        keys = tuple(
            EncryptionKey(name=one["name"], secret=base64.b64decode(one["secret"])) for one in box["secretbox"]["keys"]
        )
        for key in keys:
            _require_own_name(key)
        return cls(keys=keys, clear_first=clear_first)

    def render(self) -> bytes:
        """Return the content of the file."""
        shown = [{"name": key.name, "secret": base64.b64encode(key.secret).decode("ascii")} for key in self.keys]
        box: dict[str, Any] = {"secretbox": {"keys": shown}}
        return _rendered({CLEAR: {}}, box) if self.clear_first else _rendered(box, {CLEAR: {}})


def fingerprint(secret: bytes) -> str:
    """Return 16 hexadecimal digits of the hash of a key (32 random bytes, so it cannot be guessed)."""
    return hashlib.sha256(label(_USE, version=1) + secret).hexdigest()[:_FINGERPRINT_DIGITS]


def name_key(secret: bytes, *, number: int) -> EncryptionKey:
    """Return a new key with its permanent name."""
    return EncryptionKey(name=f"key-{number}-{fingerprint(secret)}", secret=secret)


def _providers(document: Any) -> Any:
    if (document["apiVersion"], document["kind"]) != (API_VERSION, KIND):
        raise ValueError(KIND)
    (entry,) = document["resources"]
    if set(document) != {"apiVersion", "kind", "resources"} or entry["resources"] != list(RESOURCES):
        raise ValueError(KIND)
    return entry["providers"]


def _require_own_name(key: EncryptionKey) -> None:
    match = KEY_NAME.fullmatch(key.name)
    if match and match[2] and match[2] != key.fingerprint:
        raise KubeadmError(
            f"expected the key that the name {key.name} was made for, found another one under it",
            reason=Reason.ENCRYPTION_MALFORMED,
        )


def _rendered(*providers: dict[str, Any]) -> bytes:
    entry = {"resources": list(RESOURCES), "providers": list(providers)}
    return documents({"apiVersion": API_VERSION, "kind": KIND, "resources": [entry]})


def _foreign() -> KubeadmError:
    return KubeadmError(
        f"expected an {KIND} of secretbox and identity for secrets alone, as init makes it, found something else",
        reason=Reason.ENCRYPTION_FOREIGN,
    )


# The keys that encrypt Secrets at rest on one control plane: observe, make, export and order them.

# kubeadm's ConfigMap, from which further control planes and the arguments of their API servers are made.

_CONFIG = ("configmap", "kubeadm-config", "kube-system")


def set_arguments(kubectl: Kubectl, arguments: Arguments, *, check_mode: bool = False) -> bool:
    """Set arguments of later API servers; ``arguments`` maps present arguments to those to set.

    Returns whether that is a change. Raises as `change_configuration` and ``arguments`` do.
    """
    return change_configuration(kubectl, partial(_set_arguments, arguments=arguments), check_mode=check_mode)


def change_configuration(
    kubectl: Kubectl, change: Callable[[dict[str, Any]], bool], *, check_mode: bool = False
) -> bool:
    """Change kubeadm's ClusterConfiguration for later control planes.

    Returns whether ``change`` changed it. Raises KUBECTL_FAILED, also if another client changed the ConfigMap
    meanwhile, and CONTROL_PLANE_MANIFEST_MALFORMED.
    """
    (document,) = kubectl.read_one(*_CONFIG)
    data = document.get("data", {})
    try:
        wanted = _changed_configuration(str(data["ClusterConfiguration"]), change)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise KubeadmError(
            "expected kubeadm's ClusterConfiguration in the ConfigMap kubeadm-config, found something else",
            reason=Reason.CONTROL_PLANE_MANIFEST_MALFORMED,
        ) from None
    if wanted and not check_mode:
        kubectl.replace({**document, "data": {**data, "ClusterConfiguration": wanted}})
    return bool(wanted)


def _changed_configuration(text: str, change: Callable[[dict[str, Any]], bool]) -> str:
    (configuration,) = load_documents(text)
    return documents(configuration).decode() if change(configuration) else ""


def _set_arguments(configuration: dict[str, Any], *, arguments: Arguments) -> bool:
    server: dict[str, Any] = configuration.setdefault("apiServer", {})
    named: list[dict[str, str]] = server.setdefault("extraArgs", [])
    present = {one["name"]: one["value"] for one in named}
    wanted = {name: value for name, value in arguments(present).items() if present.get(name) != value}
    if wanted:
        server["extraArgs"] = [one for one in named if one["name"] not in wanted]
        server["extraArgs"] += [{"name": name, "value": value} for name, value in wanted.items()]
    return bool(wanted)


_KEY_BYTES = 32


class PlaneEncryption:
    """The encryption file of one control plane, and the API server that uses it."""

    def __init__(self, paths: KubernetesPaths, server: ApiServer) -> None:
        """Store the path of the file and the API server."""
        self._place = encryption_path(paths)
        self._server = server

    def observe(self, *, name: str) -> PlaneKeys:
        """Return the keys; raises ENCRYPTION_MALFORMED, ENCRYPTION_FOREIGN, KUBECTL_FAILED.

        If there is no file and the API server names none, Secrets are written in clear. If there is no file and the API
        server names one, the file is lost and the machine has no key.
        """
        found, is_named = self._read(), self._server.names_encryption_file
        return PlaneKeys(
            name=name,
            keys={key.name: key.fingerprint for key in found.keys},
            taken=is_named and self._place.exists() and self._server.uses(self._content()),
            clear_first=found.clear_first,
        )

    def make(self, *, random: Random) -> str:
        """Add a new key at the end of the file and return its name; the key encrypts nothing yet."""
        found = self._read()
        key = name_key(random.token(_KEY_BYTES), number=next_number(found.order))
        self._write(EncryptionFile(keys=(*found.keys, key), clear_first=found.clear_first))
        return key.name

    def give(self, names: Iterable[str]) -> dict[str, bytes]:
        """Return keys by name; raises ENCRYPTION_KEY_MISSING."""
        return {key.name: key.secret for key in self._pick(names, given={})}

    def arrange(self, order: Sequence[str], *, given: Mapping[str, bytes]) -> EncryptionFile:
        """Return the file with the keys in ``order``, from this machine or ``given``.

        Raises ENCRYPTION_KEY_MISSING.
        """
        names = [name for name in order if name != CLEAR]
        return EncryptionFile(keys=self._pick(names, given=given), clear_first=order[0] == CLEAR)

    def differs(self, wanted: EncryptionFile) -> bool:
        """Return whether the file differs from ``wanted``, or the API server does not name the file yet."""
        return not self._server.names_encryption_file or not self._place.exists() or self._content() != wanted.render()

    def place(self, wanted: EncryptionFile, kubectl: Kubectl) -> bool:
        """Write the file and wait until the API server uses it; return whether anything changed.

        Raises ENCRYPTION_NOT_TAKEN, CONTROL_PLANE_MANIFEST_MALFORMED, KUBECTL_FAILED. The arguments of later control
        planes are set before those of this machine, so that a run that is stopped in between repeats both.
        """
        changed = self._write(wanted)
        if not self._server.names_encryption_file:
            set_arguments(kubectl, partial(encryption_arguments, path=str(self._place)))
            changed |= self._server.name_encryption_file()
        self._server.wait(wanted.render())
        return changed

    def _pick(self, names: Iterable[str], *, given: Mapping[str, bytes]) -> tuple[EncryptionKey, ...]:
        own = {key.name: key for key in self._read().keys}
        offered = {name: EncryptionKey(name=name, secret=secret) for name, secret in given.items()}
        wanted, known = tuple(names), {**offered, **own}
        missing = sorted(set(wanted) - set(known))
        if missing or not wanted:
            raise KubeadmError(
                f"expected the keys {', '.join(wanted) or '(none)'} on this machine, missing: "
                f"{', '.join(missing) or 'any key'}",
                reason=Reason.ENCRYPTION_KEY_MISSING,
            )
        return tuple(known[name] for name in wanted)

    def _read(self) -> EncryptionFile:
        if not self._place.exists():
            return EncryptionFile(keys=(), clear_first=not self._server.names_encryption_file)
        return EncryptionFile.parse(self._content())

    def _content(self) -> bytes:
        return read_bytes(self._place, limit=_LIMIT)

    def _write(self, wanted: EncryptionFile) -> bool:
        content = wanted.render()
        EncryptionFile.parse(content)  # A key under the name of another key must never reach the disk.
        make_directory(self._place.parent, mode=0o755)
        return write_atomic(self._place, content)


def encryption_arguments(present: Mapping[str, str], *, path: str) -> dict[str, str]:
    """Return the arguments that name the encryption file.

    The result is empty if the ``present`` arguments already name one.
    """
    if ENCRYPTION_ARGUMENT in present:
        return {}
    return {ENCRYPTION_ARGUMENT: path, f"{ENCRYPTION_ARGUMENT}-automatic-reload": "true"}


def parse_keys(data: bytes) -> dict[str, bytes]:
    """Return keys by name as `render_keys` wrote them; raises ENCRYPTION_MALFORMED."""
    try:
        return {str(name): bytes.fromhex(secret) for name, secret in load_json(data).items()}
    except (ValueError, TypeError, AttributeError):
        raise KubeadmError(
            "expected keys by name, got something else", reason=Reason.ENCRYPTION_MALFORMED
        ) from None  # The cause may quote a key.


def render_keys(keys: Mapping[str, bytes]) -> bytes:
    """Return keys by name as bytes. The bytes are secret: the caller must seal them."""
    return json.dumps({name: secret.hex() for name, secret in keys.items()}).encode("ascii")


# Find which key encrypts each Secret in etcd, from the prefix of its value.
#
# The rest of the value is discarded.

_FIRST, _END = b"/registry/secrets/", b"/registry/secrets0"
_ENCRYPTED = b"k8s:enc:"
_BOX = b"k8s:enc:secretbox:v1:"
_NAME_LIMIT = 64


@dataclass(frozen=True, slots=True, order=True)
class SecretName:
    """A Secret by namespace and name."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSecrets:
    """The Secrets in etcd by the name of the key that encrypts them; `CLEAR` for those in clear."""

    by_key: Mapping[str, tuple[SecretName, ...]]

    @property
    def counts(self) -> dict[str, int]:
        """The number of Secrets by the name of their key."""
        return {name: len(found) for name, found in sorted(self.by_key.items())}

    def except_key(self, name: str) -> tuple[SecretName, ...]:
        """Return the Secrets that the key ``name`` does not encrypt, sorted."""
        return tuple(sorted(one for key, found in self.by_key.items() if key != name for one in found))


class Etcd(Protocol):
    """Reads keys and values of etcd."""

    def pages(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys and values from ``first`` up to but excluding ``end``.

        Raises ETCD_UNREACHABLE, ETCD_REFUSED.
        """


def survey(etcd: Etcd) -> StoredSecrets:
    """Return the Secrets by the key that encrypts them.

    Raises ETCD_UNREACHABLE, ETCD_REFUSED, ENCRYPTION_FOREIGN.
    """
    found: dict[str, list[SecretName]] = {}
    for key, value in etcd.pages(_FIRST, _END):
        found.setdefault(key_of(value), []).append(_name(key))
    return StoredSecrets(by_key={name: tuple(names) for name, names in found.items()})


def key_of(value: bytes) -> str:
    """Return the name of the key that encrypts a value of etcd.

    Raises ENCRYPTION_FOREIGN for another cipher.
    """
    if not value.startswith(_ENCRYPTED):
        return CLEAR
    name, colon, _rest = value.removeprefix(_BOX)[: _NAME_LIMIT + 1].partition(b":")
    if not value.startswith(_BOX) or not colon:
        raise KubeadmError(
            "expected Secrets that secretbox encrypts, etcd has a Secret of another provider",
            reason=Reason.ENCRYPTION_FOREIGN,
        )
    return name.decode("ascii", "replace")


def _name(key: bytes) -> SecretName:
    namespace, _slash, name = key.removeprefix(_FIRST).decode("utf-8", "replace").partition("/")
    return SecretName(namespace, name)


# Every Secret is written again, unchanged, so that the first key encrypts it.
#
# An empty patch makes the API server write a Secret again if another key encrypts it in etcd. No value of a Secret is
# read here. If a client changes the Secret at the same time, the API server repeats the patch on the changed Secret.

_ROUNDS = 3
_NAMES_A_CALL = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewritten:
    """The numbers of Secrets that one call has written again, that are left, and that exist."""

    done: int
    left: int
    total: int


def rewrite(etcd: Etcd, kubectl: Kubectl, *, key: str, most: int) -> Rewritten:
    """Write up to ``most`` Secrets again that ``key`` does not encrypt yet.

    Raises ENCRYPTION_REWRITE_FAILED if some are unchanged after three attempts, ETCD_UNREACHABLE, ETCD_REFUSED.
    """
    found = survey(etcd)
    batch, refusals = set(found.except_key(key)[:most]), ""
    for _round in range(_ROUNDS):
        if not batch.intersection(found.except_key(key)):
            break
        refusals = _write(kubectl, sorted(batch.intersection(found.except_key(key)))) or "they are unchanged in etcd"
        found = survey(etcd)
    stuck = sorted(batch.intersection(found.except_key(key)))
    if not stuck:
        return Rewritten(done=len(batch), left=len(found.except_key(key)), total=sum(found.counts.values()))
    raise KubeadmError(
        f"expected {len(batch)} Secrets under {key}, {len(stuck)} are not "
        f"({stuck[0].namespace}/{stuck[0].name}): {refusals}",
        reason=Reason.ENCRYPTION_REWRITE_FAILED,
    )


def _write(kubectl: Kubectl, secrets: list[SecretName]) -> str:
    """Write Secrets again and return the last lines of kubectl for those that failed."""
    refusals = [
        kubectl.write_again("secret", names, namespace=namespace)
        for namespace, found in groupby(secrets, key=lambda one: one.namespace)
        for names in _batches([one.name for one in found])
    ]
    return "\n".join(text for text in refusals if text)


def _batches(names: list[str]) -> list[list[str]]:
    return [names[start : start + _NAMES_A_CALL] for start in range(0, len(names), _NAMES_A_CALL)]
