# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`attested-agent api-endpoint-list`: writes the addresses of the API servers to a file.

A timer runs it. It reads the endpoints of the Service default/kubernetes with the kubelet's credential. API servers
maintain these endpoints, and every node may read them. The proxy has no credential, so it reads the file.
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
    """Reads the addresses of the cluster's API servers (`kubeadm.KubeconfigNodeReader`)."""

    def api_servers(self) -> tuple[str, ...]:
        """Return host:port of each API server; raises API_UNREACHABLE, KUBELET_CREDENTIAL_REFUSED."""


def learn(cluster: ControlPlanes, path: str | Path) -> tuple[str, ...]:
    """Write the addresses of the API servers to ``path`` and return them.

    Loopback, multicast and link-local addresses are dropped, because they could lead to another service of this
    machine. Raises API_UNREACHABLE (also if no address is left; the file stays then), KUBELET_CREDENTIAL_REFUSED,
    FILE_UNUSABLE.
    """
    named = cluster.api_servers()
    found = tuple(sorted({one for one in named if can_be_control_plane(parse_address(one)[0])}))[:MAX_ADDRESSES]
    if not found:
        raise KubeadmError(
            f"expected addresses of control planes from the API server, got {len(named)} unusable ones; "
            "the list is unchanged",
            reason=Reason.API_UNREACHABLE,
        )
    write_atomic(path, render_list(found), mode=0o644)
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; return 0, or 1 with the error on standard error."""
    parser = argparse.ArgumentParser(
        prog="attested-agent api-endpoint-list",
        description="Write the addresses of the cluster's API servers to a file.",
    )
    parser.add_argument("--list", default=LIST, metavar="FILE", help="the file to write (default: %(default)s)")
    options = parser.parse_args(argv)
    try:
        found = learn(KubeconfigNodeReader(KubernetesPaths().kubelet_config), options.list)
    except AttestedError as error:
        sys.stderr.write(f"attested-agent api-endpoint-list: {error}\n")
        return 1
    sys.stderr.write(f"attested-agent api-endpoint-list: {', '.join(found)}\n")
    return 0
