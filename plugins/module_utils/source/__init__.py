# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The site's repository, as a machine takes it at its boot: fetched, verified, written, measured (ADR 0022).

Nothing of a repository is believed before a pinned key's signature over its commit was checked, and no working copy
exists before. Private to the collection.
"""
