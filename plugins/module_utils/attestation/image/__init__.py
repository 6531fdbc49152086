# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kernel images on disk: what they will be measured as, before anybody boots them. Private to the collection."""

from __future__ import annotations

from .installed import find_next_boots
from .next_boot import NextBoot, judge_next_boot
from .pe import MAX_IMAGE_BYTES, Program, parse_program
from .prediction import PHASES, Prediction, image_events, predict, predict_profile
from .uki import KernelImage, read_image

__all__ = [
    "MAX_IMAGE_BYTES",
    "PHASES",
    "KernelImage",
    "NextBoot",
    "Prediction",
    "Program",
    "find_next_boots",
    "image_events",
    "judge_next_boot",
    "parse_program",
    "predict",
    "predict_profile",
    "read_image",
]
