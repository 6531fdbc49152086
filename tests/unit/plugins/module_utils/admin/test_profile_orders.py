# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the admin orders of a profile: each order on real profiles and a real image file."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.profile_orders import (
    approval_digest,
    ordered_profile,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.image.pe import read_image
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.image.prediction import predict
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.assertions import Assertions
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.learning import Preset
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.manifest import render_document, render_profile
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.profile import AllowedValue
from ansible_collections.attested.kubernetes.tests.support import pe
from ansible_collections.attested.kubernetes.tests.support.boot_facts import learned

if TYPE_CHECKING:
    from pathlib import Path

    from ansible_collections.attested.kubernetes.plugins.module_utils.policy.profile import MeasurementProfile

BASE = learned("deb13-base", Preset.IMAGE)
NOTHING: dict[str, Any] = dict.fromkeys(
    ("name", "manifest", "manifests", "image", "base", "command_line", "secure_boot", "phases", "label", "expires")
)


def manifest(profile: MeasurementProfile) -> str:
    return render_document(render_profile(profile))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """The site's policy directory with one profile."""
    (tmp_path / "deb13-base.yml").write_text(manifest(BASE), encoding="utf-8")
    return tmp_path


def order(directory: Path, **options: Any) -> MeasurementProfile:
    return ordered_profile(directory, {**NOTHING, "state": "present", **options})[0]


def code_of(directory: Path, **options: Any) -> str:
    with pytest.raises(AttestedError) as caught:
        order(directory, **options)
    return caught.value.code


def test_one_manifest_is_kept_as_it_is(directory: Path) -> None:
    kept = order(directory, manifest=manifest(BASE))
    assert render_profile(kept) == render_profile(BASE)


def test_a_name_a_label_and_an_expiry_are_put_on_it(directory: Path) -> None:
    made = order(directory, manifest=manifest(BASE), name="x", label="13.6", expires="2027-01-31T13:00:00+01:00")
    assert (made.name, made.expires) == ("x", datetime(2027, 1, 31, 12, tzinfo=UTC))
    assert {value.label for allowed in made.registers.values() for value in allowed} == {"13.6"}


def test_several_are_merged_and_their_differences_told(directory: Path) -> None:
    parts = [manifest(BASE), manifest(learned("deb13-cmdline", Preset.IMAGE))]
    options = {**NOTHING, "state": "present", "name": "fleet", "manifests": parts}
    merged, differing = ordered_profile(directory, options)
    assert (merged.name, len(merged.registers[4])) == ("fleet", 2)
    assert [one.pcr for one in differing] == [4, 9, 11]
    assert "attested.tampered=1" in str(differing[1])


def test_an_image_is_computed_from_a_profile_of_the_site(directory: Path) -> None:
    (directory / "next.efi").write_bytes(pe.image(stub=252))
    made = order(directory, image=str(directory / "next.efi"), base="deb13-base", name="next")
    expected = predict(read_image(pe.image(stub=252)), secure_boot=False).registers
    assert {pcr: made.registers[pcr][0].digest for pcr in (4, 9, 11)} == expected
    assert made.registers[7] == BASE.registers[7]
    assert made.registers[4][0].label == "next.efi"


def test_what_the_image_is_started_with_can_be_said(directory: Path) -> None:
    (directory / "next.efi").write_bytes(pe.image(stub=252))
    image = {"image": str(directory / "next.efi"), "base": "deb13-base", "name": "next"}
    plain, other = order(directory, **image), order(directory, **image, command_line="quiet", phases=["enter-initrd"])
    changed = {pcr for pcr in plain.registers if plain.registers[pcr] != other.registers[pcr]}
    assert changed == {9, 11}


def test_a_profile_is_retired_and_keeps_its_values(directory: Path) -> None:
    retired = order(directory, state="retired", name="deb13-base")
    assert retired.accepts_no_machine
    assert retired.registers == BASE.registers


@pytest.mark.parametrize(
    ("options", "code"),
    [
        pytest.param({"state": "retired", "name": "nobody"}, "PROFILE_UNKNOWN", id="no such profile to retire"),
        pytest.param({"manifest": "kind: Pod"}, "MANIFEST_INVALID", id="no profile in the manifest"),
        pytest.param({"manifest": "{}\n---\n{}"}, "MANIFEST_INVALID", id="two documents"),
        pytest.param({"manifest": manifest(BASE), "expires": "soon"}, "MANIFEST_INVALID", id="no time"),
        pytest.param({"manifest": manifest(BASE), "expires": "2027-01-31"}, "MANIFEST_INVALID", id="no zone"),
        pytest.param({"image": "/nowhere", "base": "deb13-base", "name": "x"}, "FILE_UNUSABLE", id="no image there"),
        pytest.param({"image": "/dev/null", "base": "nobody", "name": "x"}, "PROFILE_UNKNOWN", id="no such base"),
        pytest.param({"image": "/dev/null", "base": "deb13-base", "name": "x"}, "IMAGE_MALFORMED", id="no image in it"),
    ],
)
def test_an_order_that_cannot_be_met_is_refused(directory: Path, options: dict[str, Any], code: str) -> None:
    assert code_of(directory, **options) == code


def test_the_digest_of_an_approval_names_what_is_accepted_and_nothing_else() -> None:
    same = dataclasses.replace(
        BASE,
        name="other",
        registers={pcr: (AllowedValue(values[0].digest, "w-7"),) for pcr, values in BASE.registers.items()},
        reference_events=(),
    )
    assert approval_digest(BASE) == approval_digest(same)
    others = [
        dataclasses.replace(BASE, registers={**BASE.registers, 4: (AllowedValue(bytes(32), "x"),)}),
        dataclasses.replace(BASE, registers={pcr: BASE.registers[pcr] for pcr in (4, 7)}),
        dataclasses.replace(BASE, assertions=Assertions(kernels=("6.1.0",))),
        dataclasses.replace(BASE, loader=None),
    ]
    assert len({approval_digest(one) for one in (BASE, *others)}) == len(others) + 1
