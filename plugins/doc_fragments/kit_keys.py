# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What opens a recovery kit; in sync with ``kit_keys_spec`` of plugin_utils/kit_keys.py."""

from __future__ import annotations


class ModuleDocFragment:
    """The options of the modules that open a recovery kit."""

    DOCUMENTATION = r"""
options:
  identity_file:
    description: File with identities of age to open the kit (C(KIT_KEY_WRONG) where none of them does).
    type: path
  passphrase_file:
    description:
      - File with the passphrase of the kit, 12 to 256 printable ASCII characters; it may be C(/dev/fd/N).
      - Fails with C(PASSPHRASE_UNUSABLE) for another, with C(KIT_KEY_WRONG) where the kit has another one.
    type: path
  token_module:
    description: Absolute path of the PKCS#11 module of the token to open the kit (C(KIT_TOKEN_UNUSABLE)).
    type: path
  token_label:
    description: Label of the token, where the module has several.
    type: str
  pin_file:
    description: File with the PIN of the token; it may be C(/dev/fd/N).
    type: path
"""
