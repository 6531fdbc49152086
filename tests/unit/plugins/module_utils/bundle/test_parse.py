# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The manifest: strict reading, canonical writing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.bundle.manifest import (
    NodeRole,
    parse_manifest,
    render_manifest,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import ComponentError
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .conftest import step

if TYPE_CHECKING:
    from collections.abc import Callable

    Change = Callable[[dict[str, Any]], object]


@pytest.fixture
def manifest(manifest) -> dict[str, Any]:
    """The small one, with a release on the way."""
    return {**manifest, "steps": [step()[0]]}


def encoded(manifest: object) -> bytes:
    return json.dumps(manifest).encode()


def test_what_is_rendered_is_read_back_the_same(manifest):
    first = parse_manifest(encoded(manifest))

    rendered = render_manifest(first)

    assert parse_manifest(rendered) == first
    assert render_manifest(parse_manifest(rendered)) == rendered


def test_rendered_manifest_says_what_the_good_case_says(manifest):
    assert json.loads(render_manifest(parse_manifest(encoded(manifest)))) == manifest


def test_an_image_is_found_by_its_component(manifest):
    assert parse_manifest(encoded(manifest)).image("pause").reference == "example.test/pause:1"


def test_a_missing_image_names_what_there_is(manifest):
    with pytest.raises(ComponentError) as caught:
        parse_manifest(encoded(manifest)).image("kube-proxy")
    assert caught.value.reason is Reason.BUNDLE_INCOMPLETE
    assert "etcd, pause" in caught.value.message


def test_a_bundle_without_steps_does_not_speak_of_them(manifest):
    del manifest["steps"]
    found = parse_manifest(encoded(manifest))
    assert found.steps == ()
    assert json.loads(render_manifest(found)) == manifest


def test_images_of_a_step_are_not_those_of_the_bundle(manifest):
    found = parse_manifest(encoded(manifest))
    assert [image.reference for image in found.images] == ["example.test/pause:1", "example.test/etcd:1"]
    assert {"programs/kubeadm-1.34.gz", "images/step.tar", "images/step-pause.tar"} < {one.path for one in found.blobs}


def test_requirements_of_a_worker_leave_out_what_only_control_planes_need(manifest):
    (wheels,) = parse_manifest(encoded(manifest)).wheel_archives

    assert "kubernetes==37.0 --hash=sha256:" in wheels.requirements(NodeRole.CONTROL_PLANE)
    assert "kubernetes" not in wheels.requirements(NodeRole.WORKER)
    assert wheels.requirements(NodeRole.WORKER).startswith("demo==1.0 --hash=sha256:")


CASES: list[Any] = [
    pytest.param(
        lambda m: m.update(schema="attested.bundle/2"), "schema: expected attested.bundle/1", id="unknown schema"
    ),
    pytest.param(lambda m: m.update(extra=1), "unknown keys extra", id="unknown key at the top"),
    pytest.param(lambda m: m.pop("files"), "missing keys files", id="no list of files"),
    pytest.param(lambda m: m.update(files={}), "expected a list", id="files are not a list"),
    pytest.param(lambda m: m.update(kubernetes_version="1.35"), "kubernetes_version", id="version without patch"),
    pytest.param(lambda m: m["files"][0].update(path="../kubelet"), "plain path", id="path leaves the bundle"),
    pytest.param(lambda m: m["files"][0].update(path="/etc/x"), "plain path", id="absolute path"),
    pytest.param(lambda m: m["files"][0].update(path="manifest.json"), "plain path", id="path is the manifest"),
    pytest.param(lambda m: m["files"][0].update(sha256="AB" * 32), "sha256: expected", id="hash in upper case"),
    pytest.param(lambda m: m["files"][0].update(size=True), "size in bytes", id="size is a truth value"),
    pytest.param(lambda m: m["files"][0].update(size=0), "size in bytes", id="size is zero"),
    pytest.param(lambda m: m["files"][0].update(arch="riscv"), "amd64 or arm64", id="unknown architecture"),
    pytest.param(lambda m: m["files"][0].update(origin="found"), "built or downloaded", id="unknown origin"),
    pytest.param(lambda m: m["files"][0].update(roles=[]), "roles: expected", id="for no role"),
    pytest.param(lambda m: m["files"][0].update(roles=["guest"]), "roles: expected", id="for an unknown role"),
    pytest.param(lambda m: m["files"][0].update(compression="xz"), "gzip or none", id="unknown compression"),
    pytest.param(lambda m: m["files"][0].update(mode=493), "octal digits", id="mode as a number"),
    pytest.param(lambda m: m["files"][0].update(mode="4755"), "octal digits", id="mode with set-user-id"),
    pytest.param(lambda m: m["files"][0].update(install_path="usr/x"), "absolute path", id="relative install path"),
    pytest.param(
        lambda m: m["files"][0].update(install_path="/usr/../x"), "absolute path", id="install path with dots"
    ),
    pytest.param(lambda m: m["files"][0].update(name="a\nb"), "printable", id="line break in a name"),
    pytest.param(lambda m: m["files"].append(m["files"][0]), "appears more than once", id="one file twice"),
    pytest.param(
        lambda m: m["image_archives"][0]["images"][0].update(digest="latest"),
        "digest: expected",
        id="image without digest",
    ),
    pytest.param(
        lambda m: m["wheel_archives"][0]["wheels"][0].update(filename="../x.whl"), "plain name", id="wheel with a path"
    ),
    pytest.param(
        lambda m: m["wheel_archives"][0]["wheels"][0].update(control_plane_only="no"),
        "true or false",
        id="flag as text",
    ),
    pytest.param(lambda m: m.update(steps={}), "steps: expected a list", id="steps are not a list"),
    pytest.param(
        lambda m: m["steps"][0].update(kubernetes_version="../1"),
        "steps[0].kubernetes_version",
        id="step of no version",
    ),
    pytest.param(lambda m: m["steps"][0].update(wheels=[]), "unknown keys wheels", id="step with more than it has"),
    pytest.param(lambda m: m["steps"][0].pop("files"), "missing keys files", id="step without programs"),
    pytest.param(
        lambda m: m["steps"][0]["files"][0].update(mode=493), "steps[0].files[0].mode", id="wrong program of a step"
    ),
    pytest.param(
        lambda m: m["steps"][0]["image_archives"][0].update(size=0),
        "steps[0].image_archives[0].size",
        id="wrong archive of a step",
    ),
    pytest.param(lambda m: m["steps"].append(m["steps"][0]), "step 1.34.9 appears more than once", id="one step twice"),
]


@pytest.mark.parametrize(("change", "said"), CASES)
def test_one_wrong_point_is_refused_and_named(manifest, change: Change, said: str):
    change(manifest)

    with pytest.raises(ComponentError) as caught:
        parse_manifest(encoded(manifest))

    assert caught.value.reason is Reason.BUNDLE_MALFORMED
    assert said in caught.value.message


def test_all_faults_are_reported_together(manifest):
    manifest["files"][0].update(sha256="x", mode="y", origin="z")

    with pytest.raises(ComponentError) as caught:
        parse_manifest(encoded(manifest))

    assert all(word in caught.value.message for word in ("sha256", "mode", "origin"))


@pytest.mark.parametrize("data", [b"", b"[]", b"\xff", b"[" * 100_000, b" " * (2 << 20)])
def test_what_is_no_manifest_at_all_is_malformed(data: bytes):
    with pytest.raises(ComponentError) as caught:
        parse_manifest(data)
    assert caught.value.reason is Reason.BUNDLE_MALFORMED


JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=5), lambda c: st.lists(c, max_size=3))


@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.sampled_from(["schema", "files", "image_archives", "wheel_archives", "inputs_sha256"]), JSON))
def test_any_json_is_refused_with_our_own_error(document: dict[str, Any]):
    with pytest.raises(ComponentError):
        parse_manifest(encoded(document))
