# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An OCI registry on loopback (distribution-spec 1.1, pull), with TLS and optional login.

It replaces public registries for a real containerd or Helm.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import io
import json
import secrets
import ssl
import tarfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

MANIFEST = "application/vnd.oci.image.manifest.v1+json"


class Registry:
    """The content of a registry, and its ``login`` (user and password, or a token), if any.

    ``by_token``: user and password are for its token server, whose token is for the registry.
    """

    def __init__(
        self, content: Mapping[str, bytes], *, login: tuple[str, str] | None = None, by_token: bool = False
    ) -> None:
        self.content = dict(content)
        self.served: list[str] = []
        self.by_token = by_token
        self.bearer = by_token or bool(login and not login[0])
        self.token = secrets.token_hex(16)
        self.wanted = ""
        if login:
            user, password = login
            basic = base64.b64encode(f"{user}:{password}".encode()).decode("ascii")
            self.wanted = f"Basic {basic}" if user else f"Bearer {password}"

    def answer(self, path: str, authorization: str, host: str) -> tuple[int, dict[str, str], bytes]:
        """Return status, headers and body."""
        if self.by_token and path.startswith("/token"):
            known = authorization == self.wanted
            return (200, {}, json.dumps({"token": self.token}).encode()) if known else (401, {}, b"")
        wanted = f"Bearer {self.token}" if self.by_token else self.wanted
        if wanted and authorization != wanted:
            realm = (
                f'Bearer realm="https://{host}/token",service="registry"' if self.bearer else 'Basic realm="registry"'
            )
            return 401, {"WWW-Authenticate": realm}, b""
        name = path.partition("?")[0].rpartition("/")[2]
        data = self.content.get(name, b"")
        if data:
            self.served.append(path)
        kind = MANIFEST if "/manifests/" in path else "application/octet-stream"
        return (
            (200 if data or path == "/v2/" else 404),
            {"Content-Type": kind, "Docker-Content-Digest": digest(data)},
            data,
        )


@contextlib.contextmanager
def serve(registry: Registry, certificate: Path, key: Path) -> Iterator[str]:
    """Serve the registry, and yield its HOST:PORT."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, headers, data = registry.answer(
                self.path, self.headers.get("Authorization", ""), self.headers["Host"]
            )
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(data))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(data)

        def do_HEAD(self) -> None:
            self.do_GET()

        def log_message(self, *_words: object) -> None:
            """Log nothing."""

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def image(architecture: str) -> dict[str, bytes]:
    """Return a small image in the form of a registry, its manifest also with the tag `1`."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        member = tarfile.TarInfo("hello")
        member.size = 6
        tar.addfile(member, io.BytesIO(b"hello\n"))
    layer = raw.getvalue()
    config = json.dumps(
        {"architecture": architecture, "os": "linux", "rootfs": {"type": "layers", "diff_ids": [digest(layer)]}}
    ).encode()
    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": descriptor("application/vnd.oci.image.config.v1+json", config),
            "layers": [descriptor("application/vnd.oci.image.layer.v1.tar", layer)],
        }
    ).encode()
    return {"1": manifest, **{digest(one): one for one in (layer, config, manifest)}}


def digest(data: bytes) -> str:
    """Return the digest of a blob, in the form of references."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def descriptor(kind: str, data: bytes) -> dict[str, Any]:
    """Return the descriptor of a blob."""
    return {"mediaType": kind, "digest": digest(data), "size": len(data)}
