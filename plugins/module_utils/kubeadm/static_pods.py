# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The static pods of a control plane: restart them by a changed manifest, and probe their health.

A restart writes the annotation `RESTARTED_AT` to the manifest by one rename. The kubelet then stops the pod with its
grace period and starts a new one. The manifest always exists, and only the kubelet is needed. The mirror pod in the API
has the annotation too, which shows that the new pod runs.
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
_TIMEOUT_SECONDS = 15.0  # The timeout of kubeadm's probes.
_LIMIT = 1 << 20
_WIDTH = 1 << 20  # No line of a manifest is wrapped.


class PodReader(Protocol):
    """Reads one pod from the API."""

    def pod(self, namespace: str, name: str) -> Mapping[str, Any] | None:
        """Return the pod, or None; raises `ApiError`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """The health endpoint of a component."""

    scheme: str
    host: str
    port: int
    path: str


class StaticPods:
    """Controls the static pods of one machine, by the name of their component."""

    def __init__(self, machine: Machine, *, node: str, reader: PodReader) -> None:
        """Store the machine, the name of its Node and the reader of pods."""
        self._machine = machine
        self._node = node
        self._reader = reader

    def is_healthy(self, component: str) -> bool:
        """Return whether the component is healthy, by the probe that its manifest defines for the kubelet."""
        probe = probe_of(read_bytes(self._manifest(component), limit=_LIMIT))
        return _answers(probe, ca=self._machine.paths.ca if component == API_SERVER else None)

    def arguments(self, component: str) -> dict[str, str]:
        """Return the arguments in the manifest, also while the component is stopped.

        Raises CONTROL_PLANE_MANIFEST_MALFORMED.
        """
        path = self._stopped(component)
        return arguments_of(read_bytes(path if path.exists() else self._manifest(component), limit=_LIMIT))

    def restart(
        self, component: str, arguments: Mapping[str, str] | None = None, *, without: Collection[str] = ()
    ) -> None:
        """Restart the component and wait until it is healthy; raises CONTROL_PLANE_COMPONENT_UNHEALTHY.

        The same write sets ``arguments`` by name in the manifest and removes those in ``without``; the others stay.
        """
        path = self._manifest(component)
        stamp = f"{self._machine.clock.now():%Y-%m-%dT%H:%M:%S.%fZ}"
        write_atomic(path, stamped(read_bytes(path, limit=_LIMIT), stamp, arguments or {}, without=without), mode=0o600)
        clock = self._machine.clock
        deadline = clock.monotonic() + RESTART_SECONDS
        while not (self._has_restarted(component, stamp) and self.is_healthy(component)):
            if clock.monotonic() > deadline:
                raise unhealthy(component, f"within {RESTART_SECONDS:g} s after its restart")
            clock.sleep(_POLL_SECONDS)

    def rearrange(self, component: str, arguments: Mapping[str, str], *, without: Collection[str] = ()) -> None:
        """Restart the component with other arguments; restore the old manifest if that fails.

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
        """Move the manifests out of the kubelet's directory, and wait until their programs have ended.

        Raises CONTROL_PLANE_COMPONENT_UNHEALTHY if a program still runs. A second call waits again.
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
        """Move a manifest back and wait until it is healthy; raises CONTROL_PLANE_COMPONENT_UNHEALTHY."""
        if self._stopped(component).exists():
            self._move(self._stopped(component), self._manifest(component))
            with contextlib.suppress(OSError):  # The directory may hold another manifest.
                self._stopped(component).parent.rmdir()
        clock = self._machine.clock
        deadline = clock.monotonic() + RESTART_SECONDS
        while not self.is_healthy(component):
            if clock.monotonic() > deadline:
                raise unhealthy(component, f"within {RESTART_SECONDS:g} s after it was started")
            clock.sleep(_POLL_SECONDS)

    def _set_aside(self, component: str) -> bytes:
        """Move a manifest unless it is already moved, and return its command in the format of /proc/PID/cmdline."""
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
                continue  # The process has ended.
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
        except AttestedError:  # While the API server starts, every error is retried.
            return False

    def _manifest(self, component: str) -> Path:
        return self._machine.paths.kubernetes / "manifests" / f"{component}.yaml"


def unhealthy(component: str, when: str) -> KubeadmError:
    """Return the error of a component that is not healthy."""
    return KubeadmError(
        f"expected {component} to be healthy {when}, it is not", reason=Reason.CONTROL_PLANE_COMPONENT_UNHEALTHY
    )


def stamped(
    manifest: bytes, stamp: str, arguments: Mapping[str, str] | None = None, *, without: Collection[str] = ()
) -> bytes:
    """Return the manifest (YAML) with the annotation and the arguments.

    Raises CONTROL_PLANE_MANIFEST_MALFORMED.
    """
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
    """Return the arguments of the first container by name; raises CONTROL_PLANE_MANIFEST_MALFORMED."""
    words = (word[2:].partition("=") for word in _command(_pod(manifest))[1:] if word.startswith("--"))
    return {name: value for name, _equals, value in words}


def image_of(manifest: bytes) -> str:
    """Return the image of the first container; raises CONTROL_PLANE_MANIFEST_MALFORMED."""
    return str(_pod(manifest)["spec"]["containers"][0].get("image", ""))


def version_of_image(image: str) -> str:
    """Return the version of Kubernetes in the tag of an image, or "" if the tag is no version."""
    tag = image.partition("@")[0].rpartition(":")[2].removeprefix("v")
    return tag if is_version(tag) else ""


def _command(pod: Mapping[str, Any]) -> list[str]:
    command = pod["spec"]["containers"][0].get("command")
    if not isinstance(command, list) or not command or not all(isinstance(word, str) for word in command):
        raise _malformed("expected a command of words")
    return command


def probe_of(manifest: bytes) -> Probe:
    """Return the readiness probe of the first container, else its liveness probe (v1.35 has both)."""
    container = _pod(manifest)["spec"]["containers"][0]
    probe = container.get("readinessProbe") or container.get("livenessProbe") or {}
    try:
        target = probe["httpGet"]
        ports = {one.get("name"): one["containerPort"] for one in container.get("ports") or ()}
        return Probe(
            scheme=str(target["scheme"]),
            host=str(target["host"]),
            port=int(ports.get(target["port"], target["port"])),
            path=str(target["path"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise _malformed("expected a probe over HTTP with host, port and path") from error


def runs_since(pod: Mapping[str, Any] | None, stamp: str) -> bool:
    """Return whether the pod has the annotation ``stamp`` and all its containers are ready."""
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
    """Return whether a probe as the kubelet's succeeds.

    Only the API server's certificate is verified: the other components make theirs in memory at each start.
    """
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
