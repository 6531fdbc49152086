# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module `node_runtime`: create the node's virtual environment from the wheels of the bundle only.

Each set of wheels has its own directory beside the link `/opt/attested/venv`. The link is replaced atomically when the
new environment is complete, so an interrupted run leaves the old one in use. On a cluster member, the link changes
with the playbook `upgrade`.
"""

from __future__ import annotations

import hashlib
import shutil
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.command import SystemRunner
from ..core.files import make_directory, place_link, write_atomic
from ..errors import ComponentError, SystemFault
from ..reasons import Reason
from ..result import Diff, Result
from .manifest import NodeRole
from .releases import Releases, is_member, notice, select_wheels
from .store import open_bundle, sha256_of, this_architecture, unpack_member, verify_blobs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..core.command import Runner
    from .manifest import WheelArchive

_STAMP = ".attested-complete"
_PIP_SECONDS = 600
_SYSTEM_PYTHON = "/usr/bin/python3"


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeState:
    """The state of one environment: complete, recorded for the release (``noted``), target of the link (``in_use``)."""

    complete: bool
    noted: bool
    in_use: bool


class RuntimeGateway:
    """Read and create virtual environments; ``root`` replaces ``/`` in tests."""

    def __init__(self, runner: Runner, *, root: Path = Path("/"), python: str = _SYSTEM_PYTHON) -> None:
        """Set the runner of python and pip, the root of the file system and the system's Python."""
        self._runner = runner
        self._root = root
        self._python = python

    def python_version(self) -> str:
        """Return the minor version of the system's Python (``3.11``)."""
        code = "import sys; sys.stdout.write('%d.%d' % sys.version_info[:2])"
        return self._runner.run([self._python, "-c", code]).stdout.decode().strip()

    @staticmethod
    def digest(archive: WheelArchive, role: NodeRole) -> str:
        """Return the SHA-256 (hex) over the Python version and all wheels of an environment."""
        return hashlib.sha256(f"{archive.python}\n{archive.requirements(role)}".encode()).hexdigest()

    def releases(self, link: str | Path) -> Releases:
        """Return the releases beside ``link``."""
        return Releases(link, root=self._root)

    def digest_in_use(self, link: str | Path) -> str | None:
        """Return the digest of the complete environment behind ``link``, or None."""
        place = self._place(link)
        return _stamp(place) if place.is_symlink() else None

    def look(self, link: str | Path, digest: str, *, release: str) -> RuntimeState:
        """Return the state of the environment ``digest`` of ``release``."""
        target = self._target(link, digest)
        return RuntimeState(
            complete=_stamp(target) == digest,
            noted=self.releases(link).environment(release) == target.resolve(),
            in_use=self.digest_in_use(link) == digest,
        )

    def prepare(self, archive: WheelArchive, wheels: Path, *, link: str | Path, role: NodeRole) -> None:
        """Create the environment of ``archive`` (the tar ``wheels``) beside ``link``."""
        digest = self.digest(archive, role)
        target = self._target(link, digest)
        make_directory(target.parent, mode=0o755)
        shutil.rmtree(target, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix=".wheels-", dir=target.parent) as scratch:
            self._fill(target, archive, wheels, scratch=Path(scratch), role=role)
        write_atomic(target / _STAMP, f"{digest}\n".encode(), mode=0o644)

    def finish(self, link: str | Path, digest: str, *, release: str, switch: bool) -> None:
        """Record the environment ``digest`` for ``release``; with ``switch``, point ``link`` to it."""
        target = self._target(link, digest)
        self.releases(link).note_environment(release, target)
        if switch:
            _switch(self._place(link), target)

    def _target(self, link: str | Path, digest: str) -> Path:
        place = self._place(link)
        return place.with_name(f"{place.name}-{digest[:12]}")

    def _fill(self, target: Path, archive: WheelArchive, wheels: Path, *, scratch: Path, role: NodeRole) -> None:
        _extract(archive, wheels, scratch)
        requirements = scratch / "requirements.txt"
        requirements.write_text(archive.requirements(role), encoding="ascii")
        python = str(target / "bin/python")
        # run pip from its wheel: ensurepip takes longer than all other steps
        pip = [python, str(_pip_of(archive, scratch) / "pip"), "--disable-pip-version-check", "--isolated", "install"]
        offline = ["--quiet", "--no-index", "--find-links", str(scratch), "--no-cache-dir", "--no-deps", "--no-compile"]
        pinned = ["--require-hashes", "--only-binary", ":all:", "--requirement", str(requirements)]
        # services cannot write to their environment, and bytecode speeds up the first run of Ansible in init. pip does
        # not run again, and Ansible sends its own modules as text
        left_out = "/site-packages/(ansible_test|pip|ansible/modules)/|/tests?/"
        compile_all = ["-m", "compileall", "-q", "-j", "0", "-x", left_out, str(target / "lib")]
        try:
            self._runner.run([self._python, "-m", "venv", "--without-pip", str(target)], timeout_seconds=_PIP_SECONDS)
            self._runner.run([*pip, *offline, *pinned], timeout_seconds=_PIP_SECONDS)
            self._runner.run([python, *compile_all], timeout_seconds=_PIP_SECONDS)
        except SystemFault as error:
            shutil.rmtree(target, ignore_errors=True)
            raise ComponentError(
                f"expected a virtual environment from the bundle's wheels: {error.message}",
                reason=Reason.RUNTIME_INSTALL_FAILED,
            ) from error

    def is_member(self) -> bool:
        """Return whether this machine is a member of a cluster."""
        return is_member(self._root)

    def _place(self, link: str | Path) -> Path:
        return self._root / str(link).lstrip("/")


def install_runtime(params: Mapping[str, Any], check_mode: bool, *, gateway: RuntimeGateway | None = None) -> Result:
    """Create the environment for ``params['role']`` from the bundle, and use it unless the node is a member."""
    runtime = gateway or RuntimeGateway(SystemRunner())
    bundle = open_bundle(params["bundle"], expected_digest=params.get("manifest_sha256"))
    role, link = NodeRole(params["role"]), params["path"]
    archive = select_wheels(bundle.manifest, python=runtime.python_version(), architecture=this_architecture())
    wanted, before = runtime.digest(archive, role), runtime.digest_in_use(link)
    releases = runtime.releases(link)
    release = releases.name(bundle.digest)
    found, member = runtime.look(link, wanted, release=release), runtime.is_member()
    if not check_mode:
        if not found.complete:
            verify_blobs(bundle, [archive.blob])
            runtime.prepare(archive, bundle.path(archive.blob), link=link, role=role)
        runtime.finish(link, wanted, release=release, switch=not member)
        releases.prune(release)
    waits = member and not found.in_use
    return Result(
        changed=not (found.complete and found.noted and (member or found.in_use)),
        values={
            "path": str(link),
            "python": archive.python,
            "digest": wanted,
            "release": release,
            "switched": not member and not found.in_use,
            "message": notice(release, releases.serving()) if waits else "",
        },
        diff=Diff(before=f"wheels {before or 'none'}\n", after=f"{'prepared ' if waits else ''}wheels {wanted}\n"),
    )


def _pip_of(archive: WheelArchive, scratch: Path) -> Path:
    for wheel in archive.wheels:
        if wheel.name == "pip":
            return scratch / wheel.filename
    raise ComponentError(
        f"expected pip among the wheels for Python {archive.python}, it is not there", reason=Reason.BUNDLE_INCOMPLETE
    )


def _extract(archive: WheelArchive, source: Path, scratch: Path) -> None:
    known = {wheel.filename: wheel.sha256 for wheel in archive.wheels}
    with tarfile.open(source, "r:") as tar:
        for member in tar:
            if not member.isreg() or member.name not in known:
                raise ComponentError(
                    f"{source}: expected only the wheels of the manifest, got {member.name}",
                    reason=Reason.BUNDLE_HASH_MISMATCH,
                )
            unpack_member(tar, member, scratch / member.name)
    absent = sorted(name for name in known if not (scratch / name).is_file())
    wrong = sorted(name for name, value in known.items() if name not in absent and sha256_of(scratch / name) != value)
    if absent or wrong:
        raise ComponentError(
            f"{source}: absent {', '.join(absent) or 'none'}; with another hash {', '.join(wrong) or 'none'}",
            reason=Reason.BUNDLE_HASH_MISMATCH,
        )


def _stamp(environment: Path) -> str | None:
    """Return the digest of a complete environment, or None."""
    stamp = environment / _STAMP
    return stamp.read_text(encoding="ascii").strip() if stamp.is_file() else None


def _switch(link: Path, target: Path) -> None:
    if link.exists() and not link.is_symlink():
        raise ComponentError(
            f"expected {link} to be absent or a link of this collection, found a file or directory",
            reason=Reason.RUNTIME_INSTALL_FAILED,
            hint=f"Move {link} away, then run prepare again.",
        )
    place_link(link, target.name)
