# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module `control_plane_settings`: a site's arguments and authenticators, on a control plane that runs.

A program whose arguments change is started anew, one after the other and on one control plane at a time. kubeadm's
configuration is changed at the end, so that no later control plane is made with arguments that no program took.
"""

from __future__ import annotations

import hashlib
import json
import re
from functools import partial
from typing import TYPE_CHECKING, Any

from ..core.documents import load_json
from ..core.files import make_directory, read_bytes, write_atomic
from ..errors import AttestedError, SiteError
from ..kubeadm.api_server import ApiServer
from ..kubeadm.plane_encryption import change_joiners
from ..kubeadm.render import authentication_path
from ..kubeadm.site_settings import (
    AUTHENTICATORS,
    COMPONENTS,
    arrange_configuration,
    authentication_file,
    changes_of,
    parse_arguments,
)
from ..reasons import Reason
from ..result import Diff, Result
from .control_plane_turns import running_plane

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from ..core.host import Clock
    from ..kubeadm.certificate_renewal import Turns
    from ..kubeadm.kubectl import Kubectl
    from ..kubeadm.spec import KubernetesPaths
    from ..kubeadm.static_pods import StaticPods

_LIMIT = 1 << 20
_MODE = 0o644
_TAKEN_SECONDS = 90.0
"""An API server looks at its file once a minute, where it was not told of a change at once."""
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
    """One control plane: the arguments of its programs, its API server's authentication, what later ones are told."""

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
        """Keep them; ``metrics`` are those of this machine's API server."""
        self._paths = paths
        self._pods = pods
        self._kubectl = kubectl
        self._turns = turns
        self._metrics = metrics
        self._clock = clock

    def differs(self, arguments: Mapping[str, Mapping[str, str]] | None, authentication: bytes | None) -> list[str]:
        """Return what is to change, a line each; None is what the site says nothing of.

        Raises CONTROL_PLANE_MANIFEST_MALFORMED, KUBECTL_FAILED.
        """
        found = []
        if arguments is not None:
            for component in COMPONENTS:
                placed, gone = self._changes(component, arguments)
                found += [f"{component}: --{name}={value}" for name, value in sorted(placed.items())]
                found += [f"{component}: no --{name}" for name in gone]
            if change_joiners(self._kubectl, partial(arrange_configuration, wanted=arguments), check_mode=True):
                found.append("later control planes: the same arguments")
        if authentication is not None and self._authentication() != authentication:
            found.append(f"kube-apiserver: {authentication_path(self._paths)}")
        return found

    def place(self, arguments: Mapping[str, Mapping[str, str]] | None, authentication: bytes | None) -> None:
        """Make it so, one program after the other; what was interrupted is done again.

        Raises also CONTROL_PLANE_COMPONENT_UNHEALTHY, after which that program has its arguments of before, and
        CONFIG_INVALID where the API server refuses the authenticators, which it then never used.
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
                change_joiners(self._kubectl, partial(arrange_configuration, wanted=arguments))
        finally:
            self._turns.free()

    def _changes(
        self, component: str, arguments: Mapping[str, Mapping[str, str]]
    ) -> tuple[dict[str, str], tuple[str, ...]]:
        present = self._pods.arguments(component)
        return changes_of(component, present, arguments.get(component, {}), before=self._given(component))

    def _given(self, component: str) -> tuple[str, ...]:
        """Return the names of the arguments that the site ever gave here, as far as they may still be there."""
        return tuple(_record(self._paths.site_arguments).get(component, ()))

    def _remember(self, component: str, arguments: Mapping[str, Mapping[str, str]]) -> None:
        """Write down what is given, before a program gets it; what is taken away stays until it is gone."""
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
        """Write the file and wait until the API server uses it; else the file of before is put back."""
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
                    f"the API server does not take {AUTHENTICATORS}: it refuses them, or does not reach an issuer "
                    "within a minute; its log says which (/var/log/pods on the node)",
                    reason=Reason.CONFIG_INVALID,
                )
            self._clock.sleep(_LOOK_SECONDS)
        raise SiteError(
            f"the API server does not take {AUTHENTICATORS} within {_TAKEN_SECONDS:g} s", reason=Reason.CONFIG_INVALID
        )


def _failures(metrics: str) -> float:
    return sum(map(float, _FAILURES.findall(metrics)))


def _record(path: Path) -> dict[str, list[str]]:
    """Return the names by component; a record that somebody broke is none."""
    try:
        found: dict[str, list[str]] = load_json(read_bytes(path, limit=_LIMIT)) if path.exists() else {}
    except ValueError:
        return {}
    return found


def run_control_plane_settings(params: Mapping[str, Any], check_mode: bool) -> Result:
    """Do what the module `control_plane_settings` is asked for."""
    given, authenticators = params["arguments"], params["authenticators"]
    arguments = None if given is None else parse_arguments(given)
    authentication = None if authenticators is None else authentication_file(authenticators)
    with running_plane(params["node_config"]) as here:
        paths, clock = here.machine.paths, here.machine.clock
        metrics = ApiServer(paths, here.kubectl, clock=clock).metrics
        plane = PlaneSettings(paths, here.pods, here.kubectl, turns=here.turns, metrics=metrics, clock=clock)
        todo = plane.differs(arguments, authentication)
        if todo and not check_mode:
            plane.place(arguments, authentication)
    return Result(changed=bool(todo), diff=Diff(before="", after="".join(f"{line}\n" for line in todo)))
