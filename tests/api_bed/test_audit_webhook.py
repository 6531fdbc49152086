# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real API server sends its audit events to the site's webhook, and no secret with them."""

from __future__ import annotations

import http.server
import json
import ssl
import threading
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.render import api_server_files
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.site_settings import audit_webhook_file
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.spec import KubernetesPaths
from ansible_collections.attested.kubernetes.tests.support.api_bed import ApiBed, Authority, api_bed, why_not
from ansible_collections.attested.kubernetes.tests.support.waiting import wait_for
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SECRET = "c2VjcmV0LWNhbmFyeQ=="


class Collector:
    """The webhook of a site; its certificate is of its own CA."""

    def __init__(self, directory: Path) -> None:
        self.events: list[dict[str, Any]] = []
        self.ca = Authority.make(directory)
        self.ca.issue("webhook", names=[(NameOID.COMMON_NAME, "webhook")], server=True)
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:  # the library's name
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.events += json.loads(body)["items"]
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_words: object) -> None:
                """Say nothing."""

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(directory / "webhook.crt", directory / "webhook.key")
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def setting(self) -> dict[str, str]:
        """Return the site's variable."""
        authority = (self.ca.directory / "ca.crt").read_text(encoding="ascii")
        return {"url": f"https://127.0.0.1:{self.server.server_port}/audit", "certificate_authority": authority}

    def of(self, resource: str, name: str) -> list[dict[str, Any]]:
        """Return the events of writes of an object."""
        found = [(one, one.get("objectRef", {})) for one in list(self.events) if one["verb"] == "create"]
        return [one for one, of in found if (of.get("resource"), of.get("name")) == (resource, name)]


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[Collector]:
    (tmp_path / "site").mkdir()
    made = Collector(tmp_path / "site")
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture
def audited(tmp_path: Path, collector: Collector) -> Iterator[ApiBed]:
    """An API server with the audit policy of a control plane, and the webhook."""
    if reason := why_not():
        pytest.skip(reason)
    files = api_server_files(KubernetesPaths(root=tmp_path))
    policy, webhook = tmp_path / "audit-policy.yaml", tmp_path / "audit-webhook.yaml"
    policy.write_bytes(next(content for name, content in files.items() if name.endswith("audit-policy.yaml")))
    webhook.write_bytes(audit_webhook_file(collector.setting()))
    (tmp_path / "bed").mkdir()
    arguments = {
        "audit-policy-file": str(policy),
        "audit-webhook-config-file": str(webhook),
        "audit-webhook-batch-max-wait": "1s",
    }
    with api_bed(tmp_path / "bed", arguments=arguments) as bed:
        yield bed


def test_events_reach_the_webhook_and_secrets_do_not(audited: ApiBed, collector: Collector) -> None:
    """Who may do what is sent with its body, a Secret without."""
    audited.kubectl("create", "secret", "generic", "canary", "--from-literal=key=secret-canary")
    audited.kubectl("create", "clusterrole", "reader", "--verb=get", "--resource=pods")
    wait_for(lambda: bool(collector.of("secrets", "canary") and collector.of("clusterroles", "reader")))
    (secret,), (role,) = collector.of("secrets", "canary"), collector.of("clusterroles", "reader")
    assert secret["level"] == "Metadata"
    assert role["requestObject"]["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
    said = json.dumps(collector.events)
    assert "secret-canary" not in said
    assert SECRET not in said
