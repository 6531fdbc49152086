# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a machine tells of its next boot, as JSON."""

from __future__ import annotations

import json

from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.image.next_boot import (
    NextBoot,
    judge_next_boot,
)
from ansible_collections.attested.kubernetes.tests.unit.plugins.module_utils.evidence.image import (
    test_next_boot as made,
)

PROFILES = [made.BASE, made.expected(), made.SECURE]


def seeds() -> list[bytes]:
    image = NextBoot(path="/efi/a.efi", image=made.read_image(made.IMAGE))
    kernel = NextBoot(path="/boot/vmlinuz-1", kernel=bytes(32), initrd=bytes(32))
    unreadable = NextBoot(path="/efi/b.efi", problem="IMAGE_MALFORMED")
    return [json.dumps(found.to_mapping()).encode() for found in (image, kernel, unreadable)]


def one_input(data: bytes) -> None:
    try:
        told = json.loads(data)
    except (ValueError, RecursionError):
        return
    found = NextBoot.of_mapping(told)
    assert NextBoot.of_mapping(found.to_mapping()) == found
    judge_next_boot(found, PROFILES, now=made.NOW)
