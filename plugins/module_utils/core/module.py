# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`run_module`, which every module's ``main`` calls; `Form`: a module as a value, which an action can run too."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ansible.module_utils.basic import AnsibleModule

from .._deps import require
from ..errors import AttestedError
from .files import require_tmpfs

if TYPE_CHECKING:
    from ..result import Diff, Result


# Results and errors of the domain as arguments of Ansible.


def result_of(result: Result, *, diff_mode: bool) -> dict[str, Any]:
    """Return the keyword arguments for ``exit_json``, which are also the result of an action."""
    arguments: dict[str, Any] = {**result.values, "changed": result.changed}
    if diff_mode and result.diff is not None:
        arguments["diff"] = _rendered(result.diff)
    if result.warnings:
        arguments["warnings"] = list(result.warnings)
    return arguments


def failure_of(error: AttestedError) -> dict[str, Any]:
    """Return the keyword arguments for ``fail_json``: message, reason code, hint and next command."""
    return {"msg": error.message, "reason": error.code, "hint": error.hint, "command": error.reason.value.command}


def _rendered(diff: Diff) -> dict[str, Any]:
    sides = {"before": diff.before, "after": diff.after}
    shown: dict[str, Any] = {name: side if isinstance(side, str) else dict(side) for name, side in sides.items()}
    if diff.header:
        shown |= {"before_header": diff.header, "after_header": diff.header}
    return shown


Run = Callable[[Mapping[str, Any], bool], "Result"]
"""``run(params, check_mode) -> Result``; raises `AttestedError`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """The options, the function and the libraries of a module, as in `run_module`.

    If a module has a form with the name ``FORM``, its action can run it too, in the process of the playbook.
    """

    spec: ArgumentSpec
    run: Run
    libraries: tuple[str, ...] = ()

    def perform(self, params: Mapping[str, Any], check_mode: bool) -> Result:
        """Check the libraries, then do the work; raises `AttestedError`."""
        require(*self.libraries)
        return self.run(params, check_mode)


def run_form(form: Form) -> None:
    """Run a module by its form."""
    run_module(form.spec, form.run, libraries=form.libraries)


def run_module(spec: ArgumentSpec, run: Run, *, libraries: tuple[str, ...] = (), carries_secrets: bool = False) -> None:
    """Parse the options of ``spec``, call ``run`` once and exit with its result.

    ``libraries`` names the Python packages that ``run`` needs ("cryptography", "grpc", "OpenSSL"). ``carries_secrets``
    refuses a temporary directory of Ansible that is not in memory (NOT_TMPFS), because Ansible stores the module's
    options in a file there.
    """
    module = AnsibleModule(supports_check_mode=True, **spec.arguments())
    try:
        require(*libraries)
        if carries_secrets:
            require_tmpfs(module.tmpdir)
        result = run(module.params, module.check_mode)
    except AttestedError as error:
        module.fail_json(**failure_of(error))
    module.exit_json(**result_of(result, diff_mode=module._diff))  # noqa: SLF001  # AnsibleModule has no public name for it


# Options that several modules share: each function has the name of its documentation fragment (keep both in sync).


@dataclass(frozen=True, slots=True, kw_only=True)
class ArgumentSpec:
    """The options of a module and the rules between them, in Ansible's terms.

    ``options`` is AnsibleModule's ``argument_spec``; the other fields have the names of its arguments.
    """

    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    mutually_exclusive: tuple[tuple[str, ...], ...] = ()
    required_together: tuple[tuple[str, ...], ...] = ()
    required_one_of: tuple[tuple[str, ...], ...] = ()
    required_if: tuple[tuple[Any, ...], ...] = ()
    required_by: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def merged(self, *others: ArgumentSpec) -> ArgumentSpec:
        """Return the union of this spec and ``others``; if two specs have the same option, the later one wins."""
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
        """Return the keyword arguments for AnsibleModule and ActionBase.validate_argument_spec."""
        return {
            "argument_spec": {name: dict(option) for name, option in self.options.items()},
            "mutually_exclusive": [list(names) for names in self.mutually_exclusive],
            "required_together": [list(names) for names in self.required_together],
            "required_one_of": [list(names) for names in self.required_one_of],
            "required_if": [list(rule) for rule in self.required_if],
            "required_by": {name: list(names) for name, names in self.required_by.items()},
        }


def tpm_spec() -> ArgumentSpec:
    """Return the option for the TPM's address; documented in the fragment ``tpm``."""
    return ArgumentSpec(options={"tcti": {"type": "str", "default": "device:/dev/tpmrm0"}})


def tpm_timeout_spec() -> ArgumentSpec:
    """Return the option for the TPM's time limit; documented in the fragment ``tpm.timeout``."""
    return ArgumentSpec(options={"tpm_timeout_seconds": {"type": "int", "default": 10}})


def tpm_logs_spec() -> ArgumentSpec:
    """Return the options for the paths of this boot's logs; documented in the fragment ``tpm.logs``."""
    return ArgumentSpec(
        options={
            "firmware_log": {"type": "path", "default": "/sys/kernel/security/tpm0/binary_bios_measurements"},
            "userspace_log": {"type": "path", "default": "/run/log/systemd/tpm2-measure.log"},
        }
    )


def kubectl_spec() -> ArgumentSpec:
    """Return the option for access to the Kubernetes API; documented in the fragment ``kubectl``."""
    return ArgumentSpec(options={"kubeconfig": {"type": "path", "default": "/etc/kubernetes/admin.conf"}})


def etcd_spec() -> ArgumentSpec:
    """Return the options for access to etcd; documented in the fragment ``etcd``."""
    return ArgumentSpec(
        options={
            "endpoint": {"type": "str", "default": "https://127.0.0.1:2379"},
            "certificates": {"type": "path", "default": "/etc/kubernetes/pki/etcd"},
        }
    )


def node_config_spec() -> ArgumentSpec:
    """Return the option for the path of the node's configuration; documented in the fragment ``node_config``."""
    return ArgumentSpec(options={"node_config": {"type": "path", "default": "/etc/attested/node.yml"}})


def rotation_spec() -> ArgumentSpec:
    """Return the option for the kind of keys to rotate; documented in the fragment ``rotation``."""
    kinds = ["authorities", "encryption_key", "master_secret"]
    return ArgumentSpec(options={"kind": {"type": "str", "choices": kinds, "required": True}})


def site_spec() -> ArgumentSpec:
    """Return the option for the path of the site; documented in the fragment ``site``."""
    return ArgumentSpec(options={"site": {"type": "path", "required": True}})


def site_policy_spec() -> ArgumentSpec:
    """Return the option for the directory of the site's profiles; documented in the fragment ``site.policy``."""
    return ArgumentSpec(options={"policy_directory": {"type": "path"}})


def site_verifier_spec() -> ArgumentSpec:
    """Return the options for profiles and trusted EK CAs of the site; documented in the fragment ``site.verifier``."""
    return ArgumentSpec(
        options={
            "profiles": {"type": "list", "elements": "str", "default": []},
            "endorsement_authorities": {"type": "list", "elements": "path", "default": []},
        }
    )


def kubeadm_spec() -> ArgumentSpec:
    """Return the options of kubeadm for a node; documented in the fragment ``kubeadm``."""
    return ArgumentSpec(
        options={
            "node_ip": {"type": "str", "required": True},
            "second_node_ip": {"type": "str", "default": ""},
            "cri_socket": {"type": "str", "default": "unix:///run/containerd/containerd.sock"},
            "ignore_preflight_errors": {"type": "list", "elements": "str", "default": []},
            "allow_cgroup_v1": {"type": "bool", "default": False},
        }
    )
