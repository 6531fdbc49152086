# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The only Ansible-aware package: options in, one call, result out. Private to the collection."""

from __future__ import annotations

from ..result import Diff, Result
from .argspec import (
    ArgumentSpec,
    kubeadm_spec,
    node_config_spec,
    site_policy_spec,
    site_spec,
    site_verifier_spec,
    tpm_spec,
    tpm_timeout_spec,
)
from .module import Form, Run, run_form, run_module
from .translate import failure_of, result_of

__all__ = [
    "ArgumentSpec",
    "Diff",
    "Form",
    "Result",
    "Run",
    "failure_of",
    "kubeadm_spec",
    "node_config_spec",
    "result_of",
    "run_form",
    "run_module",
    "site_policy_spec",
    "site_spec",
    "site_verifier_spec",
    "tpm_spec",
    "tpm_timeout_spec",
]
