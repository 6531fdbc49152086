# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`attested-agent first-boot`: a machine prepares itself with the playbook `prepare`, without ssh.

cloud-init has written the site's files (playbook `cloud_init`) and started the unit; `playbooks/files/first_boot.py`
has made the Python environment of this program. The program downloads the rest of the bundle and checks each file's
hash. Then it runs the playbook `prepare` for this machine only. The installed bootstrapper asks for a ticket.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import socket
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..bundle.download import Downloader, SystemWeb, Upstream
from ..bundle.manifest import MANIFEST_NAME, NodeRole
from ..bundle.releases import select, select_wheels
from ..bundle.store import open_bundle, this_architecture
from ..core.files import make_directory, write_atomic
from ..core.host import SystemClock, SystemRandom
from ..core.logs import open_log
from ..core.runtime import load_config
from ..errors import AttestedError, SiteError
from ..reasons import Reason
from ..services.join_endpoints import SystemResolver, own_address
from .playbook import PlaybookOrder, RunnerPlaybooks, TaskLog

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..core.logs import Log
    from .playbook import Playbooks

SITE = Path("/etc/attested/site")
STORE = Path("/var/lib/attested/first-boot/bundle")
DONE = Path("/var/lib/attested/first-boot.done")
"""If this file exists, the unit does not start again."""
PLAYBOOK = Path(__file__).parents[3] / "playbooks" / "prepare.yml"

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstBootConfig:
    """The file first-boot.json of the site, written by the playbook `cloud_init`.

    ``bundle_url``: the base URL of the bundle's files, ``bundle_sha256`` (hex): the hash of its manifest.
    ``control_plane``: the address of a control plane; the route to it determines the address of this machine.
    ``second_control_plane``: likewise in the other address family, empty without one.
    """

    bundle_url: str
    bundle_sha256: str
    control_plane: str
    second_control_plane: str = ""


def address_toward(peer: str) -> str:
    """Return this machine's source address on the route to the host ``peer``.

    Raises JOIN_SERVICES_UNKNOWN, CONFIG_INVALID.
    """
    try:
        return own_address(SystemResolver().addresses(peer)[0])
    except OSError as error:
        raise SiteError(
            f"expected a route to the control plane {peer}, got {error.strerror}", reason=Reason.CONFIG_INVALID
        ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstBoot:
    """Prepares this machine to become a worker."""

    log: Log
    playbooks: Playbooks
    downloader: Downloader
    site: Path = SITE
    store: Path = STORE
    done: Path = DONE
    playbook: Path = PLAYBOOK
    hostname: Callable[[], str] = field(default=socket.gethostname)
    address: Callable[[str], str] = field(default=address_toward)

    def run(self) -> None:
        """Prepare this machine and remove the bundle.

        Raises CONFIG_INVALID, COMPONENT_* as `Downloader.fetch`, BUNDLE_*, PLAYBOOK_*, and the reason of a failed task.
        """
        config = load_config(FirstBootConfig, self.site / "first-boot.json")
        name = self._name()
        self._bring_bundle(config)
        self.log.event("bundle_ready", sha256=config.bundle_sha256)
        self.playbooks.run(self._order(config, name), TaskLog(self.log))
        shutil.rmtree(self.store.parent, ignore_errors=True)
        write_atomic(self.done, f"{config.bundle_sha256}\n".encode(), mode=0o644)  # the last step, see `DONE`
        self.log.event("prepared", node=name)

    def _name(self) -> str:
        name = self.hostname().partition(".")[0].lower()
        if not _NAME.fullmatch(name) or name == "localhost":
            raise SiteError(
                f"expected a host name that may be the name of a node, got {name!r}; set it by DHCP or cloud-init",
                reason=Reason.CONFIG_INVALID,
            )
        return name

    def _bring_bundle(self, config: FirstBootConfig) -> None:
        self._bring(config, MANIFEST_NAME, config.bundle_sha256)
        manifest = open_bundle(self.store, expected_digest=config.bundle_sha256).manifest
        architecture = this_architecture()
        chosen = select(manifest, role=NodeRole.WORKER, architecture=architecture)
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        wheels = select_wheels(manifest, python=python, architecture=architecture)
        blobs = [wheels.blob, *(file.blob for file in chosen.files), *(images.blob for images in chosen.image_archives)]
        for blob in blobs:
            self._bring(config, blob.path, blob.sha256)

    def _bring(self, config: FirstBootConfig, path: str, sha256: str) -> None:
        place = self.store / path
        make_directory(place.parent, mode=0o755)
        self.downloader.fetch(Upstream(name=path, urls=(f"{config.bundle_url}/{path}",), sha256=sha256), place)

    def _order(self, config: FirstBootConfig, name: str) -> PlaybookOrder:
        machine = self.site / "machine.json"
        address = self.address(config.control_plane)
        here = {"ansible_host": address, "attested_node_ip": address}
        if config.second_control_plane:
            here["attested_second_node_ip"] = self.address(config.second_control_plane)
        member: dict[str, Any] = {"hosts": {name: {}}}
        groups = {"nodes": member, "workers": member}
        write_atomic(machine, json.dumps({"all": {"hosts": {name: here}, "children": groups}}).encode())
        return PlaybookOrder(
            playbook=self.playbook,
            inventory=self.site / "hosts.json",
            machine=machine,
            limit=name,
            variables={
                "ansible_become": False,
                "ansible_connection": "local",
                "ansible_python_interpreter": sys.executable,
                "attested_bundle": str(self.store),
                "attested_bundle_on_node": str(self.store),
            },
        )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; return its exit code, the error on standard error."""
    parser = argparse.ArgumentParser(
        prog="attested-agent first-boot", description="Prepare this machine to become a node of its site."
    )
    parser.parse_args(argv)
    downloader = Downloader(web=SystemWeb(), clock=SystemClock(), random=SystemRandom())
    try:
        FirstBoot(log=open_log(), playbooks=RunnerPlaybooks(), downloader=downloader).run()
    except AttestedError as error:
        sys.stderr.write(f"attested-agent first-boot: {error}\n")
        return 1
    return 0
