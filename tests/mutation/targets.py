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
    "atls/binding.py": (f"{_UNIT}/atls/test_binding.py", f"{_UNIT}/attestation/test_challenge.py"),
    "atls/pins.py": (f"{_UNIT}/atls/test_pins.py",),
    "attestation/challenge.py": (f"{_UNIT}/attestation/test_challenge.py",),
    "attestation/ek_certificate.py": (f"{_UNIT}/attestation/test_ek_certificate.py", _WEAK_KEYS),
    "attestation/eventlog/facts.py": (f"{_UNIT}/attestation/eventlog/test_facts.py",),
    "attestation/eventlog/nodelock.py": (f"{_UNIT}/attestation/eventlog/test_nodelock.py",),
    "attestation/eventlog/replay.py": (f"{_UNIT}/attestation/eventlog/test_replay.py",),
    "attestation/sev_snp/verifier.py": (f"{_UNIT}/attestation/sev_snp",),
    "attestation/tpm2/verifier.py": (
        f"{_UNIT}/attestation/tpm2",
        f"{_UNIT}/attestation/test_verify.py",
        _WEAK_KEYS,
    ),
    "attestation/verified.py": (f"{_UNIT}/attestation/test_verify.py",),
    "attestation/verify.py": (f"{_UNIT}/attestation/test_verify.py", "tests/component/attestation"),
    "certificates/leaf.py": (f"{_UNIT}/certificates/test_leaf.py", f"{_UNIT}/certificates/test_renewal.py"),
    "endpoint/splice.py": (f"{_UNIT}/endpoint/test_splice.py",),
    "etcd/gateway.py": (f"{_UNIT}/etcd/test_gateway.py",),
    "join/ticket.py": (f"{_UNIT}/join/test_ticket.py",),
    "keys/continuity.py": (f"{_UNIT}/keys/test_continuity.py",),
    "keys/control_plane.py": (f"{_UNIT}/keys/test_control_plane.py",),
    "keys/derive.py": (f"{_UNIT}/keys/test_derive.py",),
    "keys/issue.py": (f"{_UNIT}/join/test_ticket.py",),
    "keys/kubelet.py": (f"{_UNIT}/keys/test_kubelet.py",),
    "keys/reattest.py": (
        f"{_UNIT}/keys/test_reattest.py",
        f"{_UNIT}/keys/test_strangers.py",
        "tests/attacks/test_s59_reattestation.py",
    ),
    "keys/release.py": (f"{_UNIT}/keys/test_release.py", f"{_UNIT}/keys/test_releaser.py"),
    "keys/releaser.py": (
        *(f"{_UNIT}/keys/test_releaser{part}.py" for part in ("", "_control_plane", "_objects", "_order")),
        f"{_UNIT}/keys/test_strangers.py",
        "tests/attacks/test_s51_unproven_release.py",
    ),
    "keys/ring.py": (f"{_UNIT}/keys/test_ring.py",),
    "keys/rotation.py": (f"{_UNIT}/keys/test_rotation.py",),
    "keys/serving_approver.py": (f"{_UNIT}/keys/test_serving_approver.py",),
    "keys/serving_request.py": (f"{_UNIT}/keys/test_serving_request.py",),
    "keys/standing.py": (f"{_UNIT}/keys/test_standing.py",),
    "kubeadm/rotation.py": (f"{_UNIT}/kubeadm/test_rotation.py",),
    "node/join_claim.py": (f"{_UNIT}/node/test_join_claim.py",),
    "node/renewal.py": (f"{_UNIT}/node/test_renewal.py",),
    "nodelock/form.py": ("tests/component/nodelock/test_form.py",),
    "nodelock/lock.py": (f"{_UNIT}/nodelock",),
    "nodelock/log.py": (f"{_UNIT}/nodelock",),
    "nodelock/paths.py": (f"{_UNIT}/nodelock",),
    "policy/assertions.py": (f"{_UNIT}/policy/test_assertions.py",),
    "policy/cluster.py": (f"{_UNIT}/policy/test_cluster.py",),
    "policy/decision.py": tuple(
        f"{_UNIT}/policy/test_{name}.py" for name in ("algebra", "assertions", "decision", "refusal")
    ),
    "policy/facts.py": (f"{_UNIT}/policy/test_facts.py",),
    "policy/identity.py": (f"{_UNIT}/policy/test_identity.py",),
    "policy/in_force.py": tuple(
        f"{_UNIT}/policy/test_{name}.py" for name in ("assertions", "cluster", "identity", "in_force")
    ),
    "policy/profile.py": (f"{_UNIT}/policy/test_profile.py",),
    "policy/signature.py": (f"{_UNIT}/policy/test_cluster.py", f"{_UNIT}/policy/test_record.py"),
    "policy/standing.py": (f"{_UNIT}/policy/test_standing.py",),
    "sealing/box.py": (f"{_UNIT}/sealing",),
    "statedisk/apply.py": tuple(f"{_UNIT}/statedisk/test_{name}.py" for name in ("apply", "rekey")),
}
"""A file below plugins/module_utils, and its tests: unit, component, and an attack where that tries the same."""

API_BED: dict[str, tuple[str, ...]] = {
    "keys/reattest.py": ("tests/api_bed/test_reattest.py",),
    "keys/release.py": ("tests/api_bed/test_tickets.py",),
    "keys/releaser.py": ("tests/api_bed/test_tickets.py", "tests/api_bed/test_policy.py"),
    "policy/in_force.py": ("tests/api_bed/test_policy.py",),
}
"""What else a survivor of a file is held against: real services beside a real API server, started with the mutant."""

MUTANT = "ATTESTED_MUTANT"
"""Names the mutant (``file#number``) that an interpreter imports."""

NUMBERED = {
    "atls/pins.py",
    "attestation/ek_certificate.py",
    "attestation/sev_snp/verifier.py",
    "attestation/tpm2/verifier.py",
    "attestation/verify.py",
    "certificates/leaf.py",
    "join/ticket.py",
    "keys/control_plane.py",
    "keys/kubelet.py",
    "keys/reattest.py",
    "keys/release.py",
    "keys/releaser.py",
    "keys/serving_approver.py",
    "keys/serving_request.py",
    "node/renewal.py",
    "policy/identity.py",
    "policy/in_force.py",
    "policy/signature.py",
    "policy/standing.py",
}
"""Files whose docstrings number their checks: nothing may survive there, listed or not."""
