# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The keys of a recovery kit as options of an action: identities of age, a passphrase, or a token."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ansible_collections.attested.kubernetes.plugins.module_utils.admin.age_file import (
    parse_identities,
    require_passphrase,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.envelope import (
    KitKeys,
    describe_kit,
    open_kit,
    open_token,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.places import read_kit_file
from ansible_collections.attested.kubernetes.plugins.module_utils.core.files import read_bytes
from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import ArgumentSpec
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.master import SecretBytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ansible_collections.attested.kubernetes.plugins.module_utils.admin.kit import Kit

_MAX_KEY_BYTES = 65536
_MAX_PASSPHRASE_BYTES = 512
_MAX_PIN_BYTES = 256


def kit_keys_spec() -> ArgumentSpec:
    """Return the options with the keys of a kit; documented in the fragment ``kit_keys``."""
    return ArgumentSpec(
        options={
            "identity_file": {"type": "path"},
            "passphrase_file": {"type": "path", "no_log": False},
            "token_module": {"type": "path", "no_log": False},
            "token_label": {"type": "str", "no_log": False},
            "pin_file": {"type": "path", "no_log": False},
        },
        mutually_exclusive=(("identity_file", "passphrase_file", "token_module"),),
        required_together=(("token_module", "pin_file"),),
    )


def opened_kit(path: str, params: Mapping[str, Any]) -> Kit:
    """Return the kit in the file ``path``; a damaged file is refused before a token or a passphrase is used."""
    data = read_kit_file(path)
    describe_kit(data)
    with _keys_of(params) as keys:
        return open_kit(data, keys)


def passphrase_of(params: Mapping[str, Any]) -> SecretBytes | None:
    """Return the passphrase in the file that the options name, None if they name none."""
    if not params["passphrase_file"]:
        return None
    return require_passphrase(read_bytes(params["passphrase_file"], limit=_MAX_PASSPHRASE_BYTES))


@contextmanager
def _keys_of(params: Mapping[str, Any]) -> Iterator[KitKeys]:
    if params["token_module"]:
        pin = SecretBytes(read_bytes(params["pin_file"], limit=_MAX_PIN_BYTES).rstrip(b"\r\n"))
        label = params["token_label"] or ""
        with open_token(params["token_module"], pin=pin, token_label=label) as token:
            yield KitKeys(token=token)
    elif params["identity_file"]:
        yield KitKeys(identities=parse_identities(read_bytes(params["identity_file"], limit=_MAX_KEY_BYTES)))
    else:
        yield KitKeys(passphrase=passphrase_of(params))
