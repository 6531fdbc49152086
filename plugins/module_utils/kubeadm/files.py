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
from ..keyservice.ticket import ADMISSION_FILE, CONTROL_PLANE_FILES, ENCRYPTION_FILE, MAX_FILE_BYTES
from ..reasons import Reason
from .encryption import require_encryption
from .pod_security import BY_DEFAULT, parse_admission
from .render import admission_path, api_server_files, authentication_path
from .site_settings import is_authentication_file

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .pod_security import PodSecurity
    from .spec import KubernetesPaths

_PUBLIC, _PRIVATE = 0o644, 0o600

SHARED_FILES = {name: _PRIVATE if name.endswith(".key") else _PUBLIC for name in CONTROL_PLANE_FILES}
"""The files that all control planes of a cluster share, with their modes: init makes them, a ticket copies them."""

OPTIONAL_FILES = {ADMISSION_FILE: _PUBLIC, ENCRYPTION_FILE: _PRIVATE}
"""The files that control planes share if the first control plane has them."""


def require_shared_files(files: Mapping[str, bytes]) -> None:
    """Raise TICKET_MALFORMED unless ``files`` are exactly the files that control planes share.

    The admission file must be one that this collection writes. Raises ENCRYPTION_MALFORMED if an API server cannot use
    the encryption file.
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
    Authenticators of the site stay. If there is no API server yet, the admission file is recorded as loaded, because
    the API server will start with it (`has_loaded`).
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
        record_loaded(paths, files[str(admission)])
    return any(changed)


def record_loaded(paths: KubernetesPaths, content: bytes) -> None:
    """Record the admission file with which the API server of this machine starts."""
    make_directory(paths.state, mode=0o700)
    write_atomic(paths.admission_taken, hashlib.sha256(content).hexdigest().encode())


def has_loaded(paths: KubernetesPaths, content: bytes) -> bool:
    """Return whether ``content`` is the admission file with which the API server started."""
    record, place = paths.admission_taken, admission_path(paths)
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
