# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The keys that encrypt Secrets at rest on one control plane: observe, make, export and order them."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

from ..core.documents import load_documents, load_json
from ..core.files import make_directory, read_bytes, write_atomic
from ..errors import KubeadmError
from ..reasons import Reason
from ..rotation.encryption_key import CLEAR, PlaneKeys, next_number
from .encryption_file import EncryptionFile, EncryptionKey, name_key
from .render import ENCRYPTION_ARGUMENT, documents, encryption_path

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .kubectl import Kubectl

    Arguments = Callable[[Mapping[str, str]], Mapping[str, str]]
    from collections.abc import Iterable, Sequence

    from ..core.host import Random
    from .api_server import ApiServer
    from .spec import KubernetesPaths


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
_LIMIT = 1 << 16


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
