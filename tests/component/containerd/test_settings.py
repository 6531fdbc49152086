# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real containerd runs with the settings of a site: what it reads, what it refuses, which registry it asks.

It has a mount namespace in which ``/etc``, ``/opt``, ``/run`` and ``/var/lib`` are directories of the test.
"""

from __future__ import annotations

import http.server
import json
import os
import re
import shutil
import ssl
import stat
import subprocess
import threading
import tomllib
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.bundle.containerd import (
    CONFIGURATION,
    PROGRAM,
    apply_settings,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.bundle.install import NodeGateway, StoredImage
from ansible_collections.attested.kubernetes.plugins.module_utils.bundle.store import this_architecture
from ansible_collections.attested.kubernetes.plugins.module_utils.core.command import CommandResult, SystemRunner
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import SystemFault
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.tests.support.canary import spellings
from ansible_collections.attested.kubernetes.tests.support.registry import Registry, image, serve
from ansible_collections.attested.kubernetes.tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

CACHE = Path(os.environ.get("ATTESTED_CACHE", Path.home() / ".cache" / "attested-kubernetes"))
CRI = "io.containerd.grpc.v1.cri"
PLACES = ("etc", "opt", "run", "var/lib")


class Machine:
    """A scratch root, and a runner whose systemctl knows the one unit containerd."""

    def __init__(self, root: Path, programs: Path, *, of_bundle: bool) -> None:
        self.root, self.programs, self.starts = root, programs, 0
        self.process: subprocess.Popen[bytes] | None = None
        self.plugins = ["/usr/lib/cni"]
        for place in PLACES:
            (root / place).mkdir(parents=True)
        (root / "proc").symlink_to("/proc")
        if of_bundle:
            self.plugins = ["/opt/cni/bin", "/usr/local/libexec/cni", *self.plugins]
            installed = root / PROGRAM.lstrip("/")
            installed.parent.mkdir(parents=True)
            installed.symlink_to(programs / "containerd")

    def inside(self, program: str, *words: str) -> list[str]:
        """Return the command that runs a program of containerd with the root's directories."""
        binds = " && ".join(f"mount --bind {self.root / place} /{place}" for place in PLACES)
        shell = ["unshare", "--mount", "--propagation", "private", "sh", "-c", f'{binds} && exec "$@"', "sh"]
        return [*shell, str(self.programs / program), *words]

    def run(self, argv: Sequence[str], *, check: bool = True, **keywords: Any) -> CommandResult:
        """Answer as the machine's systemctl and ctr do."""
        if argv[0] != "systemctl":
            return SystemRunner().run(self.inside(*argv), check=check, **keywords)
        answer, good = b"", True
        if argv[1] == "show":
            state = "active" if self.process else "inactive"
            answer = f"Id=containerd.service\nActiveState={state}\nUnitFileState=enabled\n".encode()
            if "--property=MainPID" in argv:
                answer = str(self.process.pid if self.process else 0).encode()
        if argv[1] in {"start", "restart"}:
            good = self._start()
        if check and not good:
            raise SystemFault("systemctl ended with 1", reason=Reason.COMMAND_FAILED)
        return CommandResult(argv=tuple(argv), returncode=int(not good), stdout=answer, stderr=b"")

    def _start(self) -> bool:
        self.stop()
        self.starts += 1
        with (self.root / "log").open("ab") as log:
            self.process = process = subprocess.Popen(self.inside("containerd"), stdout=log, stderr=log)
        ready = self.inside("ctr", "version")
        wait_for(lambda: process.poll() is not None or _works(ready))
        if process.poll() is not None:
            self.process = None
        return self.process is not None

    def stop(self) -> None:
        """End containerd."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait()
            self.process = None

    def apply(self, **settings: Any) -> Any:
        """Do what the module does."""
        options = {"sandbox_image": "registry.k8s.io/pause:3.10", "cni_bin_dir": "/usr/lib/cni"}
        more = {"restrict_oom_score": False, "registries": [], "runtimes": [], "drop_ins": {}, **settings}
        more = {"registry_credentials": [], "proxy": {}, "own_addresses": [], **more}
        return apply_settings({**options, **more}, False, root=self.root, runner=self)

    def read(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the configuration as containerd understands it, and of it what version 2 has in one table."""
        read = tomllib.loads(SystemRunner().run(self.inside("containerd", "config", "dump")).stdout.decode())
        if read["version"] == 2:
            return read, read["plugins"][CRI]
        images, runtime = (read["plugins"][f"io.containerd.cri.v1.{name}"] for name in ("images", "runtime"))
        named = {"sandbox_image": images["pinned_images"]["sandbox"], "registry": images["registry"]}
        return read, {**runtime, **named}


def _works(argv: Sequence[str]) -> bool:
    return subprocess.run(argv, capture_output=True, check=False).returncode == 0


def _programs(whose: str) -> Path | None:
    """Return the directory of containerd: that of a bundle, or this machine's or the one of the lab's machines."""
    if whose == "bundle":
        found = sorted(CACHE.glob("bin/*/containerd"))
    else:
        here = shutil.which("containerd")
        found = [Path(here)] if here else sorted(CACHE.glob("node-images/store/overlay/*/diff/usr/bin/containerd"))
    return found[0].parent if found else None


@pytest.fixture(params=["bundle", "distribution"])
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Machine]:
    programs = _programs(request.param)
    if programs is None:
        pytest.skip(f"no containerd of a {request.param} here: the stage bundle and the image of the lab have one each")
    if os.geteuid() != 0 or not _works(["unshare", "--mount", "true"]):
        pytest.skip("no mount namespace here: needs root and unshare")
    made = Machine(tmp_path / "root", programs, of_bundle=request.param == "bundle")
    yield made
    made.stop()


def test_containerd_reads_what_the_site_says(machine: Machine) -> None:
    line = {"plugins": {CRI: {"max_container_log_line_size": 65536, "containerd": {"default_runtime_name": "nvidia"}}}}
    machine.apply(
        runtimes=[
            {"name": "nvidia", "binary": "/usr/bin/nvidia-container-runtime"},
            {"name": "kata", "type": "io.containerd.kata.v2", "options": 'ConfigPath = "/etc/kata.toml"'},
        ],
        drop_ins={"line": line, "level": '[debug]\nlevel = "warn"\n', "level-2": {"debug": {"level": "info"}}},
    )
    read, cri = machine.read()
    assert read["debug"]["level"] == "info"
    assert (cri["sandbox_image"], cri["max_container_log_line_size"]) == ("registry.k8s.io/pause:3.10", 65536)
    assert cri["registry"]["config_path"] == "/etc/attested/registries"
    assert (cri["cni"].get("bin_dirs") or [cri["cni"]["bin_dir"]]) == machine.plugins
    assert len(machine.plugins) == 1 or cri["stats_collect_period"] == "10s"
    runtimes = cri["containerd"]["runtimes"]
    assert cri["containerd"]["default_runtime_name"] == "nvidia"
    assert {"SystemdCgroup": True}.items() <= runtimes["runc"]["options"].items()
    assert runtimes["nvidia"]["options"] == {"SystemdCgroup": True, "BinaryName": "/usr/bin/nvidia-container-runtime"}
    assert runtimes["kata"]["runtime_type"] == "io.containerd.kata.v2"
    assert runtimes["kata"]["options"] == {"ConfigPath": "/etc/kata.toml"}


@pytest.mark.parametrize(
    "drop_in",
    [
        pytest.param({"plugins": {CRI: {"max_container_log_line_size": "x"}}}, id="its interface for Kubernetes does"),
        pytest.param({"debug": {"level": ["x"]}}, id="itself does"),
    ],
)
def test_what_containerd_refuses_is_taken_back(machine: Machine, drop_in: dict[str, Any]) -> None:
    machine.apply()
    before = (machine.root / CONFIGURATION.lstrip("/")).read_bytes()
    with pytest.raises(SystemFault, match="runs with the former one again") as caught:
        machine.apply(drop_ins={"mine": drop_in})
    assert caught.value.reason is Reason.COMMAND_FAILED
    assert (machine.root / CONFIGURATION.lstrip("/")).read_bytes() == before
    again = machine.apply()
    assert (again.changed, machine.starts) == (False, 3)


class Mirror(http.server.BaseHTTPRequestHandler):
    """A registry that has nothing."""

    asked: list[str]

    def do_HEAD(self) -> None:
        """Say so."""
        self.asked.append(self.path)
        self.send_error(404)

    def do_GET(self) -> None:
        """Likewise."""
        self.do_HEAD()

    def log_message(self, *_words: object) -> None:
        """Print nothing."""


def made_certificate(folder: Path) -> tuple[Path, Path]:
    """Make a certificate of loopback and its key."""
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    subject = ("-subj", "/CN=mirror", "-addext", "subjectAltName=IP:127.0.0.1,DNS:registry.test")
    made = ("-newkey", "ed25519", "-nodes", "-keyout", str(key), "-out", str(certificate))
    subprocess.run(["openssl", "req", "-x509", *made, *subject], check=True, capture_output=True)
    return certificate, key


@contextmanager
def mirror(folder: Path) -> Iterator[tuple[str, str, list[str]]]:
    """Serve a mirror; give its URL, its CA, and what it was asked for."""
    certificate, key = made_certificate(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    handler = type("Asked", (Mirror,), {"asked": []})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"https://127.0.0.1:{server.server_port}", certificate.read_text(), handler.asked
        finally:
            server.shutdown()
            thread.join()


def test_a_mirror_is_asked_if_its_ca_is_known(machine: Machine, tmp_path: Path) -> None:
    """ctr reads the files of registries as the interface for Kubernetes does."""
    machine.apply()
    pull = ("images", "pull", "--hosts-dir", "/etc/attested/registries", "localhost:1/site/app:1")
    with mirror(tmp_path) as (url, ca, asked):
        for entry, found in (
            ({"url": url}, []),
            ({"url": url, "ca": ca}, ["/v2/site/app/manifests/1?ns=localhost%3A1"]),
        ):
            machine.apply(registries=[{"server": "localhost:1", "mirrors": [entry]}])
            subprocess.run(machine.inside("ctr", *pull), capture_output=True, check=False)
            assert sorted(set(asked)) == found
    assert machine.starts == 1


CANARY = "never-to-be-seen-51d0c9"
LOGINS = {
    "user and password": ("nodes", CANARY, False),
    "user and password for a token": ("nodes", CANARY, True),
    "a token": ("", CANARY, False),
}


def pulled(machine: Machine, reference: str) -> str:
    """Pull as the kubelet does, by the interface for Kubernetes; return what was refused."""
    done = crictl(machine, "pull", reference)
    assert CANARY not in done.stdout + done.stderr
    return "" if done.returncode == 0 else done.stderr


def crictl(machine: Machine, *words: str) -> subprocess.CompletedProcess[str]:
    """Ask the interface for Kubernetes."""
    socket = "unix:///run/containerd/containerd.sock"
    argv = (str(_crictl()), f"--runtime-endpoint={socket}", f"--image-endpoint={socket}", *words)
    return subprocess.run(machine.inside(*argv), capture_output=True, text=True, check=False)


def _crictl() -> Path:
    found = sorted(CACHE.glob("bin/*/crictl"))
    if not found:
        pytest.skip("no crictl of a bundle here: the stage bundle has one")
    return found[0]


@pytest.mark.parametrize("login", LOGINS)
@pytest.mark.parametrize("as_mirror", [False, True], ids=["the registry", "a mirror"])
def test_a_registry_with_a_login_is_pulled_from(
    machine: Machine, tmp_path: Path, login: str, *, as_mirror: bool
) -> None:
    """containerd reads the credential at each pull; the file with it is for root alone, and no diff shows it."""
    user, password, by_token = LOGINS[login]
    if len(machine.plugins) == 1 and (by_token or not as_mirror):
        pytest.skip(
            "containerd 1 sends no header to a registry itself and to its server of tokens: docs/limitations.md"
        )
    credential = {"username": user, "password": password} if user else {"token": password}
    registry = Registry(image(this_architecture().value), login=(user, password), by_token=by_token)
    ca, key = made_certificate(tmp_path)
    (machine.root / "etc/hosts").write_text("127.0.0.1 registry.test\n")  # containerd 1 asks loopback without TLS
    with serve(registry, ca, key) as address:
        host = f"registry.test:{address.rpartition(':')[2]}"
        server = "registry.invalid:5000" if as_mirror else host
        mirrors = (
            {"mirrors": [{"url": f"https://{host}", "ca": ca.read_text()}]} if as_mirror else {"ca": ca.read_text()}
        )
        registries = [{"server": server, **mirrors}]
        reference = f"{server}/site/app:1"
        machine.apply(registries=registries)
        assert re.search("401|authoriz", pulled(machine, reference))

        wrong = [{"host": host, **credential, ("password" if user else "token"): "another"}]
        machine.apply(registries=registries, registry_credentials=wrong)
        assert pulled(machine, reference)
        assert registry.served == []

        credentials = [{"host": host, **credential}]
        given = {"registries": registries, "registry_credentials": credentials}
        results = [machine.apply(**given), machine.apply(**given)]
        assert pulled(machine, reference) == ""
        assert registry.served
        results.append(machine.apply())
    assert [result.changed for result in results] == [True, False, True]
    assert machine.starts == 1
    assert not any(CANARY in str(result.diff) + str(result.values) for result in results)
    assert spelled_in(machine.root) == []


def spelled_in(root: Path) -> list[str]:
    """Return which files of a machine have the canary, containerd's log among them."""
    words = spellings(CANARY.encode())
    return [
        str(path) for path in root.rglob("*") if path.is_file() and any(word in path.read_bytes() for word in words)
    ]


def test_the_file_with_a_credential_is_for_root_alone_as_long_as_it_has_one(machine: Machine) -> None:
    credentials = [{"host": "registry.invalid", "username": "nodes", "password": CANARY}]
    place = machine.root / "etc/attested/registries/registry.invalid/hosts.toml"
    machine.apply(registries=[{"server": "registry.invalid"}], registry_credentials=credentials)
    assert stat.S_IMODE(place.stat().st_mode) == 0o600
    machine.apply(registries=[{"server": "registry.invalid"}])
    assert stat.S_IMODE(place.stat().st_mode) == 0o644


def test_the_images_of_a_release_are_pinned_for_the_kubelet(machine: Machine, tmp_path: Path) -> None:
    """As the interface for Kubernetes tells it: kubelet's garbage collection keeps such images."""
    if len(machine.plugins) == 1:
        pytest.skip("containerd 1.6 tells kubelet of no pinned images: docs/limitations.md")
    ca, key = made_certificate(tmp_path)
    (machine.root / "etc/hosts").write_text("127.0.0.1 registry.test\n")  # containerd 1 asks loopback without TLS
    nodes = NodeGateway(machine, root=machine.root)
    with serve(Registry(image(this_architecture().value)), ca, key) as address:
        server = f"registry.test:{address.rpartition(':')[2]}"
        reference = f"{server}/site/app:1"
        machine.apply(registries=[{"server": server, "ca": ca.read_text()}])
        assert pulled(machine, reference) == ""

    def pinned() -> bool:
        (found,) = json.loads(crictl(machine, "images", "--output=json").stdout)["images"]
        assert reference in found["repoTags"]
        return bool(found.get("pinned"))

    assert not pinned()
    nodes.pin("3fd5d2cc37eb", [reference])
    wait_for(pinned)
    nodes.pin("3fd5d2cc37eb", [])
    assert pinned()
    before = {reference: StoredImage(digest="", pinned=True, releases=frozenset({"3fd5d2cc37eb"}))}
    images, archive = ["ctr", "--namespace", "k8s.io", "images"], str(tmp_path / "images.tar")
    machine.run([*images, "export", archive, reference])
    machine.run([*images, "import", archive])  # as for another release, whose archive has this image too
    wait_for(lambda: not pinned())
    nodes.pin("3fd5d2cc37eb", [], before)
    wait_for(pinned)
    nodes.pin("623c79565962", [])  # the only release there is now
    wait_for(lambda: not pinned())
