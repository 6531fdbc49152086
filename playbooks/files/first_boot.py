# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make the virtual environment of the collection out of a bundle at a URL, and let `attested-agent first-boot` go on.

Runs with the system's Python on a machine that has nothing of the collection yet. What it brings is known by the hash
in first-boot.json; the rest is done by the collection's own wheel, whose function needs no other package.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import platform
import sys
import tarfile
import urllib.request
import zipfile
from pathlib import Path

SITE = Path("/etc/attested/site")
STORE = Path("/var/lib/attested/first-boot/bundle")
VENV = "/opt/attested/venv"
RUNTIME = "ansible_collections.attested.kubernetes.plugins.module_utils.bundle.runtime"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
MAX_BYTES = 1 << 30
SECONDS = 60


def main() -> None:
    """Bring manifest and wheels, make the environment, and become its program."""
    settings = json.loads((SITE / "first-boot.json").read_text(encoding="utf-8"))
    url = settings["bundle_url"]
    manifest = json.loads(bring(url, "manifest.json", settings["bundle_sha256"]).read_text(encoding="utf-8"))
    wheels = wheels_for_this_machine(manifest["wheel_archives"])
    archive = bring(url, wheels["path"], wheels["sha256"])
    sys.path.insert(0, str(unpacked_wheel(archive, wheels["wheels"])))
    runtime = importlib.import_module(RUNTIME)
    wanted = {"bundle": str(STORE), "manifest_sha256": settings["bundle_sha256"], "path": VENV, "role": "worker"}
    runtime.install_runtime(wanted, check_mode=False)
    program = f"{VENV}/bin/attested-agent"
    os.execv(program, [program, "first-boot"])  # noqa: S606


def bring(url: str, path: str, sha256: str) -> Path:
    """Return the file ``path`` of the bundle; what an earlier start brought is not brought again."""
    place = STORE / path
    if place.is_file() and digest_of(place) == sha256:
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    part = place.with_name(f"{place.name}.part")
    source = f"file://{url}" if url.startswith("/") else url
    opened = urllib.request.urlopen(f"{source}/{path}", timeout=SECONDS)  # noqa: S310 # the hash decides
    with opened as reply, part.open("wb") as sink:
        left = MAX_BYTES
        while chunk := reply.read(1 << 18):
            left -= len(chunk)
            if left < 0:
                raise SystemExit(f"{source}/{path}: expected at most {MAX_BYTES} bytes, more came")
            sink.write(chunk)
    if (got := digest_of(part)) != sha256:
        part.unlink()
        raise SystemExit(f"{source}/{path}: expected sha256 {sha256}, got {got}; is it the bundle of this site?")
    return part.replace(place)


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file, in hex."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def wheels_for_this_machine(archives: list[dict]) -> dict:
    """Return the entry of the wheels for the system's Python and architecture."""
    wanted = ("{}.{}".format(*sys.version_info[:2]), ARCHITECTURES.get(platform.machine(), platform.machine()))
    for one in archives:
        if (one["python"], one["arch"]) == wanted:
            return one
    offered = ", ".join(f"{one['python']}/{one['arch']}" for one in archives)
    raise SystemExit(f"expected wheels for {'/'.join(wanted)} in the bundle, it has {offered}")


def unpacked_wheel(archive: Path, wheels: list[dict]) -> Path:
    """Return the directory of the collection's own wheel, taken out of ``archive``, whose hash is right."""
    (name,) = (one["filename"] for one in wheels if one["name"] == "attested-kubernetes")
    place = STORE.parent / "wheel"
    with tarfile.open(archive, "r:") as tar:
        stream = tar.extractfile(name)
        if stream is None:
            raise SystemExit(f"{archive}: expected the file {name}, got none")
        with stream, zipfile.ZipFile(stream) as wheel:
            wheel.extractall(place)  # noqa: S202 # the hash of the archive is right
    return place


if __name__ == "__main__":
    main()
