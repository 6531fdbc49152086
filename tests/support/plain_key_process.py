# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The process that tries an offered key, for a disk without integrity: creating one with it needs device mapper."""

from __future__ import annotations

import dataclasses
import sys

from ansible_collections.attested.kubernetes.plugins.module_utils.disk.luks_check import STATE_DISK
from ansible_collections.attested.kubernetes.plugins.module_utils.disk.process import serve_key_job
from ansible_collections.attested.kubernetes.plugins.module_utils.services.recovery_helper import perform

PLAIN = dataclasses.replace(STATE_DISK, integrity=frozenset({""}))

if __name__ == "__main__":
    sys.exit(serve_key_job(lambda job: perform(job, shape=PLAIN)))
