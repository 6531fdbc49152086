# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The key service's own credential for the API: minted from the cluster CA, 24 h, renewed at half of its life."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from ..kube import CredentialFiles
from ..system import write_atomic
from .kubelet import SERVICE_LIFE, mint_service_credential

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from ..system import Clock
    from .kubelet import ClusterCa


class MintedCredential:
    """Files in ``directory`` (root-only tmpfs) that hold a certificate which is never older than 12 h."""

    def __init__(self, ca: ClusterCa, directory: Path, *, clock: Clock) -> None:
        """Mint from ``ca`` at the first use."""
        self._ca = ca
        self._directory = directory
        self._clock = clock
        self._lock = threading.Lock()
        self._serial = 0
        self._renew_at: datetime | None = None

    def current(self) -> CredentialFiles:
        """Return the files to use now; mints when there is no certificate or its half-life is over."""
        with self._lock:
            now = self._clock.now()
            if self._renew_at is None or now >= self._renew_at:
                self._mint(now)
                self._renew_at = now + SERVICE_LIFE / 2
                self._serial += 1
            return CredentialFiles(
                self._directory / "api-client.crt", self._directory / "api-client.key", serial=self._serial
            )

    def _mint(self, now: datetime) -> None:
        certificate, key = mint_service_credential(self._ca, now=now)
        write_atomic(self._directory / "api-client.key", key)
        write_atomic(self._directory / "api-client.crt", certificate)
