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
    ADDON_BUSY = _row(
        Coarse.LOCAL,
        "Helm is changing this release, or was when it ended, and this control plane has no record of it.",
        "Wait for the other run. If none is running, look at the history and run 'helm rollback' as it says there.",
        "helm history NAME --namespace NAMESPACE",
    )
    ADDON_FAILED = _row(
        Coarse.LOCAL,
        "Helm could not render, install, upgrade or roll back a release of addons.yml.",
        "Read the last lines of helm in the message. A failed change was rolled back; correct the chart or its values and "
        "run again.",
        "ansible-playbook attested.kubernetes.addons --check --diff",
    )
    ADDON_INVALID = _row(
        Coarse.LOCAL,
        "addons.yml, or a chart that it names, is not what it must be.",
        "Correct what the message names. A digest that differs means another chart: look at it before you change the "
        "digest.",
        "ansible-playbook attested.kubernetes.addons --check",
    )
    ADDON_OBJECTS_LOST = _row(
        Coarse.LOCAL,
        "Definitions or custom objects that the change of a release deleted could not be put back.",
        "Correct what the message names, often a webhook of the release, and run again: that continues. The objects are "
        "also in the newest file addon-*.age of the backups.",
        "ansible-playbook attested.kubernetes.addons",
    )
    ADMIN_CERTIFICATE_EXPIRED = _row(
        Coarse.REFUSED,
        "The admin's certificate is not valid at the time of the machine's clock.",
        "Compare the clocks of both machines, then run init again: init makes a new certificate.",
        "ansible-playbook attested.kubernetes.init",
    )
    ADMIN_CERTIFICATE_MALFORMED = _row(
        Coarse.REFUSED,
        "The admin did not send a valid X.509 certificate.",
        "Run init from this collection.",
        "ansible-playbook attested.kubernetes.init",
    )
    ADMIN_CERTIFICATE_UNTRUSTED = _row(
        Coarse.REFUSED,
        "The pinned join CA did not issue the admin's certificate for an admin of this cluster.",
        "Compare the join CA of the site with the one in /etc/attested/node.yml of the machine.",
        "ansible-playbook attested.kubernetes.prepare",
    )
    ADMIN_KUBECONFIG_MALFORMED = _row(
        Coarse.LOCAL,
        "An admin's kubeconfig in .secrets/ of the site is not in the form that init and kubeconfig write.",
        "Remove the file and run kubeconfig, which writes a new one.",
        "ansible-playbook attested.kubernetes.kubeconfig",
    )
    ADMIN_RATE = _row(
        Coarse.BUSY,
        "One address calls the init or the recovery service more often than is allowed.",
        "Wait as long as the answer says, then run the same playbook again. No address is blocked for longer.",
        "journalctl -u attested-init-service -u attested-bootstrapper",
    )
    ADMIN_REQUEST_INVALID = _row(
        Coarse.LOCAL,
        "The join CA cannot sign the admin's certificate request.",
        "Remove .secrets/admin-key of the site and run init again: init makes a new key and request.",
        "ansible-playbook attested.kubernetes.init",
    )
    ADMIN_REQUEST_REFUSED = _row(
        Coarse.LOCAL,
        "The machine refused the request for init or recovery, and tells no reason to the caller.",
        "Search the journal of the machine for the correlation id; with state disks the audit log of the node holds "
        "the reason too.",
        "journalctl -u attested-bootstrapper -u attested-init-service",
    )
    ADMIN_SIGNATURE = _row(
        Coarse.REFUSED,
        "The admin's signature does not cover this request on this connection.",
        "The request was changed or sent over another connection: find out what relays the traffic between both "
        "machines.",
        "ansible-playbook attested.kubernetes.init",
    )
    ADMIN_UNAUTHENTICATED = _row(
        Coarse.REFUSED,
        "An init or recovery request came without an admin certificate of the pinned join CA.",
        "Run init from the site that the machine was prepared from. Run recover from the site or the recovery kit, "
        "which hold the key of the join CA.",
        "ansible-playbook attested.kubernetes.status",
    )
    ADMISSION_FOREIGN = _row(
        Coarse.LOCAL,
        "The API server has an admission configuration that this collection did not write.",
        "Use attested_pod_security and attested_exempt_namespaces instead. Remove admission-control-config-file from "
        "the API server's manifest and from the ConfigMap kubeadm-config.",
    )
    AK_ATTRIBUTES = _row(
        Coarse.REFUSED,
        "The attestation key is not a restricted signing key that only its TPM can use.",
        "Make the key with attestation_key; a key made by other means proves nothing.",
    )
    AK_HIERARCHY = _row(
        Coarse.REFUSED,
        "The attestation key is not a primary key of the endorsement hierarchy.",
        "Make the key with attestation_key. In other hierarchies the TPM obscures its reset count.",
    )
    AK_KEY_UNSUPPORTED = _row(
        Coarse.REFUSED,
        "The attestation key is too weak or of an unsupported type.",
        "Make the key with attestation_key: P-256, P-384 or RSA of 2048 to 4096 bits.",
    )
    AK_MISMATCH = _row(
        Coarse.REFUSED,
        "The quote is signed by another attestation key than the one that the challenge names.",
        "Ask for a new challenge with the key that makes the quote.",
    )
    AK_NOT_PINNED = _row(
        Coarse.REFUSED,
        "A machine attests with another attestation key than at its first ticket.",
        "The key is derived from the TPM's endorsement seed and a fixed template, so it changes with the TPM only. "
        "After a replaced TPM run replace; otherwise find out what changed.",
        "ansible-playbook attested.kubernetes.replace",
    )
    ANSWER_UNKNOWN = _row(
        Coarse.LOCAL,
        "The node does not hold the one-time key for this sealed answer.",
        "Run init again, which sends a new challenge. An answer is opened once, and its key is lost at a reboot.",
        "ansible-playbook attested.kubernetes.init",
    )
    API_CONFLICT = _row(
        Coarse.UNAVAILABLE,
        "Another client changed the same object of the Kubernetes API at the same time.",
        "No action is needed: the request is repeated.",
        "kubectl get attested",
    )
    API_FORBIDDEN = _row(
        Coarse.UNAVAILABLE,
        "The Kubernetes API denies a request that the service needs.",
        "Apply the service's RBAC objects again; its user is attested:key-service.",
        "ansible-playbook attested.kubernetes.init",
    )
    API_UNAVAILABLE = _row(
        Coarse.UNAVAILABLE,
        "The Kubernetes API cannot be read, so every decision that depends on it is a refusal.",
        "Check etcd and the kube-apiserver of this control plane.",
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
        "A record of the audit log was changed after it was written.",
        "Keep a copy of the directory. Compare it with the copies of other control planes and of the API, and find "
        "out which user could write there.",
        "attested audit verify",
    )
    AUDIT_GAP = _row(
        Coarse.LOCAL,
        "Records are missing in the middle of the audit log.",
        "Keep a copy of the directory and check whether a file was removed.",
        "attested audit verify",
    )
    AUDIT_HEAD_WRONG = _row(
        Coarse.LOCAL,
        "A signed head of the audit log does not match its record, or another TPM signed it.",
        "Keep a copy of the directory. The records up to the last matching head are trustworthy.",
        "attested audit verify",
    )
    AUDIT_MALFORMED = _row(
        Coarse.LOCAL,
        "The audit log contains an entry that is not a record.",
        "Move the directory away and keep it. The key service begins a new log, and its first record says so.",
        "attested audit verify",
    )
    AUDIT_REORDERED = _row(
        Coarse.LOCAL,
        "Records of the audit log are in another order than they were written.",
        "Keep a copy of the directory. Records are numbered, so the right order can be restored.",
        "attested audit verify",
    )
    AUDIT_TRUNCATED = _row(
        Coarse.LOCAL,
        "The beginning or the end of an audit log is missing.",
        "For a missing end, check for a power cut or a restored disk image. Otherwise, and for a missing beginning, "
        "find out which user could write there.",
        "attested audit verify",
    )
    AUDIT_UNWRITABLE = _row(
        Coarse.LOCAL,
        "The audit log cannot be written, so no ticket is issued.",
        "Free disk space or correct the permissions of the directory; the key service then continues by itself.",
        "journalctl -u attested-key-service",
    )
    AUTHORITIES_DIFFER = _row(
        Coarse.LOCAL,
        "The control planes hold different CAs or service account keys, so none can be rotated.",
        "Compare /etc/kubernetes/pki on the control planes, and remove from its files what does not belong to the "
        "cluster.",
        "ansible-playbook attested.kubernetes.status",
    )
    AUTHORITY_UNUSABLE = _row(
        Coarse.LOCAL,
        "A file of a CA or of the service account key is unusable.",
        "Check the file that the message names, and restore it from another control plane.",
        "ls -l /etc/kubernetes/pki",
    )
    BACKEND_UNREACHABLE = _row(
        Coarse.UNAVAILABLE,
        "The relay cannot reach the service behind it.",
        "The service is starting or has ended; read its log. Peers retry by themselves.",
        "journalctl -u attested-join-service",
    )
    BACKUP_DAMAGED = _row(
        Coarse.LOCAL,
        "A backup of etcd is cut off, was altered, or is another file.",
        "Take another copy, or an older backup. The message names what was expected.",
        "ls -l backups",
    )
    BACKUP_OTHER_CLUSTER = _row(
        Coarse.LOCAL,
        "A backup of etcd belongs to another cluster, or to other CAs.",
        "Take a backup of this cluster. After a rotation of the CAs only later backups can be restored.",
        "ls -l backups",
    )
    BACKUP_UNPROVEN = _row(
        Coarse.LOCAL,
        "An etcd that was started from the snapshot did not answer as expected.",
        "Take another backup; if that fails too, look at the disk of this control plane. To restore, use an older backup.",
        "ansible-playbook attested.kubernetes.backup",
    )
    BINDING_MALFORMED = _row(
        Coarse.INVALID,
        "A part of the channel binding has a wrong length.",
        "Check that both sides run the same version of the collection.",
    )
    BINDING_MISMATCH = _row(
        Coarse.REFUSED,
        "The quote is bound to another challenge, channel, request, cluster or purpose.",
        "Check for a TLS proxy between the two machines that changes or repeats messages, then ask again.",
    )
    BINDING_MISSING = _row(
        Coarse.INVALID,
        "A ticket request has no bound quote.",
        "Use the join client of this collection. Unmodified clients of other systems cannot request tickets.",
    )
    BOOTSTRAPPER_UNREACHABLE = _row(
        Coarse.LOCAL,
        "The init service cannot reach the bootstrapper on the same machine.",
        "Check why the bootstrapper does not run. On a machine that is already a node it does not run.",
        "journalctl -u attested-bootstrapper",
    )
    BOOT_ENTRIES_UNREADABLE = _row(
        Coarse.LOCAL,
        "The firmware's boot entries cannot be read, or it did not keep a new one.",
        "Check that the machine was started by UEFI, that efivarfs is mounted, and what efibootmgr says.",
        "efibootmgr -v",
    )
    BOOT_FELL_BACK = _row(
        Coarse.LOCAL,
        "The machine does not run the image that it was to try: the image did not come up, or was not tried yet.",
        "The old boot entry is still the default. Read the machine's console for why the image did not start, then run again.",
        "efibootmgr -v",
    )
    BOOT_IMAGE_EXISTS = _row(
        Coarse.LOCAL,
        "The machine has another image of this name, and may boot it.",
        "Give the new image another name, for example with the kernel's release or a number.",
        "ansible-playbook attested.kubernetes.boot_image -e image=NAME",
    )
    BOOT_IMAGE_UNFIT = _row(
        Coarse.LOCAL,
        "This machine cannot boot the image: its root file system is not here, or Secure Boot does not allow it.",
        "Give all machines the label that the image's command line names, or sign the image with a key whose certificate the firmware's db has.",
        "ansible-playbook attested.kubernetes.boot_image -e image=NAME",
    )
    BOOT_KEY_MISMATCH = _row(
        Coarse.LOCAL,
        "The key that is to sign the image is not that of the certificate, or one of both files is something else.",
        "Give the key and the certificate of one pair, both as PEM, the key without a password.",
        "ansible-playbook attested.kubernetes.boot_image -e image=NAME",
    )
    BOOT_NOT_APPROVED = _row(
        Coarse.LOCAL,
        "A node booted what no active profile allows; it stays out of the cluster until its new values are approved.",
        "Read the events that differ. If they are what the update was to change, repeat the command with -e approve=DIGEST "
        "of the message. If not, boot the node as it was before.",
        "ansible-playbook attested.kubernetes.os_update -e approve=DIGEST",
    )
    BOOT_OPTION_UNKNOWN = _row(
        Coarse.REFUSED,
        "The kernel command line has an option that the profile does not list, or the command line is not proven.",
        "Find out who changed the boot loader's configuration. Add an intended option to bootOptions of the profile, "
        "which needs PCR 4 and loader.",
        "ansible-playbook attested.kubernetes.policy --check --diff",
    )
    BOOT_PARTITION_UNUSABLE = _row(
        Coarse.LOCAL,
        "The EFI system partition is not mounted, is no partition of a disk, or has no room for the image.",
        "Mount it, or remove images there that no machine boots any more.",
        "df -h /boot/efi",
    )
    BUNDLE_ARCH_MISMATCH = _row(
        Coarse.LOCAL,
        "The bundle has no files for this machine's architecture.",
        "Build the bundle for this architecture (attested_bundle_architecture) and deliver it again.",
        "ansible-playbook attested.kubernetes.bundle",
    )
    BUNDLE_HASH_MISMATCH = _row(
        Coarse.LOCAL,
        "A file of the bundle does not have the hash of the manifest.",
        "The file is damaged or was changed: remove it, build the bundle again and deliver it again.",
        "ansible-playbook attested.kubernetes.bundle",
    )
    BUNDLE_INCOMPLETE = _row(
        Coarse.LOCAL,
        "The bundle does not contain a file that is needed here.",
        "Build the bundle again, which adds the missing files.",
        "ansible-playbook attested.kubernetes.bundle",
    )
    BUNDLE_MALFORMED = _row(
        Coarse.LOCAL,
        "The manifest of a bundle cannot be read.",
        "Make the bundle again with this version of the collection.",
        "ansible-playbook attested.kubernetes.bundle",
    )
    CALLER_UNKNOWN = _row(
        Coarse.REFUSED,
        "A process of a user other than root or the service in front called a process that uses this machine's TPM.",
        "Only the init, recovery or verification service of the same machine may call it. Find out which program runs "
        "as the user that the message names.",
        "journalctl -u attested-bootstrapper -u attested-witness",
    )
    CALL_GONE = _row(
        Coarse.UNAVAILABLE,
        "The machine closed the connection before its ticket or evidence was decided, so nothing was written or "
        "issued.",
        "The machine retries by itself. If this repeats, the control plane answers more slowly than the machine waits.",
        "journalctl -u attested-key-service",
    )
    CALL_LIMIT = _row(
        Coarse.BUSY,
        "A service handles its maximum of calls, or one connection made too many calls without a granted one.",
        "Machines retry by themselves. The log names each address; find the one that asks most often.",
        "journalctl -u attested-join-service",
    )
    CHALLENGES_EXHAUSTED = _row(
        Coarse.BUSY,
        "Too many challenges are open.",
        "Try again in a minute. Find the machine that requests challenges and never answers them.",
    )
    CHALLENGE_EXPIRED = _row(
        Coarse.REFUSED,
        "The challenge was answered too late.",
        "Run again. If this repeats, check the machine's load and clock.",
    )
    CHALLENGE_RATE = _row(
        Coarse.BUSY,
        "One address requests challenges more often than is allowed.",
        "Machines retry by themselves. Find the address in the log, or raise challenges_per_second of the join "
        "service for many machines behind one address.",
        "journalctl -u attested-join-service",
    )
    CHALLENGE_UNKNOWN = _row(
        Coarse.REFUSED,
        "The challenge was never issued, or was answered already.",
        "Run again: every challenge is valid for one answer.",
    )
    CHANNEL_NOT_ATTESTED = _row(
        Coarse.REFUSED,
        "A call reached the service without passing the attested relay.",
        "Call the service at its network port; its unix socket is only for the relay.",
    )
    CHANNEL_NOT_BOUND = _row(
        Coarse.REFUSED,
        "The evidence is genuine but bound to another connection.",
        "A proxy or load balancer ends TLS between here and the machine. Connect to the machine directly, and find "
        "out what answers at that address.",
        "ansible-playbook attested.kubernetes.verify -e attested_verify_over=ssh",
    )
    CILIUM_FILE_FOREIGN = _row(
        Coarse.LOCAL,
        "The path of Cilium's values holds a file that this collection did not write.",
        "Move the file, or set another path in attested_cilium_values_file. Its content may go into "
        "attested_cilium_values.",
        "ansible-playbook attested.kubernetes.cilium_values --check --diff",
    )
    CILIUM_VALUES_INVALID = _row(
        Coarse.LOCAL,
        "Values for Cilium have an unknown key, a wrong type or range, or contradict the variables of the cluster.",
        "The message lists every value: correct it in attested_cilium_values, or change the variable that it "
        "contradicts. Put other keys of the chart into a values file of your own and give it to helm after this one.",
        "ansible-playbook attested.kubernetes.cilium_values --check --diff",
    )
    CLAIM_MALFORMED = _row(
        Coarse.LOCAL,
        "The file that records which process took this machine's node lock is unreadable.",
        "Reboot the machine: the file is in memory, and the lock ends with it.",
        "systemctl reboot",
    )
    CLIENT_HELLO_MALFORMED = _row(
        Coarse.INVALID,
        "The first bytes of a connection are not a TLS ClientHello.",
        "A program that is not an attested client connected to this port.",
    )
    CLOCK_SKEW = _row(
        Coarse.LOCAL,
        "A service's certificate is not valid yet at the time of this machine's clock, so one of the two clocks is "
        "wrong.",
        "Set this machine's clock; the message has its time and the certificate's. The machine retries by itself.",
        "timedatectl status",
    )
    CLUSTER_CA_UNUSABLE = _row(
        Coarse.UNAVAILABLE,
        "The cluster CA's certificate and key cannot be read or do not belong together.",
        "Check /etc/kubernetes/pki/ca.crt and ca.key on this control plane; kubeadm must have made both.",
        "kubeadm certs check-expiration",
    )
    CLUSTER_FOUNDER_GONE = _row(
        Coarse.LOCAL,
        "The machine that ran init no longer exists; its replacement has to join the existing cluster.",
        "Run node: the machine joins with a ticket of a running control plane.",
        "ansible-playbook attested.kubernetes.node",
    )
    CLUSTER_ID_MISMATCH = _row(
        Coarse.LOCAL,
        "The secrets on this machine belong to another cluster.",
        "Compare cluster.yml with the cluster that this machine was made for; never copy key files between clusters.",
    )
    CLUSTER_RELEASE_ABSENT = _row(
        Coarse.UNAVAILABLE,
        "The object ClusterRelease/cluster is missing or names no version of Kubernetes, so no ticket can name one.",
        "Run upgrade with the bundle that the cluster runs: it writes the object and changes nothing else.",
        "ansible-playbook attested.kubernetes.upgrade",
    )
    COLLECTION_DIFFERS = _row(
        Coarse.LOCAL,
        "The node's environment in use has another version of this collection than the admin's machine.",
        "Run prepare. On a member of a cluster run upgrade then: prepare does not switch it to the new release.",
        "ansible-playbook attested.kubernetes.upgrade",
    )
    COMMAND_FAILED = _row(
        Coarse.LOCAL,
        "A command on this machine ended with an error.",
        "Read the message of the command, repair the cause and run again.",
    )
    COMMAND_MISSING = _row(
        Coarse.LOCAL,
        "A required program is not installed.",
        "Install the package that contains the program, then run again.",
        "ansible-playbook attested.kubernetes.prepare",
    )
    COMMAND_TIMEOUT = _row(
        Coarse.LOCAL,
        "A command did not end within its time.",
        "Check what the command waits for. Running again is safe.",
    )
    COMPONENT_BUILD_FAILED = _row(
        Coarse.LOCAL,
        "A program could not be built from its pinned sources.",
        "Read the compiler's message; running again continues with what is missing.",
        "ansible-playbook attested.kubernetes.bundle",
    )
    COMPONENT_HASH_MISMATCH = _row(
        Coarse.LOCAL,
        "A downloaded program does not have the hash that the site names.",
        "Compare the hash with the publisher's list. If it is right, the file was changed or the mirror has another "
        "version.",
        "ansible-playbook attested.kubernetes.bundle",
    )
    COMPONENT_INCOMPLETE = _row(
        Coarse.LOCAL,
        "The download of a program ended too early.",
        "Run bundle again: it continues the download.",
        "ansible-playbook attested.kubernetes.bundle",
    )
    COMPONENT_IS_A_PAGE = _row(
        Coarse.LOCAL,
        "The server sent a web page instead of a program.",
        "A proxy or a login page answers for the server: open the URL in a browser on this machine.",
        "ansible-playbook attested.kubernetes.bundle",
    )
    COMPONENT_NOT_FOUND = _row(
        Coarse.LOCAL,
        "A server or a disk does not have a program, or denies access to it.",
        "Compare the URL with the publisher's list; the message has the status of the answer.",
        "ansible-playbook attested.kubernetes.bundle",
    )
    COMPONENT_NOT_INSIDE = _row(
        Coarse.LOCAL,
        "The archive does not contain the program.",
        "Correct extract and member of this program in attested_component_sources.",
        "ansible-playbook attested.kubernetes.bundle",
    )
    COMPONENT_TOO_LARGE = _row(
        Coarse.LOCAL,
        "A download is larger than any of the programs.",
        "Check what the URL leads to, then correct it.",
        "ansible-playbook attested.kubernetes.bundle",
    )
    COMPONENT_UNREACHABLE = _row(
        Coarse.LOCAL,
        "A server for the download of a program does not answer.",
        "Check name, proxy and network from this machine, or name another mirror; running again is safe.",
        "ansible-playbook attested.kubernetes.bundle",
    )
    CONFIG_INVALID = _row(
        Coarse.LOCAL,
        "A setting of the site, or an entry of a service's configuration file, is unknown, missing or wrong.",
        "Correct every setting that is named. A file of a service is written again by prepare, on a member by upgrade.",
        "ansible-playbook attested.kubernetes.prepare",
    )
    CONFIRMATION_MISSING = _row(
        Coarse.LOCAL,
        "A playbook that removes or replaces something was not given the name of its target.",
        "Repeat the command with -e confirm=NAME; the message says which name is expected. A machine without an entry"
        " in hosts.yml is named by its identity.",
        "ansible-playbook attested.kubernetes.status",
    )
    CONNECTION_CLOSED = _row(
        Coarse.UNAVAILABLE,
        "The other side closed the connection too early.",
        "Read the log of the other side at this time; trying again is safe.",
    )
    CONNECTION_LIMIT = _row(
        Coarse.UNAVAILABLE,
        "A connection was closed because too many were open.",
        "Find the address that opens many connections without completing one.",
    )
    CONNECTION_TIMEOUT = _row(
        Coarse.UNAVAILABLE,
        "The other side did not finish the handshake in time.",
        "Check the network between both machines; trying again is safe.",
    )
    CONNECTION_UNPROVEN = _row(
        Coarse.UNAVAILABLE,
        "An attested connection was closed because no call on it was granted in time.",
        "A single case needs no action. Many from one address are an attempt to occupy connections.",
        "journalctl -u attested-join-service",
    )
    CONSTELLATION_BANKS = _row(
        Coarse.REFUSED,
        "A document in Constellation's form has no SHA-256 register bank, or a bank twice.",
        "Without SHA-256, activate that bank in the firmware and reboot. A bank that appears twice does not come from"
        " Constellation's software: find out what answers on that machine.",
    )
    CONSTELLATION_KEY_UNKNOWN = _row(
        Coarse.REFUSED,
        "A document in Constellation's form is signed by an attestation key that is not enrolled.",
        "Compare the key's name with the one on the machine's own console, and enroll that key.",
    )
    CONSTELLATION_NOT_PERMITTED = _row(
        Coarse.REFUSED,
        "The policy does not permit evidence in Constellation's form.",
        "If it must be, set insecure_constellation_peer for this machine alone. Such evidence is bound to no TPM and "
        "no connection.",
    )
    CONSTELLATION_VERIFY_OFF = _row(
        Coarse.REFUSED,
        "This node does not answer in Constellation's form, because such an answer is bound to no connection.",
        "Use the node's verification service (verify), or set attested_insecure_constellation_verify for the node.",
        "ansible-playbook attested.kubernetes.verify",
    )
    CONTROL_PLANE_CA_ENDS = _row(
        Coarse.LOCAL,
        "A CA of the cluster expires soon, and so does every certificate that it signs.",
        "Replace the CA: run rotate_authorities, or follow Kubernetes' page 'Manual Rotation of CA Certificates'. "
        "Then run this again.",
        "openssl x509 -noout -enddate -in /etc/kubernetes/pki/ca.crt",
    )
    CONTROL_PLANE_CERTIFICATE_EARLY = _row(
        Coarse.LOCAL,
        "A certificate of this control plane is not valid yet at the time of this machine's clock; nothing was "
        "renewed.",
        "Set the clock of the machine, then run this again. Certificates made with a wrong clock have wrong dates too.",
        "timedatectl status",
    )
    CONTROL_PLANE_CERTIFICATE_MALFORMED = _row(
        Coarse.LOCAL,
        "Certificates of a control plane are missing on this machine, or cannot be read.",
        "A worker has no such certificates. On a control plane check the named files; kubeadm init phase certs makes "
        "a missing one.",
        "ls -lR /etc/kubernetes/pki",
    )
    CONTROL_PLANE_COMPONENT_UNHEALTHY = _row(
        Coarse.LOCAL,
        "A component of this control plane was unhealthy before a change, did not end, or did not start again.",
        "Find out why the component does not run. The next run tries again.",
        "crictl logs $(crictl ps --all --name kube-apiserver --quiet --latest)",
    )
    CONTROL_PLANE_FILES_UNUSABLE = _row(
        Coarse.UNAVAILABLE,
        "A file that all control planes share is missing, too large or malformed.",
        "Compare /etc/kubernetes of this control plane with that of another one. A worker does not need these files.",
        "ls -lR /etc/kubernetes/pki /etc/kubernetes/attested",
    )
    CONTROL_PLANE_JOIN_BUSY = _row(
        Coarse.BUSY,
        "Another control plane is joining or renewing its certificates; one does so at a time.",
        "The machine retries by itself. The Lease of the other one ends when it is done, at the latest 600 s after "
        "its last request.",
        "kubectl --namespace=kube-system get lease attested-control-plane-join -o yaml",
    )
    CONTROL_PLANE_MANIFEST_MALFORMED = _row(
        Coarse.LOCAL,
        "A static pod manifest or the ConfigMap kubeadm-config of this control plane is not in the form that kubeadm "
        "writes.",
        "Compare /etc/kubernetes/manifests and the ConfigMap kubeadm-config with those of another control plane, or "
        "let kubeadm write them again.",
        "kubeadm init phase control-plane --help",
    )
    CONTROL_PLANE_NONE_ANSWERS = _row(
        Coarse.LOCAL,
        "No other control plane answers for the cluster.",
        "Start another control plane, or make it reachable from the site. The last control plane can be neither "
        "removed nor replaced.",
        "ansible-playbook attested.kubernetes.status",
    )
    CONTROL_PLANE_RENEWAL_FAILED = _row(
        Coarse.LOCAL,
        "kubeadm did not renew a certificate, or wrote an invalid one; the earlier files were restored and no "
        "component was restarted.",
        "Read kubeadm's last lines and repair the cause; the next run tries again.",
        "kubeadm certs check-expiration",
    )
    CONTROL_PLANE_RENEWAL_UNDONE = _row(
        Coarse.LOCAL,
        "A component was unhealthy with its renewed certificates; the earlier files were restored and it was "
        "restarted with them.",
        "Read the component's log at the time of the renewal and repair the cause. Run this again before the "
        "certificates expire.",
        "attested renew-control-plane",
    )
    CSR_KEY_UNSUPPORTED = _row(
        Coarse.REFUSED,
        "A certificate request has a key of an unsupported type or size.",
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
        "The name comes from the NodeIdentity of the machine's TPM: compare node.yml with it; a machine cannot choose"
        " its name.",
        "kubectl get attested",
    )
    DEPENDENCY_MISSING = _row(
        Coarse.LOCAL,
        "The Python interpreter that runs this lacks a required library.",
        "Run prepare, and set ansible_python_interpreter to the virtual environment that it makes.",
        "ansible-playbook attested.kubernetes.prepare",
    )
    DISK_ID_MALFORMED = _row(
        Coarse.INVALID,
        "A disk id is not a lower-case UUID.",
        "Write the id as cryptsetup luksUUID prints it; another spelling derives another key.",
    )
    DISK_ID_NOT_ASSIGNED = _row(
        Coarse.REFUSED,
        "A machine requests the key of a disk that is not assigned to it.",
        "The first request names no disk, later requests name the assigned one: restore /var/lib/attested/node.json, "
        "or reset the node.",
        "ansible-playbook attested.kubernetes.reset",
    )
    DISK_ID_TAKEN = _row(
        Coarse.REFUSED,
        "The disk of a machine is also assigned to another identity: a live one, or one of another node or role.",
        "Find out who wrote these identities. A disk passes only from an earlier identity of the same node and role.",
        "kubectl get nodeidentities -o "
        "custom-columns=NAME:.metadata.name,NODE:.spec.nodeName,ROLE:.spec.role,DISK:.status.diskId",
    )
    DISK_KEY_WRONG = _row(
        Coarse.LOCAL,
        "The key does not open the disk.",
        "Check that the master secret and the disk belong to one cluster. A disk whose machine never joined has a "
        "random key that is not stored.",
        "attested rescue keys --master-secret FILE --disk DISK",
    )
    EK_ALIAS_TAKEN = _row(
        Coarse.REFUSED,
        "The second endorsement key of a machine belongs to another identity as well.",
        "One TPM is one identity: find out which machine has that key, and remove the alias or the other identity.",
        "kubectl get nodeidentities",
    )
    EK_AUTHORITIES_UNUSABLE = _row(
        Coarse.LOCAL,
        "A file of attested_endorsement_authorities contains no certificates.",
        "Set PEM files with the root and issuing CAs of the TPM manufacturers.",
        "ansible-playbook attested.kubernetes.enroll",
    )
    EK_CERTIFICATE_EXPIRED = _row(
        Coarse.REFUSED,
        "The endorsement certificate is not valid at this time.",
        "Compare the clock of the verifier with the certificate's dates. If the certificate has expired, enroll the "
        "machine by its key.",
        "ansible-playbook attested.kubernetes.enroll",
    )
    EK_CERTIFICATE_MALFORMED = _row(
        Coarse.REFUSED,
        "The endorsement certificate cannot be parsed.",
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
        "The policy requires endorsement certificates, and the machine sent none.",
        "Supply the certificate of the TPM. If these TPMs have no certificates, remove the roots from the policy.",
    )
    EK_CERTIFICATE_PROFILE = _row(
        Coarse.REFUSED,
        "The certificate is not an endorsement certificate as the TCG defines it.",
        "Read the endorsement certificate from the TPM. If the manufacturer omitted required fields, enroll the "
        "machine by its key.",
        "ansible-playbook attested.kubernetes.enroll",
    )
    EK_CERTIFICATE_UNTRUSTED = _row(
        Coarse.REFUSED,
        "The endorsement certificate does not chain to a configured root.",
        "Add the root of the TPM manufacturer to the policy if this manufacturer is to be trusted.",
    )
    EK_CHANGED = _row(
        Coarse.REFUSED,
        "The machine has another TPM than the one enrolled under its name.",
        "After a replaced mainboard or TPM, remove attested_ek and attested_ek_aliases of the host and enroll again. "
        "For the other key of the same TPM add -e attested_enroll_second_key=true. Otherwise find out which machine "
        "answers there.",
        "ansible-playbook attested.kubernetes.enroll",
    )
    EK_NOT_AS_DELIVERED = _row(
        Coarse.REFUSED,
        "The machine has another TPM than its delivery papers name.",
        "Compare the serial number with the machine. If it is right, ask the supplier.",
        "ansible-playbook attested.kubernetes.enroll",
    )
    EK_NOT_VOUCHED_FOR = _row(
        Coarse.REFUSED,
        "No trusted source confirms the machine's endorsement key.",
        "Set attested_endorsement_authorities, or read the fingerprint at the machine's console and set attested_ek "
        "in its host_vars. To accept the first use, add -e attested_insecure_first_use=true.",
        "ansible-playbook attested.kubernetes.enroll",
    )
    EK_SECOND_REPEATED = _row(
        Coarse.REFUSED,
        "The machine returned its first endorsement key instead of the second.",
        "A TPM has one RSA-2048 and one ECC P-256 key: find out what answers there, or enroll without the second key.",
        "ansible-playbook attested.kubernetes.enroll",
    )
    EK_SOURCE_UNUSABLE = _row(
        Coarse.LOCAL,
        "A file that should name the endorsement key of a machine has no entry for it.",
        "Give an EK certificate or public key (PEM or DER), or a list of machines (YAML, CSV or JSON). For a list set"
        " attested_serial in the machine's host_vars.",
        "ansible-playbook attested.kubernetes.enroll",
    )
    ENCRYPTION_FOREIGN = _row(
        Coarse.LOCAL,
        "The encryption at rest is not the one that init configures, so its key is not rotated.",
        "Configure secretbox and identity for secrets alone in /etc/kubernetes/attested/encryption.yaml, or rotate by"
        " hand.",
    )
    ENCRYPTION_KEYS_DIFFER = _row(
        Coarse.LOCAL,
        "Two control planes have different keys under one name, so each cannot read the Secrets that the other writes.",
        "Compare /etc/kubernetes/attested/encryption.yaml on the control planes. Copy the one that encrypts the "
        "Secrets in etcd to all of them.",
        "ansible-playbook attested.kubernetes.status",
    )
    ENCRYPTION_KEY_LOST = _row(
        Coarse.LOCAL,
        "The file with the encryption key of Secrets is missing, and etcd holds Secrets.",
        "Restore /etc/kubernetes/attested/encryption.yaml from a backup or another control plane. Without it the "
        "Secrets are lost: reset the machine and create a new cluster.",
    )
    ENCRYPTION_KEY_MISSING = _row(
        Coarse.LOCAL,
        "This control plane does not have the requested encryption key of Secrets.",
        "Run the rotation again: it first compares the keys of all control planes.",
        "ansible-playbook attested.kubernetes.rotate_encryption_key",
    )
    ENCRYPTION_MALFORMED = _row(
        Coarse.LOCAL,
        "The encryption configuration does not encrypt Secrets.",
        "Restore /etc/kubernetes/attested/encryption.yaml from a backup or another control plane; the file was not "
        "overwritten.",
    )
    ENCRYPTION_NOT_TAKEN = _row(
        Coarse.LOCAL,
        "The API server of this control plane does not use the new encryption configuration.",
        "Read the log of its kube-apiserver, then run the rotation again. No key was removed.",
        "ansible-playbook attested.kubernetes.rotate_encryption_key",
    )
    ENCRYPTION_REWRITE_FAILED = _row(
        Coarse.LOCAL,
        "Some Secrets could not be rewritten with the new key.",
        "Read the API server's answers; a webhook or an admission policy may deny the write. Then run the rotation "
        "again: the old key stays until all Secrets are rewritten.",
        "ansible-playbook attested.kubernetes.rotate_encryption_key",
    )
    ENDPOINT_INVALID = _row(
        Coarse.LOCAL,
        "An endpoint is not of the form host:port.",
        "Write name:port, address:port or [address]:port.",
    )
    ETCD_DATABASE_MALFORMED = _row(
        Coarse.LOCAL,
        "A file is not an etcd database, or is damaged.",
        "Take member/snap/db of another control plane's disk; etcd itself checks a copy with 'etcdutl snapshot "
        "status'.",
        "etcdutl snapshot status db",
    )
    ETCD_LAST_MEMBER = _row(
        Coarse.LOCAL,
        "The only voting member of etcd cannot be removed, because the cluster would lose its data.",
        "Add another control plane first, or take the whole cluster down.",
    )
    ETCD_MEMBER_AMBIGUOUS = _row(
        Coarse.LOCAL,
        "More than one member of etcd matches the machine.",
        "List the members, and remove by etcdctl and its id the member that never started.",
        "kubectl exec --namespace=kube-system etcd-NODE -- etcdctl member list",
    )
    ETCD_MEMBER_UNHEALTHY = _row(
        Coarse.LOCAL,
        "A member of etcd is unhealthy, so no other member is stopped.",
        "Start the machine of that member, or remove the member if its machine no longer exists. Then run this again.",
        "kubectl --namespace=kube-system get pods -l component=etcd -o wide",
    )
    ETCD_QUORUM_AT_RISK = _row(
        Coarse.LOCAL,
        "Without this member etcd would lose its quorum.",
        "Start the members that do not answer, or remove one of them first.",
        "ansible-playbook attested.kubernetes.status",
    )
    ETCD_QUORUM_LOST = _row(
        Coarse.LOCAL,
        "etcd has no quorum, so its members cannot be changed.",
        "Start members until more than half of them answer. If they no longer exist, restore etcd from a backup.",
        "ansible-playbook attested.kubernetes.status",
    )
    ETCD_REFUSED = _row(
        Coarse.LOCAL,
        "etcd refused a request.",
        "The message has etcd's answer. Run again once all live members are connected.",
        "journalctl -u kubelet",
    )
    ETCD_UNREACHABLE = _row(
        Coarse.LOCAL,
        "etcd on this control plane does not answer, or its answer cannot be used.",
        "Check that the static pod etcd runs here and that /etc/kubernetes/pki is complete, then run again on a "
        "control plane that is up.",
        "journalctl -u kubelet",
    )
    EVENT_LOG_CHANGED = _row(
        Coarse.REFUSED,
        "The event logs do not match the digest in the binding.",
        "Check for something between the two machines that changes messages, then ask again.",
    )
    EVENT_LOG_MALFORMED = _row(
        Coarse.REFUSED,
        "An event log cannot be parsed.",
        "Read the log again on the machine. A log that stays malformed is a defect of its firmware or kernel.",
    )
    EVENT_LOG_MISMATCH = _row(
        Coarse.REFUSED,
        "The replay of the event logs does not give the quoted register value.",
        "The register was extended without a log entry, or a log was edited. Reboot the machine and compare.",
    )
    EVENT_LOG_TOO_LARGE = _row(
        Coarse.INVALID,
        "An event log is larger than the limit.",
        "Check which events fill the log of that machine.",
    )
    EVIDENCE_MALFORMED = _row(
        Coarse.INVALID,
        "The evidence cannot be parsed.",
        "Check that both sides run the same version and that nothing between them changes bytes.",
    )
    EVIDENCE_MISSING = _row(
        Coarse.REFUSED,
        "A certificate contains no evidence of the expected kind.",
        "Check that both sides run the same version of the collection.",
    )
    EVIDENCE_REFUSED = _row(
        Coarse.LOCAL,
        "The cluster refused fresh evidence of this node.",
        "The node was revoked, or it booted software that no profile allows. The playbook status shows which; the "
        "node itself gets no reason. After a change run: systemctl start attested-reattest.",
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
        "Check that the path exists, its permissions, and that its disk has free space.",
    )
    FILE_VERSION_UNKNOWN = _row(
        Coarse.LOCAL,
        "A recovery kit, a share, a backup or a key bundle has a format version that this program does not know.",
        "Install the version of attested.kubernetes that wrote it, or a newer one.",
        "attested --version",
    )
    FIRMWARE_TOO_OLD = _row(
        Coarse.REFUSED,
        "The firmware is older than the profile demands, or its version is not proven.",
        "Update the firmware, or lower firmwareMinimum of the profile deliberately.",
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
        "A control plane was declared compromised, but the keys that it held are not rotated.",
        "Nothing was changed. Use the playbook replace or revoke, which then rotate the CAs and the service account "
        "key.",
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
        "The only control plane cannot be revoked, because no other one could issue tickets.",
        "Add another control plane first, or take the whole cluster down.",
    )
    IDENTITY_NAME_WANTED = _row(
        Coarse.LOCAL,
        "The approval of a pending machine does not name the node that it becomes.",
        "Name the node; the name that the machine claims is only a hint.",
        "ansible-playbook attested.kubernetes.approve -e confirm=IDENTITY -e node=NAME",
    )
    IDENTITY_NEEDS_SIGNATURE = _row(
        Coarse.LOCAL,
        "A control plane can only be approved by the site's signed policy.",
        "Enroll the machine in the site, in the group control_planes, then apply the policy.",
        "ansible-playbook attested.kubernetes.policy",
    )
    IDENTITY_NODE_TAKEN = _row(
        Coarse.REFUSED,
        "An unknown machine requests the name of a node that is registered with another TPM.",
        "After a replaced mainboard or TPM run replace. For the other key of the same TPM enroll with -e "
        "attested_enroll_second_key=true. Otherwise another machine impersonates the node.",
        "ansible-playbook attested.kubernetes.replace -e confirm=NODE",
    )
    IDENTITY_NOT_FOUND = _row(
        Coarse.LOCAL,
        "The name does not match exactly one identity or the node of one identity.",
        "Use one of the names in the list.",
        "kubectl get nodeidentities",
    )
    IDENTITY_PENDING = _row(
        Coarse.REFUSED,
        "The machine proved its endorsement key and waits for an admin's approval.",
        "Approve or refuse the machine.",
        "ansible-playbook attested.kubernetes.approve -e confirm=IDENTITY -e node=NAME",
    )
    IDENTITY_RATE = _row(
        Coarse.BUSY,
        "One verified machine requests tickets or pushes evidence more often than is allowed.",
        "The machine may ask again after the time in the answer. Find out why it repeats its requests.",
        "journalctl -u attested-key-service",
    )
    IDENTITY_REFUSED = _row(
        Coarse.REFUSED,
        "An admin refused this machine.",
        "Set the admission of the identity to Approved if the machine may join.",
        "ansible-playbook attested.kubernetes.policy",
    )
    IDENTITY_REVOKED = _row(
        Coarse.REFUSED,
        "This machine's identity was revoked.",
        "Find out why it was revoked. Only the site's policy key can undo a mistaken revocation.",
        "ansible-playbook attested.kubernetes.policy -e reinstate=NODE",
    )
    IDENTITY_UNKNOWN = _row(
        Coarse.REFUSED,
        "No identity has this endorsement key.",
        "Enroll the machine if it belongs to this site.",
        "ansible-playbook attested.kubernetes.enroll",
    )
    IDENTITY_UNKNOWN_RATE = _row(
        Coarse.BUSY,
        "Machines that are not enrolled request tickets more often than the API may be queried for them.",
        "A newly enrolled machine retries by itself. The log names each address; find the one that asks most often.",
        "journalctl -u attested-join-service -u attested-key-service",
    )
    IDENTITY_UNSIGNED = _row(
        Coarse.REFUSED,
        "The signed policy does not name the identity of a control plane.",
        "An object in the API is not enough for a control plane: add the machine to the site and apply the policy.",
        "ansible-playbook attested.kubernetes.policy",
    )
    IMAGE_IMPORT_FAILED = _row(
        Coarse.LOCAL,
        "containerd did not import the images of the bundle.",
        "Read containerd's log, repair its cause and run again.",
        "journalctl -u containerd",
    )
    IMAGE_MALFORMED = _row(
        Coarse.LOCAL,
        "The file is not an EFI program, or not a unified kernel image.",
        "Give the image from the EFI system partition, for example EFI/Linux/*.efi.",
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
        "The connection to the machine ended before its answer; the work on the machine continues.",
        "Run init again: it finds the running work and follows it.",
        "ansible-playbook attested.kubernetes.init",
    )
    INIT_CERTIFICATE_FOREIGN = _row(
        Coarse.LOCAL,
        "The certificate that the machine returned, after init or to kubeconfig, is not for the admin's own key.",
        "Do not use the returned files. Find out which other client requested init before you run init again.",
        "ansible-playbook attested.kubernetes.init",
    )
    INIT_CERTIFICATE_UNUSABLE = _row(
        Coarse.LOCAL,
        "The certificate that the machine returned, after init or to kubeconfig, has expired, names another user or "
        "group, or has another CA than the kubeconfig.",
        "Compare the clocks and the releases of both machines, then run the playbook again, which requests a new one.",
        "ansible-playbook attested.kubernetes.init",
    )
    INIT_HANDLE_UNKNOWN = _row(
        Coarse.REFUSED,
        "The bootstrapper has no init with this handle.",
        "The bootstrapper was restarted: run init again, which continues the work.",
        "ansible-playbook attested.kubernetes.init",
    )
    INIT_KUBECONFIG_HOLDS_KEY = _row(
        Coarse.LOCAL,
        "The kubeconfig that the machine returned after init contains a private key or another credential.",
        "Nothing was written. Update the collection on the machine, whose playbook must return a certificate alone.",
        "ansible-playbook attested.kubernetes.prepare",
    )
    INIT_KUBECONFIG_MALFORMED = _row(
        Coarse.LOCAL,
        "The machine did not return a kubeconfig with one cluster, its CA and one user's certificate after init.",
        "Nothing was written. Install the same version of the collection on both sides, then run init again.",
        "ansible-playbook attested.kubernetes.prepare",
    )
    INIT_REQUEST_DIFFERS = _row(
        Coarse.REFUSED,
        "The machine took its node lock for another init request.",
        "Repeat the request that was begun, or reset the machine and start again.",
        "ansible-playbook attested.kubernetes.init",
    )
    INTERNAL = _row(
        Coarse.UNAVAILABLE,
        "An unexpected error, so the request is refused.",
        "Read the service's log at the correlation id and report it.",
        "journalctl -u attested-join-service -u attested-key-service",
    )
    JOIN_CA_MISMATCH = _row(
        Coarse.LOCAL,
        "The pinned join CA did not issue the certificate of the service that answered.",
        "Either another service listens at this endpoint, or a load balancer terminates TLS; it must pass TCP "
        "through. If the join CA was replaced, run prepare again.",
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
        "Compare the clocks of both machines. If they agree, find out why the key service stopped renewing.",
        "timedatectl status",
    )
    JOIN_CLUSTER_MISMATCH = _row(
        Coarse.LOCAL,
        "The service's certificate is for another cluster.",
        "The endpoint or the cluster id in /etc/attested/node.yml belongs to another site.",
    )
    JOIN_REQUEST_NOT_UNDERSTOOD = _row(
        Coarse.LOCAL,
        "The join service could not parse the request.",
        "Install the same version of the collection on node and control plane.",
        "ansible-playbook attested.kubernetes.prepare",
    )
    JOIN_SERVICES_UNKNOWN = _row(
        Coarse.LOCAL,
        "This node has no address of another join service.",
        "Run init if this is the first control plane. Otherwise add the addresses of control planes or of their load "
        "balancer to the site and run prepare again.",
        "ansible-playbook attested.kubernetes.prepare",
    )
    JOIN_SERVICE_BUSY = _row(
        Coarse.LOCAL,
        "The join service is overloaded and named a time for the next request.",
        "The node retries by itself at that time. Raise the limits of the join service if this lasts.",
    )
    JOIN_SERVICE_UNAVAILABLE = _row(
        Coarse.LOCAL,
        "The join service answered that it is not ready.",
        "The node retries by itself. If this lasts, check both services of the control plane.",
        "systemctl status attested-join-service attested-key-service",
    )
    KERNEL_NOT_ACCEPTED = _row(
        Coarse.REFUSED,
        "The kernel release is not in the list of the profile.",
        "Boot the intended kernel, or add the release to kernels of the profile.",
        "ansible-playbook attested.kubernetes.policy --check --diff",
    )
    KEYS_ABSENT = _row(
        Coarse.UNAVAILABLE,
        "This control plane holds no key material.",
        "Run init: only init and recover deliver keys to a machine.",
        "ansible-playbook attested.kubernetes.init",
    )
    KEYS_DAMAGED = _row(
        Coarse.UNAVAILABLE,
        "The key material at rest cannot be decrypted or parsed.",
        "The file was changed or truncated: remove it and supply the secret again with init.",
        "ansible-playbook attested.kubernetes.init",
    )
    KEY_SERVICE_CALLER_UNKNOWN = _row(
        Coarse.LOCAL,
        "A process of another user called the key service.",
        "Only root and the join service may call it; find out which process of that user did.",
        "journalctl -u attested-key-service",
    )
    KEY_SERVICE_UNREACHABLE = _row(
        Coarse.UNAVAILABLE,
        "The key service of this control plane does not answer.",
        "Check the state of the service. After a changed boot it does not start.",
        "systemctl status attested-unlock attested-key-service",
    )
    KIT_DAMAGED = _row(
        Coarse.LOCAL,
        "A recovery kit is cut off or was altered.",
        "Take another copy of the kit, or write it again from the site. A mail program or an editor may have changed "
        "a few bytes.",
        "attested kit show FILE",
    )
    KIT_KEY_UNUSABLE = _row(
        Coarse.LOCAL,
        "The key to encrypt or open a recovery kit is malformed.",
        "Give recipients as age1…, identities as age-keygen writes them, and a token's RSA public key in PEM.",
        "attested kit write --help",
    )
    KIT_KEY_WRONG = _row(
        Coarse.LOCAL,
        "The given passphrase, age identity or token does not open the recovery kit or the backup.",
        "attested kit show says what the kit is encrypted to: give that passphrase, identity or token. A lost "
        "passphrase cannot be recovered; use another copy of the kit, or the shares.",
        "attested kit show FILE",
    )
    KIT_MALFORMED = _row(
        Coarse.LOCAL,
        "The file is not a recovery kit of this collection.",
        "Give the whole file as it was written; the parameters in its first lines have fixed bounds.",
        "attested kit show FILE",
    )
    KIT_OTHER_CLUSTER = _row(
        Coarse.LOCAL,
        "The recovery kit belongs to another cluster.",
        "Use the kit of this cluster; cluster.yml and the kit both name the cluster id.",
        "attested kit show FILE",
    )
    KIT_TOKEN_UNUSABLE = _row(
        Coarse.LOCAL,
        "The PKCS#11 token cannot be used.",
        "Name the path of its module, its label if there are several, and its PIN. Three wrong PINs may lock the "
        "token.",
        "pkcs11-tool --module MODULE --list-slots",
    )
    KUBEADM_OTHER_ROLE = _row(
        Coarse.LOCAL,
        "The machine already is a node of the other role.",
        "A node keeps its role. To change the role, reset the node first.",
        "ansible-playbook attested.kubernetes.reset --limit NODE -e confirm=NODE",
    )
    KUBEADM_PHASE_FAILED = _row(
        Coarse.LOCAL,
        "A phase of kubeadm ended with an error, or did not end within its time.",
        "Read the last lines of kubeadm, repair the cause and run again: completed phases are not repeated.",
        "ansible-playbook attested.kubernetes.node --limit NODE",
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
        "Read the last lines of kubectl. A control plane that has just started may need a moment; running again is "
        "safe.",
    )
    KUBELET_CREDENTIAL_INVALID = _row(
        Coarse.LOCAL,
        "The kubelet certificate of a ticket is not for this node and this key.",
        "Run again for a fresh ticket; report it if it comes back.",
    )
    KUBELET_CREDENTIAL_MISSING = _row(
        Coarse.LOCAL,
        "This machine has no kubelet certificate to renew.",
        "Run node: it delivers a certificate to a machine that is not a node yet or lost the file.",
        "ansible-playbook attested.kubernetes.node --limit NODE",
    )
    KUBELET_CREDENTIAL_REFUSED = _row(
        Coarse.LOCAL,
        "The API server rejects the kubelet's certificate.",
        "A renewal keeps the certificate before it. Compare the clocks, and the CA in /etc/kubernetes/kubelet.conf "
        "with that of the API server.",
        "journalctl -u attested-renew -n 20",
    )
    KUBELET_NOT_RUNNING = _row(
        Coarse.LOCAL,
        "The kubelet does not run although all its files are in place.",
        "Read the kubelet's log; the usual causes are the container runtime and the cgroup version.",
        "journalctl -u kubelet -n 50",
    )
    KUBERNETES_NOT_HEALTHY = _row(
        Coarse.LOCAL,
        "Kubernetes of this node did not become healthy with the new release or settings; what it ran before was put back.",
        "Read the journals of the kubelet and of containerd, and the log of the static Pod that the message names (crictl "
        "logs). The nodes after this one were not changed. Correct the cause, then upgrade again.",
        "ansible-playbook attested.kubernetes.upgrade",
    )
    LAB_PREREQUISITES_MISSING = _row(
        Coarse.LOCAL,
        "This host does not meet the requirements of a lab.",
        "Repair every item of the list, then run again; lab_install_packages: true installs the packages.",
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
        "The kernel command line does not set the lockdown mode that the profile requires.",
        "Add lockdown=integrity (or confidentiality) to the kernel command line. A lockdown that the kernel enables "
        "by itself is in no log.",
        "ansible-playbook attested.kubernetes.policy --check --diff",
    )
    LUKS_DAMAGED = _row(
        Coarse.LOCAL,
        "A copy of a disk's LUKS2 header is cut off, has a wrong checksum, or differs from the other copy.",
        "After a power cut run cryptsetup repair. Otherwise find out what changed the header, and restore a copy of "
        "it with cryptsetup luksHeaderRestore.",
        "cryptsetup luksDump DISK",
    )
    LUKS_DISK_DIFFERS = _row(
        Coarse.LOCAL,
        "The LUKS2 header is of another disk: its label or UUID is not the expected one.",
        "Check that the path names the intended disk: cryptsetup luksDump shows label and UUID. The key is derived "
        "from the UUID.",
        "cryptsetup luksDump DISK",
    )
    LUKS_HEADER_FOREIGN = _row(
        Coarse.LOCAL,
        "A disk's LUKS2 header does not have the encryption, integrity or layout of a state disk.",
        "Do not open the disk: a changed header can expose data or hide changed sectors. The message names the field."
        " Use a copy of the header from before the change.",
        "cryptsetup luksDump DISK",
    )
    LUKS_HEADER_MALFORMED = _row(
        Coarse.LOCAL,
        "A disk's LUKS2 header is not in the form that cryptsetup writes.",
        "Do not open the disk: two programs may read such a header differently. The message names the field. A newer "
        "cryptsetup may also have written it.",
        "cryptsetup luksDump DISK",
    )
    LUKS_KEYSLOTS = _row(
        Coarse.LOCAL,
        "A disk's LUKS2 header has other key slots than a state disk.",
        "A person who added a key slot can open the disk. Find out who did it, then remove the slot with cryptsetup "
        "luksKillSlot.",
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
        "A control plane or a disk uses a version of the master secret that the site does not have.",
        "The site is older than the cluster: restore the newer site or its newest recovery kit, then run again.",
        "ansible-playbook attested.kubernetes.secrets -e kit_from=FILE",
    )
    MASTER_SECRET_ROTATED = _row(
        Coarse.LOCAL,
        "A rotated master secret does not include the values of the first one, which shares and imports need.",
        "Keep a recovery kit of the cluster, which holds both. Shares can be made before the first rotation only.",
        "ansible-playbook attested.kubernetes.secrets -e attested_recovery_kit=FILE",
    )
    MASTER_SECRET_UNKNOWN = _row(
        Coarse.LOCAL,
        "No version of the master secret has this name.",
        "Use a name that the playbook shows with --check.",
        "ansible-playbook attested.kubernetes.rotate_master_secret --check",
    )
    MESSAGE_MALFORMED = _row(
        Coarse.INVALID,
        "A message of the other side cannot be parsed.",
        "Check that both sides run the same version and that nothing between them changes bytes.",
    )
    MESSAGE_TOO_LARGE = _row(
        Coarse.INVALID,
        "A message of the other side is larger than the limit.",
        "Check the size of the event logs on the machine that sent it.",
    )
    MODULE_FAILED = _row(
        Coarse.LOCAL,
        "A module of this collection did not run on the node.",
        "Run prepare first; it makes the interpreter that the module needs.",
        "ansible-playbook attested.kubernetes.prepare",
    )
    NEXT_BOOT_REFUSED = _row(
        Coarse.LOCAL,
        "The machine was not rebooted: the policy would refuse what it boots next.",
        "Compute or learn the profile of what it boots, name it in attested_profiles, and apply the policy.",
        "ansible-playbook attested.kubernetes.policy",
    )
    NEXT_BOOT_UNKNOWN = _row(
        Coarse.LOCAL,
        "The machine was not rebooted: what it boots next cannot be computed, as with GRUB and another kernel.",
        "Let one node lead: with -e canary=NODE it is rebooted, stays out of the cluster, and shows its new values for an "
        "approval. Or boot one image on all machines, whose values are computed.",
        "ansible-playbook attested.kubernetes.os_update -e canary=NODE",
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
        "The register of the node lock holds a value that its logs do not explain.",
        "Reboot the machine. If this repeats, a program extends that register without a log entry.",
    )
    NODELOCK_NOT_HELD = _row(
        Coarse.LOCAL,
        "A step that needs the node lock found the machine unlocked.",
        "Run init or node, which take the lock before this step.",
        "ansible-playbook attested.kubernetes.node --limit NODE",
    )
    NODELOCK_NO_TICKET = _row(
        Coarse.REFUSED,
        "The machine is locked to this cluster, but it got no ticket in this boot.",
        "On a control plane that unlocked itself run: systemctl start attested-reattest. Reboot any other machine and"
        " run node. If this repeats, a program on the machine takes or replays the lock.",
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
        "A profile pins the register of the node lock, whose value changes when the lock is taken.",
        "Remove that register from the profile; the lock uses register 15.",
        "ansible-playbook attested.kubernetes.policy",
    )
    NODELOCK_REGISTER_RESETTABLE = _row(
        Coarse.LOCAL,
        "The register chosen for the one-way lock can be reset while the machine runs.",
        "Choose a register from 0 to 15; 15 is the default.",
    )
    NODELOCK_UNCLAIMED = _row(
        Coarse.LOCAL,
        "The machine is locked to its cluster, and no file records which process took the lock.",
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
        "The machine measured another /etc/attested/node.yml than the profile names, or did not measure it.",
        "Find out who changed the file. If prepare did, add its sha256sum to nodeConfigs of the profile. A machine "
        "measures the file only if it boots from the signed site (attested_source_url).",
        "ansible-playbook attested.kubernetes.policy --check --diff",
    )
    NODE_JOURNAL_MALFORMED = _row(
        Coarse.LOCAL,
        "A record of this machine's own progress, as a node or of kubeadm, cannot be read.",
        "Reset the node and let it join again. On a machine that never joined, move the file that the message names "
        "away and run again.",
        "ansible-playbook attested.kubernetes.reset --limit NODE -e confirm=NODE",
    )
    NODE_NAME_MISMATCH = _row(
        Coarse.REFUSED,
        "The machine behind this name has the TPM of another node.",
        "Correct ansible_host in hosts.yml or host_vars of the two machines.",
        "ansible-playbook attested.kubernetes.enroll",
    )
    NODE_NOT_DRAINED = _row(
        Coarse.LOCAL,
        "Kubernetes could not move the Pods of the node in time; the node accepts Pods again, and nothing on it was changed.",
        "Look for a PodDisruptionBudget that allows no eviction, or for Pods without a controller. Correct that, or set "
        "attested_upgrade_drain_seconds or attested_upgrade_drain_force, then run the same playbook again.",
        "kubectl get poddisruptionbudgets --all-namespaces",
    )
    NODE_NOT_JOINED = _row(
        Coarse.LOCAL,
        "The machine did not become a node within the waiting time.",
        "Read the log of its bootstrapper, then run node again; attested_wait_seconds extends the waiting time.",
        "journalctl -u attested-bootstrapper -n 50",
    )
    NODE_NOT_REGISTERED = _row(
        Coarse.LOCAL,
        "The kubelet runs, but its Node object did not appear in time.",
        "Read in the kubelet's log why the API server refuses it or cannot be reached.",
        "journalctl -u kubelet -n 50",
    )
    NODE_PREREQUISITES_MISSING = _row(
        Coarse.LOCAL,
        "The machine does not meet the requirements of a node.",
        "Repair every item of the list, then run again; attested_install_packages: true installs the packages.",
        "ansible-playbook attested.kubernetes.prepare",
    )
    NONCE_MALFORMED = _row(
        Coarse.INVALID,
        "The other side did not send exactly one 32-byte nonce.",
        "The other side is not an attested service or client of a known version.",
    )
    NOT_TMPFS = _row(
        Coarse.LOCAL,
        "A secret would be written to a file system that is not in memory.",
        "Use a directory on tmpfs, for example below /run or /dev/shm.",
    )
    OPTION_INVALID = _row(
        Coarse.LOCAL,
        "An option of a module, or a variable of a site or of a playbook, has an unusable value.",
        "Correct the option that the message names: in group_vars or host_vars, on the command line, or in the task "
        "that calls the module.",
        "ansible-doc -t module -l attested.kubernetes",
    )
    PARTITION_TABLE_MALFORMED = _row(
        Coarse.LOCAL,
        "A disk or a disk image has an invalid partition table.",
        "Check it with fdisk -l. If the image is truncated, make it again; an extracted partition works as well.",
        "fdisk -l IMAGE",
    )
    PASSPHRASE_UNUSABLE = _row(
        Coarse.LOCAL,
        "The passphrase cannot be used.",
        "Use 12 to 256 printable ASCII characters that are the same on every keyboard layout. Several words are "
        "easier to remember than symbols.",
        "attested secret --help",
    )
    PCR_MISMATCH = _row(
        Coarse.REFUSED,
        "The machine booted software that no profile allows.",
        "Compare the listed events with your changes. Add an intended change to a profile.",
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
        "Check that the service runs, the name and port, and firewalls on the way. Trying again is safe.",
    )
    PLACE_TAKEN = _row(
        Coarse.LOCAL,
        "The path for a recovery kit or for shares holds something else.",
        "Name another path or an empty folder. Only a recovery kit of the same cluster is replaced. Shares of an "
        "earlier split stay valid: destroy them once the new ones are in their places.",
        "ls -la PATH",
    )
    PLAYBOOK_FAILED = _row(
        Coarse.LOCAL,
        "A task of the playbook that the machine runs on itself failed.",
        "Read the last lines of the step, repair the cause, and run init again: it continues the work.",
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
        "Apply the site: without the AttestationPolicy that the site signs, every request is refused.",
        "ansible-playbook attested.kubernetes.policy",
    )
    POLICY_EMPTY = _row(
        Coarse.REFUSED,
        "No profile is active, or a profile allows nothing, so every machine is refused.",
        "Learn a profile from a trusted machine, and apply it.",
        "ansible-playbook attested.kubernetes.policy",
    )
    POLICY_KEY_UNUSABLE = _row(
        Coarse.LOCAL,
        "The policy key is not an Ed25519 key.",
        "Restore policy-key.pem and cluster.yml as secrets wrote them.",
        "git log -- cluster.yml",
    )
    POLICY_NOT_ADOPTED = _row(
        Coarse.REFUSED,
        "This control plane has no record of the policy yet.",
        "Apply the site, which makes the record. A policy alone does not prove that it is the newest.",
        "ansible-playbook attested.kubernetes.policy",
    )
    POLICY_OUTLOOK_UNKNOWN = _row(
        Coarse.LOCAL,
        "It is unknown whether the next policy would refuse a node that has joined.",
        "The node's record holds no event log and the node did not answer. Start it, open its port 9091, or set "
        "confirm_refusals=true.",
        "ansible-playbook attested.kubernetes.verify",
    )
    POLICY_ROLLED_BACK = _row(
        Coarse.REFUSED,
        "The policy, or a record of it, is older than one that this control plane has seen.",
        "Check whether etcd or a disk was restored from a copy. Every request is refused until the site is applied "
        "again.",
        "ansible-playbook attested.kubernetes.policy",
    )
    POLICY_SIGNATURE = _row(
        Coarse.REFUSED,
        "The site of this cluster did not sign the policy in the API.",
        "Find out who wrote the object, then apply the site, which replaces it.",
        "ansible-playbook attested.kubernetes.policy",
    )
    POLICY_WOULD_REFUSE = _row(
        Coarse.LOCAL,
        "The next policy would refuse nodes that have joined.",
        "Learn their boot as a profile, add a temporary exception for them, or set confirm_refusals=true.",
        "ansible-playbook attested.kubernetes.policy -e confirm_refusals=true",
    )
    PORT_UNAVAILABLE = _row(
        Coarse.LOCAL,
        "The service cannot listen at its address and port.",
        "Find the process that uses the port (ss -ltnp) and stop it, or set another port.",
        "ss -ltnp",
    )
    PREDICTION_INCOMPLETE = _row(
        Coarse.LOCAL,
        "A register of the profile cannot be computed from the image.",
        "Boot the image on one machine and learn the profile there, or compute from the profile of a machine with the"
        " same initrd and stub.",
        "ansible-playbook attested.kubernetes.enroll -e profile=NAME",
    )
    PRESET_UNMET = _row(
        Coarse.LOCAL,
        "The machine does not fulfil the preset, so nothing was learned from it.",
        "Use auto, which covers what this machine loads. Or boot a unified kernel image (image), signed and alone "
        "(secure-boot).",
        "ansible-doc attested.kubernetes.attestation_verification",
    )
    PROFILES_UNLIKE = _row(
        Coarse.LOCAL,
        "Profiles that hold different registers, or that allow nothing, cannot be merged.",
        "Learn them with the same preset, or keep them separate: several profiles may be active at once.",
        "ansible-doc attested.kubernetes.measurement_profile",
    )
    PROFILE_EXISTS = _row(
        Coarse.LOCAL,
        "The site has another profile of this name.",
        "Use another name, or compare the two and replace the profile deliberately.",
        "ansible-playbook attested.kubernetes.enroll -e profile=NAME -e replace_profile=true",
    )
    PROFILE_EXPIRED = _row(
        Coarse.REFUSED,
        "The only profile that matches the machine was an exception and has expired.",
        "Boot the machine with software that a permanent profile allows, or extend the exception.",
        "ansible-playbook attested.kubernetes.policy --check --diff",
    )
    PROFILE_NOT_FOR_MACHINE = _row(
        Coarse.REFUSED,
        "The profiles that would allow this boot apply to other roles or machines.",
        "Find out why the machine booted software for another machine. If it may, add its role or endorsement key to "
        "the profile (roles, machines), then apply the policy.",
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
        "Install the same version of the collection on node and control plane. The lowest accepted version is set per"
        " cluster.",
        "ansible-playbook attested.kubernetes.prepare",
    )
    QUOTE_DIGEST = _row(
        Coarse.REFUSED,
        "The register values that were sent do not match the quoted digest.",
        "Read and quote again; a register may have been extended in between.",
    )
    QUOTE_MALFORMED = _row(
        Coarse.REFUSED,
        "The quote is not a valid TPM quote.",
        "Let the TPM of the machine make the quote.",
    )
    QUOTE_SELECTION = _row(
        Coarse.REFUSED,
        "The quote covers other registers than were requested.",
        "Run again. If this repeats, both sides disagree on the registers of the policy.",
    )
    QUOTE_SIGNATURE = _row(
        Coarse.REFUSED,
        "The quote's signature does not verify with the attestation key.",
        "Check for something between the two machines that changes the evidence, then ask again.",
    )
    RACE_LOST = _row(
        Coarse.REFUSED,
        "The machine already becomes a node in the other way (init or join).",
        "No action is needed: check what the machine has become.",
        "attested status",
    )
    REATTESTATION_FAILED = _row(
        Coarse.REFUSED,
        "A machine requests the renewal of its certificate, but its last evidence was refused.",
        "The Node shows the reason. Correct the cause or reboot the machine; accepted evidence ends the refusal.",
        "kubectl describe node NODE",
    )
    REATTESTATION_OVERDUE = _row(
        Coarse.REFUSED,
        "A machine requests the renewal of its certificate, but its last evidence is too old.",
        "Push evidence by hand on the machine, and read why its timer did not: journalctl -u attested-reattest.",
        "systemctl start attested-reattest",
    )
    RECOVERY_BROKEN_OFF = _row(
        Coarse.LOCAL,
        "The connection to a locked node broke, or the node is busy.",
        "Run recover again. A node that was opened in the meantime says so.",
        "ansible-playbook attested.kubernetes.recover",
    )
    RECOVERY_DISK_DIFFERS = _row(
        Coarse.REFUSED,
        "The sealed key is for another disk than the one in this machine.",
        "Check which disk is assigned to this node, and whether disks were exchanged between machines.",
        "ansible-playbook attested.kubernetes.recover",
    )
    RECOVERY_DISK_UNKNOWN = _row(
        Coarse.LOCAL,
        "Neither the site nor the recovery kit names the disk that is assigned to this node.",
        "If a control plane is up, run policy, which reads the assignment. Otherwise read the LUKS UUID at the "
        "machine and set attested_disk_id in the node's host_vars.",
        "ansible-playbook attested.kubernetes.recover",
    )
    RECOVERY_INCOMPLETE = _row(
        Coarse.LOCAL,
        "At least one node was not recovered; the table names the reason for each.",
        "Follow the table for each of these nodes and run it again. A second run does not affect open nodes.",
        "ansible-playbook attested.kubernetes.recover",
    )
    RECOVERY_KEY_WRONG = _row(
        Coarse.REFUSED,
        "The given key opens no slot of this disk's header; nothing was changed.",
        "Use the disk's assigned id, and the version of the master secret of this cluster that the disk was last "
        "keyed with.",
        "ansible-playbook attested.kubernetes.recover",
    )
    RECOVERY_RACE_LOST = _row(
        Coarse.REFUSED,
        "The cluster or another admin has opened this node's disk, or is opening it.",
        "Wait until the node is up; no other action is needed.",
        "ansible-playbook attested.kubernetes.status",
    )
    RELEASE_DOWNGRADE = _row(
        Coarse.LOCAL,
        "The wanted Kubernetes version is older than the version that a control plane runs.",
        "Kubernetes cannot be downgraded. Set attested_kubernetes_version to a version that is not older, or restore a "
        "backup into a new cluster.",
        "ansible-playbook attested.kubernetes.versions",
    )
    RELEASE_NOT_PREPARED = _row(
        Coarse.LOCAL,
        "The machine does not have the wanted release, or its kubeadm or kubelet has another version than the site or its "
        "ticket names.",
        "Prepare the machine with a bundle of the release that the message names as expected. On a member of the cluster "
        "prepare adds the release and changes nothing that runs.",
        "ansible-playbook attested.kubernetes.prepare --limit NODE",
    )
    RELEASE_SKEW = _row(
        Coarse.LOCAL,
        "The versions that the nodes run now are farther apart than Kubernetes supports.",
        "Upgrade the nodes that the message names first. A kubelet may be at most three minor versions older than the "
        "API server and never newer, and control planes at most one minor version apart.",
        "ansible-playbook attested.kubernetes.versions",
    )
    RELEASE_TABLE_MALFORMED = _row(
        Coarse.LOCAL,
        "A file of the table of releases is not as this collection wrote it.",
        "Install the collection again.",
        "ansible-galaxy collection install attested.kubernetes --force",
    )
    RELEASE_UNKNOWN = _row(
        Coarse.LOCAL,
        "The Kubernetes version is not in the table of releases, or this collection cannot make a bundle of it.",
        "Use a version that the playbook versions lists. A newer collection knows newer versions.",
        "ansible-playbook attested.kubernetes.versions",
    )
    REQUEST_INCOMPLETE = _row(
        Coarse.UNAVAILABLE,
        "A call was started, but its request did not arrive in time.",
        "Check the network between both machines. Many from one address are an attempt to occupy calls.",
        "journalctl -u attested-join-service",
    )
    REQUEST_TIMEOUT = _row(
        Coarse.UNAVAILABLE,
        "A request was not answered within its time.",
        "Read the log of the service at the correlation id. Trying again is safe.",
        "journalctl -u attested-join-service -u attested-key-service",
    )
    RESCUE_ASKS_AGAIN = _row(
        Coarse.LOCAL,
        "A machine that got the master secret requests a key again.",
        "The secret did not open its disk: compare it with the state file and the disk's header before you send it "
        "again.",
        "attested rescue keys --master-secret FILE --state FILE --disk DISK",
    )
    RESCUE_CALL_FAILED = _row(
        Coarse.LOCAL,
        "A Constellation node refused or aborted a call of the rescue kit.",
        "The message has the node's answer; its journal or serial console has the rest.",
        "attested rescue --help",
    )
    RESCUE_FILE_MALFORMED = _row(
        Coarse.LOCAL,
        "A file of a Constellation cluster cannot be read, or its measurements enforce nothing.",
        "Give constellation-conf.yaml, constellation-state.yaml (version v1) or the attestationConfig of the "
        "ConfigMap join-config unchanged. Measurements are 64 hex digits, in quotes where they are digits alone. A "
        "measurement salt can be given alone; disk keys do not need it.",
        "attested rescue --help",
    )
    RESCUE_MEASUREMENT_MISMATCH = _row(
        Coarse.LOCAL,
        "A Constellation node booted other software than its configuration expects.",
        "Send it no secret. Compare the image of the machine with the image that the configuration describes. If only"
        " register 15 differs, the cluster id is another one.",
        "attested rescue verify --help",
    )
    RESCUE_NO_DISK = _row(
        Coarse.LOCAL,
        "The file or disk has no LUKS2 header, neither at its start nor in a partition.",
        "Check its type with file and fdisk -l. On a virtual machine use the second disk, which holds Constellation's"
        " state. Convert a qcow2 or VMDK image to raw first.",
        "qemu-img convert -O raw IMAGE disk.img",
    )
    RESCUE_SEVERAL_DISKS = _row(
        Coarse.LOCAL,
        "More than one partition has a LUKS2 header.",
        "Choose one with --partition; attested rescue keys shows each with its UUID.",
        "attested rescue keys --master-secret FILE --disk DISK",
    )
    RESCUE_SOURCE_CHANGED = _row(
        Coarse.LOCAL,
        "A file changed while it was copied, so the copy is inconsistent.",
        "Mount the disk read-only and copy again, with the machine that it belongs to switched off.",
        "attested rescue mount --help",
    )
    RESET_INCOMPLETE = _row(
        Coarse.LOCAL,
        "Something of Kubernetes is still on the machine after a reset.",
        "Remove what the message names, or reboot the machine, and run again.",
    )
    RESTORE_CLUSTER_HEALTHY = _row(
        Coarse.LOCAL,
        "etcd on this control plane is healthy, so a backup does not replace it.",
        "If its data are to be replaced, repeat the command with -e confirm_healthy=true.",
        "ansible-playbook attested.kubernetes.status",
    )
    REVOCATION_UNSIGNED = _row(
        Coarse.UNAVAILABLE,
        "A revocation that this control plane knows is not in the signed policy, so a further control plane would not"
        " know it.",
        "Apply the site, which signs the revocation: the waiting machine then gets its ticket.",
        "ansible-playbook attested.kubernetes.policy",
    )
    ROLE_NOT_REGISTERED = _row(
        Coarse.REFUSED,
        "A machine requests another role than the registered one.",
        "The NodeIdentity names the role: remove the node and enroll it in the intended role.",
        "kubectl get attested",
    )
    ROTATION_NODES_UNREACHED = _row(
        Coarse.LOCAL,
        "A rotation needs exactly the nodes of the cluster that hold what is rotated.",
        "Start the machines that are down, run without --limit, and remove from the cluster the nodes that no longer "
        "exist.",
        "ansible-playbook attested.kubernetes.status",
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
        "A sealed answer cannot be opened on this machine, in this boot, for this exchange.",
        "Request a new answer. A recorded answer or one for another machine can never be opened.",
    )
    SECRETS_IN_CLEAR = _row(
        Coarse.REFUSED,
        "An init or recovery request holds the master secret in clear, or a URI of it, as Constellation's program "
        "sends it.",
        "Run init or recover from this collection: it sends each machine its secrets sealed to the machine's TPM "
        "after verification.",
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
        "The certificate chain and the key of a service do not match.",
        "The key service signs a new certificate; restart the join service if it does not request one by itself.",
        "systemctl restart attested-join-service",
    )
    SERVICES_NOT_HEALTHY = _row(
        Coarse.LOCAL,
        "The services of this node did not become healthy with the new release; the node was switched back.",
        "Read the journal of the service that the message names. The nodes after this one were not changed. Correct the cause "
        "or make another bundle, run prepare, then upgrade again.",
        "ansible-playbook attested.kubernetes.upgrade",
    )
    SERVING_EXTENSION_REFUSED = _row(
        Coarse.REFUSED,
        "A kubelet's request for a serving certificate has other extensions than subject alternative names, or a "
        "malformed one.",
        "A kubelet requests no other extensions: find out which other program on that machine uses its credential.",
        "kubectl get csr",
    )
    SERVING_NOT_JOINED = _row(
        Coarse.REFUSED,
        "A machine requests a serving certificate, but has not become a node.",
        "The request waits ten minutes for that; find out why the join does not complete.",
        "kubectl get attested",
    )
    SERVING_NOT_PROVEN = _row(
        Coarse.REFUSED,
        "A node requests a serving certificate, but has not pushed evidence yet.",
        "The request waits ten minutes for that. Push evidence by hand on the machine; its kubelet then repeats the "
        "request.",
        "systemctl start attested-reattest",
    )
    SERVING_REQUESTER_REFUSED = _row(
        Coarse.REFUSED,
        "The requester of a serving certificate is not a node, or is another machine than the current one of this "
        "node.",
        "Only a kubelet may ask, with the certificate from its machine's ticket: renew that certificate.",
        "attested renew --now",
    )
    SERVING_SAN_REFUSED = _row(
        Coarse.REFUSED,
        "A kubelet requests a serving certificate for a name or address that its identity does not have.",
        "Compare attested_node_ip in the site with the kubelet's --node-ip, then apply the site, which is the only "
        "source of addresses.",
        "ansible-playbook attested.kubernetes.policy",
    )
    SERVING_USAGE_REFUSED = _row(
        Coarse.REFUSED,
        "A kubelet's request for a serving certificate has other key usages than its signer allows.",
        "A kubelet requests no other usages: find out which other program on that machine uses its credential.",
        "kubectl get csr",
    )
    SHARES_EXPOSED = _row(
        Coarse.LOCAL,
        "A secret would be stored in clear inside a repository or a site.",
        "Name a folder outside of every site and working copy, best on tmpfs (/dev/shm) or on the intended medium.",
        "attested secret split --help",
    )
    SHARES_TOO_FEW = _row(
        Coarse.LOCAL,
        "There are not enough shares to rebuild the master secret.",
        "Fetch the missing shares. Fewer shares reveal nothing about the secret.",
        "attested secret show FILE",
    )
    SHARES_UNLIKE = _row(
        Coarse.LOCAL,
        "The shares do not belong together: they are of different clusters or splits, or one share was given twice.",
        "Run attested secret show on each share. Combine different shares that name the same cluster, master secret "
        "and split.",
        "attested secret show FILE",
    )
    SHARE_MALFORMED = _row(
        Coarse.LOCAL,
        "The text is not a share of a master secret.",
        "Give the whole text of a share, or its 62 words alone in their order. The lines above the words are optional.",
        "attested secret show FILE",
    )
    SHARE_PASSPHRASE = _row(
        Coarse.LOCAL,
        "The shares match each other, but the passphrase does not open the master secret.",
        "Use --passphrase and type the passphrase that was set at the split; each share says whether there is one.",
        "attested secret combine --help",
    )
    SHARE_WORDS_WRONG = _row(
        Coarse.LOCAL,
        "A word of a share is not in the word list, or the words fail the checksum.",
        "Compare the named word with the paper, then the words beside it. Often two words were exchanged or one was "
        "left out; the first four letters tell the words of the list apart.",
        "attested secret show FILE",
    )
    SITE_CLUSTER_FILE = _row(
        Coarse.LOCAL,
        "The site's cluster.yml is malformed.",
        "Restore the file from the site's repository; it is written by secrets and never edited by hand.",
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
        "The directory is not a site.",
        "Run in a site directory, or create one.",
        "ansible-playbook attested.kubernetes.scaffold -e site=DIRECTORY",
    )
    SITE_POLICY_EXCEPTION = _row(
        Coarse.LOCAL,
        "An exception from the policy is invalid.",
        "An exception names a profile, enrolled nodes, an end within 14 days and a reason; see "
        "docs/protocol/policy.md.",
        "ansible-playbook attested.kubernetes.policy --check",
    )
    SITE_SECRETS_INCOMPLETE = _row(
        Coarse.LOCAL,
        "Some or all of the site's secrets are missing.",
        "Restore the missing files from their backup. Remove all of them only if no cluster was made with them.",
        "ansible-playbook attested.kubernetes.secrets",
    )
    SITE_SECRET_MALFORMED = _row(
        Coarse.LOCAL,
        "A secret of the site cannot be used: the join CA, the master secret or the measurement salt.",
        "Restore the file of .secrets/ or the line of cluster.yml from its backup, or import Constellation's "
        "constellation-mastersecret.json unchanged. Never make a new join CA for a running cluster.",
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
        "The repository of the site does not have the branch that node.yml names.",
        "Compare attested_source_branch with the branches of the repository, and push the branch.",
        "journalctl -u attested-node-boot",
    )
    SOURCE_COLLECTION_DIFFERS = _row(
        Coarse.LOCAL,
        "The site names another version of the collection or another bundle than this machine has installed.",
        "Run prepare with the site's bundle, or commit the installed collection and bundle to attested-node.yml.",
        "journalctl -u attested-node-boot",
    )
    SOURCE_HISTORY_REWRITTEN = _row(
        Coarse.LOCAL,
        "The site's commit is not a descendant of the commit that this machine used before.",
        "Do not rewrite the branch. If the rewrite was intended, remove /var/lib/attested/source on the machine.",
        "journalctl -u attested-node-boot",
    )
    SOURCE_NOT_ACCEPTED = _row(
        Coarse.REFUSED,
        "The machine measured no site before its node lock, or a site without a signature of a signer in the profile.",
        "Boot it from the signed site (attested_source_url), or add the fingerprint to sourceSigners of the profile "
        "deliberately.",
        "ansible-playbook attested.kubernetes.policy --check --diff",
    )
    SOURCE_NOT_A_REPOSITORY = _row(
        Coarse.LOCAL,
        "The URL of the site's repository does not lead to a git repository.",
        "A proxy or a login page may answer, or the path is wrong. Open attested_source_url from the machine's "
        "network.",
        "journalctl -u attested-node-boot",
    )
    SOURCE_OBJECT_BROKEN = _row(
        Coarse.LOCAL,
        "An object of the site's repository is missing, damaged or rejected by git's own checks.",
        "Run git fsck --strict in the repository, and clone it again from a good copy.",
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
        "The SSH signature of the site's commit does not verify, or has an unsupported form.",
        "Sign with git's SSH format and a key of ssh-ed25519 or ecdsa-sha2-nistp256. If you did, the commit was "
        "changed.",
        "journalctl -u attested-node-boot",
    )
    SOURCE_SIGNER_UNKNOWN = _row(
        Coarse.LOCAL,
        "The site's commit is signed by a key that this machine has not pinned.",
        "Find out whose key it is. Add an intended key to attested_source_signers, then run prepare.",
        "journalctl -u attested-node-boot",
    )
    SOURCE_STATE_MALFORMED = _row(
        Coarse.LOCAL,
        "This machine's record of the site's last version cannot be read.",
        "Find out what changed /var/lib/attested/source. Without that directory only the minimum version of node.yml "
        "applies.",
        "journalctl -u attested-node-boot",
    )
    SOURCE_TOO_LATE = _row(
        Coarse.LOCAL,
        "This boot measured another commit or configuration before, or was locked to a cluster before it measured one.",
        "Restart the machine: a boot runs one commit. With attested_source_url only a boot from the signed site may "
        "make it a node.",
        "journalctl -u attested-node-boot",
    )
    SOURCE_TOO_OLD = _row(
        Coarse.REFUSED,
        "The machine measured an older version of its site before its node lock than the profile requires, or did not"
        " measure one.",
        "Restart the machine, which then takes the newest version, or lower sourceMinimum of the profile deliberately.",
        "ansible-playbook attested.kubernetes.policy --check --diff",
    )
    SOURCE_TREE_REFUSED = _row(
        Coarse.LOCAL,
        "The site's repository contains a submodule, a link out of the site, an unusual name or kind of file, or too "
        "much data.",
        "The message names the entry. Replace a link or a submodule by plain files, and keep bundles and images out "
        "of the repository. Find out who committed a name that git itself never creates.",
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
        "The site's commit has no SSH signature.",
        "Sign it with git -c gpg.format=ssh commit -S. A merge on a web page is signed by that page or not at all.",
        "journalctl -u attested-node-boot",
    )
    STATE_CHANGED = _row(
        Coarse.UNAVAILABLE,
        "This boot differs from the one that the keys are sealed to, so the TPM does not unseal them.",
        "If the change of firmware, kernel or command line was intended, add a profile for it and supply the secret "
        "again. Otherwise find out who changed the boot.",
        "ansible-playbook attested.kubernetes.init",
    )
    STATE_DISK_BUSY = _row(
        Coarse.LOCAL,
        "The disk for the node's state is in use.",
        "Unmount it, or remove it from its user (lsblk shows which), then try again.",
        "lsblk",
    )
    STATE_DISK_CLOSED = _row(
        Coarse.LOCAL,
        "The key of a state disk can only be exchanged while the disk is open.",
        "Let the node come up first, by a ticket of the cluster or by recover, then try again.",
        "ansible-playbook attested.kubernetes.status",
    )
    STATE_DISK_CORRUPT = _row(
        Coarse.LOCAL,
        "Sectors of a state disk were changed below the encryption.",
        "No changed data was read: reading such a sector is an error. Drain the node and find out whether the disk "
        "fails or who had access. Then reset the node and clear or replace the disk.",
        "journalctl --dmesg --boot --grep='INTEGRITY AEAD ERROR'",
    )
    STATE_DISK_COUNTER_LOST = _row(
        Coarse.LOCAL,
        "The TPM's counter is missing, or lower than the record in a state disk.",
        "The TPM was cleared or replaced, or the disk belongs to another machine: reset the node, or replace the "
        "machine.",
        "ansible-playbook attested.kubernetes.reset",
    )
    STATE_DISK_FOREIGN = _row(
        Coarse.LOCAL,
        "A disk is a state disk, but not the one that is assigned to this node.",
        "Check which disk is in the machine. If its data is not needed, name the disk in the option erase.",
    )
    STATE_DISK_HEADER_CHANGED = _row(
        Coarse.LOCAL,
        "A state disk's header differs from the one at the last unlock.",
        "The header was restored or edited: find out who did it, and restore the most recent copy of the header.",
    )
    STATE_DISK_HIDES_DATA = _row(
        Coarse.LOCAL,
        "A directory that the state disk is to be mounted over is not empty.",
        "Stop the program that writes there and move the content away. Otherwise it would be hidden and stay "
        "unencrypted.",
    )
    STATE_DISK_KEY = _row(
        Coarse.LOCAL,
        "The file with a state disk's key is missing, has a wrong size, or is readable by other users.",
        "The program that fetches the ticket writes it: 32 bytes, mode 0600, on tmpfs. Fetch the ticket again.",
        "ansible-playbook attested.kubernetes.node",
    )
    STATE_DISK_MISSING = _row(
        Coarse.LOCAL,
        "There is no disk at the path of the state disk.",
        "Check below /dev/disk/by-id which disks the machine has, and correct attested_state_disk.",
        "ls -l /dev/disk/by-id",
    )
    STATE_DISK_OCCUPIED = _row(
        Coarse.LOCAL,
        "The disk for the node's state is not empty.",
        "Save its data or choose another disk. If the data is not needed, name the disk in the option erase.",
        "wipefs --no-act DISK",
    )
    STATE_DISK_OPTION = _row(
        Coarse.LOCAL,
        "An option of a state disk has an unusable value.",
        "Correct the option that the message names. Give a disk by its path below /dev/disk/by-id, since names like "
        "/dev/sdb change from boot to boot. The option erase takes the last part of that path.",
        "ls -l /dev/disk/by-id",
    )
    STATE_DISK_RECORD = _row(
        Coarse.LOCAL,
        "A state disk has no record of its unlocks, or an unreadable one.",
        "The volume was exchanged or its file system is damaged. Find out which before you use it.",
    )
    STATE_DISK_ROLLED_BACK = _row(
        Coarse.LOCAL,
        "A state disk is in an older state than at its last unlock.",
        "The disk or its record was restored from a copy: do not trust its content. Reset the node and let it join "
        "again.",
        "ansible-playbook attested.kubernetes.reset",
    )
    STATE_DISK_TOO_LATE = _row(
        Coarse.LOCAL,
        "A state disk cannot be added to a node that has already joined.",
        "A state disk is made at the first join only. Remove attested_state_disk, or reset the node and let it join "
        "again.",
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
        "The support material of a machine is not in the form that this version writes.",
        "Run prepare on that machine with this version and run support_bundle again. The bundle has the material of "
        "all other machines.",
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
        "Start the guest without migration, and with multithreading or a provider's key only where the policy allows "
        "them.",
    )
    TEE_CERTIFICATE_MISMATCH = _row(
        Coarse.REFUSED,
        "The certificate of the report key is for another chip or another firmware version.",
        "Fetch the certificate for the chip and the TCB of the report, and store it with the guest.",
    )
    TEE_CHAIN_UNTRUSTED = _row(
        Coarse.REFUSED,
        "The certificate chain of a report or of its collateral does not end at the configured root.",
        "Use the manufacturer's chain for this processor family. A report with another chain does not come from such "
        "a processor.",
    )
    TEE_CHIP_UNKNOWN = _row(
        Coarse.REFUSED,
        "A confidential guest runs on a chip that is not in the policy.",
        "Add the chip id to the policy if the host may be used.",
    )
    TEE_COLLATERAL_EXPIRED = _row(
        Coarse.REFUSED,
        "A certificate, a revocation list or the TCB information is not valid at this time.",
        "Compare the clock of the verifier, then replace the collateral with a fresh copy from the manufacturer.",
    )
    TEE_COLLATERAL_MALFORMED = _row(
        Coarse.REFUSED,
        "The collateral of a confidential guest cannot be parsed.",
        "Fetch the file from the manufacturer again.",
    )
    TEE_DEBUG = _row(
        Coarse.REFUSED,
        "A confidential guest can be debugged by its host.",
        "Start the guest without the debug attribute: with it, the host reads its memory.",
    )
    TEE_KEY_REVOKED = _row(
        Coarse.REFUSED,
        "The manufacturer revoked a key in the chain of a report.",
        "Update the firmware of the platform and fetch new certificates.",
    )
    TEE_KEY_UNKNOWN = _row(
        Coarse.REFUSED,
        "A confidential guest names a key that is not enrolled.",
        "Enroll the key of the guest if it is to be a machine of this cluster.",
    )
    TEE_MEASUREMENT = _row(
        Coarse.REFUSED,
        "The launch measurement of a confidential guest is in no policy.",
        "Compare firmware, kernel and command line of the guest with those that the policy was made from.",
    )
    TEE_QE_IDENTITY = _row(
        Coarse.REFUSED,
        "The quote does not come from the manufacturer's quoting enclave in an accepted version.",
        "Update the platform's quoting enclave. Another enclave could sign any content for its host.",
    )
    TEE_QUOTE_REFUSED = _row(
        Coarse.REFUSED,
        "The verification library rejects a quote for a cause that has no code of its own.",
        "Read the library's message in the log of the verifier.",
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
        "A less privileged part of the guest requested the report.",
        "Request the report from VMPL 0.",
    )
    TICKET_EXPIRED = _row(
        Coarse.LOCAL,
        "A ticket has expired at the time of this machine's clock.",
        "Compare this machine's clock with the control plane's, then run again.",
        "timedatectl",
    )
    TICKET_HANDLE_UNKNOWN = _row(
        Coarse.LOCAL,
        "No ticket of this boot has this handle.",
        "Fetch a ticket first: a handle ends with the boot and with the use of the ticket.",
        "ansible-playbook attested.kubernetes.node",
    )
    TICKET_MALFORMED = _row(
        Coarse.INVALID,
        "A ticket has an invalid field.",
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
        "The machine itself gets no reason. The playbooks node and status show an admin the register and the event. "
        "On a control plane use kubectl describe joinattempts, or search the log for the correlation id.",
        "ansible-playbook attested.kubernetes.status",
    )
    TICKET_SIGNATURE = _row(
        Coarse.LOCAL,
        "The pinned join CA did not sign the ticket for this exchange.",
        "Another party answered or changed bytes between this node and the key service. Compare the join CA pin in "
        "node.yml with cluster.yml.",
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
        "Find the program with fuser /dev/tpm0 /dev/tpmrm0, prefer device:/dev/tpmrm0, then run again.",
    )
    TPM_COMMAND_FAILED = _row(
        Coarse.LOCAL,
        "The TPM refused a command for a reason that has no code of its own.",
        "The message names the command and the TPM's response code. A power cycle clears most lasting faults.",
    )
    TPM_CREDENTIAL_REFUSED = _row(
        Coarse.LOCAL,
        "The TPM did not activate a credential: it is for another EK or AK, or was changed.",
        "Request a new challenge. If this repeats, enroll the machine again.",
        "ansible-playbook attested.kubernetes.enroll",
    )
    TPM_EK_MISMATCH = _row(
        Coarse.LOCAL,
        "The certificate in the TPM is not for the endorsement key that the TPM makes.",
        "Report it to the manufacturer of the machine. A key from a manufacturer's own template is not supported.",
    )
    TPM_EK_UNSUPPORTED = _row(
        Coarse.REFUSED,
        "The endorsement key is neither RSA-2048 (template L-1) nor ECC P-256 (template L-2).",
        "Use a TPM with one of these; for swtpm make the certificate with swtpm_setup without --ecc.",
    )
    TPM_HIERARCHY_AUTH = _row(
        Coarse.LOCAL,
        "The owner or endorsement hierarchy of the TPM has an authorization value that the machine does not have.",
        "Set attested_tpm_owner_auth and attested_tpm_endorsement_auth (vaulted) for this machine and run the "
        "playbook again, also after each reboot. Or set an empty value with tpm2_changeauth.",
    )
    TPM_HIERARCHY_DISABLED = _row(
        Coarse.LOCAL,
        "The owner or endorsement hierarchy of the TPM is disabled, so its keys cannot be created or used.",
        "Enable the hierarchy in the firmware setup, then power the machine off and on. A program that called "
        "TPM2_HierarchyControl has the same effect until the next reset.",
    )
    TPM_LOCKOUT = _row(
        Coarse.LOCAL,
        "The TPM is in dictionary attack lockout after too many wrong authorization values.",
        "Find the program that tries them. End the lockout with tpm2_dictionarylockout --clear-lockout, or wait until"
        " the TPM's recovery time has passed.",
    )
    TPM_MALFORMED = _row(
        Coarse.INVALID,
        "Bytes are not a valid TPM structure.",
        "Check that both sides run the same version. A TPM that sends such an answer is faulty or not the expected "
        "one.",
    )
    TPM_NV_FOREIGN = _row(
        Coarse.LOCAL,
        "The NV index of the policy counter in the TPM is undefined or has another content.",
        "Read it with tpm2_nvreadpublic 0x1a77e57. If no other program uses it, undefine it and apply the site again.",
        "ansible-playbook attested.kubernetes.policy",
    )
    TPM_PCR_UNAVAILABLE = _row(
        Coarse.LOCAL,
        "The TPM has no active bank of the required hash algorithm, or does not have that register.",
        "Activate the SHA-256 bank in the firmware setup (tpm2_pcrallocate sha256:all), then reboot.",
    )
    TPM_POLICY_MISMATCH = _row(
        Coarse.LOCAL,
        "The registers differ from those that a secret is sealed to: this boot differs, or the node is already locked.",
        "If the new boot is intended, supply the secret again with init or recover.",
    )
    TPM_RESET_BETWEEN = _row(
        Coarse.REFUSED,
        "The TPM was reset, or its clock went back, during one exchange.",
        "Run again. If this repeats, the machine reboots or another program resets its TPM.",
    )
    TPM_RESPONSE_FORGED = _row(
        Coarse.LOCAL,
        "The TPM's response does not have the HMAC of the authorization session.",
        "Something between this program and the TPM changes the traffic: do not trust this machine.",
    )
    TPM_ROLLED_BACK = _row(
        Coarse.REFUSED,
        "A counter of the TPM, or its clock within one run, is lower than at the machine's last ticket.",
        "A TPM does not count backwards: find out who cleared it or restored an older state (docs/machines.md says "
        "how to accept a cleared TPM). Two requests of one machine may also have overlapped: run again.",
        "kubectl get joinattempts",
    )
    TPM_UNREACHABLE = _row(
        Coarse.LOCAL,
        "No TPM answers at this address, or the connection to it broke.",
        "Check that the machine has a TPM 2.0 (ls -l /dev/tpmrm0), that the firmware enables it, and the tcti option.",
    )
    VARIANT_NOT_ADMITTED = _row(
        Coarse.REFUSED,
        "A machine requests a ticket with evidence that can be verified but does not permit joining.",
        "Use a machine with a TPM 2.0. The documentation of the attestation variants says which of them permit "
        "joining.",
    )
    VARIANT_UNKNOWN = _row(
        Coarse.REFUSED,
        "The evidence is of a kind that this release does not verify.",
        "Use a machine with a TPM 2.0.",
    )
    VERIFICATION_BUSY = _row(
        Coarse.BUSY,
        "Too many callers wait for a quote of this machine's TPM.",
        "Ask again later. The log names each address; find the one that asks most often.",
        "journalctl -u attested-verification-service",
    )
    VERIFICATION_LATER = _row(
        Coarse.LOCAL,
        "The verification service of a node gets more requests than it allows, from this site or from all clients.",
        "Ask again after the time in the answer, or over ssh. The log of the service names each address.",
        "ansible-playbook attested.kubernetes.verify",
    )
    VERIFICATION_RATE = _row(
        Coarse.BUSY,
        "One address, or all together, request evidence of this machine more often than is allowed.",
        "Ask again later. Find the address that asks most often, or raise questions_per_second of the verification "
        "service.",
        "journalctl -u attested-verification-service",
    )
    VERIFICATION_UNANSWERED = _row(
        Coarse.LOCAL,
        "The answer of the machine at this address is not that of a verification service.",
        "Search the log of the verification service there for the correlation id, and compare the versions of both "
        "sides.",
        "journalctl -u attested-verification-service",
    )
    VERIFICATION_UNAVAILABLE = _row(
        Coarse.LOCAL,
        "The verification service of a node does not answer in time, or its witness cannot use the TPM.",
        "Ask again in a minute, or over ssh. If this lasts, check attested-verification-service and attested-witness "
        "on the node.",
        "ansible-playbook attested.kubernetes.verify -e attested_verify_over=ssh",
    )
    WITNESS_UNREACHABLE = _row(
        Coarse.UNAVAILABLE,
        "The verification service cannot reach the witness on the same machine, which alone uses the TPM.",
        "Check the service attested-witness on this machine.",
        "journalctl -u attested-witness",
    )
