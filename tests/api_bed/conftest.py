# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fixtures of the API bed: one real API for the whole run, with our objects installed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.tests.support.api_bed import ApiBed, api_bed, why_not
from ansible_collections.attested.kubernetes.tests.support.service_bed import Machine, ServiceBed
from ansible_collections.attested.kubernetes.tests.support.swtpm import missing_tools

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROLES = Path(__file__).parents[2] / "roles"
OBJECTS = [
    *sorted((ROLES / "control_plane" / "files" / "crds").glob("*.yml")),
    ROLES / "key_service" / "files" / "rbac.yml",
    ROLES / "key_service" / "files" / "admission.yml",
]


@pytest.fixture(scope="session")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiBed]:
    """A real API with our custom resources, RBAC and admission policy, as init applies them."""
    reason = why_not()
    if reason:
        pytest.skip(reason)
    if missing := missing_tools():
        pytest.skip(f"no TPM for the control plane: {', '.join(missing)} not installed")
    with api_bed(tmp_path_factory.mktemp("api")) as bed:
        for path in OBJECTS:
            bed.kubectl("apply", "--server-side", "--field-manager=attested-site", "-f", str(path))
        bed.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=900s")
        yield bed


@pytest.fixture(scope="session")
def bed(api: ApiBed) -> Iterator[ServiceBed]:
    """Key service and join service of one control plane, as processes."""
    made = ServiceBed(api)
    try:
        made.start()
        yield made
    finally:
        assert made.stop() == 0


@pytest.fixture
def machines(bed: ServiceBed, tmp_path: Path, request: pytest.FixtureRequest) -> Callable[..., Machine]:
    """Make machines: ``machines("w")`` is enrolled under a name of its own, ``machines("w", enroll=False)`` is not."""
    numbers = iter(range(100))

    def make(stem: str = "w", *, enroll: bool = True, **options: object) -> Machine:
        name = f"{stem}{next(numbers)}-{abs(hash(request.node.nodeid)) % 10**8}"
        machine = Machine(name, bed, tmp_path / name, **options)  # type: ignore[arg-type]
        if enroll:
            machine.enroll()
        return machine

    return make
