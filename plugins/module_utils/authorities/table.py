# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The authorities that every control plane holds, by name, and where their halves lie."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath as Posix

_PKI = Posix("etc/kubernetes/pki")


@dataclass(frozen=True, slots=True, kw_only=True)
class Authority:
    """One key that others believe: its name, and the files that say whom to believe and what to sign with.

    ``public`` may hold several, the one of ``private`` first. Paths are relative to the root of the machine.
    ``signs_certificates``: it is a CA; otherwise its public half is a bare key.
    """

    name: str
    public: Posix
    private: Posix
    signs_certificates: bool = True


CLUSTER = Authority(name="cluster", public=_PKI / "ca.crt", private=_PKI / "ca.key")
ETCD = Authority(name="etcd", public=_PKI / "etcd/ca.crt", private=_PKI / "etcd/ca.key")
FRONT_PROXY = Authority(name="front-proxy", public=_PKI / "front-proxy-ca.crt", private=_PKI / "front-proxy-ca.key")
SERVICE_ACCOUNTS = Authority(
    name="service-accounts", public=_PKI / "sa.pub", private=_PKI / "sa.key", signs_certificates=False
)

AUTHORITIES = (CLUSTER, ETCD, FRONT_PROXY, SERVICE_ACCOUNTS)
"""They go together: a machine that held one of them held them all."""

CERTIFYING = tuple(one for one in AUTHORITIES if one.signs_certificates)
