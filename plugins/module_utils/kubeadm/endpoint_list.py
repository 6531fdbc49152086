# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`attested-agent api-endpoint-list`: asks the cluster, as the kubelet, where its API servers are; a timer runs it.

It reads the endpoints of the Service default/kubernetes, which API servers keep by themselves and every node may read
by name. The proxy beside it has no credential; it reads the file that this one writes.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Protocol

from ..core.files import write_atomic
from ..errors import AttestedError, KubeadmError
from ..reasons import Reason
from .api import KubeconfigNodeReader
from .endpoint_addresses import LIST, MAX_ADDRESSES, can_be_control_plane, parse_address, render_list
from .spec import KubernetesPaths

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


class ControlPlanes(Protocol):
    """Knows where the cluster's API servers are (`kubeadm.KubeconfigNodeReader`)."""

    def api_servers(self) -> tuple[str, ...]:
        """Return host:port of each; raises API_UNREACHABLE, KUBELET_CREDENTIAL_REFUSED."""


def learn(cluster: ControlPlanes, path: str | Path) -> tuple[str, ...]:
    """Keep where the API servers are in ``path`` and return them; a cluster that names none changes nothing.

    Only hosts are taken: an address of loopback, of a group or of the link would lead to another service of this
    machine. Raises API_UNREACHABLE, KUBELET_CREDENTIAL_REFUSED, FILE_UNUSABLE.
    """
    named = cluster.api_servers()
    found = tuple(sorted({one for one in named if can_be_control_plane(parse_address(one)[0])}))[:MAX_ADDRESSES]
    if not found:
        raise KubeadmError(
            f"expected the API server to name control planes, got {len(named)} that can be none; the list stays",
            reason=Reason.API_UNREACHABLE,
        )
    write_atomic(path, render_list(found), mode=0o644)
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; return 0, or 1 with the error on standard error."""
    parser = argparse.ArgumentParser(
        prog="attested-agent api-endpoint-list", description="Ask the cluster where its API servers are."
    )
    parser.add_argument("--list", default=LIST, metavar="FILE", help="where to keep them (default: %(default)s)")
    options = parser.parse_args(argv)
    try:
        found = learn(KubeconfigNodeReader(KubernetesPaths().kubelet_config), options.list)
    except AttestedError as error:
        sys.stderr.write(f"attested-agent api-endpoint-list: {error}\n")
        return 1
    sys.stderr.write(f"attested-agent api-endpoint-list: {', '.join(found)}\n")
    return 0
