# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster by the commands of the documentation, as they are printed there, from the built archive.

One shell in an empty home directory runs the steps of "Install the collection" and of the README, on machines of the
lab. The collection and its Python packages are installed there; the checkout is not used. The shell has what the
documentation expects of the site: an editor, a name for the API server, and a file with the vault's password. What the
shell prints is kept beside the records, with the time of each command. Then the cluster is looked at out of an
execution environment, which is built as its page says it; only the base image is made here, for it is in a registry.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from ansible_collections.attested.kubernetes.tests.support.arm64_bed import of_the_lab
from ansible_collections.attested.kubernetes.tests.support.boundaries import ROOT
from ansible_collections.attested.kubernetes.tests.support.records import RECORDS
from ansible_collections.attested.kubernetes.tests.support.road import Road, road_through

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

USED_LAB = "ATTESTED_README_LAB"
"""Of a developer: NAME:LOOPBACK of a lab of `lab_machines` that is up and of which nobody has made a cluster."""

ENDPOINT = "api.prod.example"
PROFILE = "my-servers"
CACHE = Path(".cache") / "attested-kubernetes"
BASE, IMAGE = "localhost/attested-base:1", "localhost/attested-ee:1"
OF_THE_SITE = ("attested_bundle", "attested_bundle_on_node", "attested_api_endpoint")
"""Settings of the lab's own site that the site of the documentation does not take."""
KEPT = ("PATH", "LANG", "TERM")
OF_DOWNLOADS = re.compile("PIP_.*|.*_PROXY|.*_proxy|.*CERT.*|.*CA_BUNDLE|GO.*")
SHELL = """
run() {
    printf '\\n$ %s\\n' "$1"
    began=$(date +%s)
    eval "$1"
    printf '# %d s\\n' $(($(date +%s) - began))
}
"""
EDITOR = """#!/bin/sh
# an admin's edits: the machines first, then the cluster's settings, then its profiles
case $1 in
hosts.yml) cp "$HOME/hosts.yml" hosts.yml ;;
*) if grep -q '^attested_cni:' "$1"
   then sed -i 's/^attested_profiles:.*/attested_profiles: [PROFILE]/' "$1"
   else cat "$HOME/settings.yml" >> "$1"
   fi ;;
esac
"""


def commands_of(page: str, *, below: str, blocks: int) -> list[str]:
    """Return the commands of the first ``blocks`` console blocks below a heading, as they are printed."""
    text = (ROOT / page).read_text(encoding="utf-8").partition(f"\n{below}\n")[2]
    found = re.findall(r"```console\n(.*?)```", text, re.DOTALL)[:blocks]
    lines = [line.strip() for block in found for line in block.splitlines()]
    return [line.removeprefix("$ ") for line in lines if line.startswith("$ ") and not line.startswith("$  ")]


@pytest.fixture(scope="module")
def road() -> Iterator[Road]:
    """Machines of a lab, of which nobody has made anything."""
    with road_through(of="attested-readme:127.95.0", instead=USED_LAB) as road:
        yield road


@pytest.fixture(scope="module")
def home(road: Road, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The admin's home directory: the archive, what the editor writes, the vault's password, the cache of builds."""
    home = tmp_path_factory.mktemp("home")
    build_archive(home)
    shutil.copy(road.site / "hosts.yml", home)
    settings = yaml.safe_load((road.site / "group_vars" / "nodes" / "lab.yml").read_text())
    settings = {name: value for name, value in settings.items() if name not in OF_THE_SITE}
    (home / "settings.yml").write_text(yaml.safe_dump(settings))
    (home / "editor").write_text(EDITOR.replace("PROFILE", PROFILE))
    (home / "editor").chmod(0o755)
    (home / "prod-vault").write_text("correct horse battery staple\n")
    (home / CACHE.parent).mkdir()
    (home / CACHE).symlink_to(Path.home() / CACHE)
    for machine in ("cp-1", "w-1", "w-2"):
        road.inside(machine, "sh", "-c", f"echo 10.89.7.11 {ENDPOINT} >> /etc/hosts")
    return home


def build_archive(place: Path) -> None:
    """Build the archive of what is checked out, as `ansible-galaxy` does it in a checkout."""
    tree = place / "checkout"
    subprocess.run(["git", "checkout-index", "--all", f"--prefix={tree}/"], cwd=ROOT, check=True)
    program = Path(sys.executable).with_name("ansible-galaxy")
    argv = [str(program), "collection", "build", "--output-path", str(place)]
    subprocess.run(argv, cwd=tree, check=True, capture_output=True)
    shutil.rmtree(tree)


def run_in_shell(home: Path, commands: list[str]) -> tuple[int, str]:
    """Run commands in one shell in the home directory, up to the first that fails; return its code and the output."""
    environment = {name: value for name, value in os.environ.items() if name in KEPT or OF_DOWNLOADS.fullmatch(name)}
    virtual = str(Path(sys.prefix) / "bin")
    path = os.pathsep.join(one for one in environment["PATH"].split(os.pathsep) if one != virtual)
    environment |= {"HOME": str(home), "EDITOR": str(home / "editor"), "PATH": path}
    script = f"set -e\ncd\n{SHELL}" + "".join(f"run {json.dumps(one)}\n".replace("$", "\\$") for one in commands)
    done = subprocess.run(
        ["bash", "-c", script], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    return done.returncode, done.stdout.decode(errors="replace")


def test_the_commands_of_the_documentation_make_a_cluster(road: Road, home: Path) -> None:
    """The last two, `status` and `verify`, fail unless all is well; all nodes are Ready and Flannel runs on each."""
    install = commands_of("docs/tasks/install-the-collection.md", below="## Steps", blocks=2)
    commands = [*install, *commands_of("README.md", below="## Your own machines", blocks=1)]
    assert len(commands) == 4 + 14
    began = time.monotonic()
    code, said = run_in_shell(home, commands)
    keep(said, seconds=time.monotonic() - began)
    assert code == 0, said[-8000:]
    nodes = json.loads(road.kubectl("get", "nodes", "--output=json"))["items"]
    assert {one["metadata"]["name"] for one in nodes} == {"cp-1", "w-1", "w-2"}
    for node in ("cp-1", "w-1", "w-2"):
        road.wait_until_ready(node, boot_id=road.boot_id(node))
    flannel = ("--namespace=kube-system", "rollout", "status", "daemonset/flannel", "--timeout=120s")
    assert "successfully rolled out" in road.kubectl(*flannel)


@pytest.fixture(scope="module")
def environment(home: Path) -> Iterator[Any]:
    """The container engine that has the execution environment, with a store of its own."""
    place = Path("/run/attested-ee")
    podman = of_the_lab("common").store(home / "images" / "store", run_directory=place)
    tree, folder = home / "base.tar", home / "ee"
    folder.mkdir()
    shutil.copy(next(home.glob("*.tar.gz")), folder)
    page = (ROOT / "docs/tasks/run-in-an-execution-environment.md").read_text(encoding="utf-8")
    definition = yaml.safe_load(page.partition("```yaml\n")[2].partition("```")[0])
    definition["images"]["base_image"]["name"] = BASE
    (folder / "execution-environment.yml").write_text(yaml.safe_dump(definition))
    (wanted,) = re.findall(r"pip install '(ansible-builder[^']*)'", page)
    try:
        run_program("mmdebstrap", "--quiet", "--variant=minbase", "--include=ca-certificates", "bookworm", str(tree))
        podman("import", str(tree), BASE)
        run_program(sys.executable, "-m", "venv", str(home / "builder"))
        run_program(str(home / "builder/bin/pip"), "install", "--quiet", wanted)
        run_program(str(home / "builder/bin/ansible-builder"), "create", where=folder)
        # the container sees the network, the certificates and the packages as this machine does
        seen = [f"--volume={one}:{one}:ro" for one in ("/etc/ssl/certs", "/etc/apt") if Path(one).exists()]
        podman("build", "--isolation=chroot", "--network=host", *seen, f"--tag={IMAGE}", str(folder / "context"))
        yield podman
    finally:
        of_the_lab("common").unmount_below(home / "images")
        shutil.rmtree(place, ignore_errors=True)


def run_program(*argv: str, where: Path | None = None) -> None:
    done = subprocess.run(argv, cwd=where, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    assert done.returncode == 0, done.stdout.decode(errors="replace")[-8000:]


def test_an_execution_environment_shows_the_cluster_of_a_read_only_site(
    road: Road, home: Path, environment: Any
) -> None:
    """As in AWX: the collection is in the image, and the site is read-only; `verify` fails unless all is well."""
    volumes = [f"--volume={one}:{one}:ro" for one in (home / "prod", home / "prod-vault", road.lab.directory)]
    words = ["--rm", "--network=host", "--user=root", "--pids-limit=-1", *of_the_lab("machines").limits(), *volumes]
    words += [f"--env=ANSIBLE_VAULT_PASSWORD_FILE={home / 'prod-vault'}", f"--workdir={home / 'prod'}", IMAGE]
    listed = environment("run", *words, "ansible-doc", "--list", "attested.kubernetes")
    assert "attested.kubernetes.attestation_verification" in listed
    for playbook in ("status", "verify"):
        said = environment("run", *words, "ansible-playbook", f"attested.kubernetes.{playbook}")
        assert all(re.search(rf"^\s*\"?{one}\b", said, re.MULTILINE) for one in ("cp-1", "w-1", "w-2")), said


def keep(said: str, *, seconds: float) -> None:
    """Write the transcript beside the records, with the day and the whole time in its first line."""
    RECORDS.mkdir(parents=True, exist_ok=True)
    now = datetime.now(UTC)
    (RECORDS / f"{now:%Y-%m-%d}-first-cluster.txt").write_text(f"# {now:%Y-%m-%d}, {seconds:.0f} s\n{said}")
