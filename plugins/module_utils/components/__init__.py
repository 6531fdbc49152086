# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bundles of programs, images and wheels: made on the admin's side, installed on nodes. Private to the collection."""

from __future__ import annotations

from .files import write_files
from .install import NodeWorld, inspect_components, install_components
from .manifest import (
    Architecture,
    Blob,
    FileEntry,
    ImageArchive,
    ImageEntry,
    Manifest,
    NodeRole,
    Origin,
    WheelArchive,
    WheelEntry,
    render_manifest,
)
from .parse import parse_manifest
from .prerequisites import Machine, MachineReader, findings_of, inspect_prerequisites
from .runtime import RuntimeGateway, install_runtime
from .store import Bundle, open_bundle, verify_blobs
from .versions import Release, release_for

__all__ = [
    "Architecture",
    "Blob",
    "Bundle",
    "FileEntry",
    "ImageArchive",
    "ImageEntry",
    "Machine",
    "MachineReader",
    "Manifest",
    "NodeRole",
    "NodeWorld",
    "Origin",
    "Release",
    "RuntimeGateway",
    "WheelArchive",
    "WheelEntry",
    "findings_of",
    "inspect_components",
    "inspect_prerequisites",
    "install_components",
    "install_runtime",
    "open_bundle",
    "parse_manifest",
    "release_for",
    "render_manifest",
    "verify_blobs",
    "write_files",
]
