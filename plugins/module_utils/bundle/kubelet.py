# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module `kubelet_settings`: the kubelet's unit files, and the site's kubelet configuration.

kubeadm writes the configuration of the cluster, and the kubelet merges the files of its drop-in directory over it
(kubelet.config.k8s.io/v1beta1; "Set Kubelet Parameters Via A Configuration File"). The site's settings are one drop-in.
"""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.command import SystemRunner
from ..core.files import write_atomic
from ..core.host import SystemClock
from ..errors import ComponentError, SiteError
from ..reasons import Reason
from ..result import Result
from .node_files import write_files

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ..core.command import Runner
    from ..core.host import Clock

DROP_IN = "/etc/attested/kubelet.d/50-site.conf"
_UNIT = "kubelet.service"
_KIND = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}
_PORT = 10248
_SETTLE_SECONDS = 10.0
_POLL_SECONDS = 1.0
_COMMAND_SECONDS = 120

_OURS = "this collection sets it"
_CLUSTER = "init sets it, the same for all nodes"
_RULED = {
    "apiVersion": _OURS,
    "kind": _OURS,
    "address": "the API server knows the kubelet by the address of its certificate",
    "authentication": "anonymous requests stay refused, and the API server is known by the cluster's CA",
    "authorization": "the API server decides who may ask the kubelet",
    "cgroupDriver": "systemd manages the control groups",
    "clusterDNS": _CLUSTER,
    "clusterDomain": _CLUSTER,
    "containerRuntimeEndpoint": _OURS,
    "failCgroupV1": "use attested_allow_cgroup_v1",
    "healthzBindAddress": _OURS,
    "healthzPort": _OURS,
    "imageServiceEndpoint": _OURS,
    "port": _OURS,
    "readOnlyPort": "it has no authentication",
    "rotateCertificates": "the node renews its certificate with fresh evidence",
    "serverTLSBootstrap": "use attested_kubelet_serving_certificates",
    "staticPodPath": "static Pods bypass the API server and its admission",
    "staticPodURL": "static Pods bypass the API server and its admission",
    "staticPodURLHeader": "static Pods bypass the API server and its admission",
    "tlsCertFile": "use attested_kubelet_serving_certificates",
    "tlsPrivateKeyFile": "use attested_kubelet_serving_certificates",
}
"""Fields that a site must not set, and why. Names are case-insensitive."""
_FIXED = {"rotateCertificates": False}
"""Kubeadm turns this on in the cluster's configuration whatever `init` says. With it the kubelet reads its certificate
only at its start, and requests the next one from the API server, where nothing approves it."""
_RULED_GATES = frozenset({"rotatekubeletservercertificate"})


def render_settings(configuration: Mapping[str, Any]) -> str:
    """Return the drop-in (JSON) with a site's ``configuration``; raises CONFIG_INVALID."""
    ruled = {name.lower(): why for name, why in _RULED.items()}
    for name in configuration:
        if (why := ruled.get(str(name).lower())) is not None:
            raise _invalid(f"expected no {name} in attested_kubelet_configuration: {why}")
    gates = configuration.get("featureGates") or {}
    if not isinstance(gates, dict) or any(not isinstance(value, bool) for value in gates.values()):
        raise _invalid("expected featureGates of attested_kubelet_configuration as names with true or false")
    if wrong := sorted(str(name) for name in gates if str(name).lower() in _RULED_GATES):
        raise _invalid(f"expected no feature gate {', '.join(wrong)} in attested_kubelet_configuration: {_OURS}")
    return json.dumps({**_KIND, **_FIXED, **configuration}, indent=2, sort_keys=True) + "\n"


def answers_healthy() -> bool:
    """Return whether the kubelet answers 200 at 127.0.0.1:10248/healthz."""
    try:
        connection = http.client.HTTPConnection("127.0.0.1", _PORT, timeout=5)
        try:
            connection.request("GET", "/healthz")
            return connection.getresponse().status == http.client.OK
        finally:
            connection.close()
    except (OSError, http.client.HTTPException):
        return False


class Kubelet:
    """The kubelet's unit; ``root`` replaces ``/`` in tests."""

    def __init__(self, runner: Runner, clock: Clock, *, healthy: Callable[[], bool], root: Path = Path("/")) -> None:
        """Set the runner of systemctl, the clock and the health check."""
        self._runner = runner
        self._clock = clock
        self._healthy = healthy
        self.root = root

    def runs(self) -> bool:
        """Return whether the unit is active or activating."""
        return self._systemctl("is-active", _UNIT) in ("active", "activating")

    def reload(self) -> None:
        """Reload the unit files of systemd."""
        self._systemctl("daemon-reload")

    def fault(self, seconds: float) -> str | None:
        """Restart the kubelet; return None once it is healthy for `_SETTLE_SECONDS`, else the fault."""
        self._systemctl("restart", _UNIT)
        deadline = self._clock.monotonic() + seconds
        since: float | None = None
        while self._clock.monotonic() < deadline:
            if not (self._healthy() and self._systemctl("is-active", _UNIT) == "active"):
                since = None
            elif since is None:
                since = self._clock.monotonic()
            elif self._clock.monotonic() - since >= _SETTLE_SECONDS:
                return None
            self._clock.sleep(_POLL_SECONDS)
        return f"the kubelet is not healthy within {seconds:g} s; 'journalctl -u kubelet' on the node says why"

    def content(self, path: str) -> bytes | None:
        """Return the content of a file, or None."""
        place = self.root / path.lstrip("/")
        return place.read_bytes() if place.is_file() else None

    def put_back(self, path: str, content: bytes | None) -> None:
        """Restore the content of a file, or remove it."""
        place = self.root / path.lstrip("/")
        if content is None:
            place.unlink(missing_ok=True)
        else:
            write_atomic(place, content, mode=0o644)

    def write(self, rows: Sequence[Mapping[str, Any]], *, check_mode: bool) -> Result:
        """Write the files that differ."""
        return write_files({"files": list(rows)}, check_mode, root=self.root, runner=self._runner)

    def _systemctl(self, *words: str) -> str:
        done = self._runner.run(["systemctl", *words], timeout_seconds=_COMMAND_SECONDS, check=False)
        return done.stdout.decode("utf-8", "replace").strip()


def run_settings(params: Mapping[str, Any], check_mode: bool, *, kubelet: Kubelet | None = None) -> Result:
    """Write the kubelet's files, and restart a running kubelet if a file changed.

    Raises CONFIG_INVALID, and KUBERNETES_NOT_HEALTHY after restoring all files.
    """
    unit = kubelet or Kubelet(SystemRunner(), SystemClock(), healthy=answers_healthy)
    text = render_settings(params["configuration"])
    rows = [
        *({"path": one["path"], "content": one["content"], "mode": "0644"} for one in params["units"]),
        {"path": DROP_IN, "content": text, "mode": "0644"},
    ]
    before = {row["path"]: unit.content(row["path"]) for row in rows}
    done = unit.write(rows, check_mode=check_mode)
    written = [str(path) for path in done.values["written"]]
    restarts = bool(written) and unit.runs()
    if written and not check_mode:
        unit.reload()
    if restarts and not check_mode:
        _restart(unit, {path: before[path] for path in written}, seconds=float(params["wait_seconds"]))
    return Result(changed=bool(written), values={"written": written, "restarted": restarts}, diff=done.diff)


def _restart(unit: Kubelet, before: Mapping[str, bytes | None], *, seconds: float) -> None:
    fault = unit.fault(seconds)
    if fault is None:
        return
    for path, content in before.items():
        unit.put_back(path, content)
    unit.reload()
    left = unit.fault(seconds)
    state = "the kubelet runs with the files of before" if left is None else f"with the files of before {left}"
    raise ComponentError(
        f"expected the kubelet to be healthy with new {', '.join(before)}, got: {fault}; they were put back, {state}",
        reason=Reason.KUBERNETES_NOT_HEALTHY,
    )


def _invalid(message: str) -> SiteError:
    return SiteError(message, reason=Reason.CONFIG_INVALID)
