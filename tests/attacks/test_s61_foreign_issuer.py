# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S61: an issuer of tokens that a site authenticates users by says that one of them is a node, or the cluster's admin.

The API server is real, the issuer a server of OpenID Connect Discovery 1.0 here, and the file is changed as the module
`control_plane_settings` changes it.
"""

from __future__ import annotations

import base64
import http.server
import json
import socket
import ssl
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemClock
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.render import (
    authentication_path,
    render_authentication,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.site_settings import authentication_file
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.spec import KubernetesPaths
from ansible_collections.attested.kubernetes.plugins.module_utils.node.control_plane_settings import PlaneSettings
from ansible_collections.attested.kubernetes.tests.support.api_bed import api_bed, why_not
from ansible_collections.attested.kubernetes.tests.support.threats import Threat
from ansible_collections.attested.kubernetes.tests.unit.fakes.control_plane import Pods, Turns
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ansible_collections.attested.kubernetes.tests.support.api_bed import ApiBed

THREAT = Threat(
    id="S61",
    title="An issuer of tokens speaks for a node or the cluster's admin",
    case="found here: whoever rules the site's OpenID Connect",
    bed="api",
    stops=(("kubeadm/site_settings.py", ""), ("kubeadm/site_settings.py", "CONFIG_INVALID")),
)


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Issuer:
    """An issuer at a port of 127.0.0.1: its metadata, its key, and tokens with any claims."""

    def __init__(self, bed: ApiBed) -> None:
        self.key = rsa.generate_private_key(65537, 2048)
        bed.ca.issue("issuer", names=[(NameOID.COMMON_NAME, "issuer")], server=True)
        self.ca = (bed.directory / "ca.crt").read_text(encoding="ascii")
        issuer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:  # the library's name
                body = issuer.documents()[self.path]
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.end_headers()
                self.wfile.write(json.dumps(body).encode())

            def log_message(self, *_words: object) -> None:
                """Say nothing."""

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(bed.directory / "issuer.crt", bed.directory / "issuer.key")
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.url = f"https://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def documents(self) -> dict[str, Any]:
        numbers = self.key.public_key().public_numbers()
        key = {"kty": "RSA", "use": "sig", "alg": "RS256", "kid": "one"}
        parts = {"n": encoded(numbers.n.to_bytes(256, "big")), "e": encoded(b"\1\0\1")}
        return {
            "/.well-known/openid-configuration": {
                "issuer": self.url,
                "jwks_uri": f"{self.url}/keys",
                "response_types_supported": ["id_token"],
                "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": ["RS256"],
            },
            "/keys": {"keys": [key | parts]},
        }

    def token(self, **claims: object) -> str:
        now = int(time.time())
        body = {"iss": self.url, "aud": "kubernetes", "iat": now, "exp": now + 600, **claims}
        parts = [encoded(json.dumps(one).encode()) for one in ({"alg": "RS256", "kid": "one"}, body)]
        text = ".".join(parts)
        return f"{text}.{encoded(self.key.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256()))}"

    def authenticator(self, **mappings: object) -> dict[str, Any]:
        issuer = {"url": self.url, "audiences": ["kubernetes"], "certificateAuthority": self.ca}
        return {"issuer": issuer, "claimMappings": {"username": {"claim": "sub", "prefix": ""}, **mappings}}


class Plane:
    """The API server, whose authentication is changed as on a control plane."""

    def __init__(self, bed: ApiBed, root: Path) -> None:
        self.bed = bed
        self.paths = KubernetesPaths(root=root)
        self.settings = PlaneSettings(
            self.paths,
            Pods(self.paths),
            None,  # type: ignore[arg-type]  # no argument changes
            turns=Turns(),
            metrics=lambda: bed.kubectl("get", "--raw", "/metrics"),
            clock=SystemClock(),
        )

    def authenticate(self, *authenticators: dict[str, Any]) -> None:
        self.settings.place(None, authentication_file(authenticators))

    def user(self, token: str) -> dict[str, Any]:
        """Return as whom a token is taken, nothing where it is refused."""
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        said = json.loads(self.bed.kubectl("create", "-f", "-", "--output=json", stdin=json.dumps(review)))["status"]
        found: dict[str, Any] = said["user"] if said.get("authenticated") else {}
        return found


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    if reason := why_not():
        pytest.skip(reason)
    root = tmp_path_factory.mktemp("issuer")
    place = authentication_path(KubernetesPaths(root=root))
    place.parent.mkdir(parents=True)
    place.write_bytes(render_authentication())
    (root / "bed").mkdir()
    with api_bed(root / "bed", arguments={"authentication-config": str(place)}) as bed:
        yield Plane(bed, root)


@pytest.fixture(scope="module")
def issuer(plane: Plane) -> Iterator[Issuer]:
    made = Issuer(plane.bed)
    yield made
    made.server.shutdown()
    made.server.server_close()


def soon(ask: Callable[[], dict[str, Any]], wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Return the answer once it is as ``wanted``, the last one after half a minute.

    An API server has to fetch an issuer's keys, and remembers for ten seconds whose a token is.
    """
    deadline = time.monotonic() + 30
    while not wanted(found := ask()) and time.monotonic() < deadline:
        time.sleep(0.5)
    return found


def test_a_user_of_the_issuer_comes_and_goes_without_a_restart(plane: Plane, issuer: Issuer) -> None:
    token = issuer.token(sub="alice", groups=["developers"])
    assert plane.user(token) == {}
    groups = {"claim": "groups", "prefix": "oidc:"}
    plane.authenticate(issuer.authenticator(username={"claim": "sub", "prefix": "oidc:"}, groups=groups))
    found = soon(lambda: plane.user(token), bool)
    assert (found["username"], "oidc:developers" in found["groups"]) == ("oidc:alice", True)
    plane.authenticate()
    assert soon(lambda: plane.user(token), lambda one: not one) == {}


@pytest.mark.parametrize(
    ("claims", "said"),
    [
        ({"sub": "alice", "groups": ["developers"]}, "alice"),
        ({"sub": "system:node:cp-1", "groups": ["developers"]}, None),
        ({"sub": "alice", "groups": ["developers", "system:masters"]}, None),
        ({"sub": "alice", "groups": ["system:nodes"]}, None),
        ({"sub": "alice", "groups": ["kubeadm:cluster-admins"]}, None),
        ({"sub": "attested:admin", "groups": []}, None),
    ],
)
def test_no_token_is_for_the_clusters_own(
    plane: Plane, issuer: Issuer, claims: dict[str, Any], said: str | None
) -> None:
    """A site without prefixes believes all that its issuer says, but for this."""
    plane.authenticate(issuer.authenticator(groups={"claim": "groups", "prefix": ""}))
    assert soon(lambda: plane.user(issuer.token(sub="bob", groups=[])), bool)["username"] == "bob"
    assert plane.user(issuer.token(**claims)).get("username") == said


def test_an_issuer_that_is_down_is_told_and_keeps_no_user_of_another_out(plane: Plane, issuer: Issuer) -> None:
    plane.authenticate(issuer.authenticator())
    before = authentication_path(plane.paths).read_bytes()
    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"https://127.0.0.1:{closed.getsockname()[1]}"
    down = issuer.authenticator()
    with pytest.raises(AttestedError, match="does not reach an issuer within a minute") as caught:
        plane.authenticate({**down, "issuer": {**down["issuer"], "url": url}}, issuer.authenticator())
    assert (caught.value.code, authentication_path(plane.paths).read_bytes()) == ("CONFIG_INVALID", before)
    assert soon(lambda: plane.user(issuer.token(sub="alice")), bool)["username"] == "alice"


def test_authenticators_that_the_api_server_refuses_change_nothing(plane: Plane, issuer: Issuer) -> None:
    plane.authenticate()
    place = authentication_path(plane.paths)
    before = place.read_bytes()
    wrong = issuer.authenticator(username={"expression": "claims."})
    with pytest.raises(AttestedError, match="the API server does not use attested_authenticators") as caught:
        plane.authenticate(wrong)
    assert (caught.value.code, place.read_bytes()) == ("CONFIG_INVALID", before)
