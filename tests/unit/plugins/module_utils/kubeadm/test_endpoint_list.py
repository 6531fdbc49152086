# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the API servers are, by the cluster's own word, and what is not taken of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import KubeadmError
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.endpoint_addresses import parse_list
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.endpoint_list import learn
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason

if TYPE_CHECKING:
    from pathlib import Path


class Cluster:
    """A cluster that names ``servers``."""

    def __init__(self, *servers: str) -> None:
        self.servers = servers

    def api_servers(self) -> tuple[str, ...]:
        """Name them."""
        return self.servers


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    return tmp_path / "control-planes.json"


def test_what_the_cluster_names_is_kept_for_a_reader_without_rights(kept: Path) -> None:
    assert learn(Cluster("10.0.0.12:6443", "10.0.0.11:6443"), kept) == ("10.0.0.11:6443", "10.0.0.12:6443")
    assert parse_list(kept.read_bytes()) == ("10.0.0.11:6443", "10.0.0.12:6443")
    assert kept.stat().st_mode & 0o777 == 0o644


def test_the_same_again_leaves_the_file_alone(kept: Path) -> None:
    """The proxy reads a file that was written, and only such a one."""
    learn(Cluster("10.0.0.11:6443"), kept)
    before = kept.stat()
    learn(Cluster("10.0.0.11:6443", "10.0.0.11:6443"), kept)
    after = kept.stat()  # that it was read in between may show in its time of access
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


@pytest.mark.parametrize(
    "servers",
    [
        pytest.param((), id="nobody"),
        pytest.param(("127.0.0.1:6443", "[::1]:6443"), id="this machine"),
        pytest.param(("169.254.169.254:80",), id="an address of the link"),
    ],
)
def test_a_cluster_that_names_nobody_changes_nothing(kept: Path, servers: tuple[str, ...]) -> None:
    learn(Cluster("10.0.0.11:6443"), kept)
    with pytest.raises(KubeadmError) as caught:
        learn(Cluster(*servers), kept)
    assert caught.value.reason is Reason.API_UNREACHABLE
    assert parse_list(kept.read_bytes()) == ("10.0.0.11:6443",)


def test_of_a_list_with_this_machine_in_it_the_others_are_taken(kept: Path) -> None:
    assert learn(Cluster("127.0.0.1:6443", "10.0.0.11:6443"), kept) == ("10.0.0.11:6443",)
