# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The work of the module `control_plane_settings`: apply the site's settings to a running control plane.

The settings are arguments of its components, authenticators and the audit webhook of its API server, and admission of
Pods and Services. A new cluster has the admission from its first start (`kubeadm/render.py`). A further control plane
has all but the arguments from its ticket.
A component whose arguments change is restarted, one component after the other, on one control plane at a time.
kubeadm's configuration is changed last, so that later control planes get only arguments that the components accepted.
"""

from __future__ import annotations

import hashlib
import json
import re
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from ..core.documents import load_json
from ..core.files import make_directory, read_bytes, remove, write_atomic
from ..errors import AttestedError, KubeadmError, SiteError
from ..kubeadm.api_server import ApiServer
from ..kubeadm.certificate_table import API_SERVER
from ..kubeadm.cluster import write_patches
from ..kubeadm.encryption import change_configuration, set_arguments
from ..kubeadm.files import has_loaded, record_loaded
from ..kubeadm.render import (
    AUDIT_WEBHOOK_ARGUMENT,
    admission_file,
    admission_path,
    audit_webhook_path,
    authentication_path,
    plugin_arguments,
)
from ..kubeadm.site_settings import (
    AUTHENTICATORS,
    COMPONENTS,
    arrange_configuration,
    audit_webhook_file,
    authentication_file,
    changes_of,
    parse_arguments,
)
from ..kubeadm.spec import PodSecurity, require_pod_security
from ..reasons import Reason
from ..result import Diff, Result
from .control_plane_turns import running_plane

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from ..core.host import Clock
    from ..kubeadm.certificate_renewal import Turns
    from ..kubeadm.kubectl import Kubectl
    from ..kubeadm.spec import KubernetesPaths
    from ..kubeadm.static_pods import StaticPods

_LIMIT = 1 << 20
_MODE = 0o644
_TAKEN_SECONDS = 90.0
"""An API server reads its file once a minute if it missed the notification of a change."""
_LOOK_SECONDS = 1.0
_USED = re.compile(
    r'^apiserver_authentication_config_controller_last_config_info\{[^}\n]*\bhash="sha256:([0-9a-f]{64})"[^}\n]*\} 1$',
    re.MULTILINE,
)
_FAILURES = re.compile(
    r"^apiserver_authentication_config_controller_automatic_reloads_total"
    r'\{[^}\n]*\bstatus="failure"[^}\n]*\} ([0-9.e+]+)$',
    re.MULTILINE,
)


class PlaneSettings:
    """The arguments and authenticators of one control plane, and the arguments of later control planes."""

    def __init__(
        self,
        paths: KubernetesPaths,
        pods: StaticPods,
        kubectl: Kubectl,
        *,
        turns: Turns,
        metrics: Callable[[], str],
        clock: Clock,
    ) -> None:
        """Store the collaborators; ``metrics`` returns the metrics of this machine's API server."""
        self._paths = paths
        self._pods = pods
        self._kubectl = kubectl
        self._turns = turns
        self._metrics = metrics
        self._clock = clock

    def differs(self, arguments: Mapping[str, Mapping[str, str]] | None, authentication: bytes | None) -> list[str]:
        """Return the necessary changes, one line each; None stands for a setting that the site does not have.

        Raises CONTROL_PLANE_MANIFEST_MALFORMED, KUBECTL_FAILED.
        """
        found = []
        if arguments is not None:
            for component in COMPONENTS:
                placed, gone = self._changes(component, arguments)
                found += [f"{component}: --{name}={value}" for name, value in sorted(placed.items())]
                found += [f"{component}: no --{name}" for name in gone]
            if change_configuration(self._kubectl, partial(arrange_configuration, wanted=arguments), check_mode=True):
                found.append("later control planes: the same arguments")
        if authentication is not None and self._authentication() != authentication:
            found.append(f"kube-apiserver: {authentication_path(self._paths)}")
        return found

    def place(self, arguments: Mapping[str, Mapping[str, str]] | None, authentication: bytes | None) -> None:
        """Apply the settings, one component after the other; an interrupted run can be repeated.

        Also raises CONTROL_PLANE_COMPONENT_UNHEALTHY, after which the component has its earlier arguments, and
        CONFIG_INVALID if the API server refuses the authenticators, after which it uses the earlier ones.
        """
        self._turns.take()
        try:
            if authentication is not None and self._authentication() != authentication:
                self._authenticate(authentication)
            if arguments is not None:
                for component in COMPONENTS:
                    placed, gone = self._changes(component, arguments)
                    self._remember(component, arguments)
                    if placed or gone:
                        self._pods.rearrange(component, placed, without=gone)
                change_configuration(self._kubectl, partial(arrange_configuration, wanted=arguments))
        finally:
            self._turns.free()

    def _changes(
        self, component: str, arguments: Mapping[str, Mapping[str, str]]
    ) -> tuple[dict[str, str], tuple[str, ...]]:
        present = self._pods.arguments(component)
        return changes_of(component, present, arguments.get(component, {}), before=self._given(component))

    def _given(self, component: str) -> tuple[str, ...]:
        """Return the names of the recorded arguments, which the site has set here and which may still be set."""
        return tuple(_record(self._paths.site_arguments).get(component, ()))

    def _remember(self, component: str, arguments: Mapping[str, Mapping[str, str]]) -> None:
        """Record the arguments before a component gets them; a removed argument stays recorded until it is removed."""
        record = _record(self._paths.site_arguments)
        present = self._pods.arguments(component)
        still = {name for name in record.get(component, ()) if name in present}
        record[component] = sorted({*still, *arguments.get(component, {})})
        make_directory(self._paths.state, mode=0o700)
        write_atomic(self._paths.site_arguments, json.dumps(record, sort_keys=True).encode())

    def _authentication(self) -> bytes:
        place = authentication_path(self._paths)
        return read_bytes(place, limit=_LIMIT) if place.exists() else b""

    def _authenticate(self, wanted: bytes) -> None:
        """Write the file and wait until the API server uses it; on a failure restore the earlier file."""
        place, before = authentication_path(self._paths), self._authentication()
        failures = _failures(self._metrics())
        write_atomic(place, wanted, mode=_MODE)
        try:
            self._wait_used(wanted, failures)
        except AttestedError:
            write_atomic(place, before, mode=_MODE)
            raise

    def _wait_used(self, wanted: bytes, failures: float) -> None:
        deadline = self._clock.monotonic() + _TAKEN_SECONDS
        while self._clock.monotonic() < deadline:
            metrics = self._metrics()
            if hashlib.sha256(wanted).hexdigest() in _USED.findall(metrics):
                return
            if _failures(metrics) > failures:
                raise SiteError(
                    f"the API server does not use {AUTHENTICATORS}: it refuses them, or does not reach an issuer "
                    "within a minute; its log names the cause (/var/log/pods on the node)",
                    reason=Reason.CONFIG_INVALID,
                )
            self._clock.sleep(_LOOK_SECONDS)
        raise SiteError(
            f"the API server does not use {AUTHENTICATORS} within {_TAKEN_SECONDS:g} s", reason=Reason.CONFIG_INVALID
        )


class PlaneAdmission:
    """The admission of Pods and Services on one control plane, and the admission of later control planes."""

    def __init__(self, paths: KubernetesPaths, pods: StaticPods, kubectl: Kubectl, *, turns: Turns) -> None:
        """Store the collaborators."""
        self._paths = paths
        self._pods = pods
        self._kubectl = kubectl
        self._turns = turns

    def differs(self, wanted: PodSecurity) -> tuple[str, ...]:
        """Return the necessary changes, one line each; raises ADMISSION_FOREIGN, KUBECTL_FAILED."""
        named = f"Pods are held to {wanted.level}, but for {', '.join(wanted.namespaces)}"
        found = []
        if not self._has(wanted):
            found.append(f"API server: {named}; externalIPs of Services are refused")
        if set_arguments(self._kubectl, self._arguments, check_mode=True):
            found.append(f"later control planes: {admission_path(self._paths)}")
        return tuple(found)

    def place(self, wanted: PodSecurity) -> None:
        """Apply the admission.

        Also raises CONTROL_PLANE_COMPONENT_UNHEALTHY, after which this machine has its earlier state. The configuration
        of later control planes is changed first. An interrupted run is repeated, because only its end is recorded.
        """
        self._turns.take()
        try:
            set_arguments(self._kubectl, self._arguments)
            if not self._has(wanted):
                self._restart(wanted)
        finally:
            self._turns.free()

    def _restart(self, wanted: PodSecurity) -> None:
        content, arguments = admission_file(wanted), self._arguments(self._pods.arguments(API_SERVER))
        with _changed_file(admission_path(self._paths), content):
            self._pods.rearrange(API_SERVER, arguments)
        record_loaded(self._paths.admission_taken, content)

    def _has(self, wanted: PodSecurity) -> bool:
        present, place = self._pods.arguments(API_SERVER), admission_path(self._paths)
        current = {name: present.get(name) for name in self._arguments(present)} == self._arguments(present)
        return current and has_loaded(self._paths.admission_taken, place, admission_file(wanted))

    def _arguments(self, present: Mapping[str, str]) -> Mapping[str, str]:
        wanted = plugin_arguments(present, self._paths)
        if wanted is None:
            raise KubeadmError(
                f"expected {admission_path(self._paths)} as the API server's admission configuration, got another file",
                reason=Reason.ADMISSION_FOREIGN,
            )
        return wanted


class PlaneAuditWebhook:
    """The webhook to which the API server of one control plane sends audit events."""

    def __init__(self, paths: KubernetesPaths, pods: StaticPods, *, turns: Turns) -> None:
        """Store the collaborators."""
        self._paths = paths
        self._pods = pods
        self._turns = turns

    def differs(self, wanted: bytes) -> tuple[str, ...]:
        """Return the necessary change in one line; ``wanted`` is the webhook's file, empty for none."""
        place = audit_webhook_path(self._paths)
        present = self._pods.arguments(API_SERVER).get(AUDIT_WEBHOOK_ARGUMENT)
        if wanted:
            done = present == str(place) and has_loaded(self._paths.audit_webhook_taken, place, wanted)
            return () if done else (f"kube-apiserver: {place}",)
        return () if present is None and not place.exists() else (f"kube-apiserver: no {place}",)

    def place(self, wanted: bytes) -> None:
        """Apply or remove the webhook.

        Raises CONTROL_PLANE_COMPONENT_UNHEALTHY, after which this machine has its earlier state. An interrupted run is
        repeated, because only its end is recorded.
        """
        place = audit_webhook_path(self._paths)
        arguments, without = ({AUDIT_WEBHOOK_ARGUMENT: str(place)}, ()) if wanted else ({}, (AUDIT_WEBHOOK_ARGUMENT,))
        self._turns.take()
        try:
            with _changed_file(place, wanted):
                self._pods.rearrange(API_SERVER, arguments, without=without)
            write_patches(self._paths)
            record_loaded(self._paths.audit_webhook_taken, wanted)
        finally:
            self._turns.free()


@contextmanager
def _changed_file(place: Path, content: bytes) -> Iterator[None]:
    """Write a file, or remove it if ``content`` is empty; restore it if the block fails."""
    before = read_bytes(place, limit=_LIMIT) if place.exists() else b""
    _put(place, content)
    try:
        yield
    except AttestedError:
        _put(place, before)
        raise


def _put(place: Path, content: bytes) -> None:
    if not content:
        remove(place)
        return
    make_directory(place.parent, mode=0o755)
    write_atomic(place, content, mode=_MODE)


def _failures(metrics: str) -> float:
    return sum(map(float, _FAILURES.findall(metrics)))


def _record(path: Path) -> dict[str, list[str]]:
    """Return the recorded names by component; a damaged record counts as empty."""
    try:
        found: dict[str, list[str]] = load_json(read_bytes(path, limit=_LIMIT)) if path.exists() else {}
    except ValueError:
        return {}
    return found


def run_control_plane_settings(params: Mapping[str, Any], check_mode: bool) -> Result:
    """Execute the module `control_plane_settings`; also raises OPTION_INVALID."""
    given, authenticators, level = params["arguments"], params["authenticators"], params["pod_security"]
    webhook = None if params["audit_webhook"] is None else audit_webhook_file(params["audit_webhook"])
    arguments = None if given is None else parse_arguments(given)
    authentication = None if authenticators is None else authentication_file(authenticators)
    pods = None if level is None else PodSecurity(level=level, exempt=tuple(params["exempt_namespaces"]))
    if pods is not None:
        require_pod_security(pods)
    with running_plane(params["node_config"]) as here:
        paths, clock = here.machine.paths, here.machine.clock
        admission = PlaneAdmission(paths, here.pods, here.kubectl, turns=here.turns)
        enforced = () if pods is None else admission.differs(pods)
        if pods is not None and enforced and not check_mode:
            admission.place(pods)
        audit = PlaneAuditWebhook(paths, here.pods, turns=here.turns)
        audited = () if webhook is None else audit.differs(webhook)
        if webhook is not None and audited and not check_mode:
            audit.place(webhook)
        metrics = ApiServer(paths, here.kubectl, clock=clock).metrics
        plane = PlaneSettings(paths, here.pods, here.kubectl, turns=here.turns, metrics=metrics, clock=clock)
        todo = plane.differs(arguments, authentication)
        if todo and not check_mode:
            plane.place(arguments, authentication)
    lines = [*enforced, *audited, *todo]
    return Result(changed=bool(lines), diff=Diff(before="", after="".join(f"{line}\n" for line in lines)))
