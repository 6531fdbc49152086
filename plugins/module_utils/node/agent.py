# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`attested-agent`: the programs that run as root on a node, one command for each unit (docs/adr/0058).

The unit attested-NAME runs `attested-agent NAME`. A command is imported only when it runs, so no command loads the
libraries of another. Each unit confines its own command.
"""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import TYPE_CHECKING

from ..core.host import release

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMANDS = {
    "api-endpoint-list": ("kubeadm.endpoint_list", "read the addresses of the API servers from the cluster"),
    "backup": ("node.etcd_snapshot", "save an encrypted snapshot of this control plane's etcd"),
    "bootstrapper": ("node.boot_program", "make a node of this machine: by an admin's init, or by joining"),
    "disk-health": ("node.disk_health", "set the condition of the Node that reports corrupt sectors of its state disk"),
    "first-boot": ("node.first_boot", "prepare this machine to become a node, from a bundle at a URL"),
    "figures": ("node.figures", "write the metrics of this node where node_exporter reads them"),
    "node-boot": ("node.node_boot", "make a node of this machine from the site's signed repository"),
    "reattest": ("node.reattest", "push fresh evidence of this node to its cluster"),
    "renew": ("node.renew", "renew the kubelet's certificate with fresh evidence, when it is time"),
    "renew-control-plane": ("node.control_plane_renewal", "renew the certificates of this control plane that are due"),
    "unlock": ("keyservice.unlock", "open the keys of this control plane, then lock the machine to its cluster"),
    "witness": ("node.witness_service", "issue evidence of this machine with its TPM over a unix socket"),
}
"""The file of each command, which defines the function `main`, and the help text of the command."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; return its exit code."""
    options = _parser().parse_args(argv)
    file, _help = COMMANDS[options.command]
    module = import_module(f"...{file}", __name__)
    return int(module.main(options.words))


def _parser() -> argparse.ArgumentParser:
    width = max(map(len, COMMANDS))
    parser = argparse.ArgumentParser(
        prog="attested-agent",
        description="Run a program of this node. The unit attested-COMMAND runs COMMAND.",
        epilog="\n".join(["commands:", *(f"  {name:<{width}}  {text}" for name, (_file, text) in COMMANDS.items())]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {release()}")
    parser.add_argument("command", choices=COMMANDS, metavar="COMMAND", help="one of the commands below")
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="...", help="options of COMMAND; --help lists them")
    return parser
