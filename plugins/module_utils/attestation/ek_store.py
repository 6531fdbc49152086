# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The root store of TPM makers: files and directories of certificates, read once and never fetched from anywhere."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .._deps.crypto import exceptions, unreadable, x509
from ..errors import SiteError
from ..reasons import Reason
from ..system import read_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable

_LIMIT = 4 << 20
_SUFFIXES = {".pem", ".crt", ".cer", ".der"}


@dataclass(frozen=True, slots=True)
class EkStore:
    """Whom to trust for endorsement certificates (``roots``), and issuers that only fill gaps (``intermediates``)."""

    roots: tuple[x509.Certificate, ...] = ()
    intermediates: tuple[x509.Certificate, ...] = ()


def load_ek_store(paths: Iterable[str | Path]) -> EkStore:
    """Return the store that ``paths`` make: what a named file holds is trusted, whatever it is.

    Of a directory (files .pem, .crt, .cer, .der; no deeper) the self-signed certificates are roots, and all others are
    cached intermediates. Raises `SiteError` EK_AUTHORITIES_UNUSABLE for a file without certificates, an empty
    directory, or one without a root.
    """
    roots: list[x509.Certificate] = []
    intermediates: list[x509.Certificate] = []
    for path in map(Path, paths):
        if not path.is_dir():
            roots += _certificates(path)
            continue
        found = [one for file in sorted(path.iterdir()) if file.suffix in _SUFFIXES for one in _certificates(file)]
        anchors = [one for one in found if _self_signed(one)]
        if not anchors:
            raise _unusable(f"a self-signed certificate in {path}")
        roots += anchors
        intermediates += [one for one in found if one not in anchors]
    return EkStore(roots=tuple(roots), intermediates=tuple(intermediates))


def _certificates(path: Path) -> list[x509.Certificate]:
    data = read_bytes(path, limit=_LIMIT)
    try:
        if b"-----BEGIN" in data:
            return list(x509.load_pem_x509_certificates(data))
        return [x509.load_der_x509_certificate(data)]
    except unreadable() as error:
        raise _unusable(f"certificates in PEM or DER in {path}") from error


def _self_signed(certificate: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(certificate)
    except (ValueError, TypeError, exceptions.InvalidSignature, exceptions.UnsupportedAlgorithm):
        return False
    return True


def _unusable(expected: str) -> SiteError:
    return SiteError(f"expected {expected}, found none", reason=Reason.EK_AUTHORITIES_UNUSABLE)
