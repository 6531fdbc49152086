# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The keys that open a recovery kit; in sync with ``kit_keys_spec`` of plugin_utils/kit_keys.py."""

from __future__ import annotations


class ModuleDocFragment:
    """The options of the modules that open a recovery kit."""

    DOCUMENTATION = r"""
options:
  identity_file:
    description:
      - Path of a file with age identities that open the kit.
      - The module fails with C(KIT_KEY_WRONG) if none of them opens the kit.
    type: path
  passphrase_file:
    description:
      - Path of a file with the passphrase of the kit, 12 to 256 printable ASCII characters. It may be C(/dev/fd/N).
      - The module fails with C(PASSPHRASE_UNUSABLE) for a passphrase of another form, and with C(KIT_KEY_WRONG) if the
        kit has another passphrase.
    type: path
  token_module:
    description:
      - Absolute path of the PKCS#11 module of the token that opens the kit.
      - The module fails with C(KIT_TOKEN_UNUSABLE) if the token cannot be used.
    type: path
  token_label:
    description: Label of the token, if the PKCS#11 module has several tokens.
    type: str
  pin_file:
    description: Path of a file with the PIN of the token. It may be C(/dev/fd/N).
    type: path
"""
