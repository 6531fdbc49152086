# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The API server's audit log: a real one with every argument and file of init, and what it writes."""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemRandom
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.encryption import make_encryption
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.render import (
    api_server_arguments,
    api_server_files,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.spec import KubernetesPaths
from ansible_collections.attested.kubernetes.tests.support.api_bed import ApiBed, api_bed, why_not
from ansible_collections.attested.kubernetes.tests.support.canary import spellings

if TYPE_CHECKING:
    from collections.abc import Iterator

LOG = "audit.log"
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiBed]:
    """An API server that is told all that init tells it; only its log lies elsewhere."""
    reason = why_not()
    if reason:
        pytest.skip(reason)
    root = tmp_path_factory.mktemp("machine")
    paths = KubernetesPaths(root=root)
    make_encryption(paths, random=SystemRandom())
    for name, content in api_server_files(paths).items():
        Path(name).write_bytes(content)
    with api_bed(root, arguments={**api_server_arguments(paths), "audit-log-path": str(root / LOG)}) as made:
        yield made


def test_no_value_of_a_secret_or_token_is_in_the_log(bed: ApiBed) -> None:
    """Made, changed, read and deleted; the ways of kubectl that copy a whole object into an annotation among them."""
    values = [f"canary-{secrets.token_hex(16)}" for _each in range(3)]
    for kind, field in (("Secret", "stringData"), ("ConfigMap", "data")):
        document = {"apiVersion": "v1", "kind": kind, "metadata": {"name": "watched"}}
        bed.kubectl("apply", "-f", "-", stdin=json.dumps({**document, field: {"value": values[0]}}))
        bed.kubectl("replace", "-f", "-", stdin=json.dumps({**document, field: {"value": values[1]}}))
        bed.kubectl(
            "apply",
            "--server-side",
            "--force-conflicts",
            "-f",
            "-",
            stdin=json.dumps({**document, field: {"value": values[2]}}),
        )
        bed.kubectl("get", kind, "watched", "--output=json")
    bed.kubectl("create", "serviceaccount", "watched")
    token = bed.kubectl("create", "token", "watched").strip()
    for kind in ("secret", "configmap", "serviceaccount"):
        bed.kubectl("delete", kind, "watched")
    log = (bed.directory / LOG).read_bytes()
    needles = {value: spellings(value.encode()) for value in [*values, token.rpartition(".")[2]]}
    assert [value for value, many in needles.items() if any(one in log for one in many)] == []
    written = [one for one in lines(bed) if one["objectRef"].get("name") == "watched"]
    assert {one["verb"] for one in written} >= {"create", "update", "patch", "get", "delete"}
    assert {one["level"] for one in written} == {"Metadata"}


def test_who_gets_rights_is_in_the_log(bed: ApiBed) -> None:
    """With what was asked for, without what was answered."""
    bed.kubectl("create", "clusterrolebinding", "watched", "--clusterrole=view", "--user=mallory")
    (one,) = [
        one for one in lines(bed) if one["requestURI"].startswith(BINDINGS) and one["user"]["username"] == "admin"
    ]
    assert (one["level"], one["verb"]) == ("Request", "create")
    assert one["requestObject"]["subjects"][0]["name"] == "mallory"
    assert "responseObject" not in one


def test_health_and_events_are_not_in_the_log(bed: ApiBed) -> None:
    """The bed itself has asked for its health often by now."""
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "watched"},
        "involvedObject": {"namespace": "default"},
    }
    bed.kubectl("create", "-f", "-", stdin=json.dumps(event))
    bed.kubectl("get", "--raw=/livez")
    bed.kubectl("get", "namespace", "default")
    found = lines(bed)
    assert any(one["objectRef"].get("resource") == "namespaces" and one["user"]["username"] == "admin" for one in found)
    assert not any(one["requestURI"].startswith(("/livez", "/readyz")) for one in found)
    assert not any(one["objectRef"].get("resource") == "events" for one in found)


def lines(bed: ApiBed) -> list[dict[str, Any]]:
    """Return the log."""
    return [{"objectRef": {}, **json.loads(line)} for line in (bed.directory / LOG).read_text().splitlines()]
