# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Start machines of the lab: each a container with systemd, a TPM of its own and the recording of a boot.

Reads a JSON list from standard input, one object a machine (see ``Machine``), starts what does not run, and waits
until systemd says ``running`` on each. A machine whose description has changed is made anew with its old TPM.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import shutil
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common import Lab, LabError, Podman, command_line, machine_store, program, run, runs, write
from image import SUITE, image_name

if TYPE_CHECKING:
    from collections.abc import Iterable

API_NAME = "api.lab.test"
CONTROL_PLANES = tuple(f"10.89.7.{number}" for number in (11, 12, 13, 61))
RUNNING_SECONDS = 300
SOCKET_PATH_LIMIT = 107  # unix(7)
NODE_FILES = Path(__file__).resolve().parents[1] / "node"

# an overlay cannot be the upper layer of another, and etcd wants a real file system
VOLUMES = {"containerd": "/var/lib/containerd", "etcd": "/var/lib/etcd", "kubelet": "/var/lib/kubelet"}

# Everything but setting the clock and loading modules, which would act on the whole machine.
# No privileged container: it would see the machine's disks.
CONTAINER = (
    "--restart=always", "--systemd=false", "--cgroupns=private", "--pids-limit=-1",
    "--cap-add=ALL", "--cap-drop=SYS_TIME,SYS_MODULE",
    "--security-opt=seccomp=unconfined", "--security-opt=apparmor=unconfined", "--security-opt=unmask=ALL",
    "--device-cgroup-rule=a *:* rwm", "--device=/dev/kmsg",
    "--tmpfs=/run:rw,nosuid,nodev,mode=755", "--tmpfs=/run/lock", "--tmpfs=/tmp:rw,exec",
    "--no-hosts", "--dns=none",
)  # fmt: skip

LOCALCA_CONF = """\
statedir = {path}
signingkey = {path}/signkey.pem
issuercert = {path}/issuercert.pem
certserial = {path}/certserial
"""

LOCALCA_OPTIONS = """\
--platform-manufacturer attested-lab
--platform-version 1.0
--platform-model container
"""

SETUP_CONF = """\
create_certs_tool = /usr/bin/swtpm_localca
create_certs_tool_config = {path}/localca.conf
create_certs_tool_options = {path}/localca.options
active_pcr_banks = sha256
"""

SSH_CONFIG = """\
Host *
  User admin
  IdentityFile {path}/id_ed25519
  IdentitiesOnly yes
  StrictHostKeyChecking yes
  UserKnownHostsFile {path}/known_hosts
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One machine: its name, addresses, the boot it replays, the CA that certifies its TPM, what is mounted.

    A virtual machine (``vms.py``) replays nothing; what it is made of stands under ``hardware``. ``suite`` is its
    Debian.
    """

    name: str
    address: str
    forward: str
    boot: str = ""
    authority: str = "lab"
    mounts: dict[str, str] = field(default_factory=dict)
    suite: str = SUITE
    hardware: dict[str, Any] = field(default_factory=dict)


def write_authorities(lab: Lab, names: Iterable[str]) -> None:
    """Configure the CAs for endorsement certificates; swtpm makes a CA's keys with its first certificate."""
    for name in set(names):
        path = lab.root / "authorities" / name
        write(path / "localca.conf", LOCALCA_CONF.format(path=path))
        write(path / "localca.options", LOCALCA_OPTIONS)
        write(path / "setup.conf", SETUP_CONF.format(path=path))


def write_certificates(lab: Lab, names: Iterable[str]) -> None:
    """Write the certificates of each CA into the one file that a site trusts."""
    for path in (lab.root / "authorities" / name for name in set(names)):
        anchors = (path / name for name in ("swtpm-localca-rootca-cert.pem", "issuercert.pem"))
        write(path / "certificates.pem", b"".join(anchor.read_bytes() for anchor in anchors))


def make_tpm(lab: Lab, machine: Machine) -> None:
    """Manufacture the machine's TPM: keys, certificates, one bank."""
    state = lab.machine(machine.name) / "tpm-state"
    if (state / "tpm2-00.permall").exists():
        return
    authority = lab.root / "authorities" / machine.authority
    state.mkdir(parents=True, exist_ok=True)
    run(
        "swtpm_setup", "--tpm2", "--tpmstate", str(state), "--config", str(authority / "setup.conf"),
        "--create-ek-cert", "--pcr-banks", "sha256", "--lock-nvram", "--runas", "root",
    )  # fmt: skip


def start_tpm(lab: Lab, machine: Machine) -> bool:
    """Start swtpm; True if it did not run. The TPM then waits for the machine's first process to start it."""
    home = lab.machine(machine.name)
    if runs(home / "tpm.pid", home):
        return False
    sockets = home / "tpm"
    if len(str(sockets / "tpm.ctrl")) > SOCKET_PATH_LIMIT:
        raise LabError(
            f"expected a path of at most {SOCKET_PATH_LIMIT} bytes for a TPM's socket, got {sockets}/tpm.ctrl"
        )
    shutil.rmtree(sockets, ignore_errors=True)
    sockets.mkdir(mode=0o700)
    run(
        "swtpm", "socket", "--tpm2", "--tpmstate", f"dir={home / 'tpm-state'}",
        "--server", f"type=unixio,path={sockets / 'tpm'},disconnect",
        "--ctrl", f"type=unixio,path={sockets / 'tpm.ctrl'}",
        "--flags", "not-need-init,startup-clear", "--daemon", "--pid", f"file={home / 'tpm.pid'}",
    )  # fmt: skip
    return True


def write_machine(lab: Lab, machine: Machine) -> bool:
    """Write what the machine finds below /srv: the recorded boot, host key, authorised key; True if it differed."""
    home = lab.machine(machine.name)
    changed = write(home / "machine.json", json.dumps(asdict(machine), indent=2) + "\n")
    for name in VOLUMES:
        (home / "volumes" / name).mkdir(parents=True, exist_ok=True)
    for file in Path(machine.boot).iterdir() if machine.boot else ():
        changed |= write(home / "boot" / file.name, file.read_bytes())
    for file in NODE_FILES.iterdir():
        changed |= write(home / "node" / file.name, file.read_bytes(), mode=0o755)
    host_key = home / "machine" / "ssh_host_ed25519_key"
    key_pair(host_key, comment=machine.name)
    login = key_pair(lab.root / "ssh" / "id_ed25519", comment="attested-lab")
    return write(home / "machine" / "authorized_keys", login.read_bytes()) or changed


def key_pair(path: Path, *, comment: str) -> Path:
    """Make an SSH key pair unless it exists; return the public half."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not path.exists():
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path))
    return path.with_suffix(".pub")


def write_names(lab: Lab, machines: Iterable[Machine]) -> bool:
    """Write who is who: a hosts file for the nodes, pinned keys and names for ssh on the host; True if one differed."""
    known = sorted(machines, key=lambda machine: machine.address)
    serving = [m.address for m in known if m.address in CONTROL_PLANES]
    api = [f"{address} {API_NAME}" for address in serving or CONTROL_PLANES[:1]]  # tried one after the other
    hosts = ["127.0.0.1 localhost", *api, *(f"{m.address} {m.name}" for m in known)]
    written, pins = [], []
    for machine in known:
        directory = lab.machine(machine.name) / "machine"
        written.append(write(directory / "hosts", "\n".join(hosts) + "\n"))
        key = (directory / "ssh_host_ed25519_key.pub").read_text().rsplit(" ", 1)[0]
        pins.append(f"{machine.name},{machine.forward},{machine.address} {key}\n")
    written.append(write(lab.root / "ssh" / "known_hosts", "".join(pins)))
    short = "".join(f"Host {machine.name}\n  HostName {machine.forward}\n" for machine in known)
    written.append(write(lab.root / "ssh" / "config", short + SSH_CONFIG.format(path=lab.root / "ssh")))
    return any(written)


def all_machines(lab: Lab) -> list[Machine]:
    """Return every machine that was ever started in this lab."""
    return [Machine(**json.loads(file.read_text())) for file in lab.root.glob("machines/*/machine.json")]


def limits() -> list[str]:
    """Return limits that this machine allows: without CAP_SYS_RESOURCE podman's own values are refused."""
    table = {"nofile": (resource.RLIMIT_NOFILE, 1048576), "nproc": (resource.RLIMIT_NPROC, 30000)}
    result = []
    for name, (kind, wanted) in table.items():
        hard = resource.getrlimit(kind)[1]
        value = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
        result.append(f"--ulimit={name}={value}:{value}")
    return result


def container(lab: Lab, machine: Machine) -> list[str]:
    """Return podman's words for the container of a machine."""
    home = lab.machine(machine.name)
    mounts = {str(home / "volumes" / name): path for name, path in VOLUMES.items()}
    mounts[str(home / "tpm")] = "/srv/tpm"
    read_only = {str(home / name): f"/srv/{name}" for name in ("boot", "machine", "node")}
    read_only |= {source: path for path, source in machine.mounts.items()}
    return [
        "--name", machine.name, "--hostname", machine.name,
        "--cgroup-parent", f"/{lab.name}", "--network", lab.name, "--ip", machine.address,
        "--mac-address", hardware_address(machine), *CONTAINER, *limits(),
        *(["--device=/dev/fuse"] if Path("/dev/fuse").exists() else []),
        *(f"--volume={source}:{path}" for source, path in mounts.items()),
        *(f"--volume={source}:{path}:ro" for source, path in read_only.items()),
        image_name(machine.suite), "/srv/node/node-init",
    ]  # fmt: skip


def hardware_address(machine: Machine) -> str:
    """Return the MAC that a machine keeps over restarts: with another one its neighbours would not find it at first."""
    return ":".join(f"{byte:02x}" for byte in (0x02, 0x00, *map(int, machine.address.split("."))))


def ensure(lab: Lab, podman: Podman, machine: Machine, *, restart: bool = False) -> bool:
    """Bring one machine up, or down and up; True if anything was done."""
    make_tpm(lab, machine)
    fresh_tpm = start_tpm(lab, machine)
    words = container(lab, machine)
    label = f"attested={hashlib.sha256(json.dumps(words).encode()).hexdigest()}"
    query = ("ps", "--all", "--noheading", "--format", "{{.Status}}", "--filter", f"name=^{machine.name}$")
    status = podman(*query, "--filter", f"label={label}")
    if status.startswith("Up") and not (fresh_tpm or restart):
        return False
    if status:
        podman("restart", "--time", "10", machine.name)
    else:
        podman("rm", "--force", "--ignore", "--time", "0", machine.name)
        podman("run", "--detach", "--label", label, *words)
    wait_until_running(podman, machine)
    return True


def wait_until_running(podman: Podman, machine: Machine) -> None:
    """Wait until systemd has started every unit; a failed unit or no systemd at all is an error with its reason."""
    deadline = time.monotonic() + RUNNING_SECONDS
    while True:
        state = podman("exec", machine.name, "systemctl", "is-system-running", "--wait", check=False).strip()
        if state == "running":
            return
        if state == "degraded":
            failed = podman("exec", machine.name, "systemctl", "--failed", "--no-legend", "--plain", check=False)
            raise LabError(f"expected {machine.name} to be running, got failed units: {failed.strip()}")
        if time.monotonic() > deadline:
            log = podman("logs", "--tail", "20", machine.name, check=False)
            raise LabError(f"expected {machine.name} to be running, got {state or 'no systemd'}: {log.strip()}")
        time.sleep(0.1)


def start(lab: Lab, wanted: list[Machine], *, restart: bool = False) -> list[str]:
    """Start the machines side by side; return the names of those that were changed."""
    changed = {machine.name: write_machine(lab, machine) for machine in wanted}
    names_changed = write_names(lab, all_machines(lab))
    authorities = [machine.authority for machine in wanted]
    write_authorities(lab, authorities)
    podman = machine_store(lab)
    with ThreadPoolExecutor(max_workers=4) as pool:
        started = list(pool.map(lambda machine: ensure(lab, podman, machine, restart=restart), wanted))
    write_certificates(lab, authorities)
    result = [m.name for m, fresh in zip(wanted, started, strict=True) if fresh or changed[m.name]]
    return result or (["names"] if names_changed else [])


def remove(lab: Lab, machine: Machine) -> bool:
    """Take one machine away with its TPM and everything it kept; True if it was there."""
    home = lab.machine(machine.name)
    if not home.exists():
        return False
    machine_store(lab)("rm", "--force", "--ignore", "--time", "0", machine.name)
    stop_tpm(home)
    shutil.rmtree(home)
    write_names(lab, all_machines(lab))
    return True


def stop_tpm(home: Path) -> None:
    """End the swtpm of the machine that lives there, if it runs, and wait for it."""
    tpm = runs(home / "tpm.pid", home)
    if tpm:
        os.kill(tpm, signal.SIGTERM)
    while tpm and command_line(tpm):  # it takes its own files away
        time.sleep(0.05)


def scrap_tpm(lab: Lab, machine: Machine) -> None:
    """Take a machine's TPM away for good, as with its mainboard; its disk stays."""
    home = lab.machine(machine.name)
    machine_store(lab)("stop", "--ignore", "--time", "10", machine.name)
    stop_tpm(home)
    shutil.rmtree(home / "tpm-state", ignore_errors=True)


def work(lab: Lab, command: str) -> dict[str, Any]:
    """Start, restart or remove what standard input names, or start it with another TPM."""
    machines = [Machine(**entry) for entry in json.load(sys.stdin)]
    if command == "remove":
        removed = [machine.name for machine in machines if remove(lab, machine)]
        return {"changed": bool(removed), "machines": removed}
    for machine in machines if command == "renew" else ():
        scrap_tpm(lab, machine)
    changed = start(lab, machines, restart=command in {"renew", "restart"})
    return {"changed": bool(changed), "machines": changed}


if __name__ == "__main__":
    program(work, ("ensure", "remove", "renew", "restart"))
