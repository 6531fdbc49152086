# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a tenant and root of a worker try in a running lab: the attacks S46, S48 and S56 where kubelets are real.

Usage: python tests/attacks/lab_tenant.py [NAME]      a lab that is up, by default the one of `make lab`

The tenant is a ServiceAccount with the built-in role `admin` of one namespace, root of a worker has its kubelet's
credential. Prints a line a try and what answered, and ends with 1 where one was let through. It leaves nothing behind.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Inside = Callable[[str, tuple[str, ...], bytes], str]
    """Run a command as root in a machine with that on its input; return what it printed on both streams."""

TENANT = "tenant-of-test"
PLANE = "cp-1"
CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
CA, ADMIN = "/etc/kubernetes/pki/ca.crt", "/etc/kubernetes/admin.conf"
KUBELET, COPY = "/var/lib/kubelet/pki/kubelet-client-current.pem", "/run/credential-of-a-worker.pem"
OWN = ("--kubeconfig=/dev/null", "--server=https://127.0.0.1:6443", f"--certificate-authority={CA}")
TOUR = "localhost/attested-tour:1"
DENIED = ("orbidden", "denied", "is invalid")


@dataclass(frozen=True, slots=True, kw_only=True)
class Try:
    """One attack: by whom, what, what answered, and whether it was refused."""

    who: str
    what: str
    said: str
    refused: bool

    def line(self) -> str:
        """Return it for a person."""
        return f"{'refused' if self.refused else 'LET IN':<8} {self.who:<7} {self.what}: {self.said}"


class Asker:
    """kubectl in a lab: of the admin, of the tenant by its token, of a kubelet by its kubeconfig."""

    def __init__(self, inside: Inside) -> None:
        """Keep how a command runs in a machine."""
        self._inside = inside
        self._token = ""

    def admin(self, *words: str, given: Any = None) -> str:
        """Ask as the admin."""
        return self._ask(f"--kubeconfig={ADMIN}", *words, given=given)

    def tenant(self, *words: str, given: Any = None) -> str:
        """Ask as the tenant, with nothing of the admin's but the address of the API."""
        self._token = self._token or self.admin("create", "token", "owner", f"--namespace={TENANT}").strip()
        return self._ask(*OWN, f"--token={self._token}", *words, given=given)

    def take(self, node: str) -> None:
        """Take a worker's credential to where kubectl is; a worker has none."""
        credential = self._inside(node, ("cat", KUBELET), b"").encode()
        self._inside(PLANE, ("sh", "-c", f"umask 077; cat > {COPY}"), credential)

    def drop(self) -> None:
        """Remove it."""
        self._inside(PLANE, ("rm", "-f", COPY), b"")

    def kubelet(self, *words: str, given: Any = None) -> str:
        """Ask as root of that worker."""
        return self._ask(*OWN, f"--client-certificate={COPY}", f"--client-key={COPY}", *words, given=given)

    def _ask(self, *words: str, given: Any) -> str:
        text = json.dumps(given).encode() if given is not None else b""
        return self._inside(PLANE, ("kubectl", "--request-timeout=20s", *words), text).strip()


def attack(inside: Inside) -> Iterator[Try]:
    """Try everything; the good case of each goes first, and raises where it is refused."""
    asker = Asker(inside)
    node = _nodes(asker)
    asker.admin("create", "namespace", TENANT)
    try:
        asker.admin("create", "serviceaccount", "owner", f"--namespace={TENANT}")
        words = ("--clusterrole=admin", f"--serviceaccount={TENANT}:owner", f"--namespace={TENANT}")
        asker.admin("create", "rolebinding", "owner", *words)
        yield from _pods(asker)
        yield from _services(asker, node["address"])
        yield from _exec(asker, node)
        asker.take(node["name"])
        yield from _kubelet(asker, node)
    finally:
        asker.drop()
        asker.admin("delete", "namespace", TENANT, "--wait=false")


def _nodes(asker: Asker) -> dict[str, str]:
    """Return a worker and its address, and the address of the control plane."""
    found: dict[str, str] = {}
    for one in json.loads(asker.admin("get", "nodes", "--output=json"))["items"]:
        address = next(a["address"] for a in one["status"]["addresses"] if a["type"] == "InternalIP")
        if CONTROL_PLANE in one["metadata"]["labels"]:
            found["plane"] = address
        else:
            found |= {"name": one["metadata"]["name"], "address": address}
    return found


def _pod(**spec: Any) -> dict[str, Any]:
    container = {"name": "a", "image": TOUR, "imagePullPolicy": "Never", "command": ["/bin/busybox", "sleep", "600"]}
    metadata = {"generateName": "a-", "namespace": TENANT}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container], **spec}}


def _reading(path: str) -> dict[str, Any]:
    mounts = [{"name": "node", "mountPath": "/node", "readOnly": True}]
    container = {**_pod()["spec"]["containers"][0], "volumeMounts": mounts}
    return {"containers": [container], "volumes": [{"name": "node", "hostPath": {"path": path}}]}


def _pods(asker: Asker) -> Iterator[Try]:
    _good(asker.tenant("create", "-f", "-", given=_pod()), "created")
    privileged = {**_reading("/")["containers"][0], "securityContext": {"privileged": True}}
    tries = {
        "a privileged Pod with / on cp-1": {**_reading("/"), "containers": [privileged], "nodeName": PLANE},
        "a Pod with the keys of the cluster": _reading("/etc/kubernetes"),
        "a Pod with the master secret": _reading("/var/lib/attested"),
        "a Pod with the processes of its node": {"hostPID": True},
        "a Pod with the network of its node": {"hostNetwork": True},
        "a Pod on cp-1 by its name": {"nodeName": PLANE},
        "a Pod on cp-1 by a toleration": {"tolerations": [{"key": CONTROL_PLANE, "operator": "Exists"}]},
        "a Pod with port 9090 of its node": {
            "containers": [{**_pod()["spec"]["containers"][0], "ports": [{"containerPort": 1, "hostPort": 9090}]}]
        },
    }
    for what, spec in tries.items():
        yield _told("tenant", what, asker.tenant("create", "-f", "-", given=_pod(**spec)))


def _services(asker: Asker, address: str) -> Iterator[Try]:
    ports = {"ports": [{"port": 9090}]}
    metadata = {"generateName": "s-", "namespace": TENANT}
    document = {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": ports}
    _good(asker.tenant("create", "-f", "-", given=document), "created")
    for port in (9090, 9091, 10250):
        taking = {**document, "spec": {"ports": [{"port": port}], "externalIPs": [address]}}
        said = asker.tenant("create", "-f", "-", given=taking)
        yield _told("tenant", f"a Service that takes {address}:{port}", said)


def _exec(asker: Asker, node: dict[str, str]) -> Iterator[Try]:
    """Whoever answers at a node's address has to show a certificate of the cluster, before exec is sent there."""
    manifest = asker.admin("get", "pod", f"kube-apiserver-{PLANE}", "--namespace=kube-system", "--output=json")
    told = json.loads(manifest)["spec"]["containers"][0]["command"]
    checks = f"--kubelet-certificate-authority={CA}"
    said = checks if checks in told else "the API server checks no certificate of a kubelet"
    yield Try(who="tenant", what=f"kubectl exec, answered at {node['address']}", said=said, refused=checks in told)
    words = ("exec", "--namespace=kube-system", f"etcd-{PLANE}", "--", "etcdctl", "version")
    _good(asker.admin(*words), "etcdctl version")
    yield _told("tenant", "exec in kube-system", asker.tenant(*words))


def _kubelet(asker: Asker, node: dict[str, str]) -> Iterator[Try]:
    name = node["name"]
    about = {"kind": "Pod", "namespace": "kube-system", "name": "a"}
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": "lab-tenant-", "namespace": "kube-system"},
        "involvedObject": about,
        "source": {"component": "kubelet", "host": name},
        "reason": "Test",
        "message": "of tests/attacks/lab_tenant.py",
        "type": "Normal",
    }
    _good(asker.kubelet("create", "--dry-run=server", "-f", "-", given=event), "created")
    ours = {**event, "source": {"component": "attested-key-service"}}
    yield _told("root", "another namespace's Event, by us", asker.kubelet("create", "-f", "-", given=ours))

    def patched(change: dict[str, Any], *words: str) -> str:
        text = json.dumps(change)
        return asker.kubelet("patch", "node", name, "--type=merge", f"--patch={text}", *words)

    _good(patched({"metadata": {"annotations": {"example.com/a": "b"}}}, "--dry-run=server"), "patched")
    posture = {"metadata": {"labels": {"attested-kubernetes.dev/posture": "root"}}}
    yield _told("root", "a posture on its own Node", patched(posture))

    def replaced(**status: Any) -> str:
        """Write the status as a whole: a kubelet may not read it, as kubectl does before it patches."""
        whole = json.loads(asker.admin("get", "node", name, "--output=json"))
        del whole["metadata"]["resourceVersion"]
        whole["status"] |= status
        return asker.kubelet("replace", f"--raw=/api/v1/nodes/{name}/status", "-f", "-", given=whole)

    _good(replaced(), '"kind":"Node"')
    status = json.loads(asker.admin("get", "node", name, "--output=json"))["status"]
    looks = {"type": "attested", "status": "True", "reason": "EvidenceGood", "message": "the last evidence was good"}
    yield _told("root", "a condition that looks like ours", replaced(conditions=[*status["conditions"], looks]))
    elsewhere = [{"type": "InternalIP", "address": node["plane"]}, {"type": "Hostname", "address": name}]
    yield _told("root", "cp-1's address", replaced(addresses=elsewhere))


def _told(who: str, what: str, said: str) -> Try:
    last = " ".join(said.split())
    return Try(who=who, what=what, said=last[:220], refused=any(word in last for word in DENIED))


def _good(said: str, word: str) -> None:
    if word not in said:
        raise RuntimeError(f"expected the good case to pass, got: {said}")


def in_lab(directory: Path) -> Inside:
    """Return how a command runs in a machine of the lab in ``directory``."""

    def inside(machine: str, argv: tuple[str, ...], given: bytes) -> str:
        words = [str(directory / "podman"), "exec", "-i", machine, *argv]
        done = subprocess.run(words, input=given, capture_output=True, check=False, timeout=300)
        return (done.stdout + done.stderr).decode(errors="replace")

    return inside


def main() -> int:
    """Run them in a lab; return 1 where one was let in."""
    name = sys.argv[1] if len(sys.argv) > 1 else "attested-lab"
    tries = []
    for one in attack(in_lab(Path.home() / ".local" / "state" / name)):
        print(one.line(), flush=True)
        tries.append(one)
    print(f"{sum(one.refused for one in tries)} of {len(tries)} refused")
    return 0 if all(one.refused for one in tries) else 1


if __name__ == "__main__":
    sys.exit(main())
