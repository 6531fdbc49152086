# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options, described once: each piece has the name of its documentation fragment (keep both in sync)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class ArgumentSpec:
    """The options of a module and the rules between them, in Ansible's own terms.

    ``options`` is what AnsibleModule calls ``argument_spec``; the other fields have its names.
    """

    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    mutually_exclusive: tuple[tuple[str, ...], ...] = ()
    required_together: tuple[tuple[str, ...], ...] = ()
    required_one_of: tuple[tuple[str, ...], ...] = ()
    required_if: tuple[tuple[Any, ...], ...] = ()
    required_by: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def merged(self, *others: ArgumentSpec) -> ArgumentSpec:
        """Return the union of this spec and ``others``; a later piece wins where two name one option."""
        both = self
        for other in others:
            both = ArgumentSpec(
                options={**both.options, **other.options},
                mutually_exclusive=both.mutually_exclusive + other.mutually_exclusive,
                required_together=both.required_together + other.required_together,
                required_one_of=both.required_one_of + other.required_one_of,
                required_if=both.required_if + other.required_if,
                required_by={**both.required_by, **other.required_by},
            )
        return both

    def arguments(self) -> dict[str, Any]:
        """Return the keyword arguments that AnsibleModule and ActionBase.validate_argument_spec take."""
        return {
            "argument_spec": {name: dict(option) for name, option in self.options.items()},
            "mutually_exclusive": [list(names) for names in self.mutually_exclusive],
            "required_together": [list(names) for names in self.required_together],
            "required_one_of": [list(names) for names in self.required_one_of],
            "required_if": [list(rule) for rule in self.required_if],
            "required_by": {name: list(names) for name, names in self.required_by.items()},
        }


def tpm_spec() -> ArgumentSpec:
    """How the TPM is reached; documented in the fragment ``tpm``."""
    return ArgumentSpec(options={"tcti": {"type": "str", "default": "device:/dev/tpmrm0"}})


def tpm_timeout_spec() -> ArgumentSpec:
    """How long to wait for the TPM; documented in the fragment ``tpm.timeout``."""
    return ArgumentSpec(options={"tpm_timeout_seconds": {"type": "int", "default": 10}})


def node_config_spec() -> ArgumentSpec:
    """Where the node's own configuration lies; documented in the fragment ``node_config``."""
    return ArgumentSpec(options={"node_config": {"type": "path", "default": "/etc/attested/node.yml"}})


def site_spec() -> ArgumentSpec:
    """Where the site lies; documented in the fragment ``site``."""
    return ArgumentSpec(options={"site": {"type": "path", "required": True}})


def site_policy_spec() -> ArgumentSpec:
    """Where the site's profiles lie; documented in the fragment ``site.policy``."""
    return ArgumentSpec(options={"policy_directory": {"type": "path"}})


def site_verifier_spec() -> ArgumentSpec:
    """Which profiles and makers of TPMs the site believes; documented in the fragment ``site.verifier``."""
    return ArgumentSpec(
        options={
            "profiles": {"type": "list", "elements": "str", "default": []},
            "endorsement_authorities": {"type": "list", "elements": "path", "default": []},
        }
    )


def kubeadm_spec() -> ArgumentSpec:
    """How kubeadm sees a node; documented in the fragment ``kubeadm``."""
    return ArgumentSpec(
        options={
            "node_ip": {"type": "str", "required": True},
            "cri_socket": {"type": "str", "default": "unix:///run/containerd/containerd.sock"},
            "ignore_preflight_errors": {"type": "list", "elements": "str", "default": []},
            "allow_cgroup_v1": {"type": "bool", "default": False},
        }
    )
