# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An API server with the restrictions for Pods and Services of our clusters: arguments, files and policies."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
import yaml
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.render import (
    api_server_arguments,
    api_server_files,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.spec import KubernetesPaths
from ansible_collections.attested.kubernetes.tests.support.api_bed import ApiBed, api_bed
from ansible_collections.attested.kubernetes.tests.support.house import ROOT
from ansible_collections.attested.kubernetes.tests.support.waiting import wait_for
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.spec import PodSecurity

_ROLE = ROOT / "roles" / "control_plane"
_ADMIN = ("admin", "edit", "view")
_TOLD = ("admission-control-config-file", "enable-admission-plugins")


def render_guards(exempt: Sequence[str] = ()) -> str:
    """Return the policies of the role for Pods, as Ansible renders them."""
    environment = jinja2.Environment(autoescape=False, undefined=jinja2.StrictUndefined)  # no HTML
    environment.filters["to_json"] = json.dumps
    known: dict[str, Any] = {"control_plane_exempt_namespaces": list(exempt)}
    known |= yaml.safe_load((_ROLE / "vars" / "main.yml").read_text())
    for name in ("__control_plane_exempt", "__control_plane_secret_paths"):
        known[name] = environment.from_string(known[name]).render(known)
    return environment.from_string((_ROLE / "templates" / "guards.yml.j2").read_text()).render(known)


def secret_paths() -> list[str]:
    """Return the paths of a node that the policies name."""
    return list(yaml.safe_load((_ROLE / "vars" / "main.yml").read_text())["__control_plane_secrets"])


@contextlib.contextmanager
def guarded(root: Path, pods: PodSecurity, *, policies: bool = True) -> Iterator[ApiBed]:
    """Run an API server below ``root`` with the settings ``pods``, with the policies or without."""
    paths = KubernetesPaths(root=root / "machine")
    for name, content in api_server_files(paths, pods).items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(content)
    told = api_server_arguments(paths)
    with api_bed(root, arguments={name: told[name] for name in _TOLD}) as bed:
        if policies:
            bed.kubectl("apply", "--server-side", "-f", "-", stdin=render_guards(pods.exempt))
            wait_for(lambda: "tolerate" in create(bed, pod(tolerations=[{"operator": "Exists"}])))
        yield bed


def pod(namespace: str = "default", **spec: Any) -> dict[str, Any]:
    """Return a Pod that every level allows, with ``spec`` in place of its own."""
    security = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    container = {"name": "a", "image": "example.invalid/a:1", "securityContext": security}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "a-", "namespace": namespace},
        "spec": {"containers": [container], **spec},
    }


def create(bed: ApiBed, document: dict[str, Any], *, user: str = "admin") -> str:
    """Request an object as a dry run, and return the answer of the API server."""
    return bed.kubectl("create", "--dry-run=server", "-f", "-", user=user, stdin=json.dumps(document), check=False)


def make_tenant(bed: ApiBed, namespace: str) -> str:
    """Create a namespace with a ServiceAccount with the built-in role admin in it; return its user in the bed.

    The controller that aggregates the role does not run here, so the account gets the roles to aggregate.
    """
    user = f"{namespace}-owner"
    bed.kubectl("create", "namespace", namespace)
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
    names = [(NameOID.ORGANIZATION_NAME, group) for group in groups]
    bed.ca.issue(user, names=[*names, (NameOID.COMMON_NAME, f"system:serviceaccount:{namespace}:owner")])
    for part in _ADMIN:
        words = (f"owner-{part}", f"--clusterrole=system:aggregate-to-{part}", f"--serviceaccount={namespace}:owner")
        bed.kubectl("create", "rolebinding", *words, f"--namespace={namespace}")
    return user
