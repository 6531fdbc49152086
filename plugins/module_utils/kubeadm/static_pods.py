# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The static pods of a control plane: started anew by a changed manifest, and asked whether they are well.

The manifest gets the annotation `RESTARTED_AT` by one rename. The kubelet then ends the pod and starts it as another
one, in its own time and with the pod's own grace period; there is never a moment without a manifest, and nothing is
needed but the kubelet. That the new one runs is read from the API, where the kubelet mirrors the annotation.
"""

from __future__ import annotations

import contextlib
import http.client
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from .._deps.yaml import yaml
from ..bundle.versions import is_version
from ..core.documents import load_document
from ..core.files import make_directory, read_bytes, write_atomic
from ..errors import AttestedError, KubeadmError, SystemFault
from ..reasons import Reason
from .certificate_table import API_SERVER

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from .operation import Machine

RESTARTED_AT = "attested-kubernetes.dev/restarted-at"
NAMESPACE = "kube-system"
RESTART_SECONDS = 240.0
_POLL_SECONDS = 1.0
_TIMEOUT_SECONDS = 15.0  # that of kubeadm's probes
_LIMIT = 1 << 20
_WIDTH = 1 << 20  # no line of a manifest is broken


class PodReader(Protocol):
    """Reads one pod as the API has it."""

    def pod(self, namespace: str, name: str) -> Mapping[str, Any] | None:
        """Return the pod, or None; raises `ApiError`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """Where a component says whether it is well."""

    scheme: str
    host: str
    port: int
    path: str


class StaticPods:
    """The static pods of one machine, by the name of their component."""

    def __init__(self, machine: Machine, *, node: str, reader: PodReader) -> None:
        """Keep the machine, the name of its Node and where pods are read."""
        self._machine = machine
        self._node = node
        self._reader = reader

    def is_healthy(self, component: str) -> bool:
        """Ask the component itself, at the address that its manifest names for the kubelet."""
        probe = probe_of(read_bytes(self._manifest(component), limit=_LIMIT))
        return _answers(probe, ca=self._machine.paths.ca if component == API_SERVER else None)

    def arguments(self, component: str) -> dict[str, str]:
        """Return what the manifest tells the component, also while it is stopped.

        Raises CONTROL_PLANE_MANIFEST_MALFORMED.
        """
        path = self._stopped(component)
        return arguments_of(read_bytes(path if path.exists() else self._manifest(component), limit=_LIMIT))

    def restart(
        self, component: str, arguments: Mapping[str, str] | None = None, *, without: Collection[str] = ()
    ) -> None:
        """Start it anew and wait until the new one is well; raises CONTROL_PLANE_COMPONENT_UNHEALTHY.

        ``arguments`` by name take the place of those in its manifest and those ``without`` go, by the same write; the
        others stay.
        """
        path = self._manifest(component)
        stamp = f"{self._machine.clock.now():%Y-%m-%dT%H:%M:%S.%fZ}"
        write_atomic(path, stamped(read_bytes(path, limit=_LIMIT), stamp, arguments or {}, without=without), mode=0o600)
        clock = self._machine.clock
        deadline = clock.monotonic() + RESTART_SECONDS
        while not (self._has_restarted(component, stamp) and self.is_healthy(component)):
            if clock.monotonic() > deadline:
                raise unhealthy(component, f"within {RESTART_SECONDS:g} s after it was started anew")
            clock.sleep(_POLL_SECONDS)

    def rearrange(self, component: str, arguments: Mapping[str, str], *, without: Collection[str] = ()) -> None:
        """Start it anew with other arguments; one that is not well then gets its manifest of before.

        Raises CONTROL_PLANE_COMPONENT_UNHEALTHY, CONTROL_PLANE_MANIFEST_MALFORMED.
        """
        path = self._manifest(component)
        before = read_bytes(path, limit=_LIMIT)
        try:
            self.restart(component, arguments, without=without)
        except AttestedError:
            write_atomic(path, before, mode=0o600)
            raise

    def stop(self, components: Sequence[str]) -> None:
        """Take the manifests away from the kubelet, and wait until their programs have ended.

        Raises CONTROL_PLANE_COMPONENT_UNHEALTHY for one that still runs. A second call waits again.
        """
        commands = {one: self._set_aside(one) for one in components}
        clock = self._machine.clock
        deadline = clock.monotonic() + RESTART_SECONDS
        while left := [one for one, command in commands.items() if self._runs(command)]:
            if clock.monotonic() > deadline:
                raise KubeadmError(
                    f"expected {', '.join(left)} to end within {RESTART_SECONDS:g} s, it runs",
                    reason=Reason.CONTROL_PLANE_COMPONENT_UNHEALTHY,
                )
            clock.sleep(_POLL_SECONDS)

    def start(self, component: str) -> None:
        """Give a manifest back to the kubelet and wait until it is well; raises CONTROL_PLANE_COMPONENT_UNHEALTHY."""
        if self._stopped(component).exists():
            self._move(self._stopped(component), self._manifest(component))
            with contextlib.suppress(OSError):  # another one is in it
                self._stopped(component).parent.rmdir()
        clock = self._machine.clock
        deadline = clock.monotonic() + RESTART_SECONDS
        while not self.is_healthy(component):
            if clock.monotonic() > deadline:
                raise unhealthy(component, f"within {RESTART_SECONDS:g} s after it was started")
            clock.sleep(_POLL_SECONDS)

    def _set_aside(self, component: str) -> bytes:
        """Move a manifest unless it is moved, and return the command of its program as the kernel shows it."""
        stopped = self._stopped(component)
        if self._manifest(component).exists():
            make_directory(stopped.parent)
            self._move(self._manifest(component), stopped)
        words = _command(_pod(read_bytes(stopped, limit=_LIMIT)))
        return b"".join(word.encode() + b"\0" for word in words)

    def _runs(self, command: bytes) -> bool:
        for path in (self._machine.paths.root / "proc").glob("[0-9]*/cmdline"):
            try:
                if path.read_bytes() == command:
                    return True
            except OSError:
                continue  # ended meanwhile
        return False

    def _stopped(self, component: str) -> Path:
        return self._machine.paths.kubernetes / "stopped" / f"{component}.yaml"

    @staticmethod
    def _move(path: Path, target: Path) -> None:
        try:
            path.replace(target)
        except OSError as error:
            raise SystemFault(f"cannot move {path}: {error.strerror}", reason=Reason.FILE_UNUSABLE) from error

    def _has_restarted(self, component: str, stamp: str) -> bool:
        try:
            return runs_since(self._reader.pod(NAMESPACE, f"{component}-{self._node}"), stamp)
        except AttestedError:  # whatever the API says while it starts, it is asked again
            return False

    def _manifest(self, component: str) -> Path:
        return self._machine.paths.kubernetes / "manifests" / f"{component}.yaml"


def unhealthy(component: str, when: str) -> KubeadmError:
    """Return the error of a component that is not well."""
    return KubeadmError(
        f"expected {component} to be well {when}, it is not", reason=Reason.CONTROL_PLANE_COMPONENT_UNHEALTHY
    )


def stamped(
    manifest: bytes, stamp: str, arguments: Mapping[str, str] | None = None, *, without: Collection[str] = ()
) -> bytes:
    """Return the manifest (YAML) with the annotation and the arguments; raises CONTROL_PLANE_MANIFEST_MALFORMED."""
    document = _pod(manifest)
    document["metadata"]["annotations"] = {**(document["metadata"].get("annotations") or {}), RESTARTED_AT: stamp}
    if arguments or without:
        command, given = _command(document), arguments or {}
        kept = [word for word in command[1:] if word[2:].partition("=")[0] not in {*given, *without}]
        document["spec"]["containers"][0]["command"] = [
            command[0],
            *kept,
            *(f"--{name}={value}" for name, value in sorted(given.items())),
        ]
    text: str = yaml.safe_dump(document, default_flow_style=False, sort_keys=False, width=_WIDTH)
    return text.encode()


def arguments_of(manifest: bytes) -> dict[str, str]:
    """Return what the first container is told, by name; raises CONTROL_PLANE_MANIFEST_MALFORMED."""
    words = (word[2:].partition("=") for word in _command(_pod(manifest))[1:] if word.startswith("--"))
    return {name: value for name, _equals, value in words}


def image_of(manifest: bytes) -> str:
    """Return the image of the first container; raises CONTROL_PLANE_MANIFEST_MALFORMED."""
    return str(_pod(manifest)["spec"]["containers"][0].get("image", ""))


def version_of_image(image: str) -> str:
    """Return the version of Kubernetes in the tag of an image of its, nothing where it has none."""
    tag = image.partition("@")[0].rpartition(":")[2].removeprefix("v")
    return tag if is_version(tag) else ""


def _command(pod: Mapping[str, Any]) -> list[str]:
    command = pod["spec"]["containers"][0].get("command")
    if not isinstance(command, list) or not command or not all(isinstance(word, str) for word in command):
        raise _malformed("expected a command of words")
    return command


def probe_of(manifest: bytes) -> Probe:
    """Return where the first container is asked: its readiness probe, else its liveness probe (v1.35 has both)."""
    container = _pod(manifest)["spec"]["containers"][0]
    probe = container.get("readinessProbe") or container.get("livenessProbe") or {}
    try:
        asked = probe["httpGet"]
        ports = {one.get("name"): one["containerPort"] for one in container.get("ports") or ()}
        return Probe(
            scheme=str(asked["scheme"]),
            host=str(asked["host"]),
            port=int(ports.get(asked["port"], asked["port"])),
            path=str(asked["path"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise _malformed("expected a probe over HTTP with host, port and path") from error


def runs_since(pod: Mapping[str, Any] | None, stamp: str) -> bool:
    """Say whether the pod is the one with this annotation, and all its containers are ready."""
    if pod is None or (pod["metadata"].get("annotations") or {}).get(RESTARTED_AT) != stamp:
        return False
    states = (pod.get("status") or {}).get("containerStatuses") or ()
    return bool(states) and all(one.get("ready") is True for one in states)


def _pod(manifest: bytes) -> dict[str, Any]:
    try:
        document = load_document(manifest)
        if document["kind"] != "Pod" or not document["spec"]["containers"] or not document["metadata"]["name"]:
            raise _malformed("expected a Pod with a name and a container")
    except (ValueError, KeyError, TypeError) as error:
        raise _malformed("expected a Pod with a name and a container") from error
    found: dict[str, Any] = document
    return found


def _answers(probe: Probe, *, ca: Path | None) -> bool:
    """Ask as the kubelet does; the API server's certificate is checked, others make theirs in memory at each start."""
    try:
        connection = _connection(probe, ca)
        try:
            connection.request("GET", probe.path)
            return connection.getresponse().status == http.client.OK
        finally:
            connection.close()
    except (OSError, http.client.HTTPException):
        return False


def _connection(probe: Probe, ca: Path | None) -> http.client.HTTPConnection:
    if probe.scheme != "HTTPS":
        return http.client.HTTPConnection(probe.host, probe.port, timeout=_TIMEOUT_SECONDS)
    context = ssl.create_default_context(cafile=str(ca) if ca else None)
    if ca is None:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return http.client.HTTPSConnection(probe.host, probe.port, timeout=_TIMEOUT_SECONDS, context=context)


def _malformed(message: str) -> KubeadmError:
    return KubeadmError(f"manifest of a static pod: {message}", reason=Reason.CONTROL_PLANE_MANIFEST_MALFORMED)
