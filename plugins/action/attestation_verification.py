# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Action of the module ``attestation_verification``: challenge the node, judge its evidence on the admin's machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ansible_collections.attested.kubernetes.plugins.module_utils.admin.enrolment import (
    chip_keys,
    known_first,
    read_delivered,
    vouch,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.identities import site_policy
from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import (
    ArgumentSpec,
    node_config_spec,
    site_policy_spec,
    site_spec,
    site_verifier_spec,
    tpm_timeout_spec,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.learning import (
    DEFAULT_REGISTERS,
    Preset,
    learn_preset,
    preset_registers,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.manifest import render_document, render_profile
from ansible_collections.attested.kubernetes.plugins.module_utils.result import Result
from ansible_collections.attested.kubernetes.plugins.module_utils.services.judge import found
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.binding import Purpose
from ansible_collections.attested.kubernetes.plugins.plugin_utils.site_action import SiteAction

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ansible_collections.attested.kubernetes.plugins.module_utils.admin.enrolment import ChipKeys
    from ansible_collections.attested.kubernetes.plugins.module_utils.admin.identities import InventoryNode
    from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.reading import BootLine
    from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.verify import VerifiedMachine


class ActionModule(SiteAction):
    """Verify one node: which TPM it has (enroll), or whether it satisfies the policy (verify)."""

    SPEC = site_spec().merged(
        site_policy_spec(),
        site_verifier_spec(),
        node_config_spec(),
        tpm_timeout_spec(),
        ArgumentSpec(
            options={
                "purpose": {"type": "str", "choices": ["enroll", "verify"], "default": "verify"},
                "learn_profile": {"type": "str"},
                "preset": {"type": "str", "choices": [one.value for one in Preset], "default": Preset.AUTO.value},
                "read_boot": {"type": "bool", "default": False},
                "insecure_first_use": {"type": "bool", "default": False},
                "replacing": {"type": "bool", "default": False},
                "second_key": {"type": "bool", "default": False},
                "delivered": {"type": "path"},
                "serial": {"type": "str", "default": ""},
            }
        ),
    )

    def perform(self, params: Mapping[str, Any], check_mode: bool) -> Result:  # noqa: ARG002  # it changes nothing
        """Request evidence, verify it, and return what was proven."""
        if Purpose(params["purpose"]) is Purpose.ENROLL:
            return self._enroll(params)
        return self._verify(params)

    def _enroll(self, params: Mapping[str, Any]) -> Result:
        whole = params["learn_profile"] or params["read_boot"]
        registers = preset_registers(Preset(params["preset"])) if whole else DEFAULT_REGISTERS
        machine = self.verifier(params).enroll(self.port(params), registers=registers)
        nodes = {node.name: node for node in self.nodes()}
        before = nodes.pop(self.node_name, None)
        first, second = known_first(machine, self._second(params, machine), before=before)
        known_by, warning = vouch(
            first,
            before=before,
            insecure_first_use=params["insecure_first_use"],
            replacing=params["replacing"],
            delivered=read_delivered(params["delivered"], serial=params["serial"]) if params["delivered"] else None,
        )
        keys = chip_keys(
            first,
            second,
            before=before,
            others=nodes.values(),
            insecure_first_use=params["insecure_first_use"],
        )
        values = {**_machine(machine), "known_by": known_by, **_named(keys, before)}
        if params["read_boot"]:
            values["boot"] = [_line(line) for line in machine.read()]
        if params["learn_profile"]:
            values["profile_manifest"] = self._learned(machine, params)
        return Result(values=values, warnings=(warning,) if warning else ())

    def _second(self, params: Mapping[str, Any], machine: VerifiedMachine) -> VerifiedMachine | None:
        if not params["second_key"]:
            return None
        return self.verifier(params).second_key(self.port(params, endorsement_key="second"), machine)

    def _learned(self, machine: VerifiedMachine, params: Mapping[str, Any]) -> str:
        profile = learn_preset(
            params["learn_profile"],
            Preset(params["preset"]),
            pcrs=machine.quote.pcrs,
            events=machine.events,
            facts=machine.facts,
            label=self.node_name,
        )
        return render_document(render_profile(profile))

    def _verify(self, params: Mapping[str, Any]) -> Result:
        policy = site_policy(self.profiles(params), self.nodes())
        verified, _handle = self.verifier(params).verify(
            self.port(params), purpose=Purpose.VERIFY, node=self.node_name, policy=policy
        )
        verdict = verified.verdict
        values = {"profile": verdict.profile, "posture": verdict.posture.value, "role": verified.identity.role.value}
        finding = found(verified, over="ssh").to_document()
        named = {"ek_sha256": verified.identity.ek_sha256}
        return Result(values={**_machine(verified.machine), **named, **values, "finding": finding})


def _line(line: BootLine) -> dict[str, Any]:
    return {"topic": line.topic, "text": line.text, "pcr": line.pcr, "event": line.index, "proven": line.proven}


def _named(keys: ChipKeys, before: InventoryNode | None) -> dict[str, Any]:
    """Return the key that names the machine, and every second key to record for this host."""
    aliases = dict(before.aliases) if before is not None else {}
    if keys.alias:
        aliases[keys.ek_sha256] = keys.alias
    written = {f"sha256:{ek}": f"sha256:{alias}" for ek, alias in aliases.items()}
    return {"ek_sha256": keys.ek_sha256, "ek_aliases": written}


def _machine(machine: VerifiedMachine) -> dict[str, Any]:
    return {
        "ek_sha256": machine.ek_sha256,
        "ek_proven": machine.ek_sha256,
        "ek_certified": machine.ek_certified,
        "nodelock": machine.lock.state.value,
        "registers": {str(pcr): value.hex() for pcr, value in sorted(machine.quote.pcrs.items())},
    }
