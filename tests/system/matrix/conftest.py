# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the files of the matrix have in common: a lab each, so that two of them can run beside each other."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.tests.support.boot_lab import boot_lab
from ansible_collections.attested.kubernetes.tests.support.lab import obstacles
from ansible_collections.attested.kubernetes.tests.support.striking import put_faults_into

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from ansible_collections.attested.kubernetes.tests.support.road import Road

    StruckLab = Callable[..., AbstractContextManager[Road]]


@contextmanager
def _struck_lab(
    name: str, loopback: str, *, control_planes: int = 1, workers: int = 0, struck: tuple[str, ...]
) -> Iterator[Road]:
    if found := obstacles():
        pytest.skip(found)
    planes = [f"cp-{number}" for number in range(2, control_planes + 1)]
    followers = (*planes, *(f"w-{number}" for number in range(1, workers + 1)))
    sizes = f'"lab_control_planes": {control_planes}, "lab_workers": {workers}'
    words = ("-e", f'{{"lab_bootstrapper": true, {sizes}}}')
    with boot_lab(name, loopback, words=words, followers=followers) as one:
        put_faults_into(one, *struck)
        yield one


@pytest.fixture(scope="session")
def struck_lab() -> StruckLab:
    """Make a lab with a cluster, in which ``struck`` strike at the steps that they are told."""
    return _struck_lab
