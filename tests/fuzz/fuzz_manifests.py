# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Profiles and identities as YAML."""

from __future__ import annotations

from ansible_collections.attested.kubernetes.plugins.module_utils.policy.manifest import (
    parse_documents,
    render_document,
    render_identity,
    render_profile,
)
from ansible_collections.attested.kubernetes.tests.support import boots
from ansible_collections.attested.kubernetes.tests.support.exchange import Exchange, identity_of, learned


def seeds() -> list[bytes]:
    profile = render_profile(learned(boots.load("deb13-base")))
    profile["spec"].pop("referenceEvents", None)
    return [
        render_document(render_identity(identity_of(Exchange().tpm.ek))).encode(),
        render_document(profile).encode(),
    ]


def one_input(data: bytes) -> None:
    parse_documents([("x", data.decode(errors="replace"))])
