# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of a control plane that kubeadm does not make: from arguments, and from a ticket."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.files import make_directory, read_bytes, write_atomic
from ..errors import Refusal, SystemFault
from ..keyservice.ticket import (
    ADMISSION_FILE,
    AUDIT_WEBHOOK_FILE,
    AUTHENTICATION_FILE,
    CONTROL_PLANE_FILES,
    ENCRYPTION_FILE,
    MAX_FILE_BYTES,
)
from ..reasons import Reason
from .encryption import require_encryption
from .render import admission_path, api_server_files, audit_webhook_path, authentication_path
from .site_settings import is_audit_webhook_file, is_authentication_file
from .spec import BY_DEFAULT, parse_admission

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .spec import KubernetesPaths, PodSecurity

_PUBLIC, _PRIVATE = 0o644, 0o600

SHARED_FILES = {name: _PRIVATE if name.endswith(".key") else _PUBLIC for name in CONTROL_PLANE_FILES}
"""The files that all control planes of a cluster share, with their modes: init makes them, a ticket copies them."""

OPTIONAL_FILES = {
    ADMISSION_FILE: _PUBLIC,
    AUDIT_WEBHOOK_FILE: _PUBLIC,
    AUTHENTICATION_FILE: _PUBLIC,
    ENCRYPTION_FILE: _PRIVATE,
}
"""The files that control planes share if the first control plane has them."""


_MADE_HERE = {AUDIT_WEBHOOK_FILE: is_audit_webhook_file, AUTHENTICATION_FILE: is_authentication_file}


def require_shared_files(files: Mapping[str, bytes]) -> None:
    """Raise TICKET_MALFORMED unless ``files`` are exactly the files that control planes share.

    The files for admission, authentication and the audit webhook must be of this collection. Raises
    ENCRYPTION_MALFORMED if an API server cannot use the encryption file.
    """
    missing = sorted(set(SHARED_FILES) - set(files))
    unknown = sorted(set(files) - set(SHARED_FILES) - set(OPTIONAL_FILES))
    if missing or unknown:
        shown = ", ".join(name[:64] for name in unknown) or "none"
        raise Refusal(
            f"expected the files that control planes share, got without {', '.join(missing) or 'none'} "
            f"and with unknown {shown}",
            reason=Reason.TICKET_MALFORMED,
        )
    if ADMISSION_FILE in files:
        _require_admission(files[ADMISSION_FILE])
    for name, is_ours in _MADE_HERE.items():
        if name in files and not is_ours(files[name]):
            raise Refusal(
                f"expected {name} as this collection writes it, got something else; run 'node' on the control plane "
                "that issued the ticket",
                reason=Reason.TICKET_MALFORMED,
            )
    if ENCRYPTION_FILE in files:
        require_encryption(files[ENCRYPTION_FILE])


def place_shared_files(files: Mapping[str, bytes], paths: KubernetesPaths) -> bool:
    """Write ``files`` (by name relative to /etc/kubernetes); return whether anything changed.

    All names are in `SHARED_FILES` or `OPTIONAL_FILES`, so no name leads outside of the directory. A directory that is
    a link to a place outside is refused. Raises TICKET_MALFORMED and ENCRYPTION_MALFORMED before anything is written,
    and FILE_UNUSABLE.
    """
    require_shared_files(files)
    modes = {**SHARED_FILES, **OPTIONAL_FILES}
    for directory in sorted({(paths.kubernetes / name).parent for name in files}):
        _require_inside(directory, paths.kubernetes)
    changed = [write_atomic(paths.kubernetes / name, data, mode=modes[name]) for name, data in sorted(files.items())]
    return any(changed)


def write_api_server_files(paths: KubernetesPaths, pods: PodSecurity | None = None) -> bool:
    """Write the files that the API server's arguments name; return whether anything changed.

    Without ``pods``, an existing admission file stays (a ticket wrote it), otherwise the default is written.
    Authenticators of the site stay. If there is no API server yet, the admission file and that of the audit webhook are
    recorded as loaded, because the API server will start with them (`has_loaded`).
    """
    admission, authentication = admission_path(paths), authentication_path(paths)
    kept = {str(admission): read_bytes(admission, limit=MAX_FILE_BYTES)} if pods is None and admission.exists() else {}
    if authentication.exists() and is_authentication_file(found := read_bytes(authentication, limit=MAX_FILE_BYTES)):
        kept[str(authentication)] = found
    files = {**api_server_files(paths, pods or BY_DEFAULT), **kept}
    changed = []
    for name, content in files.items():
        path = Path(name)
        make_directory(path.parent, mode=0o755)
        changed.append(write_atomic(path, content, mode=_PUBLIC))
    if not (paths.kubernetes / "manifests/kube-apiserver.yaml").exists():
        record_loaded(paths.admission_taken, files[str(admission)])
        if (webhook := audit_webhook_path(paths)).exists():
            record_loaded(paths.audit_webhook_taken, read_bytes(webhook, limit=MAX_FILE_BYTES))
    return any(changed)


def record_loaded(record: Path, content: bytes) -> None:
    """Record the content of a file with which the API server of this machine starts."""
    make_directory(record.parent, mode=0o700)
    write_atomic(record, hashlib.sha256(content).hexdigest().encode())


def has_loaded(record: Path, place: Path, content: bytes) -> bool:
    """Return whether the file ``place`` has this content, and had it when the API server started."""
    wanted = hashlib.sha256(content).hexdigest().encode()
    return (
        record.exists()
        and place.exists()
        and read_bytes(record, limit=len(wanted)) == wanted
        and read_bytes(place, limit=MAX_FILE_BYTES) == content
    )


def _require_admission(content: bytes) -> None:
    try:
        parse_admission(content)
    except ValueError:
        raise Refusal(
            f"expected the Pod Security configuration in {ADMISSION_FILE}, got something else",
            reason=Reason.TICKET_MALFORMED,
        ) from None


def _require_inside(directory: Path, base: Path) -> None:
    if not directory.resolve().is_relative_to(base.resolve()):
        raise SystemFault(
            f"expected {directory} inside of {base}, it leads to {directory.resolve()}", reason=Reason.FILE_UNUSABLE
        )
    make_directory(directory, mode=0o755)
