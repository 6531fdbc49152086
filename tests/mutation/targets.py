# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The deciding code, and the tests that concern each file."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
UTILS = ROOT / "plugins" / "module_utils"
SURVIVORS = Path(__file__).with_name("survivors.yml")

_UNIT = "tests/unit/plugins/module_utils"
_WEAK_KEYS = "tests/attacks/test_s52_weak_keys.py"

TARGETS: dict[str, tuple[str, ...]] = {
    "transport/binding.py": (f"{_UNIT}/transport/test_binding.py", f"{_UNIT}/evidence/test_challenge.py"),
    "transport/pins.py": (f"{_UNIT}/transport/test_pins.py",),
    "evidence/challenge.py": (f"{_UNIT}/evidence/test_challenge.py",),
    "evidence/ek_certificate.py": (f"{_UNIT}/evidence/test_ek_certificate.py", _WEAK_KEYS),
    "evidence/eventlog/facts.py": (f"{_UNIT}/evidence/eventlog/test_facts.py",),
    "evidence/eventlog/nodelock.py": (f"{_UNIT}/evidence/eventlog/test_nodelock.py",),
    "evidence/eventlog/replay.py": (f"{_UNIT}/evidence/eventlog/test_replay.py",),
    "evidence/sev_snp.py": (f"{_UNIT}/evidence/sev_snp", f"{_UNIT}/evidence/test_appraisal.py"),
    "evidence/tpm2.py": (
        f"{_UNIT}/evidence/tpm2",
        f"{_UNIT}/evidence/test_appraisal.py",
        f"{_UNIT}/evidence/test_verify.py",
        _WEAK_KEYS,
    ),
    "evidence/verify.py": (f"{_UNIT}/evidence/test_verify.py", "tests/component/attestation"),
    "kubeadm/leaf_certificate.py": (
        f"{_UNIT}/kubeadm/certificates/test_leaf.py",
        f"{_UNIT}/kubeadm/certificates/test_renewal.py",
    ),
    "admin/listed_machines.py": (f"{_UNIT}/admin/test_listed_machines.py",),
    "evidence/image/next_boot.py": (f"{_UNIT}/evidence/image/test_next_boot.py",),
    "node/boot_entry.py": (f"{_UNIT}/node/test_boot_entry.py",),
    "kubeadm/site_settings.py": (f"{_UNIT}/kubeadm/test_site_settings.py",),
    "kubeadm/endpoint_splice.py": (f"{_UNIT}/kubeadm/test_endpoint_splice.py",),
    "kubeadm/etcd_client.py": (f"{_UNIT}/kubeadm/test_etcd_client.py",),
    "services/received_ticket.py": (f"{_UNIT}/services/test_received_ticket.py",),
    "keyservice/control_plane.py": (f"{_UNIT}/keyservice/test_control_plane.py",),
    "keyservice/derive.py": (f"{_UNIT}/keyservice/test_derive.py",),
    "keyservice/issue.py": (f"{_UNIT}/services/test_received_ticket.py",),
    "keyservice/kubelet.py": (f"{_UNIT}/keyservice/test_kubelet.py",),
    "keyservice/reattest.py": (
        f"{_UNIT}/keyservice/test_reattest.py",
        f"{_UNIT}/keyservice/test_releaser_order.py",
        f"{_UNIT}/keyservice/test_strangers.py",
        "tests/attacks/test_s59_reattestation.py",
    ),
    "keyservice/release.py": tuple(
        f"{_UNIT}/keyservice/test_{name}.py" for name in ("continuity", "release", "releaser")
    ),
    "keyservice/releaser.py": (
        *(f"{_UNIT}/keyservice/test_releaser{part}.py" for part in ("", "_control_plane", "_objects", "_order")),
        f"{_UNIT}/keyservice/test_strangers.py",
        "tests/attacks/test_s51_unproven_release.py",
    ),
    "keyservice/ring.py": (f"{_UNIT}/keyservice/test_ring.py",),
    "rotation/authorities.py": (f"{_UNIT}/rotation/test_authorities.py", f"{_UNIT}/kubeadm/authorities"),
    "rotation/encryption_key.py": (
        f"{_UNIT}/rotation/test_encryption_key.py",
        f"{_UNIT}/kubeadm/test_encryption_file.py",
    ),
    "rotation/engine.py": (f"{_UNIT}/rotation",),
    "rotation/master_secret.py": (f"{_UNIT}/rotation/test_master_secret.py",),
    "keyservice/serving_approver.py": tuple(
        f"{_UNIT}/keyservice/test_serving_{name}.py" for name in ("approver", "request")
    ),
    "keyservice/attestation_state.py": (f"{_UNIT}/keyservice/test_attestation_state.py",),
    "node/join_claim.py": (f"{_UNIT}/node/test_join_claim.py",),
    "node/renewal.py": (f"{_UNIT}/node/test_renewal.py",),
    "node/upgrade_plan.py": tuple(f"{_UNIT}/node/test_{name}.py" for name in ("kubernetes", "upgrade_plan")),
    "bundle/upgrade_path.py": (f"{_UNIT}/bundle/test_upgrade_path.py",),
    "evidence/node_lock.py": (
        *(f"{_UNIT}/evidence/test_{name}.py" for name in ("lock_log", "node_lock")),
        "tests/component/nodelock/test_form.py",
    ),
    "policy/assertions.py": tuple(f"{_UNIT}/policy/test_{name}.py" for name in ("assertions", "facts")),
    "policy/cluster.py": (f"{_UNIT}/policy/test_cluster.py",),
    "policy/decision.py": tuple(
        f"{_UNIT}/policy/test_{name}.py" for name in ("algebra", "assertions", "decision", "refusal")
    ),
    "policy/identity.py": (f"{_UNIT}/policy/test_identity.py",),
    "policy/in_force.py": tuple(
        f"{_UNIT}/policy/test_{name}.py" for name in ("assertions", "cluster", "identity", "in_force")
    ),
    "policy/profile.py": (f"{_UNIT}/policy/test_profile.py",),
    "policy/signature.py": (f"{_UNIT}/policy/test_cluster.py", f"{_UNIT}/policy/test_record.py"),
    "policy/standing.py": (f"{_UNIT}/policy/test_standing.py",),
    "transport/sealed_box.py": tuple(f"{_UNIT}/transport/test_{name}.py" for name in ("sealed_box", "to_key")),
    "disk/apply.py": tuple(f"{_UNIT}/disk/test_{name}.py" for name in ("apply", "rekey")),
}
"""A file below plugins/module_utils, and its tests: unit, component, and an attack where that tries the same."""

API_BED: dict[str, tuple[str, ...]] = {
    "keyservice/reattest.py": ("tests/api_bed/test_reattest.py",),
    "keyservice/release.py": ("tests/api_bed/test_tickets.py",),
    "keyservice/releaser.py": ("tests/api_bed/test_tickets.py", "tests/api_bed/test_policy.py"),
    "policy/in_force.py": ("tests/api_bed/test_policy.py",),
}
"""What else a survivor of a file is held against: real services beside a real API server, started with the mutant."""

MUTANT = "ATTESTED_MUTANT"
"""Names the mutant (``file#number``) that an interpreter imports."""

NUMBERED = {
    "transport/pins.py",
    "evidence/ek_certificate.py",
    "evidence/image/next_boot.py",
    "evidence/sev_snp.py",
    "evidence/tpm2.py",
    "evidence/verify.py",
    "kubeadm/leaf_certificate.py",
    "services/received_ticket.py",
    "keyservice/control_plane.py",
    "keyservice/kubelet.py",
    "keyservice/reattest.py",
    "keyservice/release.py",
    "keyservice/releaser.py",
    "keyservice/serving_approver.py",
    "node/boot_entry.py",
    "node/renewal.py",
    "policy/identity.py",
    "policy/in_force.py",
    "policy/signature.py",
    "policy/standing.py",
}
"""Files whose docstrings number their checks: nothing may survive there, listed or not."""
