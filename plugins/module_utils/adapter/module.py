# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`run_module`: what every module's ``main`` calls; `Form`: a module as a value, for whoever else runs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ansible.module_utils.basic import AnsibleModule

from .._deps import require
from ..errors import AttestedError
from ..system import require_tmpfs
from .translate import failure_of, result_of

if TYPE_CHECKING:
    from ..result import Result
    from .argspec import ArgumentSpec

Run = Callable[[Mapping[str, Any], bool], "Result"]
"""``run(params, check_mode) -> Result``; raises `AttestedError`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """What a module takes, does and needs; as in `run_module`.

    A module that gives its form a name (``FORM``) is run by its action as well, in the process of the playbook.
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
    """Parse the options of ``spec``, call ``run`` once and leave with its result.

    ``libraries`` names the Python packages that ``run`` needs ("cryptography", "grpc", "kubernetes", "OpenSSL").
    ``carries_secrets`` refuses a temporary directory of Ansible that is not in memory (NOT_TMPFS), because the
    module's options lie there in a file.
    """
    module = AnsibleModule(supports_check_mode=True, **spec.arguments())
    try:
        require(*libraries)
        if carries_secrets:
            require_tmpfs(module.tmpdir)
        result = run(module.params, module.check_mode)
    except AttestedError as error:
        module.fail_json(**failure_of(error))
    module.exit_json(**result_of(result, diff_mode=module._diff))  # noqa: SLF001  # AnsibleModule offers no other name
