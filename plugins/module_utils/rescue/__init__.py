# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rescue of a Constellation cluster: derive from the master secret, open disks with it, call Constellation's nodes.

It needs no cluster. `client` loads grpc and is imported only where it is used. Private to the collection.
"""
