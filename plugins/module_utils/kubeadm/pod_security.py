# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rules of API servers for Pods: the Pod Security level and the exempt namespaces. Pure.

Without a level, a user who may create a Pod in one namespace can read the keys of the machine that runs the Pod.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..core.documents import load_documents

BASELINE, PRIVILEGED = "baseline", "privileged"
LEVELS = (BASELINE, "restricted", PRIVILEGED)
"""Kubernetes' Pod Security Standards; the last one restricts nothing."""

SYSTEM_NAMESPACE = "kube-system"
PLUGINS = ("DenyServiceExternalIPs", "NodeRestriction")
"""The admission plugins that are enabled in addition to Kubernetes' defaults; PodSecurity is a default."""

_API = "apiserver.config.k8s.io/v1"
_KIND = "AdmissionConfiguration"
_PLUGIN = "PodSecurity"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSecurity:
    """The level (of `LEVELS`) of namespaces without own labels, and the ``exempt`` namespaces."""

    level: str = BASELINE
    exempt: tuple[str, ...] = ()

    @property
    def namespaces(self) -> tuple[str, ...]:
        """The exempt namespaces, sorted."""
        return tuple(sorted({SYSTEM_NAMESPACE, *self.exempt}))


BY_DEFAULT = PodSecurity()


def admission_configuration(pods: PodSecurity) -> dict[str, Any]:
    """Return the document of kind AdmissionConfiguration."""
    levels = dict.fromkeys(("audit", "enforce", "warn"), pods.level)
    return {
        "apiVersion": _API,
        "kind": _KIND,
        "plugins": [
            {
                "name": _PLUGIN,
                "configuration": {
                    "apiVersion": "pod-security.admission.config.k8s.io/v1",
                    "kind": "PodSecurityConfiguration",
                    "defaults": {**levels, **{f"{mode}-version": "latest" for mode in levels}},
                    "exemptions": {"usernames": [], "runtimeClasses": [], "namespaces": list(pods.namespaces)},
                },
            }
        ],
    }


def parse_admission(content: bytes) -> PodSecurity:
    """Parse a file that `admission_configuration` made; raises `ValueError` for any other file."""
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
