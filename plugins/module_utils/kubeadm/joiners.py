# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""kubeadm's own ConfigMap, from which further control planes are made: what their API servers are told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import KubeadmError
from ..reasons import Reason
from ..system import load_documents
from .render import documents

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .kubectl import Kubectl

    Arguments = Callable[[Mapping[str, str]], Mapping[str, str]]

_CONFIG = ("configmap", "kubeadm-config", "kube-system")


def tell_joiners(kubectl: Kubectl, arguments: Arguments, *, check_mode: bool = False) -> bool:
    """Have later API servers told what ``arguments`` makes of those that are there; return whether that is a change.

    Raises KUBECTL_FAILED, also where somebody else changed it meanwhile, ENCRYPTION_NOT_TOLD, and what ``arguments``
    raises.
    """
    (document,) = kubectl.read_one(*_CONFIG)
    data = document.get("data", {})
    try:
        wanted = told_configuration(str(data["ClusterConfiguration"]), arguments)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise KubeadmError(
            "expected kubeadm's ClusterConfiguration in the ConfigMap kubeadm-config, found something else",
            reason=Reason.ENCRYPTION_NOT_TOLD,
        ) from None
    if wanted and not check_mode:
        kubectl.replace({**document, "data": {**data, "ClusterConfiguration": wanted}})
    return bool(wanted)


def told_configuration(text: str, arguments: Arguments) -> str:
    """Return kubeadm's ClusterConfiguration with what ``arguments`` adds for API servers, nothing if that is there."""
    (configuration,) = load_documents(text)
    server: dict[str, Any] = configuration.setdefault("apiServer", {})
    named: list[dict[str, str]] = server.setdefault("extraArgs", [])
    present = {one["name"]: one["value"] for one in named}
    wanted = {name: value for name, value in arguments(present).items() if present.get(name) != value}
    if not wanted:
        return ""
    server["extraArgs"] = [one for one in named if one["name"] not in wanted]
    server["extraArgs"] += [{"name": name, "value": value} for name, value in wanted.items()]
    return documents(configuration).decode()
