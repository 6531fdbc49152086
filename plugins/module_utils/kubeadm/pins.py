# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Static pods by digest: kubeadm writes tags, its patches put the digests of the bundle in their place.

A tag is whatever containerd has under that name at the next restart; a digest is those bytes or nothing.
"""

from __future__ import annotations

import dataclasses
import json
import re
from typing import TYPE_CHECKING, Any

from ..errors import KubeadmError
from ..reasons import Reason
from ..system import load_documents, make_directory, read_bytes, write_atomic
from .render import documents

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from .spec import KubernetesPaths, NodeSpec

STATIC_PODS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")

_LIMIT = 1 << 16
_REFERENCE = re.compile(r"(?P<repository>[a-z0-9.-]+(:[0-9]{1,5})?(/[a-z0-9._-]+)+):[A-Za-z0-9._-]{1,128}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def pinned(node: NodeSpec, paths: KubernetesPaths) -> NodeSpec:
    """Return the node with its static pods by digest where the machine knows any; raises IMAGE_PINS_MALFORMED."""
    return dataclasses.replace(node, patches=str(_directory(paths))) if read_pins(paths) else node


def write_patches(paths: KubernetesPaths) -> None:
    """Write what kubeadm is to change in the manifests of static pods, before it writes them."""
    directory = _directory(paths)
    for name, content in render_patches(read_pins(paths)).items():
        make_directory(directory, mode=0o700)
        write_atomic(directory / name, content)


def read_pins(paths: KubernetesPaths) -> dict[str, str]:
    """Return the image of each static pod as repository@digest; none on a machine that was prepared without pins."""
    place = paths.image_pins
    return parse_pins(read_bytes(place, limit=_LIMIT)) if place.exists() else {}


def parse_pins(content: bytes) -> dict[str, str]:
    """Read the images of a bundle (a list of component, reference, digest); raises IMAGE_PINS_MALFORMED. Pure."""
    try:
        (images,) = load_documents(content.decode("utf-8"))
        known = {image["component"]: _pin(image) for image in images if image["component"] in STATIC_PODS}
        return {name: known[name] for name in STATIC_PODS}
    except (ValueError, KeyError, TypeError) as error:
        raise KubeadmError(
            f"expected the images of {', '.join(STATIC_PODS)} with reference and digest, found something else",
            reason=Reason.IMAGE_PINS_MALFORMED,
        ) from error


def render_patches(pins: Mapping[str, str]) -> dict[str, bytes]:
    """Return kubeadm's patches by file name: a strategic merge for each static pod. Pure."""
    return {f"{name}+strategic.json": _patch(name, image) for name, image in pins.items()}


def _patch(name: str, image: str) -> bytes:
    return documents({"spec": {"containers": [{"name": name, "image": image}]}})


def _pin(image: Mapping[str, Any]) -> str:
    reference, digest = _REFERENCE.fullmatch(image["reference"]), _DIGEST.fullmatch(image["digest"])
    if reference is None or digest is None:
        raise ValueError(json.dumps(image))
    return f"{reference['repository']}@{digest[0]}"


def _directory(paths: KubernetesPaths) -> Path:
    return paths.state / "patches"
