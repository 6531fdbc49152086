# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rescue kit: what follows from a master secret, a disk opened with it, calls to Constellation's nodes.

Needs no cluster. `client` loads grpc and is imported by name. Private to the collection.
"""
