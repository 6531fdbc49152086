# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A bundle for arm64 is made on this host, and everything in it starts on an emulated processor (qemu-user).

No kernel of arm64 runs here: a program that starts shows that it is whole and for this processor, and nothing of what
it does on a machine.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.bundle.store import Bundle, open_bundle
from ansible_collections.attested.kubernetes.tests.support.house import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

QEMU = "qemu-aarch64-static"
AARCH64 = 183
"""The machine of an ELF file (elf.h)."""

SAYS = {
    "containerd": ("--version", "v2.3.4"),
    "containerd-shim-runc-v2": ("-v", "v2.3.4"),
    "coredns": ("-version", "linux/arm64"),
    "ctr": ("--version", "v2.3.4"),
    "etcd": ("--version", "Go OS/Arch: linux/arm64"),
    "etcdctl": ("version", "etcdctl version: 3.6.6"),
    "etcdutl": ("version", "etcdutl version: 3.6.6"),
    "flannel": ("-help", "whether the network of this node is ready"),
    "helm": ("version", "v4.3.1"),
    "kube-apiserver": ("--version", "Kubernetes v1.35.4"),
    "kube-controller-manager": ("--version", "Kubernetes v1.35.4"),
    "kube-proxy": ("--version", "Kubernetes v1.35.4"),
    "kube-scheduler": ("--version", "Kubernetes v1.35.4"),
    "kubeadm": ("version", "linux/arm64"),
    "kubectl": ("version --client", "v1.35.4"),
    "kubelet": ("--version", "Kubernetes v1.35.4"),
    "pause": ("-v", "pause 3.10.1"),
}
"""What each program is told, and part of what it prints. runc is not among them: it is in no bundle that is built."""

# Imports what each wheel has at its top; what is missing in a wheel of another machine is its compiled half.
IMPORT = """
import importlib, sys
failed = []
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except Exception as error:
        failed.append(f"{name}: {error!r}")
print(*failed, sep="\\n", end="")
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unpacked:
    """A bundle, and below ``home`` its programs, those of images too, its wheels, and a Debian for these.

    ``programs`` by name; ``modules``: what the wheels have at their top.
    """

    bundle: Bundle
    home: Path
    programs: dict[str, Path]
    modules: tuple[str, ...]

    @property
    def wheels(self) -> Path:
        """The wheels, laid out as pip does."""
        return self.home / "wheels"

    def python(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run the Python of Debian 12 for arm64 with the wheels."""
        system = self.home / "system"
        program = system / "usr" / "bin" / "python3.11"
        env = {"PYTHONPATH": str(self.wheels), "PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"}
        argv = [QEMU, "-L", str(system), str(program), *words]
        return subprocess.run(argv, env=env, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def arm64(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Unpacked]:
    """Make the bundle in the cache, as `bundle` does for a site, and unpack it."""
    if missing := [name for name in (QEMU, "mmdebstrap", "zstd") if shutil.which(name) is None]:
        pytest.skip(f"expected {', '.join(missing)} on this host (packages qemu-user-static, mmdebstrap, zstd)")
    cache = Path(os.environ.get("ATTESTED_CACHE") or Path.home() / ".cache" / "attested-kubernetes")
    place, home = cache / "arm64-bundle", tmp_path_factory.mktemp("arm64")
    asked = {"attested_bundle": str(place), "attested_bundle_architecture": "arm64", "attested_cni": "flannel"}
    program = str(Path(sys.executable).parent / "ansible-playbook")
    argv = [program, "attested.kubernetes.bundle", "-i", "inventory/example/hosts.yml", "-e", json.dumps(asked)]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
    bundle = open_bundle(place)
    programs = unpack_programs(bundle, home / "programs")
    modules = unpack_wheels(bundle, home / "wheels")
    make_system(home / "system")
    yield Unpacked(bundle=bundle, home=home, programs=programs, modules=modules)
    shutil.rmtree(home)


def make_system(place: Path) -> None:
    """Lay out Python for arm64 with what it needs, and libstdc++, which apt brings to each machine; run none of it."""
    what = ("--variant=extract", "--architectures=arm64", "--include=python3,libstdc++6", "--skip=output/dev")
    subprocess.run(["mmdebstrap", "--quiet", *what, "bookworm", str(place)], check=True)


def unpack_programs(bundle: Bundle, place: Path) -> dict[str, Path]:
    """Write every program that is installed or in an image; return all that are executable files there, by name."""
    place.mkdir()
    for entry in bundle.manifest.files:
        if entry.name in SAYS:
            (place / entry.name).write_bytes(gzip.decompress(bundle.path(entry.blob).read_bytes()))
    for archive in bundle.manifest.image_archives:
        layout = place / f"{archive.name}.image"
        with tarfile.open(bundle.path(archive.blob)) as tar:
            tar.extractall(layout, filter="data")
        for blob in (layout / "blobs" / "sha256").iterdir():
            if blob.read_bytes()[:4] == b"\x28\xb5\x2f\xfd":  # a layer, by zstd
                tree = layout / f"{blob.name}.tree"
                tree.mkdir()
                subprocess.run(["tar", "--extract", "--zstd", "--no-same-owner", "-C", tree, "-f", blob], check=True)
    found = {path.name: path for path in place.rglob("*") if path.name in SAYS and path.is_file()}
    for path in found.values():
        path.chmod(0o755)
    return found


def unpack_wheels(bundle: Bundle, place: Path) -> tuple[str, ...]:
    """Unpack the wheels as pip lays them out; return the modules that they have at their top."""
    (archive,) = bundle.manifest.wheel_archives
    names: set[str] = set()
    with tarfile.open(bundle.path(archive.blob)) as tar:
        for member in tar:
            stream = tar.extractfile(member)
            assert stream is not None
            with stream, zipfile.ZipFile(stream) as wheel:
                wheel.extractall(place)
                tops = {name.partition("/")[0] for name in wheel.namelist() if name.endswith((".py", ".so"))}
                names |= {top.partition(".")[0] for top in tops if not top.endswith((".data", ".dist-info"))}
    return tuple(sorted(names))


def machine_of(path: Path) -> int:
    """Return the machine that an ELF file is for; 0 for another file."""
    with path.open("rb") as file:
        head = file.read(20)
    return int.from_bytes(head[18:20], "little") if head[:4] == b"\x7fELF" else 0


def test_everything_in_it_is_for_arm64(arm64: Unpacked) -> None:
    assert {blob.arch.value for blob in arm64.bundle.manifest.blobs} == {"arm64"}
    assert set(arm64.programs) == set(SAYS)
    found = {path: machine_of(path) for path in arm64.home.rglob("*") if path.is_file() and not path.is_symlink()}
    wrong = {str(path): machine for path, machine in found.items() if machine not in {0, AARCH64}}
    assert not wrong
    assert sum(machine == AARCH64 for machine in found.values()) > len(SAYS)


def test_images_say_so_too(arm64: Unpacked) -> None:
    """Of each its configuration; containerd refuses an image of another platform."""
    for archive in arm64.bundle.manifest.image_archives:
        with tarfile.open(arm64.bundle.path(archive.blob)) as tar:
            index = json.load(tar.extractfile("index.json"))  # type: ignore[arg-type]
        assert {one["platform"]["architecture"] for one in index["manifests"]} == {"arm64"}


@pytest.mark.parametrize("name", SAYS)
def test_each_program_starts(arm64: Unpacked, name: str) -> None:
    words, expected = SAYS[name]
    argv = [QEMU, str(arm64.programs[name]), *words.split()]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=300)
    assert expected in done.stdout + done.stderr


def test_each_wheel_can_be_imported(arm64: Unpacked) -> None:
    assert {"cryptography", "google", "grpc", "yaml"} <= set(arm64.modules)
    done = arm64.python("-c", IMPORT, *arm64.modules)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr[-2000:]


@pytest.mark.parametrize("name", ["attested", "attested-agent", "attested-join-service", "attested-key-service"])
def test_our_programs_start(arm64: Unpacked, name: str) -> None:
    (points,) = arm64.wheels.glob("attested_kubernetes-*.dist-info/entry_points.txt")
    listed = dict(line.split(" = ") for line in points.read_text().splitlines() if " = " in line)
    module, _colon, function = listed[name].partition(":")
    start = f"import sys; sys.argv = [{name!r}, '--help']; from {module} import {function}; sys.exit({function}())"
    done = arm64.python("-c", start)
    assert done.returncode == 0, done.stderr[-2000:]
    assert f"usage: {name}" in done.stdout
