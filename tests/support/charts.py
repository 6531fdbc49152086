# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Helm charts for tests: optional CRD of Widgets, and a Deployment that is never ready without kubelets.

`registry` serves one chart.
"""

from __future__ import annotations

import contextlib
import io
import json
import tarfile
from typing import TYPE_CHECKING, Any

from ansible_collections.attested.kubernetes.tests.support.registry import MANIFEST, Registry, descriptor, digest, serve

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

GROUP = "addons.example.com"
WIDGETS = f"widgets.{GROUP}"
_SCHEMA = {
    "type": "object",
    "properties": {
        name: {"type": "object", "x-kubernetes-preserve-unknown-fields": True} for name in ("spec", "status")
    },
}


def definition(plural: str = "widgets") -> dict[str, Any]:
    """Return a CRD with one version and a status subresource."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"plural": plural, "singular": plural[:-1], "kind": plural[:-1].capitalize()},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": _SCHEMA},
                    "subresources": {"status": {}},
                }
            ],
        },
    }


def config_map(name: str, text: str) -> dict[str, Any]:
    """Return a ConfigMap, whose text may be a template of Helm."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"text": text}}


def never_ready() -> dict[str, Any]:
    """Return a Deployment whose Pods never start."""
    labels = {"app": "never"}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "never", "image": "example.com/never"}]}}
    spec = {"selector": {"matchLabels": labels}, "template": pod}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "never"}, "spec": spec}


def delete_hook() -> dict[str, Any]:
    """Return a pre-delete hook Job; no controller runs it here."""
    pod = {"restartPolicy": "Never", "containers": [{"name": "hook", "image": "example.com/hook"}]}
    metadata = {"name": "hook", "annotations": {"helm.sh/hook": "pre-delete"}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": {"spec": pod}}}


def chart(directory: Path, *templates: Mapping[str, Any], version: str = "1.0.0", crds: tuple[Any, ...] = ()) -> Path:
    """Write a chart with these objects as templates, and return its directory."""
    (directory / "templates").mkdir(parents=True)
    facts = {"apiVersion": "v2", "name": "widgets", "version": version}
    (directory / "Chart.yaml").write_text(json.dumps(facts))
    for number, document in enumerate(templates):
        (directory / "templates" / f"{number}.yaml").write_text(json.dumps(document))
    if crds:
        (directory / "crds").mkdir()
        (directory / "crds" / "all.yaml").write_text("\n---\n".join(json.dumps(one, indent=1) for one in crds))
    return directory


def archive(directory: Path) -> bytes:
    """Return a chart in the form of `helm package`."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as packed:
        packed.add(directory, arcname="widgets")
    return out.getvalue()


@contextlib.contextmanager
def registry(
    chart_archive: bytes, certificate: Path, key: Path, *, login: tuple[str, str] | None = None, by_token: bool = False
) -> Iterator[tuple[str, str]]:
    """Serve a chart on loopback; yield its reference and the digest of its manifest."""
    config = json.dumps({"name": "widgets", "version": "1.0.0", "apiVersion": "v2"}).encode()
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": descriptor("application/vnd.cncf.helm.config.v1+json", config),
        "layers": [descriptor("application/vnd.cncf.helm.chart.content.v1.tar+gzip", chart_archive)],
    }
    document = json.dumps(manifest).encode()
    content = {digest(one): one for one in (config, chart_archive, document)}
    with serve(Registry(content, login=login, by_token=by_token), certificate, key) as host:
        yield f"oci://{host}/charts/widgets", digest(document)
