# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The site's repository, which a machine fetches, verifies, writes and measures at its boot (ADR 0022).

Nothing of a repository is trusted, and no working copy exists, before the signature of its commit by a pinned key was
verified. Private to the collection.
"""
