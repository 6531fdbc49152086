# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What API servers hold Pods and Services to: the level of PodSecurity, and who is exempt. Pure.

Without it whoever may create a Pod in one namespace reads the keys of the machine that it runs on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..core.documents import load_documents

BASELINE, PRIVILEGED = "baseline", "privileged"
LEVELS = (BASELINE, "restricted", PRIVILEGED)
"""Kubernetes' Pod Security Standards; the last one holds nobody to anything."""

SYSTEM_NAMESPACE = "kube-system"
PLUGINS = ("DenyServiceExternalIPs", "NodeRestriction")
"""What is enabled beside Kubernetes' own defaults; PodSecurity is one of those."""

_API = "apiserver.config.k8s.io/v1"
_KIND = "AdmissionConfiguration"
_PLUGIN = "PodSecurity"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSecurity:
    """The level of `LEVELS` that every namespace has, but for its own labels, ``exempt`` ones and kube-system."""

    level: str = BASELINE
    exempt: tuple[str, ...] = ()

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Every namespace that is held to nothing, in order."""
        return tuple(sorted({SYSTEM_NAMESPACE, *self.exempt}))


BY_DEFAULT = PodSecurity()


def admission_configuration(pods: PodSecurity) -> dict[str, Any]:
    """Return the document of kind AdmissionConfiguration."""
    held = dict.fromkeys(("audit", "enforce", "warn"), pods.level)
    return {
        "apiVersion": _API,
        "kind": _KIND,
        "plugins": [
            {
                "name": _PLUGIN,
                "configuration": {
                    "apiVersion": "pod-security.admission.config.k8s.io/v1",
                    "kind": "PodSecurityConfiguration",
                    "defaults": {**held, **{f"{mode}-version": "latest" for mode in held}},
                    "exemptions": {"usernames": [], "runtimeClasses": [], "namespaces": list(pods.namespaces)},
                },
            }
        ],
    }


def parse_admission(content: bytes) -> PodSecurity:
    """Return what a file says that `admission_configuration` made; raises ValueError for any other."""
    try:
        (document,) = load_documents(content.decode("utf-8"))
        configuration = document["plugins"][0]["configuration"]
        names = configuration["exemptions"]["namespaces"]
        found = PodSecurity(
            level=configuration["defaults"]["enforce"],
            exempt=tuple(name for name in names if name != SYSTEM_NAMESPACE),
        )
        same = document == admission_configuration(found)
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise ValueError(_KIND) from error
    if not same:
        raise ValueError(_KIND)
    return found
