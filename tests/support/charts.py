# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Charts for tests: a definition of Widgets, or none, and a Deployment that never becomes ready without kubelets.

`registry` serves one chart by the protocol of OCI registries (distribution-spec 1.1, pull), with TLS.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import ssl
import tarfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

GROUP = "addons.example.com"
WIDGETS = f"widgets.{GROUP}"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_SCHEMA = {
    "type": "object",
    "properties": {
        name: {"type": "object", "x-kubernetes-preserve-unknown-fields": True} for name in ("spec", "status")
    },
}


def definition(plural: str = "widgets") -> dict[str, Any]:
    """Return a definition with one version and a status of its own."""
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
    """Return a Deployment whose Pods nobody starts."""
    labels = {"app": "never"}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "never", "image": "example.com/never"}]}}
    spec = {"selector": {"matchLabels": labels}, "template": pod}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "never"}, "spec": spec}


def delete_hook() -> dict[str, Any]:
    """Return a Job before the deletion of its release; no controller runs it here."""
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
    """Return a chart as `helm package` makes it."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as packed:
        packed.add(directory, arcname="widgets")
    return out.getvalue()


@contextlib.contextmanager
def registry(chart_archive: bytes, certificate: Path, key: Path) -> Iterator[tuple[str, str]]:
    """Serve a chart on loopback; yield its reference and the digest of its manifest."""
    config = json.dumps({"name": "widgets", "version": "1.0.0", "apiVersion": "v2"}).encode()
    manifest = {
        "schemaVersion": 2,
        "mediaType": _MANIFEST,
        "config": _descriptor("application/vnd.cncf.helm.config.v1+json", config),
        "layers": [_descriptor("application/vnd.cncf.helm.chart.content.v1.tar+gzip", chart_archive)],
    }
    document = json.dumps(manifest).encode()
    content = {_digest(one): one for one in (config, chart_archive, document)}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.rpartition("/")[2]
            data = content.get(name, b"")
            self.send_response(200 if data or self.path == "/v2/" else 404)
            is_manifest = "/manifests/" in self.path
            self.send_header("Content-Type", _MANIFEST if is_manifest else "application/octet-stream")
            self.send_header("Content-Length", str(len(data)))
            self.send_header("Docker-Content-Digest", name)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(data)

        def do_HEAD(self) -> None:
            self.do_GET()

        def log_message(self, *_words: object) -> None:
            """Say nothing."""

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"oci://127.0.0.1:{server.server_port}/charts/widgets", _digest(document)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _descriptor(kind: str, data: bytes) -> dict[str, Any]:
    return {"mediaType": kind, "digest": _digest(data), "size": len(data)}
