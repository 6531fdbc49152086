# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Secrets at rest: a real API server with the very file and arguments of init, and the bytes that its etcd has."""

from __future__ import annotations

import base64
import json
import secrets
import subprocess
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemRandom
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.encryption import make_encryption
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.render import api_server_arguments
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.spec import KubernetesPaths
from ansible_collections.attested.kubernetes.tests.support.api_bed import ApiBed, api_bed, binaries, why_not
from ansible_collections.attested.kubernetes.tests.support.canary import spellings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BEGINNING = b"k8s:enc:secretbox:v1:key-1:"


@pytest.fixture(scope="module")
def arguments(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What init tells the API server of encryption; the key is made as init makes it."""
    paths = KubernetesPaths(root=tmp_path_factory.mktemp("machine"))
    make_encryption(paths, random=SystemRandom())
    told = api_server_arguments(paths)
    return {name: value for name, value in told.items() if name.startswith("encryption-provider-config")}


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[ApiBed]:
    """A bed that encrypts nothing yet."""
    reason = why_not()
    if reason:
        pytest.skip(reason)
    with api_bed(tmp_path) as made:
        yield made


def test_a_secret_is_closed_in_etcd_and_what_was_in_clear_is_closed_by_writing_it_again(
    bed: ApiBed, arguments: dict[str, str]
) -> None:
    """One etcd before and after; the Secret of before is found in clear, so the search can find."""
    before, after = (f"canary-{secrets.token_hex(16)}" for _each in range(2))
    write(bed, "before", before)
    bed.restart(arguments)
    write(bed, "after", after)
    assert (read(bed, "before"), read(bed, "after")) == (before, after)
    assert holds(at_rest(bed), before)
    assert not holds(at_rest(bed), after)
    assert stored(bed, "after").startswith(BEGINNING)
    assert not stored(bed, "before").startswith(BEGINNING)

    # as limitations.md says for a cluster that was made before
    bed.kubectl("replace", "-f", "-", stdin=bed.kubectl("get", "secrets", "--all-namespaces", "--output=json"))
    assert stored(bed, "before").startswith(BEGINNING)
    assert read(bed, "before") == before


def write(bed: ApiBed, name: str, value: str) -> None:
    """Make a Secret; its value travels over standard input."""
    document = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": {"value": value}}
    bed.kubectl("create", "-f", "-", stdin=json.dumps(document))


def read(bed: ApiBed, name: str) -> str:
    """Return the value of a Secret as the API says it."""
    return base64.b64decode(bed.get("secret", name)["data"]["value"]).decode()


def stored(bed: ApiBed, name: str) -> bytes:
    """Return what etcd has under the key of a Secret, asked of etcd itself."""
    address = next(word for word in bed.commands["etcd"] if word.startswith("--listen-client-urls="))
    etcdctl = [str(binaries() / "etcdctl"), f"--endpoints={address.partition('=')[2]}"]
    argv = [*etcdctl, "get", f"/registry/secrets/default/{name}", "--print-value-only"]
    return subprocess.run(argv, capture_output=True, check=True, timeout=900).stdout


def holds(data: bytes, value: str) -> bool:
    """Say whether the data has the value in any spelling."""
    return any(one in data for one in spellings(value.encode()))


def at_rest(bed: ApiBed) -> bytes:
    """Return every byte below etcd's directory."""
    return b"".join(path.read_bytes() for path in (bed.directory / "etcd").rglob("*") if path.is_file())
