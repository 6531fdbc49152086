# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Profiles in a real API: what the site writes is what the decision reads, and the schema refuses what is none."""

from __future__ import annotations

import copy
import dataclasses
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.assertions import Assertions, Lockdown
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.manifest import parse_objects, render_profile
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.profile import Posture
from ansible_collections.attested.kubernetes.tests.support.boot_facts import learned

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ansible_collections.attested.kubernetes.plugins.module_utils.policy.profile import MeasurementProfile
    from ansible_collections.attested.kubernetes.tests.support.api_bed import ApiBed

NAME = "everything"


@pytest.fixture(scope="module")
def whole() -> MeasurementProfile:
    """A profile of a recorded boot that demands all that can be demanded."""
    assertions = Assertions(
        secure_boot=True,
        lockdown=Lockdown.INTEGRITY,
        boot_options=("root=*", "quiet"),
        firmware_minimum="2025.02-8",
        kernels=("6.12.117+deb13-cloud-amd64",),
        sbat_minimum={"sbat": 2025021800, "shim": 4},
    )
    expires = datetime(2027, 1, 31, 12, tzinfo=UTC)
    return dataclasses.replace(learned("deb13-grub-secureboot"), name=NAME, assertions=assertions, expires=expires)


@pytest.fixture
def applied(api: ApiBed, whole: MeasurementProfile) -> Iterator[MeasurementProfile]:
    """The same in the API, for one test: the services of other tests read the same API."""
    api.apply(render_profile(whole))
    yield whole
    api.kubectl("delete", "measurementprofile", NAME)


def read_back(api: ApiBed) -> MeasurementProfile:
    return parse_objects([("api", api.get("measurementprofile", NAME))]).profiles[0]


def test_a_profile_with_all_assertions_comes_back_as_it_was_written(api: ApiBed, applied: MeasurementProfile) -> None:
    assert render_profile(read_back(api)) == render_profile(applied)


def test_a_retired_profile_is_shown_as_such_and_accepts_nobody(api: ApiBed, applied: MeasurementProfile) -> None:
    api.apply(render_profile(dataclasses.replace(applied, retired=True)))
    assert read_back(api).accepts_no_machine
    columns = api.kubectl("get", "measurementprofile", NAME).splitlines()[0].split()
    assert {"RETIRED", "EXPIRES"} <= set(columns)


@pytest.mark.parametrize("posture", Posture)
def test_each_posture_can_be_written(api: ApiBed, applied: MeasurementProfile, posture: Posture) -> None:
    api.apply(render_profile(dataclasses.replace(applied, posture=posture)))
    assert read_back(api).posture is posture


@pytest.mark.parametrize(
    ("place", "value"),
    [
        pytest.param(("assertions", "lockdown"), "none", id="a lockdown that is none"),
        pytest.param(("assertions", "secureBoot"), "yes", id="a word for a truth value"),
        pytest.param(("assertions", "bootOptions"), "quiet", id="one option instead of a list"),
        pytest.param(("assertions", "sbatMinimum"), [{"component": "shim", "generation": -1}], id="below 0"),
        pytest.param(("expires",), "tomorrow", id="no time"),
        pytest.param(("loader",), "lilo", id="a loader that nobody knows"),
        pytest.param(("posture",), "all", id="a posture that is none"),
        pytest.param(("retired",), "no", id="a word for retired"),
    ],
)
def test_the_schema_refuses_what_is_no_profile(
    api: ApiBed, whole: MeasurementProfile, place: tuple[str, ...], value: Any
) -> None:
    document = copy.deepcopy(render_profile(whole))
    target = document["spec"]
    for part in place[:-1]:
        target = target[part]
    target[place[-1]] = value
    with pytest.raises(RuntimeError, match="invalid|Invalid"):
        api.apply(document)
