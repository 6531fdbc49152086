# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kind of a rotation. Keep in sync with `rotation_spec` in `module_utils/core/module.py`."""

from __future__ import annotations


class ModuleDocFragment:
    """The option of all modules that run a part of a rotation."""

    DOCUMENTATION = r"""
options:
  kind:
    description:
      - What is rotated.
      - V(authorities) is the cluster CA, the front-proxy CA, the etcd CA and the service account key together.
      - V(encryption_key) is the key for Secrets at rest.
      - V(master_secret) is the secret from which key services derive disk keys.
    type: str
    choices: [authorities, encryption_key, master_secret]
    required: true
"""
