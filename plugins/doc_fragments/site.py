# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The directory of the site and what it trusts; each part in sync with a spec of module_utils/core/module.py."""

from __future__ import annotations


class ModuleDocFragment:
    """The options of the modules that work on the admin's machine."""

    # `site_spec`
    DOCUMENTATION = r"""
options:
  site:
    description: Path of the directory of the site, which contains C(hosts.yml).
    type: path
    required: true
"""

    # `site_policy_spec`
    POLICY = r"""
options:
  policy_directory:
    description: Path of the directory of the profile manifests. If unset, C(policy/) of the site.
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
    description:
      - Paths of files or directories with the root and intermediate CAs of the TPM manufacturers.
      - If empty, certificate chains are not verified.
    type: list
    elements: path
    default: []
"""
