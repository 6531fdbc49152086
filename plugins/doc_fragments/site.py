# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the site lies and what it believes; each part in sync with a spec of module_utils/core/module.py."""

from __future__ import annotations


class ModuleDocFragment:
    """The options of the modules that work on the admin's side."""

    # `site_spec`
    DOCUMENTATION = r"""
options:
  site:
    description: Directory of the site, the one with C(hosts.yml).
    type: path
    required: true
"""

    # `site_policy_spec`
    POLICY = r"""
options:
  policy_directory:
    description: Directory of the profile manifests; C(policy/) of the site if absent.
    type: path
"""

    # `site_verifier_spec`
    VERIFIER = r"""
options:
  profiles:
    description: Names of the active profiles.
    type: list
    elements: str
    default: []
  endorsement_authorities:
    description: Files or directories with the roots and issuers of the TPM makers; with none, chains are not checked.
    type: list
    elements: path
    default: []
"""
