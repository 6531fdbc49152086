# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A unified kernel image on a machine's disk: the EFI program, the kernel in it, and what a reboot would measure."""

from __future__ import annotations

from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.image.next_boot import (
    NextBoot,
    judge_next_boot,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.image.pe import read_image
from ansible_collections.attested.kubernetes.tests.support import pe
from ansible_collections.attested.kubernetes.tests.unit.plugins.module_utils.evidence.image import (
    test_next_boot as made,
)

MAX_BYTES = 1 << 14
PROFILES = [made.BASE, made.expected(), made.SECURE]


def seeds() -> list[bytes]:
    return [made.IMAGE, pe.image(), pe.program({".linux": pe.kernel()}, signature=b"signature")]


def one_input(data: bytes) -> None:
    found = NextBoot(path="/efi/a.efi", image=read_image(data))
    assert NextBoot.of_mapping(found.to_mapping()) == found
    judge_next_boot(found, PROFILES, now=made.NOW)
