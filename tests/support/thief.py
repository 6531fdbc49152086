# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An attacker with the CA key of a lab's control plane: uses a certificate that this key signed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ansible_collections.attested.kubernetes.tests.support.road import Road

PKI = "/etc/kubernetes/pki"
LAIR = "/run/thief"
FILES = ("crt", "key")
NODES = ("get", "nodes", "--output=name", "--request-timeout=30s")


@dataclass(frozen=True, slots=True)
class Thief:
    """A cluster admin with its own account: the files of its credential, base64."""

    credential: tuple[str, ...]

    @classmethod
    def of(cls, road: Road, machine: str) -> Thief:
        """Sign with the CA key on a machine, with openssl and without our code."""
        request = f"openssl req -new -newkey rsa:2048 -nodes -keyout {LAIR}/key -subj /O=system:masters/CN=thief"
        signing = f"openssl x509 -req -CA {PKI}/ca.crt -CAkey {PKI}/ca.key -CAcreateserial -CAserial {LAIR}/serial"
        road.inside(machine, "mkdir", "-p", LAIR)
        road.inside(machine, "sh", "-c", f"{request} | {signing} -days 30 -out {LAIR}/crt")
        return cls(tuple(road.inside(machine, "base64", "-w0", f"{LAIR}/{name}") for name in FILES))

    def sees(self, road: Road, machine: str) -> list[str]:
        """Return the nodes that a control plane's API server lists; empty if it refuses the certificate."""
        road.inside(machine, "mkdir", "-p", LAIR)
        for name, content in zip(FILES, self.credential, strict=True):
            road.inside(machine, "sh", "-c", f"echo {content} | base64 -d > {LAIR}/{name}")
        shown = (
            f"--client-certificate={LAIR}/crt",
            f"--client-key={LAIR}/key",
            f"--certificate-authority={PKI}/ca.crt",
        )
        where = ["--kubeconfig=/dev/null", "--server=https://127.0.0.1:6443", f"--certificate-authority={PKI}/ca.crt"]
        return road.inside(machine, "kubectl", *where, *shown, *NODES, check=False).split()
