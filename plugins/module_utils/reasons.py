# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every reason code: what a stranger hears, what it means, what to do and the next command.

The table is alphabetical; `docs/reason-codes.md` and `attested explain CODE` are made from it. A code stands for one
action of the operator: faults that the same hint and the same command repair share a code, and the message names the
field, the expected value and the value found. Every decision about evidence, policy, identity or node lock keeps its own
code, and so does what a client or a playbook branches on.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from enum import Enum


class Coarse(Enum):
    """What the other side of a connection may know of a refusal."""

    BUSY = "too many requests, try again later"
    INVALID = "request not understood"
    LOCAL = "not sent to a peer"
    REFUSED = "attestation refused"
    UNAVAILABLE = "service not ready, try again"


@dataclass(frozen=True, slots=True)
class ReasonText:
    """The texts of one reason: ``summary`` (what happened), ``hint`` (what to do), ``command`` (next command)."""

    coarse: Coarse
    summary: str
    hint: str
    command: str


def _row(coarse: Coarse, summary: str, hint: str, command: str = "attested status") -> ReasonText:
    return ReasonText(coarse, summary, hint, command)


def explain(code: str) -> str:
    """Return what ``code`` means, what a peer hears of it, what to do and the next command, as lines for a terminal.

    Raises `LookupError` with the nearest codes where there is no such one.
    """
    wanted = code.strip().upper()
    if wanted not in Reason.__members__:
        near = difflib.get_close_matches(wanted, Reason.__members__)
        raise LookupError(f"expected a reason code, got {code}" + (f"; near it: {', '.join(near)}" if near else ""))
    text = Reason[wanted].value
    return (
        f"{wanted}: {text.summary}\n"
        f"  what to do    {text.hint}\n"
        f"  next command  {text.command}\n"
        f"  a peer hears  {text.coarse.value}"
    )


class Reason(Enum):
    """The stable codes; the member's name is the code, its value the texts."""

    ACTIVATION_NOT_PROVEN = _row(
        Coarse.REFUSED,
        "The machine did not show that its TPM opened the credential.",
        "Ask for a new challenge; if it happens again, the TPM does not hold the endorsement key that was sent.",
    )
    ADMIN_CERTIFICATE_EXPIRED = _row(
        Coarse.REFUSED,
        "The admin's certificate is not good at the time of the machine's clock.",
        "Compare the clocks of both machines, then run init again: it makes a new certificate.",
        "ansible-playbook attested.kubernetes.init",
    )
    ADMIN_CERTIFICATE_MALFORMED = _row(
        Coarse.REFUSED,
        "The admin's certificate is none.",
        "Run init from this collection.",
        "ansible-playbook attested.kubernetes.init",
    )
    ADMIN_CERTIFICATE_UNTRUSTED = _row(
        Coarse.REFUSED,
        "The admin's certificate is not one for an admin of this cluster under the pinned join CA.",
        "Compare the join CA of the site with the one in /etc/attested/node.yml of the machine.",
        "ansible-playbook attested.kubernetes.prepare",
    )
    ADMIN_RATE = _row(
        Coarse.BUSY,
        "One address calls the init or the recovery service more often than is allowed.",
        "Wait as long as the answer says, then run the same playbook again. No address is blocked for longer.",
        "journalctl -u attested-init-service -u attested-bootstrapper",
    )
    ADMIN_REQUEST_INVALID = _row(
        Coarse.LOCAL,
        "The certificate request of the admin cannot be signed.",
        "Remove .secrets/admin-key of the site and run init again: it makes a new key and request.",
        "ansible-playbook attested.kubernetes.init",
    )
    ADMIN_REQUEST_REFUSED = _row(
        Coarse.LOCAL,
        "The machine refused the request for init or recovery, and tells no reason to the caller.",
        "Search the journal of the machine for the correlation id; with state disks the audit log of the node holds the reason too.",
        "journalctl -u attested-bootstrapper -u attested-init-service",
    )
    ADMIN_SIGNATURE = _row(
        Coarse.REFUSED,
        "The admin's signature is not over this request on this connection.",
        "Somebody changed the request or carried it to another connection: look for what stands between both machines.",
        "ansible-playbook attested.kubernetes.init",
    )
    ADMIN_UNAUTHENTICATED = _row(
        Coarse.REFUSED,
        "An init or recovery request came without an admin certificate of the pinned join CA, and without an init secret where one is accepted.",
        "Run init from the site that the machine was prepared from. Run recover from the site or the recovery kit, which hold the key of the join CA.",
        "ansible-playbook attested.kubernetes.status",
    )
    ADMISSION_FOREIGN = _row(
        Coarse.LOCAL,
        "The API server has an admission configuration of somebody else's.",
        "Say it by attested_pod_security and attested_exempt_namespaces, and take admission-control-config-file out of the "
        "API server's manifest and of the ConfigMap kubeadm-config.",
    )
    AK_ATTRIBUTES = _row(
        Coarse.REFUSED,
        "The attestation key is not a restricted signing key that only its TPM can use.",
        "Let attestation_key make the key; a key made by other means proves nothing.",
    )
    AK_HIERARCHY = _row(
        Coarse.REFUSED,
        "The attestation key is not a primary key of the endorsement hierarchy.",
        "Let attestation_key make the key; in other hierarchies the TPM disguises how often it was reset.",
    )
    AK_KEY_UNSUPPORTED = _row(
        Coarse.REFUSED,
        "The attestation key is of a kind that is too weak, or that no verifier knows.",
        "Let attestation_key make the key: P-256, P-384 or RSA of 2048 to 4096 bits.",
    )
    AK_MISMATCH = _row(
        Coarse.REFUSED,
        "The quote was made with another attestation key than the challenge was for.",
        "Ask for a new challenge with the key that makes the quote.",
    )
    AK_NOT_PINNED = _row(
        Coarse.REFUSED,
        "A machine attests with another attestation key than at its first ticket.",
        "The key follows from the TPM's endorsement seed and our template: find out what changed; a replaced TPM needs replace.",
        "ansible-playbook attested.kubernetes.replace",
    )
    ANSWER_UNKNOWN = _row(
        Coarse.LOCAL,
        "The node keeps no answer for what was sealed to it.",
        "Run init again: it challenges the node anew. An answer is opened once and forgotten at a reboot.",
        "ansible-playbook attested.kubernetes.init",
    )
    API_CONFLICT = _row(
        Coarse.UNAVAILABLE,
        "An object of the Kubernetes API was changed by somebody else at the same time.",
        "Nothing to do: the request is tried again.",
        "kubectl get attested",
    )
    API_FORBIDDEN = _row(
        Coarse.UNAVAILABLE,
        "The Kubernetes API does not let this user do what it must.",
        "Apply the service's RBAC objects again; its user is attested:key-service.",
        "ansible-playbook attested.kubernetes.init",
    )
    API_UNAVAILABLE = _row(
        Coarse.UNAVAILABLE,
        "The Kubernetes API cannot be read; a decision that cannot be read is no.",
        "Look at etcd and the kube-apiserver of this control plane.",
        "journalctl -u attested-key-service -u kubelet",
    )
    API_UNREACHABLE = _row(
        Coarse.LOCAL,
        "The Kubernetes API server does not answer.",
        "Check that the control plane is up and that its address is right in group_vars.",
        "attested status",
    )
    AUDIT_EDITED = _row(
        Coarse.LOCAL,
        "A record of the audit log is not the one that was written.",
        "Keep a copy of the directory, compare with the copies that other control planes and the API hold, and find out who could write there.",
        "attested audit verify",
    )
    AUDIT_GAP = _row(
        Coarse.LOCAL,
        "Records are missing in the middle of the audit log.",
        "Keep a copy of the directory and look for a file that was removed.",
        "attested audit verify",
    )
    AUDIT_HEAD_WRONG = _row(
        Coarse.LOCAL,
        "A signed head of the audit log does not fit its record, or another TPM signed it.",
        "Keep a copy of the directory; the records up to the last head that fits can be believed.",
        "attested audit verify",
    )
    AUDIT_MALFORMED = _row(
        Coarse.LOCAL,
        "The audit log holds something that is no record.",
        "Move the directory away and keep it; the key service begins a new log, and says so in its first record.",
        "attested audit verify",
    )
    AUDIT_REORDERED = _row(
        Coarse.LOCAL,
        "Records of the audit log stand in another order than they were written.",
        "Keep a copy of the directory; records are numbered, so the right order can be told.",
        "attested audit verify",
    )
    AUDIT_TRUNCATED = _row(
        Coarse.LOCAL,
        "The beginning or the end of an audit log is missing.",
        "The end: was the power cut, or an old disk image restored? If not, and for a beginning, find out who could write there.",
        "attested audit verify",
    )
    AUDIT_UNWRITABLE = _row(
        Coarse.LOCAL,
        "The audit log cannot be written, so nothing is given out.",
        "Make room on the disk or set right who may write there; the key service goes on by itself.",
        "journalctl -u attested-key-service",
    )
    AUTHORITIES_DIFFER = _row(
        Coarse.LOCAL,
        "The control planes do not hold the same CAs and keys of service accounts, so none of them can be rotated.",
        "Compare /etc/kubernetes/pki on the control planes, and take out of its files what is not the cluster's.",
        "ansible-playbook attested.kubernetes.status",
    )
    AUTHORITIES_UNREACHED = _row(
        Coarse.LOCAL,
        "A rotation of the CAs needs every control plane and every kubelet of the cluster, and only them.",
        "Start the machines that are down, and remove those that are gone for good.",
        "ansible-playbook attested.kubernetes.status",
    )
    AUTHORITY_UNUSABLE = _row(
        Coarse.LOCAL,
        "A file of a CA or of the service accounts' key is not what it should be.",
        "Look at the file that the message names, and put the cluster's own in its place from another control plane.",
        "ls -l /etc/kubernetes/pki",
    )
    BACKEND_UNREACHABLE = _row(
        Coarse.UNAVAILABLE,
        "The relay cannot reach the service behind it.",
        "The service is starting or has ended; read its log. Peers try again by themselves.",
        "journalctl -u attested-join-service",
    )
    BINDING_MALFORMED = _row(
        Coarse.INVALID,
        "A part of the binding has a wrong length.",
        "Check that both sides run the same version.",
    )
    BINDING_MISMATCH = _row(
        Coarse.REFUSED,
        "The quote was made for another exchange: another challenge, channel, request, cluster or purpose.",
        "Look for something between the two machines that ends TLS or changes or repeats messages; then ask again.",
    )
    BINDING_MISSING = _row(
        Coarse.INVALID,
        "A request for a ticket came without its bound quote.",
        "Unmodified clients of other systems cannot ask here: use the join client of this collection.",
    )
    BOOTSTRAPPER_UNREACHABLE = _row(
        Coarse.LOCAL,
        "The init service does not reach the bootstrapper beside it.",
        "See why the bootstrapper does not run; a machine that has become a node has none.",
        "journalctl -u attested-bootstrapper",
    )
    BOOT_OPTION_UNKNOWN = _row(
        Coarse.REFUSED,
        "The kernel was started with an option that the profile does not list, or its command line is not proven.",
        "Look for who changed the boot loader's configuration; an option of yours goes into bootOptions, and the profile needs PCR 4 and loader.",
        "ansible-playbook attested.kubernetes.policy --check --diff",
    )
    BUNDLE_ARCH_MISMATCH = _row(
        Coarse.LOCAL,
        "The bundle has nothing for this machine's architecture.",
        "Build the bundle for this architecture (attested_bundle_architecture) and deliver it again.",
        "ansible-playbook attested.kubernetes.bundle",
    )
    BUNDLE_HASH_MISMATCH = _row(
        Coarse.LOCAL,
        "A file of the bundle is not the one that the manifest names.",
        "The file is damaged or was changed: remove it, make the bundle again and deliver it again.",
        "ansible-playbook attested.kubernetes.bundle",
    )
    BUNDLE_INCOMPLETE = _row(
        Coarse.LOCAL,
        "The bundle lacks something that is needed here.",
        "Make the bundle again; it adds what is missing.",
        "ansible-playbook attested.kubernetes.bundle",
    )
    BUNDLE_MALFORMED = _row(
        Coarse.LOCAL,
        "The manifest of a bundle cannot be read.",
        "Make the bundle again with this version of the collection.",
        "ansible-playbook attested.kubernetes.bundle",
    )
    CALL_GONE = _row(
        Coarse.UNAVAILABLE,
        "The machine hung up before its ticket or evidence was decided, so nothing was written or given out.",
        "It asks again by itself; if that repeats, the control plane answers more slowly than the machine waits.",
        "journalctl -u attested-key-service",
    )
    CALL_LIMIT = _row(
        Coarse.BUSY,
        "A service decides as many calls as it may, or a connection of which no call was granted made too many.",
        "Machines try again by themselves; find out who asks so often, the log names each address.",
        "journalctl -u attested-join-service",
    )
    CHALLENGES_EXHAUSTED = _row(
        Coarse.BUSY,
        "Too many challenges are open.",
        "Try again in a minute; look for a machine that asks and never answers.",
    )
    CHALLENGE_EXPIRED = _row(
        Coarse.REFUSED,
        "The challenge was answered after its time.",
        "Run again; if it happens again, look at the machine's load and clock.",
    )
    CHALLENGE_RATE = _row(
        Coarse.BUSY,
        "One address asks for challenges more often than is allowed.",
        "Machines try again by themselves; find out who floods, or raise challenges_per_second of the join service for many machines behind one address.",
        "journalctl -u attested-join-service",
    )
    CHALLENGE_UNKNOWN = _row(
        Coarse.REFUSED,
        "The challenge was never given, or was answered already.",
        "Run again: every challenge serves one answer.",
    )
    CHANNEL_NOT_ATTESTED = _row(
        Coarse.REFUSED,
        "A call reached the service without passing the attested relay.",
        "Call the service at its network port; its unix socket is only for the relay.",
    )
    CHANNEL_NOT_BOUND = _row(
        Coarse.REFUSED,
        "The evidence is genuine, but for another connection than the one that it came over.",
        "Somebody ends TLS between here and the machine: go around balancers and proxies, and find out who answers at that address.",
        "ansible-playbook attested.kubernetes.verify -e attested_verify_over=ssh",
    )
    CILIUM_FILE_FOREIGN = _row(
        Coarse.LOCAL,
        "Where Cilium's values are to be written stands a file that somebody else wrote.",
        "Move it, or name another place in attested_cilium_values_file; what it says may go into attested_cilium_values.",
        "ansible-playbook attested.kubernetes.cilium_values --check --diff",
    )
    CILIUM_VALUES_INVALID = _row(
        Coarse.LOCAL,
        "Values for Cilium have an unknown key, a wrong type or range, or contradict the variables of the cluster.",
        "The message lists every value: correct it in attested_cilium_values, or change the variable that it contradicts. Put other keys of the chart into a values file of your own and give it to helm after this one.",
        "ansible-playbook attested.kubernetes.cilium_values --check --diff",
    )
    CLAIM_MALFORMED = _row(
        Coarse.LOCAL,
        "The file that says who has taken this machine's lock is unreadable.",
        "Reboot the machine: the file lies in memory, and the lock goes with it.",
        "systemctl reboot",
    )
    CLIENT_HELLO_MALFORMED = _row(
        Coarse.INVALID,
        "The first bytes of a connection are no TLS ClientHello.",
        "Something other than an attested client dialled this port.",
    )
    CLOCK_SKEW = _row(
        Coarse.LOCAL,
        "A service's certificate is not good yet by this machine's clock, so one of the two clocks is wrong.",
        "Set this machine's clock (the message has its time and the certificate's); it asks again by itself.",
        "timedatectl status",
    )
    CLUSTER_CA_UNUSABLE = _row(
        Coarse.UNAVAILABLE,
        "The cluster CA's certificate and key cannot be read or do not belong together.",
        "Look at /etc/kubernetes/pki/ca.crt and ca.key on this control plane; both must be kubeadm's.",
        "kubeadm certs check-expiration",
    )
    CLUSTER_FOUNDER_GONE = _row(
        Coarse.LOCAL,
        "The machine that made the cluster is gone: one in its place joins, it makes no second cluster.",
        "Run node: it joins by the ticket of a control plane that runs.",
        "ansible-playbook attested.kubernetes.node",
    )
    CLUSTER_ID_MISMATCH = _row(
        Coarse.LOCAL,
        "The secrets on this machine belong to another cluster.",
        "Compare cluster.yml with the cluster that this machine was made for; never copy key files between clusters.",
    )
    COMMAND_FAILED = _row(
        Coarse.LOCAL,
        "A command of this machine ended with an error.",
        "Read the command's own message; repair its cause and run again.",
    )
    COMMAND_MISSING = _row(
        Coarse.LOCAL,
        "A program that is needed is not installed.",
        "Install the package that holds it, then run again.",
        "ansible-playbook attested.kubernetes.prepare",
    )
    COMMAND_TIMEOUT = _row(
        Coarse.LOCAL,
        "A command did not end within its time.",
        "Look at what it waits for; running again is safe.",
    )
    COMPONENT_BUILD_FAILED = _row(
        Coarse.LOCAL,
        "A program could not be built from its pinned sources.",
        "Read the compiler's message; running again continues with what is missing.",
        "ansible-playbook attested.kubernetes.bundle",
    )
    COMPONENT_HASH_MISMATCH = _row(
        Coarse.LOCAL,
        "What was brought for a program has not the hash that the site says.",
        "Compare the hash with the publisher's own list; where it is right, somebody changed the file or the mirror has another version.",
        "ansible-playbook attested.kubernetes.bundle",
    )
    COMPONENT_INCOMPLETE = _row(
        Coarse.LOCAL,
        "Only a part of a program came before the connection ended.",
        "Run bundle again: it goes on where it broke off.",
        "ansible-playbook attested.kubernetes.bundle",
    )
    COMPONENT_IS_A_PAGE = _row(
        Coarse.LOCAL,
        "A page came instead of a program.",
        "A proxy or a login answers in the place of the server: open the URL in a browser from this machine.",
        "ansible-playbook attested.kubernetes.bundle",
    )
    COMPONENT_NOT_FOUND = _row(
        Coarse.LOCAL,
        "A server or disk does not have a program, or does not give it.",
        "Compare the URL with the publisher's list; the message has the status that came.",
        "ansible-playbook attested.kubernetes.bundle",
    )
    COMPONENT_NOT_INSIDE = _row(
        Coarse.LOCAL,
        "A program does not come out of the archive that was named for it.",
        "Correct extract and member of this program in attested_component_sources.",
        "ansible-playbook attested.kubernetes.bundle",
    )
    COMPONENT_TOO_LARGE = _row(
        Coarse.LOCAL,
        "What was brought for a program is larger than any program.",
        "Look at what the URL leads to, then correct it.",
        "ansible-playbook attested.kubernetes.bundle",
    )
    COMPONENT_UNREACHABLE = _row(
        Coarse.LOCAL,
        "A server that should have a program does not answer, or not now.",
        "Check name, proxy and network from this machine, or name another mirror; running again is safe.",
        "ansible-playbook attested.kubernetes.bundle",
    )
    CONFIG_INVALID = _row(
        Coarse.LOCAL,
        "A configuration file of a service has unknown, missing or wrong entries.",
        "Correct every entry that is listed; prepare writes the file anew.",
        "ansible-playbook attested.kubernetes.prepare",
    )
    CONFIRMATION_MISSING = _row(
        Coarse.LOCAL,
        "A playbook that removes or replaces something was not given the name of its target.",
        "Repeat the command with -e confirm=NAME; the message says which name is expected. A machine without an entry in hosts.yml is named by its identity.",
        "ansible-playbook attested.kubernetes.status",
    )
    CONNECTION_CLOSED = _row(
        Coarse.UNAVAILABLE,
        "The other side closed the connection too early.",
        "Read the log of the other side at this time; trying again is safe.",
    )
    CONNECTION_LIMIT = _row(
        Coarse.UNAVAILABLE,
        "A connection was given up because too many were open.",
        "Look for a source that opens many connections without finishing any.",
    )
    CONNECTION_TIMEOUT = _row(
        Coarse.UNAVAILABLE,
        "The other side did not finish the handshake in time.",
        "Check the network between both machines; trying again is safe.",
    )
    CONNECTION_UNPROVEN = _row(
        Coarse.UNAVAILABLE,
        "An attested connection made no call that was granted in its time, and was closed.",
        "Nothing needs to be done for one; many from one address are somebody who holds places on purpose.",
        "journalctl -u attested-join-service",
    )
    CONSTELLATION_BANKS = _row(
        Coarse.REFUSED,
        "A document in Constellation's form has a register bank twice, or none of SHA-256.",
        "Without SHA-256: activate that bank in the machine's firmware, then reboot it. With a bank twice it is not the document of "
        "Constellation's own software, which makes one quote for each active bank: look at what answers on that machine.",
    )
    CONSTELLATION_KEY_UNKNOWN = _row(
        Coarse.REFUSED,
        "A document in Constellation's form was signed by an attestation key that nobody enrolled.",
        "Compare the key's name with the one that the machine shows on its own console, and enroll that.",
    )
    CONSTELLATION_NOT_PERMITTED = _row(
        Coarse.REFUSED,
        "Evidence in Constellation's form is believed only where the policy says so.",
        "Set insecure_constellation_peer for this one machine if it must be; its evidence is bound to no TPM and no connection.",
    )
    CONSTELLATION_VERIFY_OFF = _row(
        Coarse.REFUSED,
        "This node does not answer in Constellation's form: what it would say is bound to no connection.",
        "Ask its verification service (verify), or set attested_insecure_constellation_verify for the node.",
        "ansible-playbook attested.kubernetes.verify",
    )
    CONTROL_PLANE_CA_ENDS = _row(
        Coarse.LOCAL,
        "A CA of the cluster ends soon, and no certificate that it signs is of use for longer.",
        "Nothing renews a CA by itself: replace it as Kubernetes' page 'Manual Rotation of CA Certificates' says, with both CAs trusted "
        "in between; then run this again.",
        "openssl x509 -noout -enddate -in /etc/kubernetes/pki/ca.crt",
    )
    CONTROL_PLANE_CERTIFICATE_EARLY = _row(
        Coarse.LOCAL,
        "A certificate of this control plane is not good yet at this machine's time; nothing was renewed.",
        "Set the clock of the machine (timedatectl), then run this again: certificates made with a wrong clock are wrong too.",
        "timedatectl status",
    )
    CONTROL_PLANE_CERTIFICATE_MALFORMED = _row(
        Coarse.LOCAL,
        "Certificates of a control plane are missing on this machine, or cannot be read.",
        "A worker has none. On a control plane look at the named files; kubeadm init phase certs makes one that is missing.",
        "ls -lR /etc/kubernetes/pki",
    )
    CONTROL_PLANE_COMPONENT_UNHEALTHY = _row(
        Coarse.LOCAL,
        "A component of this control plane was not well before its certificates were to be renewed; nothing of it was touched.",
        "Read why the component does not run; it is tried again at the next run.",
        "crictl logs $(crictl ps --all --name kube-apiserver --quiet --latest)",
    )
    CONTROL_PLANE_FILES_UNUSABLE = _row(
        Coarse.UNAVAILABLE,
        "A file that all control planes share is missing, too large or not what it must be.",
        "Compare /etc/kubernetes of this control plane with that of another one; a worker needs none of these files.",
        "ls -lR /etc/kubernetes/pki /etc/kubernetes/attested",
    )
    CONTROL_PLANE_JOIN_BUSY = _row(
        Coarse.BUSY,
        "Another control plane is joining, or renews its certificates; they do so one after the other.",
        "It asks again by itself. A turn ends when the other one has joined or is done, at the latest 600 s after it asked last.",
        "kubectl --namespace=kube-system get lease attested-control-plane-join -o yaml",
    )
    CONTROL_PLANE_MANIFEST_MALFORMED = _row(
        Coarse.LOCAL,
        "A static pod manifest or the ConfigMap kubeadm-config of this control plane is not in the form that kubeadm writes.",
        "Compare /etc/kubernetes/manifests and the ConfigMap kubeadm-config with those of another control plane, or let kubeadm write them again.",
        "kubeadm init phase control-plane --help",
    )
    CONTROL_PLANE_NONE_ANSWERS = _row(
        Coarse.LOCAL,
        "No control plane besides the machine in question answers for the cluster.",
        "Start one of the others, or make the site reach it; the last control plane is neither removed nor replaced.",
        "ansible-playbook attested.kubernetes.status",
    )
    CONTROL_PLANE_RENEWAL_FAILED = _row(
        Coarse.LOCAL,
        "kubeadm did not renew a certificate, or left one that is not good; the files before are back, nothing was restarted for it.",
        "Read kubeadm's last lines and repair the cause; the next run tries again.",
        "kubeadm certs check-expiration",
    )
    CONTROL_PLANE_RENEWAL_UNDONE = _row(
        Coarse.LOCAL,
        "A component was not well with its renewed certificates; the files before are back, and it was started with them.",
        "Read the component's log of the time of the renewal, repair the cause, and run this again before the certificates end.",
        "attested renew-control-plane",
    )
    CSR_KEY_UNSUPPORTED = _row(
        Coarse.REFUSED,
        "A certificate request holds a key of a type or size that is not accepted.",
        "Use P-256, Ed25519 or RSA from 2048 bits; the join client makes P-256.",
    )
    CSR_MALFORMED = _row(
        Coarse.INVALID,
        "A certificate request cannot be used: it is malformed, not signed by its key, or its key has another type.",
        "Run the step again; it makes a new key and request.",
    )
    CSR_NAME_MISMATCH = _row(
        Coarse.REFUSED,
        "A certificate request names another node than the machine's registered identity does.",
        "The name comes from the NodeIdentity of the machine's TPM: compare node.yml with it; a machine cannot choose its name.",
        "kubectl get attested",
    )
    DEPENDENCY_MISSING = _row(
        Coarse.LOCAL,
        "A Python library is missing from the interpreter that runs this.",
        "Use the virtual environment that prepare makes as ansible_python_interpreter.",
        "ansible-playbook attested.kubernetes.prepare",
    )
    DISK_ID_MALFORMED = _row(
        Coarse.INVALID,
        "A disk id is not a lower-case UUID.",
        "Write the id as cryptsetup luksUUID prints it; another spelling would derive another key.",
    )
    DISK_ID_NOT_ASSIGNED = _row(
        Coarse.REFUSED,
        "A machine names a disk that was not assigned to it.",
        "The first request names no disk, later ones the assigned one: restore /var/lib/attested/node.json, or reset the node.",
        "ansible-playbook attested.kubernetes.reset",
    )
    DISK_ID_TAKEN = _row(
        Coarse.REFUSED,
        "The disk of a machine is that of another identity as well: a live one, or one of another node or role.",
        "Find out who wrote these identities: only what was the same node in the same role before leaves its disk to a machine.",
        "kubectl get nodeidentities -o custom-columns=NAME:.metadata.name,NODE:.spec.nodeName,ROLE:.spec.role,DISK:.status.diskId",
    )
    DISK_KEY_WRONG = _row(
        Coarse.LOCAL,
        "A key does not open a disk.",
        "Check that the master secret and the disk are of one cluster; a disk whose machine never joined has a random key that nobody kept.",
        "attested rescue keys --master-secret FILE --disk DISK",
    )
    EK_ALIAS_TAKEN = _row(
        Coarse.REFUSED,
        "The second endorsement key of one machine is a key of another identity as well.",
        "One chip is one identity: find out which machine has that key, and take the alias or the other identity away.",
        "kubectl get nodeidentities",
    )
    EK_AUTHORITIES_UNUSABLE = _row(
        Coarse.LOCAL,
        "A file of attested_endorsement_authorities holds no certificates.",
        "Give PEM files with the roots and issuers of your TPM makers.",
        "ansible-playbook attested.kubernetes.enroll",
    )
    EK_CERTIFICATE_EXPIRED = _row(
        Coarse.REFUSED,
        "The endorsement certificate is not valid at this time.",
        "Compare the clock of the verifier with the certificate's dates; if it has ended, enroll the machine by its key.",
        "ansible-playbook attested.kubernetes.enroll",
    )
    EK_CERTIFICATE_MALFORMED = _row(
        Coarse.REFUSED,
        "A certificate of the endorsement key cannot be read.",
        "Read the certificate from the TPM's NV memory again; update the TPM's firmware if it is damaged.",
    )
    EK_CERTIFICATE_MISMATCH = _row(
        Coarse.REFUSED,
        "The endorsement certificate is for another key.",
        "Enroll the machine with the certificate of its own TPM.",
        "ansible-playbook attested.kubernetes.enroll",
    )
    EK_CERTIFICATE_MISSING = _row(
        Coarse.REFUSED,
        "Roots for endorsement certificates are configured, and the machine sent no certificate.",
        "Supply the certificate of the TPM, or take the roots out of the policy if these TPMs have none.",
    )
    EK_CERTIFICATE_PROFILE = _row(
        Coarse.REFUSED,
        "The certificate of the endorsement key was not made for an endorsement key.",
        "Read the endorsement certificate itself from the TPM; where its maker made it without what the TCG demands, enroll by the key.",
        "ansible-playbook attested.kubernetes.enroll",
    )
    EK_CERTIFICATE_UNTRUSTED = _row(
        Coarse.REFUSED,
        "The endorsement certificate does not chain to a configured root.",
        "Add the TPM maker's root to the policy if this maker is to be trusted.",
    )
    EK_CHANGED = _row(
        Coarse.REFUSED,
        "The machine has another TPM than the one enrolled under its name.",
        "If the mainboard or TPM was replaced on purpose, remove attested_ek and attested_ek_aliases of the host and enroll it again; if it is "
        "the same chip with its other key, enroll both with -e attested_enroll_second_key=true; else find out who answers there.",
        "ansible-playbook attested.kubernetes.enroll",
    )
    EK_NOT_AS_DELIVERED = _row(
        Coarse.REFUSED,
        "The machine has another TPM than its delivery papers say.",
        "Compare the serial number with the machine; if it is the right one, ask who delivered it.",
        "ansible-playbook attested.kubernetes.enroll",
    )
    EK_NOT_VOUCHED_FOR = _row(
        Coarse.REFUSED,
        "Nobody vouches for the machine's TPM.",
        "Set attested_endorsement_authorities, or read the fingerprint at the machine's console and set attested_ek in its "
        "host_vars, or accept first use with -e attested_insecure_first_use=true.",
        "ansible-playbook attested.kubernetes.enroll",
    )
    EK_SECOND_REPEATED = _row(
        Coarse.REFUSED,
        "Asked for its second endorsement key, the machine showed the first one again.",
        "A TPM has one of RSA-2048 and one of ECC P-256: find out what answers there, or enroll without the second key.",
        "ansible-playbook attested.kubernetes.enroll",
    )
    EK_SOURCE_UNUSABLE = _row(
        Coarse.LOCAL,
        "A file that should say which TPM a machine has says nothing of it.",
        "Give an EK certificate or public key (PEM or DER), or a list of serial numbers as YAML or CSV, and set "
        "attested_serial in the machine's host_vars for a list.",
        "ansible-playbook attested.kubernetes.enroll",
    )
    ENCRYPTION_FOREIGN = _row(
        Coarse.LOCAL,
        "The encryption at rest is not the one that init makes, so its key is not rotated.",
        "Make /etc/kubernetes/attested/encryption.yaml hold secretbox and identity for secrets alone, or rotate by hand.",
    )
    ENCRYPTION_KEYS_DIFFER = _row(
        Coarse.LOCAL,
        "Two control planes have different keys under one name, and each cannot read what the other writes.",
        "Compare /etc/kubernetes/attested/encryption.yaml on the control planes, and put the one that etcd's Secrets are "
        "closed with on all of them.",
        "ansible-playbook attested.kubernetes.status",
    )
    ENCRYPTION_KEY_LOST = _row(
        Coarse.LOCAL,
        "The file with the key of the Secrets in etcd is gone, and etcd has Secrets.",
        "Put back /etc/kubernetes/attested/encryption.yaml from a backup or another control plane. Without it "
        "the Secrets are lost: reset the machine and make the cluster anew.",
    )
    ENCRYPTION_KEY_MISSING = _row(
        Coarse.LOCAL,
        "A key for Secrets at rest was asked for that this control plane does not have.",
        "Run the rotation again: it begins by looking which control plane has which key.",
        "ansible-playbook attested.kubernetes.rotate_encryption_key",
    )
    ENCRYPTION_MALFORMED = _row(
        Coarse.LOCAL,
        "The configuration of encryption at rest is not one that encrypts Secrets.",
        "Put back /etc/kubernetes/attested/encryption.yaml from a backup or another control plane; nothing was "
        "overwritten.",
    )
    ENCRYPTION_NOT_TAKEN = _row(
        Coarse.LOCAL,
        "The API server of this control plane does not use the file with the keys that it was given.",
        "Look into the log of its kube-apiserver, then run the rotation again: nothing was lost, and no key was removed.",
        "ansible-playbook attested.kubernetes.rotate_encryption_key",
    )
    ENCRYPTION_PLANES_UNREACHED = _row(
        Coarse.LOCAL,
        "A rotation needs every control plane of the cluster, and only them.",
        "Start the machines that are down, run without --limit, and remove control planes that are gone for good.",
        "ansible-playbook attested.kubernetes.status",
    )
    ENCRYPTION_REWRITE_FAILED = _row(
        Coarse.LOCAL,
        "Some Secrets could not be written again under the new key.",
        "Read what the API server said of them; a webhook or an admission policy may deny it. Then run the rotation again: "
        "the old key stays until all are written.",
        "ansible-playbook attested.kubernetes.rotate_encryption_key",
    )
    ENDPOINT_INVALID = _row(
        Coarse.LOCAL,
        "An endpoint is not of the form host:port.",
        "Write name:port, address:port or [address]:port.",
    )
    ETCD_DATABASE_MALFORMED = _row(
        Coarse.LOCAL,
        "A file is not a database of etcd, or a damaged one.",
        "Take member/snap/db of another control plane's disk; etcd itself checks a copy with 'etcdutl snapshot status'.",
        "etcdutl snapshot status db",
    )
    ETCD_LAST_MEMBER = _row(
        Coarse.LOCAL,
        "The only voting member of etcd cannot be taken out: the cluster would be gone.",
        "Make another control plane first, or take the cluster down.",
    )
    ETCD_MEMBER_AMBIGUOUS = _row(
        Coarse.LOCAL,
        "More than one member of etcd is the machine in question.",
        "Look at the list, and remove by etcdctl and the member's id the one that never started.",
        "kubectl exec --namespace=kube-system etcd-NODE -- etcdctl member list",
    )
    ETCD_MEMBER_UNHEALTHY = _row(
        Coarse.LOCAL,
        "A member of etcd is not well, so no other one is stopped.",
        "Start the machine of that member, or take it out of etcd if it is gone for good; then run this again.",
        "kubectl --namespace=kube-system get pods -l component=etcd -o wide",
    )
    ETCD_QUORUM_AT_RISK = _row(
        Coarse.LOCAL,
        "Without this member those that answer would be no majority of those that stay: etcd would stop.",
        "Start the members that do not answer, or take out one of those first.",
        "ansible-playbook attested.kubernetes.status",
    )
    ETCD_QUORUM_LOST = _row(
        Coarse.LOCAL,
        "Too few members of etcd answer to change anything.",
        "Start members until more than half of them answer; where they are gone for good, etcd is restored from a snapshot.",
        "ansible-playbook attested.kubernetes.status",
    )
    ETCD_REFUSED = _row(
        Coarse.LOCAL,
        "etcd did not do what it was asked.",
        "Its own words are in the message; run it again once all members that live are connected.",
        "journalctl -u kubelet",
    )
    ETCD_UNREACHABLE = _row(
        Coarse.LOCAL,
        "etcd on this control plane does not answer, or its answer cannot be used.",
        "Check that the static pod etcd runs here and that /etc/kubernetes/pki is complete, then run again on a control plane that is up.",
        "journalctl -u kubelet",
    )
    EVENT_LOG_CHANGED = _row(
        Coarse.REFUSED,
        "The event logs are not those that the binding names.",
        "Look for something between the two machines that changes messages; then ask again.",
    )
    EVENT_LOG_MALFORMED = _row(
        Coarse.REFUSED,
        "An event log cannot be parsed.",
        "Read the log again on the machine; a log that stays broken is a defect of its firmware or kernel.",
    )
    EVENT_LOG_MISMATCH = _row(
        Coarse.REFUSED,
        "The event logs do not lead to the quoted register.",
        "Something was extended that no log tells of, or a log was edited; reboot the machine and compare.",
    )
    EVENT_LOG_TOO_LARGE = _row(
        Coarse.INVALID,
        "An event log is larger than the limit.",
        "Check what fills the log of that machine.",
    )
    EVIDENCE_MALFORMED = _row(
        Coarse.INVALID,
        "The evidence cannot be parsed.",
        "Check that both sides run the same version and that nothing between them changes bytes.",
    )
    EVIDENCE_MISSING = _row(
        Coarse.REFUSED,
        "A certificate carries no evidence of the expected kind.",
        "Check that both sides run the same version of the collection.",
    )
    EVIDENCE_REFUSED = _row(
        Coarse.LOCAL,
        "The cluster refused fresh evidence of this node.",
        "It was revoked, or boots what no profile allows any more; the cluster says which, this machine is not told. "
        "After a change: systemctl start attested-reattest.",
        "ansible-playbook attested.kubernetes.status",
    )
    EVIDENCE_TOO_LARGE = _row(
        Coarse.REFUSED,
        "The evidence in a certificate is larger than the limit.",
        "Event logs travel in the request, never in the certificate.",
    )
    FILE_UNUSABLE = _row(
        Coarse.LOCAL,
        "A file cannot be read or written.",
        "Check that the path exists, who may use it, and that its disk has room.",
    )
    FILE_VERSION_UNKNOWN = _row(
        Coarse.LOCAL,
        "A recovery kit or a share has a format version that this program does not know.",
        "Install the version of attested.kubernetes that wrote it, or a newer one.",
        "attested --version",
    )
    FIRMWARE_TOO_OLD = _row(
        Coarse.REFUSED,
        "The firmware is older than the profile demands, or its version is not proven.",
        "Update the firmware, or lower firmwareMinimum of the profile on purpose.",
        "ansible-playbook attested.kubernetes.policy --check --diff",
    )
    GO_TOOLCHAIN_UNUSABLE = _row(
        Coarse.LOCAL,
        "The Go toolchain is missing or too old.",
        "Install Go 1.26 or later, or let the bundle playbook install one into its cache.",
        "ansible-playbook attested.kubernetes.bundle",
    )
    HELD_KEYS_NOT_ROTATED = _row(
        Coarse.LOCAL,
        "A control plane was called compromised, and nobody said that what it held is rotated, so it would not be harmless.",
        "Nothing was changed. Use the playbooks replace or revoke, which rotate the CAs and the service accounts' key then.",
        "ansible-playbook attested.kubernetes.replace -e confirm=NODE -e compromised=true",
    )
    IDENTITY_AMBIGUOUS = _row(
        Coarse.REFUSED,
        "Two live identities have the same endorsement key or the same node name.",
        "Revoke or remove one of them.",
        "ansible-playbook attested.kubernetes.policy",
    )
    IDENTITY_LAST_CONTROL_PLANE = _row(
        Coarse.LOCAL,
        "The only control plane cannot be revoked: nobody would be left to decide about machines.",
        "Make another control plane first, or take the cluster down.",
    )
    IDENTITY_NAME_WANTED = _row(
        Coarse.LOCAL,
        "A waiting machine is approved without the name of the node that it becomes.",
        "Say which node it is; the name that it claims is only a hint.",
        "ansible-playbook attested.kubernetes.approve -e confirm=IDENTITY -e node=NAME",
    )
    IDENTITY_NEEDS_SIGNATURE = _row(
        Coarse.LOCAL,
        "A control plane is approved by the site's signed policy alone.",
        "Enroll the machine in the site, in the group control_planes, then apply the policy.",
        "ansible-playbook attested.kubernetes.policy",
    )
    IDENTITY_NODE_TAKEN = _row(
        Coarse.REFUSED,
        "An unknown machine asks to be a node that is registered with another TPM.",
        "If its board or TPM was changed, replace the node's machine; if it is the same chip with its other key, enroll both with "
        "-e attested_enroll_second_key=true; otherwise somebody pretends to be that node.",
        "ansible-playbook attested.kubernetes.replace -e confirm=NODE",
    )
    IDENTITY_NOT_FOUND = _row(
        Coarse.LOCAL,
        "There is not exactly one identity of this name, or of a node of this name.",
        "Name one of the identities in the list.",
        "kubectl get nodeidentities",
    )
    IDENTITY_PENDING = _row(
        Coarse.REFUSED,
        "The machine proved its key and waits for an admin's word.",
        "Approve or refuse it.",
        "ansible-playbook attested.kubernetes.approve -e confirm=IDENTITY -e node=NAME",
    )
    IDENTITY_RATE = _row(
        Coarse.BUSY,
        "One proven machine asks for tickets, or pushes evidence, more often than is allowed.",
        "It may go on after the time that it was told; look at why it asks again and again.",
        "journalctl -u attested-key-service",
    )
    IDENTITY_REFUSED = _row(
        Coarse.REFUSED,
        "An admin refused this machine.",
        "Set its admission to Approved if it is welcome after all.",
        "ansible-playbook attested.kubernetes.policy",
    )
    IDENTITY_REVOKED = _row(
        Coarse.REFUSED,
        "This machine's identity was revoked.",
        "Find out why it was revoked. Only the site's policy key takes a revocation back that was a mistake.",
        "ansible-playbook attested.kubernetes.policy -e reinstate=NODE",
    )
    IDENTITY_UNKNOWN = _row(
        Coarse.REFUSED,
        "No identity has this endorsement key.",
        "Enroll the machine if it is one of yours.",
        "ansible-playbook attested.kubernetes.enroll",
    )
    IDENTITY_UNKNOWN_RATE = _row(
        Coarse.BUSY,
        "More machines that nobody enrolled ask than the API may be asked about.",
        "A machine that was just enrolled tries again by itself; find out who floods, the log names each address.",
        "journalctl -u attested-join-service -u attested-key-service",
    )
    IDENTITY_UNSIGNED = _row(
        Coarse.REFUSED,
        "The identity of a control plane is not one that the signed policy names.",
        "An object in the API alone makes no control plane: put the machine into the site and apply it.",
        "ansible-playbook attested.kubernetes.policy",
    )
    IMAGE_IMPORT_FAILED = _row(
        Coarse.LOCAL,
        "containerd did not take the images of the bundle.",
        "Read containerd's log, repair its cause and run again.",
        "journalctl -u containerd",
    )
    IMAGE_MALFORMED = _row(
        Coarse.LOCAL,
        "The file is not an EFI program, or not a unified kernel image.",
        "Give the image as it lies on the EFI system partition, for example EFI/Linux/*.efi.",
        "ansible-doc attested.kubernetes.measurement_profile",
    )
    IMAGE_PINS_MALFORMED = _row(
        Coarse.LOCAL,
        "The list of images that this machine was prepared with cannot be read.",
        "Prepare the machine again; the list comes from the bundle.",
        "ansible-playbook attested.kubernetes.prepare --limit NODE",
    )
    INIT_BROKEN_OFF = _row(
        Coarse.LOCAL,
        "The connection to the machine ended before its answer; what it does goes on.",
        "Run init again: it finds the work and goes on following it.",
        "ansible-playbook attested.kubernetes.init",
    )
    INIT_CALLER_UNKNOWN = _row(
        Coarse.REFUSED,
        "A user other than root or the init service's called the bootstrapper.",
        "Only the init service of the same machine speaks to the bootstrapper; look at which program runs as that user.",
        "journalctl -u attested-bootstrapper",
    )
    INIT_CERTIFICATE_FOREIGN = _row(
        Coarse.LOCAL,
        "The certificate that a machine gave after its init is not for the admin's own key.",
        "Trust nothing that this machine gave; find out who has asked it for a cluster before you run init again.",
        "ansible-playbook attested.kubernetes.init",
    )
    INIT_CERTIFICATE_UNUSABLE = _row(
        Coarse.LOCAL,
        "The certificate that a machine gave after its init has ended, is another user's, or not of the CA beside it.",
        "Compare the clocks of both machines, then run init again: it asks for a new certificate.",
        "ansible-playbook attested.kubernetes.init",
    )
    INIT_HANDLE_UNKNOWN = _row(
        Coarse.REFUSED,
        "No init of this process has this handle.",
        "The bootstrapper was started anew: run init again, it goes on where it stood.",
        "ansible-playbook attested.kubernetes.init",
    )
    INIT_KUBECONFIG_HOLDS_KEY = _row(
        Coarse.LOCAL,
        "The kubeconfig that a machine gave after its init holds a private key or another credential.",
        "Nothing was written; update the collection on the machine, whose playbook must give a certificate alone.",
        "ansible-playbook attested.kubernetes.prepare",
    )
    INIT_KUBECONFIG_MALFORMED = _row(
        Coarse.LOCAL,
        "What a machine gave after its init is not a kubeconfig with one cluster, its CA and one user's certificate.",
        "Nothing was written; use the same version of the collection on both sides, then run init again.",
        "ansible-playbook attested.kubernetes.prepare",
    )
    INIT_REQUEST_DIFFERS = _row(
        Coarse.REFUSED,
        "The machine has taken its lock for another init request.",
        "Send the request that was begun, or reset the machine and begin anew.",
        "ansible-playbook attested.kubernetes.init",
    )
    INIT_SECRET_DELAYED = _row(
        Coarse.BUSY,
        "This source has sent a wrong init secret and has to wait.",
        "Wait for as long as the answer says, then send the right one.",
        "ansible-playbook attested.kubernetes.init",
    )
    INIT_SECRET_HASH_MALFORMED = _row(
        Coarse.LOCAL,
        "What the machine has as the hash of the init secret is none.",
        "Run prepare again.",
        "ansible-playbook attested.kubernetes.prepare",
    )
    INIT_SECRET_WRONG = _row(
        Coarse.REFUSED,
        "The init secret is not the one of this machine.",
        "Use the site that the machine was prepared from.",
        "ansible-playbook attested.kubernetes.init",
    )
    INTERNAL = _row(
        Coarse.UNAVAILABLE,
        "An unexpected error; the decision is no.",
        "Read the service's log at the correlation id and report it.",
        "journalctl -u attested-join-service -u attested-key-service",
    )
    JOIN_CA_MISMATCH = _row(
        Coarse.LOCAL,
        "The service that answered is not certified by the pinned join CA.",
        (
            "Either another service listens at this endpoint, or a load balancer on the way terminates "
            "TLS: it must pass TCP through. If the join CA was replaced, run prepare again."
        ),
        "ansible-playbook attested.kubernetes.prepare",
    )
    JOIN_CA_PIN_INVALID = _row(
        Coarse.LOCAL,
        "The pinned join CA is not one or two Ed25519 CA certificates.",
        "Take the pin from cluster.yml of the site; prepare writes it.",
        "ansible-playbook attested.kubernetes.prepare",
    )
    JOIN_CERTIFICATE_EXPIRED = _row(
        Coarse.LOCAL,
        "The service's certificate is not valid at this machine's time.",
        "Compare the clocks of both machines; if they agree, look why the key service stopped renewing.",
        "timedatectl status",
    )
    JOIN_CLUSTER_MISMATCH = _row(
        Coarse.LOCAL,
        "The service's certificate is for another cluster.",
        "The endpoint or the cluster id in /etc/attested/node.yml belongs to another site.",
    )
    JOIN_REQUEST_NOT_UNDERSTOOD = _row(
        Coarse.LOCAL,
        "The join service did not understand the request.",
        "Install the same version of the collection on node and control plane.",
        "ansible-playbook attested.kubernetes.prepare",
    )
    JOIN_SERVICES_UNKNOWN = _row(
        Coarse.LOCAL,
        "This node knows no join service but itself.",
        "Run init if it is the first control plane; else write the addresses of control planes or of their load balancer "
        "into the site and run prepare again.",
        "ansible-playbook attested.kubernetes.prepare",
    )
    JOIN_SERVICE_BUSY = _row(
        Coarse.LOCAL,
        "The join service has too much to do and said when to ask again.",
        "The node asks again by itself at that time; raise the limits of the join service if that lasts.",
    )
    JOIN_SERVICE_UNAVAILABLE = _row(
        Coarse.LOCAL,
        "The join service answered that it cannot serve now.",
        "It is tried again; look at both services of the control plane if it lasts.",
        "systemctl status attested-join-service attested-key-service",
    )
    KERNEL_NOT_ACCEPTED = _row(
        Coarse.REFUSED,
        "The kernel is none of the releases that the profile lists.",
        "Start the kernel that you meant, or add the release to kernels of the profile.",
        "ansible-playbook attested.kubernetes.policy --check --diff",
    )
    KEYS_ABSENT = _row(
        Coarse.UNAVAILABLE,
        "This control plane holds no key material.",
        "Make it a control plane with init; only init and recover bring keys to a machine.",
        "ansible-playbook attested.kubernetes.init",
    )
    KEYS_DAMAGED = _row(
        Coarse.UNAVAILABLE,
        "The key material at rest cannot be decrypted or parsed.",
        "The file was changed or cut: remove it and supply the secret again with init.",
        "ansible-playbook attested.kubernetes.init",
    )
    KEY_BUNDLE_VERSION_UNKNOWN = _row(
        Coarse.LOCAL,
        "The stored key bundle has a version that this release does not know.",
        "Run the release of the collection that wrote it, or supply the secret again with init.",
        "ansible-playbook attested.kubernetes.init",
    )
    KEY_SERVICE_CALLER_UNKNOWN = _row(
        Coarse.LOCAL,
        "A process of another user called the key service.",
        "Only root and the join service may: find out which process of that user it was.",
        "journalctl -u attested-key-service",
    )
    KEY_SERVICE_UNREACHABLE = _row(
        Coarse.UNAVAILABLE,
        "The key service of this control plane does not answer.",
        "Look at its state; after a changed boot it stays down.",
        "systemctl status attested-unlock attested-key-service",
    )
    KIT_DAMAGED = _row(
        Coarse.LOCAL,
        "A recovery kit is cut off or was altered.",
        "Take another copy of the kit, or write it again from the site. A mail program or an editor may have changed a few bytes.",
        "attested kit show FILE",
    )
    KIT_KEY_UNUSABLE = _row(
        Coarse.LOCAL,
        "What should close or open a recovery kit is no such key.",
        "Give recipients as age1…, identities as age-keygen writes them, and a token's RSA public key in PEM.",
        "attested kit write --help",
    )
    KIT_KEY_WRONG = _row(
        Coarse.LOCAL,
        "The given passphrase, age identity or token does not open the recovery kit.",
        "attested kit show says what the kit is encrypted to: give that passphrase, identity or token. A lost passphrase cannot be recovered; use another copy of the kit, or the shares.",
        "attested kit show FILE",
    )
    KIT_MALFORMED = _row(
        Coarse.LOCAL,
        "The file is no recovery kit of ours.",
        "Give the whole file as it was written; the parameters of its first lines are bounded.",
        "attested kit show FILE",
    )
    KIT_OTHER_CLUSTER = _row(
        Coarse.LOCAL,
        "The recovery kit is of another cluster.",
        "Take the kit of this cluster; its id stands in cluster.yml and on the kit.",
        "attested kit show FILE",
    )
    KIT_TOKEN_UNUSABLE = _row(
        Coarse.LOCAL,
        "The PKCS#11 token cannot be used.",
        "Say the path of its module, its label where there are several, and its PIN; three wrong PINs may lock it.",
        "pkcs11-tool --module MODULE --list-slots",
    )
    KUBEADM_OTHER_ROLE = _row(
        Coarse.LOCAL,
        "The machine has been made the other kind of node before.",
        "A node keeps its role; reset it first if that is what you want.",
        "ansible-playbook attested.kubernetes.reset --limit NODE -e confirm=NODE",
    )
    KUBEADM_PHASE_FAILED = _row(
        Coarse.LOCAL,
        "A phase of kubeadm ended with an error.",
        "Read kubeadm's last lines, repair the cause and run again: done phases are kept.",
        "ansible-playbook attested.kubernetes.node --limit NODE",
    )
    KUBEADM_TIMEOUT = _row(
        Coarse.LOCAL,
        "A phase of kubeadm did not end within its time.",
        "See whether the kubelet runs and the API server answers; running again continues.",
        "journalctl -u kubelet -n 50",
    )
    KUBEADM_VERSION_DIFFERS = _row(
        Coarse.LOCAL,
        "The kubeadm on this machine is of another version than the site wants.",
        "Prepare the machine with a bundle of that version.",
        "ansible-playbook attested.kubernetes.prepare --limit NODE",
    )
    KUBECONFIG_MALFORMED = _row(
        Coarse.LOCAL,
        "A kubeconfig or the kubelet's credential on this machine is not what kubeadm writes.",
        "Reset the node and let it join again.",
        "ansible-playbook attested.kubernetes.reset --limit NODE -e confirm=NODE",
    )
    KUBECTL_FAILED = _row(
        Coarse.LOCAL,
        "kubectl could not read or write objects of the cluster.",
        "Read its last lines; a control plane that just started may need a moment, and running again is safe.",
    )
    KUBELET_CREDENTIAL_INVALID = _row(
        Coarse.LOCAL,
        "The kubelet certificate of a ticket is not for this node and this key.",
        "Run again for a fresh ticket; report it if it comes back.",
    )
    KUBELET_CREDENTIAL_MISSING = _row(
        Coarse.LOCAL,
        "This machine has no kubelet certificate that could be renewed.",
        "A machine that is no node yet, or lost the file, gets one by the playbook node.",
        "ansible-playbook attested.kubernetes.node --limit NODE",
    )
    KUBELET_CREDENTIAL_REFUSED = _row(
        Coarse.LOCAL,
        "The API server does not take the kubelet's certificate.",
        "A renewal keeps the certificate before it. Compare the clocks, and the CA in /etc/kubernetes/kubelet.conf with that of the API server.",
        "journalctl -u attested-renew -n 20",
    )
    KUBELET_NOT_RUNNING = _row(
        Coarse.LOCAL,
        "The kubelet does not run although everything for it is in place.",
        "Read the kubelet's log; the usual causes are the container runtime and the cgroup version.",
        "journalctl -u kubelet -n 50",
    )
    LAB_PREREQUISITES_MISSING = _row(
        Coarse.LOCAL,
        "This host lacks something that a lab needs.",
        "Repair every point of the list, then run again; lab_install_packages: true installs the packages.",
        "make lab",
    )
    LAB_SITE_EXPECTED = _row(
        Coarse.LOCAL,
        "The playbook lab does not run in the site of the lab.",
        "Run it in the directory that the message names, or let make lab do so.",
        "make lab",
    )
    LOCKDOWN_NOT_PROVEN = _row(
        Coarse.REFUSED,
        "The kernel was not told on its command line to lock down as far as the profile demands.",
        "Add lockdown=integrity (or confidentiality) to the kernel's command line; what a kernel does by itself is in no log.",
        "ansible-playbook attested.kubernetes.policy --check --diff",
    )
    LUKS_DAMAGED = _row(
        Coarse.LOCAL,
        "A copy of a disk's LUKS2 header is cut off, has a wrong checksum, or differs from the other copy.",
        "After a power cut run cryptsetup repair. Otherwise find out who changed the header, and restore a copy of it with cryptsetup luksHeaderRestore.",
        "cryptsetup luksDump DISK",
    )
    LUKS_DISK_DIFFERS = _row(
        Coarse.LOCAL,
        "The LUKS2 header is of another disk: its label or UUID is not the expected one.",
        "Check that the path names the intended disk: cryptsetup luksDump shows label and UUID. The key is derived from the UUID.",
        "cryptsetup luksDump DISK",
    )
    LUKS_HEADER_FOREIGN = _row(
        Coarse.LOCAL,
        "A disk's LUKS2 header does not have the encryption, integrity or layout of a state disk.",
        "Do not open the disk: a changed header can expose data or hide changed sectors. The message names the field. Use a copy of the header from before the change.",
        "cryptsetup luksDump DISK",
    )
    LUKS_HEADER_MALFORMED = _row(
        Coarse.LOCAL,
        "A disk's LUKS2 header is not in the form that cryptsetup writes.",
        "Do not open the disk: two programs may read such a header differently. The message names the field. A newer cryptsetup may also have written it.",
        "cryptsetup luksDump DISK",
    )
    LUKS_KEYSLOTS = _row(
        Coarse.LOCAL,
        "A disk's LUKS2 header has other key slots than a state disk.",
        "A person who added a key slot can open the disk. Find out who did it, then remove the slot with cryptsetup luksKillSlot.",
        "cryptsetup luksDump DISK",
    )
    LUKS_MISSING = _row(
        Coarse.LOCAL,
        "There is no LUKS2 header where one is expected.",
        "Check that the path names the intended disk or file. LUKS1 is not supported.",
        "lsblk --fs",
    )
    LUKS_VOLUME_FOREIGN = _row(
        Coarse.LOCAL,
        "A disk has the expected UUID but another encrypted volume than at the last unlock.",
        "The disk was exchanged, reformatted or restored from a copy. Find out which before you use it.",
        "cryptsetup luksDump DISK",
    )
    MANIFEST_INVALID = _row(
        Coarse.LOCAL,
        "A manifest of the policy is malformed.",
        "Repair every line that the message lists, then run again.",
        "ansible-playbook attested.kubernetes.policy",
    )
    MASTER_SECRETS_DIFFER = _row(
        Coarse.LOCAL,
        "A control plane or a disk is under a version of the master secret that the site does not have.",
        "The site is older than the cluster: bring back the newer site or its newest recovery kit, then run again.",
        "ansible-playbook attested.kubernetes.secrets -e kit_from=FILE",
    )
    MASTER_SECRET_ROTATED = _row(
        Coarse.LOCAL,
        "A rotated master secret does not carry what followed from the first one, which shares and imports need.",
        "Keep a recovery kit of the cluster, which holds both; shares can be made before a first rotation only.",
        "ansible-playbook attested.kubernetes.secrets -e attested_recovery_kit=FILE",
    )
    MASTER_SECRET_UNKNOWN = _row(
        Coarse.LOCAL,
        "There is no version of the master secret of that name.",
        "Give a name that the playbook shows with --check.",
        "ansible-playbook attested.kubernetes.rotate_master_secret --check",
    )
    MASTER_SECRET_UNREACHED = _row(
        Coarse.LOCAL,
        "A rotation of the master secret needs every node of the cluster, and only them.",
        "Start the machines that are down, and remove those that are gone for good.",
        "ansible-playbook attested.kubernetes.status",
    )
    MESSAGE_MALFORMED = _row(
        Coarse.INVALID,
        "A message on the wire cannot be parsed.",
        "Check that both sides run the same version and that nothing between them changes bytes.",
    )
    MESSAGE_TOO_LARGE = _row(
        Coarse.INVALID,
        "A message on the wire is larger than the limit.",
        "Check the size of the event logs on the machine that sent it.",
    )
    MODULE_FAILED = _row(
        Coarse.LOCAL,
        "A module of this collection did not run on the node.",
        "Run prepare first; it makes the interpreter that the module needs.",
        "ansible-playbook attested.kubernetes.prepare",
    )
    NODELOCK_BUSY = _row(
        Coarse.LOCAL,
        "Another process of this machine holds the file of the one-way lock.",
        "Wait for the other run to end, then run again.",
        "fuser -v /run/attested/nodelock.lock",
    )
    NODELOCK_CLUSTER_ID_MALFORMED = _row(
        Coarse.LOCAL,
        "The cluster id to lock to is not 32 bytes.",
        "Compare the cluster id in cluster.yml with the one that init printed.",
    )
    NODELOCK_FOREIGN = _row(
        Coarse.REFUSED,
        "The register of the node lock holds something that its logs do not explain.",
        "Reboot the machine; if it comes back, something extends that register without a log.",
    )
    NODELOCK_NOT_HELD = _row(
        Coarse.LOCAL,
        "A step that needs the one-way lock found the machine unlocked.",
        "Take the lock first: the playbooks init and node do it in their order.",
        "ansible-playbook attested.kubernetes.node --limit NODE",
    )
    NODELOCK_NO_TICKET = _row(
        Coarse.REFUSED,
        "The machine is locked to this cluster in a boot in which it was given no ticket.",
        "A control plane that unlocked itself gives evidence of this boot first: systemctl start attested-reattest. Any other machine: "
        "reboot it and run the node playbook; if it comes back, something on it takes the lock, or replays it, by itself.",
        "ansible-playbook attested.kubernetes.node",
    )
    NODELOCK_OPEN = _row(
        Coarse.REFUSED,
        "The machine has not locked itself to this cluster since its boot.",
        "Run the node playbook on it.",
        "ansible-playbook attested.kubernetes.node",
    )
    NODELOCK_OTHER_CLUSTER = _row(
        Coarse.REFUSED,
        "The machine is locked to another cluster until its next reset.",
        "Make sure that the machine belongs to this cluster, then reset it.",
        "systemctl reboot",
    )
    NODELOCK_REGISTER_PINNED = _row(
        Coarse.LOCAL,
        "A profile pins the register of the node lock, which moves when the lock is taken.",
        "Take that register out of the profile; 15 is the lock's.",
        "ansible-playbook attested.kubernetes.policy",
    )
    NODELOCK_REGISTER_RESETTABLE = _row(
        Coarse.LOCAL,
        "The register chosen for the one-way lock can be reset while the machine runs.",
        "Choose a register from 0 to 15; 15 is the default.",
    )
    NODELOCK_UNCLAIMED = _row(
        Coarse.LOCAL,
        "The machine is locked to its cluster, and nothing on it says by whom.",
        "Run again the playbook that was running (node or init), or reboot the machine.",
        "ansible-playbook attested.kubernetes.node --limit NODE",
    )
    NODE_CONFIG_MALFORMED = _row(
        Coarse.LOCAL,
        "The node's configuration /etc/attested/node.yml cannot be used.",
        "Run prepare again; it writes the file from the site.",
        "ansible-playbook attested.kubernetes.prepare",
    )
    NODE_CONFIG_NOT_ACCEPTED = _row(
        Coarse.REFUSED,
        "The machine measured another /etc/attested/node.yml than the profile names, or none.",
        "Find out who changed it. If prepare did, put its digest (sha256sum) into nodeConfigs of the profile; a machine measures it "
        "only where it boots from the signed site (attested_source_url).",
        "ansible-playbook attested.kubernetes.policy --check --diff",
    )
    NODE_JOURNAL_MALFORMED = _row(
        Coarse.LOCAL,
        "A record of this machine's own progress, as a node or of kubeadm, cannot be read.",
        "Reset the node and let it join again. On a machine that never joined, move the file that the message names away and run again.",
        "ansible-playbook attested.kubernetes.reset --limit NODE -e confirm=NODE",
    )
    NODE_NAME_MISMATCH = _row(
        Coarse.REFUSED,
        "The machine behind this name has the TPM of another node.",
        "Correct ansible_host in hosts.yml or host_vars of the two machines.",
        "ansible-playbook attested.kubernetes.enroll",
    )
    NODE_NOT_JOINED = _row(
        Coarse.LOCAL,
        "The machine has not become a node by itself in the time that it was given.",
        "Read there what its bootstrapper does, then run node again; attested_wait_seconds gives it more time.",
        "journalctl -u attested-bootstrapper -n 50",
    )
    NODE_NOT_REGISTERED = _row(
        Coarse.LOCAL,
        "The kubelet runs, but its Node object did not appear in time.",
        "See in the kubelet's log why the API server refuses or cannot be reached.",
        "journalctl -u kubelet -n 50",
    )
    NODE_PREREQUISITES_MISSING = _row(
        Coarse.LOCAL,
        "The machine lacks something that a node needs.",
        "Repair every point of the list, then run again; attested_install_packages: true installs the packages.",
        "ansible-playbook attested.kubernetes.prepare",
    )
    NONCE_MALFORMED = _row(
        Coarse.INVALID,
        "The other side did not send exactly one 32-byte nonce.",
        "The other side is no attested service or client of a known version.",
    )
    NOT_TMPFS = _row(
        Coarse.LOCAL,
        "A secret would be written to a file system that is not in memory.",
        "Use a directory on tmpfs, for example below /run or /dev/shm.",
    )
    OPTION_INVALID = _row(
        Coarse.LOCAL,
        "An option of a module, or a variable of a site or of a playbook, has an unusable value.",
        "Correct the option that the message names: in group_vars or host_vars, on the command line, or in the task that calls the module.",
        "ansible-doc -t module -l attested.kubernetes",
    )
    PARTITION_TABLE_MALFORMED = _row(
        Coarse.LOCAL,
        "A disk or an image of one has a partition table that cannot be believed.",
        "Look at it with 'fdisk -l' and make the image anew where it is cut off; a partition that is cut out of it will do as well.",
        "fdisk -l IMAGE",
    )
    PASSPHRASE_UNUSABLE = _row(
        Coarse.LOCAL,
        "The passphrase cannot be used.",
        "Take printable ASCII characters, 12 to 256 of them, the same on every keyboard; several words are easier to keep than signs.",
        "attested secret --help",
    )
    PCR_MISMATCH = _row(
        Coarse.REFUSED,
        "The machine booted something that no profile allows.",
        "Compare the listed events with what you changed; if the change is yours, add it to a profile.",
        "ansible-playbook attested.kubernetes.policy",
    )
    PEER_CERTIFICATE_EXPIRED = _row(
        Coarse.REFUSED,
        "The peer's self-signed certificate is not valid at this machine's time.",
        "Compare the clocks of both machines.",
        "timedatectl status",
    )
    PEER_CERTIFICATE_MALFORMED = _row(
        Coarse.REFUSED,
        "The peer's certificate has another form than the protocol asks for.",
        "Check that both sides run the same version of the collection.",
    )
    PEER_UNREACHABLE = _row(
        Coarse.LOCAL,
        "No connection to the endpoint could be made.",
        "Check that the service runs, and the name, port and firewall between; trying again is safe.",
    )
    PLACE_TAKEN = _row(
        Coarse.LOCAL,
        "The path for a recovery kit or for shares holds something else.",
        "Name another path or an empty folder. Only a recovery kit of the same cluster is replaced. Shares of an earlier split stay valid: destroy them once the new ones are in their places.",
        "ls -la PATH",
    )
    PLAYBOOK_FAILED = _row(
        Coarse.LOCAL,
        "A task of the playbook that the machine runs on itself has failed.",
        "Read the last lines of the step, put right what they say, and run init again: it goes on where it stood.",
        "ansible-playbook attested.kubernetes.init",
    )
    PLAYBOOK_NO_HOST = _row(
        Coarse.LOCAL,
        "No play of the playbook matched this machine, so nothing was done.",
        "See that the inventory of the machine has it in the group nodes.",
        "ansible-inventory --graph",
    )
    POLICY_ABSENT = _row(
        Coarse.REFUSED,
        "The cluster has no signed policy.",
        "Without the AttestationPolicy that the site signs nothing counts: apply the site.",
        "ansible-playbook attested.kubernetes.policy",
    )
    POLICY_EMPTY = _row(
        Coarse.REFUSED,
        "No profile is in force, or a profile allows nothing: everybody is refused.",
        "Learn a profile from a machine that you trust, and apply it.",
        "ansible-playbook attested.kubernetes.policy",
    )
    POLICY_KEY_UNUSABLE = _row(
        Coarse.LOCAL,
        "The key of the policy is not an Ed25519 key.",
        "Put back policy-key.pem and cluster.yml as secrets wrote them.",
        "git log -- cluster.yml",
    )
    POLICY_NOT_ADOPTED = _row(
        Coarse.REFUSED,
        "This control plane has no record of the policy yet.",
        "Only the site can make one, because a policy alone does not say that it is the newest: apply the site.",
        "ansible-playbook attested.kubernetes.policy",
    )
    POLICY_OUTLOOK_UNKNOWN = _row(
        Coarse.LOCAL,
        "Nobody can say whether the next policy would refuse a node that is joined now.",
        "Its record holds no event log and it did not answer: start it or open its port 9091, or say that it is meant "
        "(confirm_refusals=true).",
        "ansible-playbook attested.kubernetes.verify",
    )
    POLICY_ROLLED_BACK = _row(
        Coarse.REFUSED,
        "The policy, or a record of it, is older than what this control plane has seen.",
        "Was etcd or a disk put back from a copy? Everyone is refused until the site is applied again.",
        "ansible-playbook attested.kubernetes.policy",
    )
    POLICY_SIGNATURE = _row(
        Coarse.REFUSED,
        "The policy in the API is not signed by the site for this cluster.",
        "Find out who wrote the object, then apply the site: that replaces it.",
        "ansible-playbook attested.kubernetes.policy",
    )
    POLICY_WOULD_REFUSE = _row(
        Coarse.LOCAL,
        "The next policy would refuse nodes that are joined now.",
        "Learn their boot as a profile, except them for a while, or say that it is meant (confirm_refusals=true).",
        "ansible-playbook attested.kubernetes.policy -e confirm_refusals=true",
    )
    PORT_UNAVAILABLE = _row(
        Coarse.LOCAL,
        "The service cannot listen at its address and port.",
        "Find who holds the port (ss -ltnp) and end it, or set another port.",
        "ss -ltnp",
    )
    PREDICTION_INCOMPLETE = _row(
        Coarse.LOCAL,
        "A register that the profile holds cannot be computed from the image.",
        "Boot the image on one machine and learn the profile there, or compute from a profile of a machine that booted the same initrd and stub.",
        "ansible-playbook attested.kubernetes.enroll -e profile=NAME",
    )
    PRESET_UNMET = _row(
        Coarse.LOCAL,
        "The machine is not what the preset is for, so nothing was learned from it.",
        "Choose auto, which holds what this machine loads; or boot a unified kernel image (image), signed and alone (secure-boot).",
        "ansible-doc attested.kubernetes.attestation_verification",
    )
    PROFILES_UNLIKE = _row(
        Coarse.LOCAL,
        "Profiles that hold different registers, or accept nobody, cannot become one.",
        "Learn them with the same preset, or keep them side by side: several profiles may be active at once.",
        "ansible-doc attested.kubernetes.measurement_profile",
    )
    PROFILE_EXISTS = _row(
        Coarse.LOCAL,
        "The site has another profile of this name.",
        "Choose another name, compare the two, or replace it on purpose.",
        "ansible-playbook attested.kubernetes.enroll -e profile=NAME -e replace_profile=true",
    )
    PROFILE_EXPIRED = _row(
        Coarse.REFUSED,
        "The only profile that the machine fits was an exception and has expired.",
        "Bring the machine to a boot that a lasting profile allows, or extend the exception on purpose.",
        "ansible-playbook attested.kubernetes.policy --check --diff",
    )
    PROFILE_NOT_FOR_MACHINE = _row(
        Coarse.REFUSED,
        "The profiles that would allow this boot count for other roles or machines.",
        "Find out why the machine booted what is meant for another; if it may, put its role or endorsement key into the profile "
        "(roles, machines), then apply the policy.",
        "ansible-playbook attested.kubernetes.policy --check --diff",
    )
    PROFILE_UNKNOWN = _row(
        Coarse.LOCAL,
        "attested_profiles names a profile that the site does not have.",
        "Correct the name, or learn the profile from a machine.",
        "ansible-playbook attested.kubernetes.enroll -e profile=NAME",
    )
    PROTOCOL_VERSION = _row(
        Coarse.INVALID,
        "The other side sent a protocol message, a ticket or a sealed answer of a version that is not accepted.",
        "Install the same version of the collection on node and control plane. The lowest accepted version is set per cluster.",
        "ansible-playbook attested.kubernetes.prepare",
    )
    QUOTE_DIGEST = _row(
        Coarse.REFUSED,
        "The register values sent are not those that were quoted.",
        "Read and quote again; a register may have been extended between the two.",
    )
    QUOTE_MALFORMED = _row(
        Coarse.REFUSED,
        "The quote is not one that a TPM makes.",
        "Let the TPM of the machine make it; a quote from elsewhere proves nothing.",
    )
    QUOTE_SELECTION = _row(
        Coarse.REFUSED,
        "The quote is over other registers than were asked for.",
        "Run again; if it happens again, both sides disagree on the policy's registers.",
    )
    QUOTE_SIGNATURE = _row(
        Coarse.REFUSED,
        "The quote's signature does not verify with the attestation key.",
        "Look for something that changes the evidence on its way; then ask again.",
    )
    RACE_LOST = _row(
        Coarse.REFUSED,
        "The machine was taken by the other way of becoming a node.",
        "Nothing is lost: look at what the machine has become.",
        "attested status",
    )
    REATTESTATION_FAILED = _row(
        Coarse.REFUSED,
        "A machine asks to renew its certificate, and the last evidence that it pushed was refused.",
        "Read on its Node with what it was refused; bring it to good evidence, or reboot it, and it heals.",
        "kubectl describe node NODE",
    )
    REATTESTATION_OVERDUE = _row(
        Coarse.REFUSED,
        "A machine asks to renew its certificate, and the evidence that it pushed last is too old.",
        "Push evidence by hand on the machine and read why its timer did not: journalctl -u attested-reattest.",
        "systemctl start attested-reattest",
    )
    RECOVERY_BROKEN_OFF = _row(
        Coarse.LOCAL,
        "The connection to a locked node broke, or it has no time yet.",
        "Run recover again: a node that is open by then says so.",
        "ansible-playbook attested.kubernetes.recover",
    )
    RECOVERY_CALLER_UNKNOWN = _row(
        Coarse.REFUSED,
        "A user other than root or the recovery service's called the process that recovers a node.",
        "Only the recovery service of the same machine speaks to it; look at which program runs as that user.",
        "journalctl -u attested-bootstrapper",
    )
    RECOVERY_DISK_DIFFERS = _row(
        Coarse.REFUSED,
        "What an admin sealed is the key of another disk than the one in this machine.",
        "Look which disk was assigned to this node, and whether disks were exchanged between machines.",
        "ansible-playbook attested.kubernetes.recover",
    )
    RECOVERY_DISK_UNKNOWN = _row(
        Coarse.LOCAL,
        "Neither site nor recovery kit say which disk the cluster assigned to this node.",
        "Where a control plane is up, run policy, which asks it; else read the LUKS UUID at the machine's disk and write it "
        "as attested_disk_id into the node's host_vars.",
        "ansible-playbook attested.kubernetes.recover",
    )
    RECOVERY_INCOMPLETE = _row(
        Coarse.LOCAL,
        "A node was neither recovered nor was somebody else first at it; the table says which and why.",
        "Do what the table says of each such node and run it again: nodes that are open lose nothing by it.",
        "ansible-playbook attested.kubernetes.recover",
    )
    RECOVERY_KEY_WRONG = _row(
        Coarse.REFUSED,
        "The key that was offered opens no slot of this disk's header; nothing was changed.",
        "Use the master secret of this cluster that the disk was last keyed with, and the disk's assigned id.",
        "ansible-playbook attested.kubernetes.recover",
    )
    RECOVERY_RACE_LOST = _row(
        Coarse.REFUSED,
        "Somebody else has opened this node's disk or is opening it: its cluster, or another admin.",
        "Wait until the node has come up; nothing else is needed.",
        "ansible-playbook attested.kubernetes.status",
    )
    REQUEST_INCOMPLETE = _row(
        Coarse.UNAVAILABLE,
        "A call was begun and its request did not come in time.",
        "Check the network between both machines; many from one address are somebody who holds calls on purpose.",
        "journalctl -u attested-join-service",
    )
    REQUEST_TIMEOUT = _row(
        Coarse.UNAVAILABLE,
        "A request was not answered within its time.",
        "Read the log of the service at the correlation id; trying again is safe.",
        "journalctl -u attested-join-service -u attested-key-service",
    )
    RESCUE_ASKS_AGAIN = _row(
        Coarse.LOCAL,
        "A machine that was given the master secret waits for a key again.",
        "The secret did not open its disk: compare the secret with the state file and the disk's header before you send it once more.",
        "attested rescue keys --master-secret FILE --state FILE --disk DISK",
    )
    RESCUE_CALL_FAILED = _row(
        Coarse.LOCAL,
        "A node of Constellation has refused or broken off a call of the rescue kit.",
        "Its own words are in the message; the rest stands in the journal or on the serial console of that node.",
        "attested rescue --help",
    )
    RESCUE_FILE_MALFORMED = _row(
        Coarse.LOCAL,
        "A file of a Constellation cluster cannot be read, or its measurements enforce nothing.",
        "Give constellation-conf.yaml, constellation-state.yaml (version v1) or the attestationConfig of the ConfigMap join-config unchanged. Measurements are 64 hex digits, in quotes where they are digits alone. A measurement salt can be given alone; disk keys do not need it.",
        "attested rescue --help",
    )
    RESCUE_MEASUREMENT_MISMATCH = _row(
        Coarse.LOCAL,
        "A node of Constellation has booted something else than its configuration expects.",
        "Send it no secret. Compare the image of the machine with the one that the configuration is of; register 15 alone "
        "differs where the cluster id is another.",
        "attested rescue verify --help",
    )
    RESCUE_NO_DISK = _row(
        Coarse.LOCAL,
        "There is no LUKS2 disk in what was given, neither at its start nor in a partition.",
        "Look what it is with 'file' and 'fdisk -l'; of a virtual machine take the second disk, Constellation keeps its state "
        "there. An image in qcow2 or VMDK form must be converted to raw first.",
        "qemu-img convert -O raw IMAGE disk.img",
    )
    RESCUE_SEVERAL_DISKS = _row(
        Coarse.LOCAL,
        "More than one partition holds a LUKS2 disk.",
        "Say which one with --partition; attested rescue keys shows each with its UUID.",
        "attested rescue keys --master-secret FILE --disk DISK",
    )
    RESCUE_SOURCE_CHANGED = _row(
        Coarse.LOCAL,
        "A file changed while it was copied, so the copy is none of any moment.",
        "Copy from a disk that is mounted read only, with the machine that it belongs to switched off.",
        "attested rescue mount --help",
    )
    RESET_INCOMPLETE = _row(
        Coarse.LOCAL,
        "Something of Kubernetes is still on the machine after a reset.",
        "Remove what the message names, or reboot the machine, and run again.",
    )
    REVOCATION_UNSIGNED = _row(
        Coarse.UNAVAILABLE,
        "A revocation that this control plane knows is not in the signed policy, so a further one would not know it.",
        "Apply the site, which signs it: the machine that asks gets its ticket then.",
        "ansible-playbook attested.kubernetes.policy",
    )
    ROLE_NOT_REGISTERED = _row(
        Coarse.REFUSED,
        "A machine asks for more than its registered role.",
        "The role comes from the NodeIdentity: remove the node and enroll it in the role that it shall have.",
        "kubectl get attested",
    )
    RUNTIME_INSTALL_FAILED = _row(
        Coarse.LOCAL,
        "The virtual environment could not be made from the bundle's wheels.",
        "Read pip's message; make the bundle again for the Python version of this machine.",
        "ansible-playbook attested.kubernetes.bundle",
    )
    SBAT_TOO_OLD = _row(
        Coarse.REFUSED,
        "Shim enforced an older revocation level than the profile demands, or the log does not prove which.",
        "Update shim and its SbatLevel, or lower sbatMinimum of the profile on purpose.",
        "ansible-playbook attested.kubernetes.policy --check --diff",
    )
    SEAL_UNOPENABLE = _row(
        Coarse.LOCAL,
        "A sealed answer does not open on this machine, in this boot, for this exchange.",
        "Ask for a new one; an answer that was recorded or meant for another machine never opens.",
    )
    SECRETS_IN_CLEAR = _row(
        Coarse.REFUSED,
        "An init or recovery request holds the master secret in clear, or a URI of it, as Constellation's program sends it.",
        "Run init or recover from this collection: it sends each machine its secrets sealed to the machine's TPM after verification.",
        "ansible-playbook attested.kubernetes.status",
    )
    SECURE_BOOT_OFF = _row(
        Coarse.REFUSED,
        "The profile demands Secure Boot, and the log does not prove that it was on.",
        "Turn Secure Boot on in the firmware, with the keys that you trust.",
        "ansible-playbook attested.kubernetes.policy --check --diff",
    )
    SERVER_CREDENTIALS_UNUSABLE = _row(
        Coarse.UNAVAILABLE,
        "The certificate chain and key of a service do not fit together.",
        "The key service signs a new one; restart the join service if it does not do so by itself.",
        "systemctl restart attested-join-service",
    )
    SERVING_EXTENSION_REFUSED = _row(
        Coarse.REFUSED,
        "A kubelet's request for a serving certificate asks for other extensions than alternative names, or hides them.",
        "A kubelet asks for nothing else: find out what else on that machine has its credential.",
        "kubectl get csr",
    )
    SERVING_NOT_JOINED = _row(
        Coarse.REFUSED,
        "A machine asks for a serving certificate, and it has not become a node.",
        "It waits ten minutes for that; read why its join does not end.",
        "kubectl get attested",
    )
    SERVING_NOT_PROVEN = _row(
        Coarse.REFUSED,
        "A node asks for a serving certificate, and it has given no evidence yet.",
        "It waits ten minutes for that; push evidence by hand on the machine, its kubelet then asks again by itself.",
        "systemctl start attested-reattest",
    )
    SERVING_REQUESTER_REFUSED = _row(
        Coarse.REFUSED,
        "A serving certificate is asked for by who is no node, or by another machine than the one that is this node now.",
        "Only a kubelet asks, with the certificate that its machine got by ticket: renew that one.",
        "attested renew --now",
    )
    SERVING_SAN_REFUSED = _row(
        Coarse.REFUSED,
        "A kubelet asks for a serving certificate with a name or address that its identity does not have.",
        "Compare attested_node_ip in the site with the kubelet's --node-ip, then apply the site: addresses come from there alone.",
        "ansible-playbook attested.kubernetes.policy",
    )
    SERVING_USAGE_REFUSED = _row(
        Coarse.REFUSED,
        "A kubelet's request for a serving certificate asks for other usages than its signer gives.",
        "A kubelet asks for nothing else: find out what else on that machine has its credential.",
        "kubectl get csr",
    )
    SHARES_EXPOSED = _row(
        Coarse.LOCAL,
        "A secret would lie in clear inside a repository or a site.",
        "Name a folder outside of every site and working copy, best on tmpfs (/dev/shm) or on the medium that it is meant for.",
        "attested secret split --help",
    )
    SHARES_TOO_FEW = _row(
        Coarse.LOCAL,
        "There are not enough shares to rebuild the master secret.",
        "Fetch the missing ones; there is no other way, and fewer tell nothing.",
        "attested secret show FILE",
    )
    SHARES_UNLIKE = _row(
        Coarse.LOCAL,
        "The shares do not belong together: they are of different clusters or splits, or one share was given twice.",
        "Run attested secret show on each share. Combine different shares that name the same cluster, master secret and split.",
        "attested secret show FILE",
    )
    SHARE_MALFORMED = _row(
        Coarse.LOCAL,
        "The text is no share of a master secret of ours.",
        "Give the whole text of a share, or its 62 words alone, in their order; the facts above the words may be left out.",
        "attested secret show FILE",
    )
    SHARE_PASSPHRASE = _row(
        Coarse.LOCAL,
        "The shares belong together, and under this passphrase they hold no master secret.",
        "Say --passphrase and type the one that was set at the split; each share says whether there is one.",
        "attested secret combine --help",
    )
    SHARE_WORDS_WRONG = _row(
        Coarse.LOCAL,
        "A word of a share is not in the word list, or the words fail the checksum.",
        "Compare the named word with the paper, then the words beside it. Often two words were exchanged or one was left out; the first four letters tell the words of the list apart.",
        "attested secret show FILE",
    )
    SITE_CLUSTER_FILE = _row(
        Coarse.LOCAL,
        "The site's cluster.yml is malformed.",
        "Restore it from the site's repository; secrets wrote it and nobody edits it.",
        "git checkout -- cluster.yml",
    )
    SITE_INVENTORY = _row(
        Coarse.LOCAL,
        "The inventory of the site is unusable.",
        "Correct hosts.yml or host_vars/; the message names each problem.",
        "ansible-inventory --graph",
    )
    SITE_NOT_FOUND = _row(
        Coarse.LOCAL,
        "The directory is no site.",
        "Run in a site directory, or write one.",
        "ansible-playbook attested.kubernetes.scaffold -e site=DIRECTORY",
    )
    SITE_POLICY_EXCEPTION = _row(
        Coarse.LOCAL,
        "An exception from the policy is not one.",
        "Each names a profile, enrolled nodes, an end within 14 days and a reason; see docs/protocol/policy.md.",
        "ansible-playbook attested.kubernetes.policy --check",
    )
    SITE_SECRETS_INCOMPLETE = _row(
        Coarse.LOCAL,
        "Some or all of the site's secrets are missing.",
        "Restore the missing files from their backup; remove all of them only if no cluster was made of them.",
        "ansible-playbook attested.kubernetes.secrets",
    )
    SITE_SECRET_MALFORMED = _row(
        Coarse.LOCAL,
        "A secret of the site cannot be used: the join CA, the master secret or the measurement salt.",
        "Restore the file of .secrets/ or the line of cluster.yml from its backup, or import Constellation's constellation-mastersecret.json unchanged. Never make a new join CA for a running cluster.",
        "ansible-playbook attested.kubernetes.secrets",
    )
    SITE_VAULT = _row(
        Coarse.LOCAL,
        "A file of the site cannot be opened with Ansible Vault.",
        "Give the vault password (--ask-vault-pass, vault_password_file or ANSIBLE_VAULT_PASSWORD_FILE).",
        "ansible-playbook attested.kubernetes.secrets --ask-vault-pass",
    )
    SOURCE_BRANCH_ABSENT = _row(
        Coarse.LOCAL,
        "The repository of the site answers, but it does not have the branch that node.yml names.",
        "Compare attested_source_branch with the branches of the repository; push the branch.",
        "journalctl -u attested-node-boot",
    )
    SOURCE_COLLECTION_DIFFERS = _row(
        Coarse.LOCAL,
        "The site was written for another release of the collection, or for another bundle, than this machine has installed.",
        "Run prepare from the machine's bundle, or commit collection and bundle of what is installed to attested-node.yml.",
        "journalctl -u attested-node-boot",
    )
    SOURCE_HISTORY_REWRITTEN = _row(
        Coarse.LOCAL,
        "The site's commit does not have the one that this machine took before in its history.",
        "Do not rewrite the branch; where it was meant, remove /var/lib/attested/source on the machine.",
        "journalctl -u attested-node-boot",
    )
    SOURCE_LOCKED_BEFORE = _row(
        Coarse.LOCAL,
        "The machine was locked to a cluster in this boot before the site's commit could be measured.",
        "Restart the machine; nothing else may make a node of it where attested_source_url is set.",
        "journalctl -u attested-node-boot",
    )
    SOURCE_MEASURED_OTHER = _row(
        Coarse.LOCAL,
        "This boot has measured another commit or configuration than the one that should run now.",
        "Restart the machine: a boot runs one commit.",
        "journalctl -u attested-node-boot",
    )
    SOURCE_NOT_ACCEPTED = _row(
        Coarse.REFUSED,
        "The machine measured no site in front of its lock, or one that nobody signed whom the profile names.",
        "Boot it from the signed site (attested_source_url), or add the fingerprint to sourceSigners of the profile on purpose.",
        "ansible-playbook attested.kubernetes.policy --check --diff",
    )
    SOURCE_NOT_A_REPOSITORY = _row(
        Coarse.LOCAL,
        "What answers at the URL of the site's repository is no git repository: a proxy, a login page, a wrong path.",
        "Open the URL of attested_source_url from the machine's network and see what it is.",
        "journalctl -u attested-node-boot",
    )
    SOURCE_OBJECT_BROKEN = _row(
        Coarse.LOCAL,
        "An object of the site's repository is absent, damaged or refused by git's own checks.",
        "Run git fsck --strict in the repository; clone it anew from a good copy.",
        "journalctl -u attested-node-boot",
    )
    SOURCE_PIN_MALFORMED = _row(
        Coarse.LOCAL,
        "The site's repository has no usable attested-node.yml.",
        "Commit attested-node.yml with version, collection and bundle, as the README of the role boot_source shows.",
        "journalctl -u attested-node-boot",
    )
    SOURCE_ROLLED_BACK = _row(
        Coarse.LOCAL,
        "The site's version is lower than the least one that this machine takes.",
        "Raise the version in attested-node.yml with every change, and never serve an older commit.",
        "journalctl -u attested-node-boot",
    )
    SOURCE_SIGNATURE = _row(
        Coarse.LOCAL,
        "The SSH signature of the site's commit does not fit it, or has a form that is not accepted.",
        "Sign with git's SSH format and a key of ssh-ed25519 or ecdsa-sha2-nistp256; if you did, somebody changed the commit.",
        "journalctl -u attested-node-boot",
    )
    SOURCE_SIGNER_UNKNOWN = _row(
        Coarse.LOCAL,
        "The site's commit is signed by a key that this machine has not pinned.",
        "Find out whose key it is; a key that is meant belongs to attested_source_signers, then prepare.",
        "journalctl -u attested-node-boot",
    )
    SOURCE_STATE_MALFORMED = _row(
        Coarse.LOCAL,
        "What this machine keeps of the site's last version cannot be read.",
        "Find out what changed /var/lib/attested/source; with it removed, only the least version of node.yml counts.",
        "journalctl -u attested-node-boot",
    )
    SOURCE_TOO_OLD = _row(
        Coarse.REFUSED,
        "The machine measured an older version of its site in front of its lock than the profile demands, or none.",
        "Restart the machine so that it takes the newest version, or lower sourceMinimum of the profile on purpose.",
        "ansible-playbook attested.kubernetes.policy --check --diff",
    )
    SOURCE_TREE_REFUSED = _row(
        Coarse.LOCAL,
        "The site's repository holds something that a site cannot have: a submodule, a link out of the site, an unusual name or kind of file, or too much data.",
        "The message names the entry. Replace a link or a submodule by plain files, keep bundles and images out of the repository, and find out who committed a name that git itself does not create.",
        "journalctl -u attested-node-boot",
    )
    SOURCE_UNREACHABLE = _row(
        Coarse.LOCAL,
        "The repository of the site could not be reached, or did not answer in time.",
        "Check network, name and certificate of attested_source_url from the machine.",
        "journalctl -u attested-node-boot",
    )
    SOURCE_UNSIGNED = _row(
        Coarse.LOCAL,
        "The site's commit carries no SSH signature.",
        "Sign it: git -c gpg.format=ssh commit -S; a merge by a web page is signed by that page, or not at all.",
        "journalctl -u attested-node-boot",
    )
    STATE_CHANGED = _row(
        Coarse.UNAVAILABLE,
        "This boot is not the one that the keys were sealed to, so the TPM does not open them.",
        "If the change was wanted (firmware, kernel, command line), add a profile for it and supply the secret again; else find out who changed the boot.",
        "ansible-playbook attested.kubernetes.init",
    )
    STATE_DISK_BUSY = _row(
        Coarse.LOCAL,
        "Somebody uses the disk that is to be a node's state disk.",
        "Unmount it, or take it out of what holds it (lsblk shows what); then try again.",
        "lsblk",
    )
    STATE_DISK_CLOSED = _row(
        Coarse.LOCAL,
        "The key of a state disk is exchanged while the disk is in use, and this one is not.",
        "Let the node come up first (by a ticket of the cluster, or by recover); then try again.",
        "ansible-playbook attested.kubernetes.status",
    )
    STATE_DISK_CORRUPT = _row(
        Coarse.LOCAL,
        "Sectors of a state disk are not what was written: somebody or something changed them below the encryption.",
        "Nothing wrong was read: who asks for such a sector gets an error. Drain the node and find out who had the disk, or "
        "whether it fails. Then reset the node, clear or replace the disk, and let it join anew.",
        "journalctl --dmesg --boot --grep='INTEGRITY AEAD ERROR'",
    )
    STATE_DISK_COUNTER_LOST = _row(
        Coarse.LOCAL,
        "The TPM's counter is gone, or behind the record in a state disk.",
        "The TPM was cleared or is another one, or the disk is another machine's: reset the node, or replace the machine.",
        "ansible-playbook attested.kubernetes.reset",
    )
    STATE_DISK_FOREIGN = _row(
        Coarse.LOCAL,
        "A disk is a state disk, and not the one that was assigned to this node.",
        "Check which disk is in the machine; if its data may go, name the disk in the option erase.",
    )
    STATE_DISK_HEADER_CHANGED = _row(
        Coarse.LOCAL,
        "A state disk's header is not the one that it had at the last unlock.",
        "Somebody put back or edited the header: find out who, and put back the copy of it that was made last.",
    )
    STATE_DISK_HIDES_DATA = _row(
        Coarse.LOCAL,
        "A directory that a state disk is to take the place of holds something.",
        "Stop what writes there and move its content away: it would be covered, and kept in clear.",
    )
    STATE_DISK_KEY = _row(
        Coarse.LOCAL,
        "The file with a state disk's key is missing, of another size, or not its owner's alone.",
        "The program that fetches the ticket writes it: 32 bytes, mode 0600, on tmpfs. Fetch the ticket again.",
        "ansible-playbook attested.kubernetes.node",
    )
    STATE_DISK_MISSING = _row(
        Coarse.LOCAL,
        "There is no disk at the path of the state disk.",
        "Look below /dev/disk/by-id which disks the machine has, and correct attested_state_disk.",
        "ls -l /dev/disk/by-id",
    )
    STATE_DISK_OCCUPIED = _row(
        Coarse.LOCAL,
        "Something is on the disk that is to be a node's state disk.",
        "Save what is on it, or choose another disk; if its data may go, name the disk in the option erase.",
        "wipefs --no-act DISK",
    )
    STATE_DISK_OPTION = _row(
        Coarse.LOCAL,
        "An option of a state disk has an unusable value.",
        "Correct the option that the message names. A disk is given by its path below /dev/disk/by-id, because names such as /dev/sdb change from boot to boot; the option erase takes the last part of that path.",
        "ls -l /dev/disk/by-id",
    )
    STATE_DISK_RECORD = _row(
        Coarse.LOCAL,
        "A state disk holds no record of its unlocks, or one that cannot be read.",
        "The volume was exchanged, or its file system is damaged: do not use it before you know which.",
    )
    STATE_DISK_ROLLED_BACK = _row(
        Coarse.LOCAL,
        "A state disk is in an older state than at its last unlock.",
        "Somebody put back the disk or its record: do not trust what is on it. Reset the node, which joins anew.",
        "ansible-playbook attested.kubernetes.reset",
    )
    STATE_DISK_TOO_LATE = _row(
        Coarse.LOCAL,
        "A machine that is a node already is to have a state disk, and never had one as this node.",
        "A state disk is made with the first join alone: take attested_state_disk away, or reset the node, which joins anew.",
        "ansible-playbook attested.kubernetes.reset",
    )
    STATE_DISK_TOO_SMALL = _row(
        Coarse.LOCAL,
        "A disk is too small to be a node's state disk.",
        "Choose a larger disk; etcd alone writes files of 64 MiB, and images need more.",
    )
    STATE_DISK_UNGUARDED = _row(
        Coarse.LOCAL,
        "The process that handles disk keys cannot keep them out of swap and cores.",
        "Run it as root, or raise its limit of locked memory (RLIMIT_MEMLOCK).",
    )
    SUPPORT_MATERIAL_MALFORMED = _row(
        Coarse.LOCAL,
        "What a machine gathered for a support bundle is not what our program writes.",
        "Prepare that machine with this release and run support_bundle again; the bundle has everything else.",
        "ansible-playbook attested.kubernetes.support_bundle",
    )
    SWAP_ACTIVE = _row(
        Coarse.LOCAL,
        "Swap is on: a secret in memory could reach a disk.",
        "Turn swap off (swapoff -a) and keep it off, or let prepare do it.",
        "ansible-playbook attested.kubernetes.prepare",
    )
    TEE_ATTRIBUTES = _row(
        Coarse.REFUSED,
        "A confidential guest was started with attributes that the policy does not allow.",
        "Start the guest without migration, and with multithreading or a provider's key only where the policy allows them.",
    )
    TEE_CERTIFICATE_MISMATCH = _row(
        Coarse.REFUSED,
        "The certificate of the report's key is for another chip or another firmware version.",
        "Fetch the certificate for the chip and the TCB that the report states, and keep it beside the guest.",
    )
    TEE_CHAIN_UNTRUSTED = _row(
        Coarse.REFUSED,
        "The key that signed a report or its collateral does not chain to the configured root.",
        "Use the maker's chain for this processor family; anything else is no report of such a processor.",
    )
    TEE_CHIP_UNKNOWN = _row(
        Coarse.REFUSED,
        "A confidential guest runs on a chip that is not on the allow-list.",
        "Add the chip's id to the policy if the host is to be used.",
    )
    TEE_COLLATERAL_EXPIRED = _row(
        Coarse.REFUSED,
        "A certificate, a revocation list or the TCB information is not valid at this time.",
        "Compare the clock of the verifier; then fetch fresh collateral from the maker and put it in place of the old.",
    )
    TEE_COLLATERAL_MALFORMED = _row(
        Coarse.REFUSED,
        "Collateral of a confidential guest cannot be read.",
        "Fetch the file from the maker again.",
    )
    TEE_DEBUG = _row(
        Coarse.REFUSED,
        "A confidential guest can be debugged by its host.",
        "Start the guest without the debug attribute: with it, the host reads its memory.",
    )
    TEE_KEY_REVOKED = _row(
        Coarse.REFUSED,
        "A key in the chain of a report was revoked by its maker.",
        "Update the firmware of the platform and fetch new certificates.",
    )
    TEE_KEY_UNKNOWN = _row(
        Coarse.REFUSED,
        "A confidential guest names a key that nobody enrolled.",
        "Enroll the key of the guest if it is to be a machine of this cluster.",
    )
    TEE_MEASUREMENT = _row(
        Coarse.REFUSED,
        "A confidential guest was started with a measurement that no policy allows.",
        "Compare firmware, kernel and command line of the guest with those whose measurement was put in the policy.",
    )
    TEE_QE_IDENTITY = _row(
        Coarse.REFUSED,
        "A quote was made by another enclave than the maker's quoting enclave of an accepted version.",
        "Update the platform's quoting enclave; any other enclave can be made to sign what its host likes.",
    )
    TEE_QUOTE_REFUSED = _row(
        Coarse.REFUSED,
        "The verification library refuses a quote for a cause that has no code of its own.",
        "Read the library's words in the log of the verifier.",
    )
    TEE_SIGNATURE = _row(
        Coarse.REFUSED,
        "The report of a confidential guest is not signed by the key that is certified.",
        "Ask the guest for a new report and the certificate of its own chip.",
    )
    TEE_TCB_TOO_OLD = _row(
        Coarse.REFUSED,
        "The platform's firmware or the guest is older than the policy's minimum.",
        "Update the platform's firmware; lower the minimum only if the known weaknesses do not matter.",
    )
    TEE_VMPL = _row(
        Coarse.REFUSED,
        "A report was asked for by a less privileged part of the guest.",
        "Ask for the report from VMPL 0.",
    )
    TICKET_EXPIRED = _row(
        Coarse.LOCAL,
        "A ticket's time is over, by this machine's clock.",
        "Compare this machine's clock with the control plane's; then run again.",
        "timedatectl",
    )
    TICKET_HANDLE_UNKNOWN = _row(
        Coarse.LOCAL,
        "A handle names no ticket of this boot.",
        "Fetch a ticket first: handles end with the boot and with the use of the ticket.",
        "ansible-playbook attested.kubernetes.node",
    )
    TICKET_MALFORMED = _row(
        Coarse.INVALID,
        "A ticket holds a field that means nothing.",
        "Check that both sides run the same version of the collection.",
    )
    TICKET_NOT_OURS = _row(
        Coarse.LOCAL,
        "A signed ticket is for another cluster, node, disk or key.",
        "Compare name and cluster id in /etc/attested/node.yml with the site's inventory and cluster.yml.",
        "kubectl get attested",
    )
    TICKET_REFUSED = _row(
        Coarse.LOCAL,
        "The cluster refused a ticket for this machine.",
        "A machine is told only that it was refused: the playbooks node and status, run by an admin, show register and event "
        "(on a control plane kubectl describe joinattempts; its log has it under the correlation id).",
        "ansible-playbook attested.kubernetes.status",
    )
    TICKET_SIGNATURE = _row(
        Coarse.LOCAL,
        "A ticket is not signed by the pinned join CA for this very exchange.",
        "Something between this node and the key service answered or changed bytes: compare the join CA pin in node.yml with cluster.yml.",
    )
    TLS_BROKEN = _row(
        Coarse.UNAVAILABLE,
        "An established TLS connection broke.",
        "Read the log of the other side at this time; trying again is safe.",
    )
    TLS_HANDSHAKE_FAILED = _row(
        Coarse.INVALID,
        "The TLS handshake failed.",
        "Both sides must speak TLS 1.3 with HTTP/2, and nothing between them may change bytes.",
    )
    TPM_BUSY = _row(
        Coarse.LOCAL,
        "Another program holds the TPM, or the TPM did not answer in time.",
        "See what uses it (fuser /dev/tpm0 /dev/tpmrm0), prefer device:/dev/tpmrm0, then run again.",
    )
    TPM_COMMAND_FAILED = _row(
        Coarse.LOCAL,
        "The TPM refused a command for a reason that has no code of its own.",
        "The message names the command and the TPM's response code; a power cycle clears most lasting faults.",
    )
    TPM_CREDENTIAL_REFUSED = _row(
        Coarse.LOCAL,
        "The TPM did not open a credential: it was made for another EK or another AK, or was changed.",
        "Ask for a new challenge; if it persists, enrol the machine again.",
        "ansible-playbook attested.kubernetes.enroll",
    )
    TPM_EK_MISMATCH = _row(
        Coarse.LOCAL,
        "The certificate in the TPM is not for the endorsement key that the TPM makes.",
        "Report it to the manufacturer of the machine; a key made from a vendor's own template is not supported.",
    )
    TPM_EK_UNSUPPORTED = _row(
        Coarse.REFUSED,
        "The endorsement key is neither RSA-2048 (template L-1) nor ECC P-256 (template L-2).",
        "Use a TPM with one of these; for swtpm make the certificate with swtpm_setup without --ecc.",
    )
    TPM_HIERARCHY_AUTH = _row(
        Coarse.LOCAL,
        "The owner or endorsement hierarchy of the TPM has a password, and the machine does not hold it, or holds another.",
        "Set attested_tpm_owner_auth and attested_tpm_endorsement_auth (vaulted) for this machine and run the playbook "
        "again, after each reboot as well; or set the password to empty with tpm2_changeauth.",
    )
    TPM_HIERARCHY_DISABLED = _row(
        Coarse.LOCAL,
        "The owner or endorsement hierarchy of the TPM is off, so that its keys cannot be made or used.",
        "Enable it in the firmware's menu (security device, endorsement or storage hierarchy), then power the machine off and "
        "on; a program that called TPM2_HierarchyControl has the same effect until then.",
    )
    TPM_LOCKOUT = _row(
        Coarse.LOCAL,
        "The TPM is in lockout: too many wrong passwords of its objects were tried.",
        "Find out who tries them, then end it by tpm2_dictionarylockout --clear-lockout, or wait: the TPM forgets them with time.",
    )
    TPM_MALFORMED = _row(
        Coarse.INVALID,
        "Bytes are not the TPM structure that they should be.",
        "Check that both sides have the same version; a TPM that answers so is faulty or not the one expected.",
    )
    TPM_NV_FOREIGN = _row(
        Coarse.LOCAL,
        "The TPM's index for the policy's counter holds something else, or nothing.",
        "Look at it with tpm2_nvreadpublic 0x1a77e57: if nothing else uses it, undefine it and apply the site again.",
        "ansible-playbook attested.kubernetes.policy",
    )
    TPM_PCR_UNAVAILABLE = _row(
        Coarse.LOCAL,
        "The TPM has no active bank of the wanted hash algorithm, or not that register.",
        "Activate the SHA-256 bank in the firmware's menu (tpm2_pcrallocate sha256:all), then reboot.",
    )
    TPM_POLICY_MISMATCH = _row(
        Coarse.LOCAL,
        "The registers are not those that a secret was sealed to: this boot differs, or the node is locked already.",
        "Supply the secret again with init or recover if the new boot is wanted.",
    )
    TPM_RESET_BETWEEN = _row(
        Coarse.REFUSED,
        "The TPM was reset, or its clock went back, between two pieces of evidence of one exchange.",
        "Run again; if it happens again, the machine reboots or its TPM is being reset.",
    )
    TPM_RESPONSE_FORGED = _row(
        Coarse.LOCAL,
        "The answer of the TPM to a protected command does not carry the session's authentication.",
        "Something between this program and the TPM changes the traffic; do not trust this machine.",
    )
    TPM_ROLLED_BACK = _row(
        Coarse.REFUSED,
        "A counter of the TPM, or its clock within one run, is lower than at the machine's last ticket.",
        "A TPM does not count backwards: ask who cleared it or put an older state back (docs/machines.md says how to "
        "accept one that you cleared). Two requests of one machine may also have overtaken each other: run again.",
        "kubectl get joinattempts",
    )
    TPM_UNREACHABLE = _row(
        Coarse.LOCAL,
        "There is no TPM at this address, or the connection to it broke.",
        "Check that the machine has a TPM 2.0 (ls -l /dev/tpmrm0), that it is on in the firmware, and the tcti option.",
    )
    VARIANT_NOT_ADMITTED = _row(
        Coarse.REFUSED,
        "A machine wants to join with evidence of a kind that is verified here, but admits nobody.",
        "Use a machine with a TPM 2.0; the documentation of the attestation variants says which of them admit.",
    )
    VARIANT_UNKNOWN = _row(
        Coarse.REFUSED,
        "The evidence is of a kind that this release does not verify.",
        "Use a machine with a TPM 2.0.",
    )
    VERIFICATION_BUSY = _row(
        Coarse.BUSY,
        "Too many callers wait for evidence of this machine's TPM.",
        "Ask again later; find out who asks so often, the log names each address.",
        "journalctl -u attested-verification-service",
    )
    VERIFICATION_LATER = _row(
        Coarse.LOCAL,
        "The verification service of a node is asked more often than it allows, by us or by everybody.",
        "Ask again after the time that it named, or over ssh; its log there names each address that asks.",
        "ansible-playbook attested.kubernetes.verify",
    )
    VERIFICATION_RATE = _row(
        Coarse.BUSY,
        "One address, or all of them together, ask this machine for evidence more often than is allowed.",
        "Ask again later; find out who floods, or raise questions_per_second of the verification service.",
        "journalctl -u attested-verification-service",
    )
    VERIFICATION_UNANSWERED = _row(
        Coarse.LOCAL,
        "The machine at this address does not answer a verification as our service does.",
        "Look at the log of the verification service there, under the correlation id; compare the releases of both sides.",
        "journalctl -u attested-verification-service",
    )
    VERIFICATION_UNAVAILABLE = _row(
        Coarse.LOCAL,
        "The verification service of a node does not answer in time, or its witness has no TPM.",
        "Ask again in a minute, or over ssh; if it stays so, look at the services attested-verification-service and attested-witness there.",
        "ansible-playbook attested.kubernetes.verify -e attested_verify_over=ssh",
    )
    WITNESS_CALLER_UNKNOWN = _row(
        Coarse.REFUSED,
        "A user other than root or the verification service's called the witness.",
        "Only the verification service of the same machine speaks to the witness; look at which program runs as that user.",
        "journalctl -u attested-witness",
    )
    WITNESS_UNREACHABLE = _row(
        Coarse.UNAVAILABLE,
        "The verification service cannot reach the witness beside it, which alone has the TPM.",
        "Look at the service attested-witness on this machine.",
        "journalctl -u attested-witness",
    )
