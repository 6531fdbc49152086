# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the matrix stands on: its boundaries are those of the code, and a fault strikes where it was ordered, once."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.node.bootstrapper import Bootstrapper
from ansible_collections.attested.kubernetes.plugins.module_utils.node.order import StepName
from ansible_collections.attested.kubernetes.tests.support import attested_matrix, boundaries
from ansible_collections.attested.kubernetes.tests.support.attested_matrix import HELD, HOLD, ORDERS, STRUCK
from ansible_collections.attested.kubernetes.tests.support.canary import ProcessWatch
from ansible_collections.attested.kubernetes.tests.support.lab import Lab
from ansible_collections.attested.kubernetes.tests.support.road import Road
from ansible_collections.attested.kubernetes.tests.support.striking import (
    CALLS,
    FAULTS,
    VOLUME,
    Order,
    let_go,
    place_of,
    slice_of_the_matrix,
    struck_on,
    suffer,
    tell,
)
from ansible_collections.attested.kubernetes.tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable

UTILS = "ansible_collections.attested.kubernetes.plugins.module_utils"
MACHINE = "w-1"


@pytest.fixture
def road(tmp_path: Path) -> Road:
    """A lab of which only the volume of one machine exists."""
    one = Road(lab=Lab(name="none", directory=tmp_path, loopback="127.0.0"), watch=ProcessWatch(), began=0.0)
    place_of(one, MACHINE).mkdir(parents=True)
    return one


@pytest.fixture
def steps(road: Road) -> tuple[Callable[[str], None], list[str]]:
    """Something with steps, each of which may be struck, and those that it did."""
    done: list[str] = []

    class Worker:
        def step(self, name: str) -> None:
            done.append(name)

    attested_matrix.before(Worker, "step", lambda _worker, name: f"join:{name}", place=place_of(road, MACHINE))
    return Worker().step, done


@pytest.fixture
def harmless(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Commands that are only counted, and an end that is at once."""
    ran: list[tuple[str, ...]] = []
    monkeypatch.setattr(attested_matrix.subprocess, "run", lambda command, check: ran.append(command))
    monkeypatch.setattr(attested_matrix, "END_SECONDS", 0.0)
    return ran


def test_a_join_and_a_reboot_come_to_all_steps_but_the_restart_that_a_boot_never_needs() -> None:
    """The kubelet is started by the run that is locked, so none runs before it that would have to read anew."""
    assert [*boundaries.FIRST_JOIN, *boundaries.REJOIN] == sorted(
        boundaries.JOIN, key=[*boundaries.FIRST_JOIN, *boundaries.REJOIN].index
    )
    reached = {Order(point=one, fault="kill").reached for one in boundaries.MEMBER + boundaries.JOIN}
    assert {f"join:{one.name}" for one in StepName} - reached == {f"join:{StepName.RESTART.name}"}


def test_kubeadms_phases_come_between_the_two_steps_around_them() -> None:
    """As in a run: kubeadm's own phases are within the step KUBEADM, and the Node is seen last."""
    order = boundaries.FIRST_JOIN
    assert order.index("join:KUBEADM") + 1 == order.index("join:preflight")
    assert order[-1] == "join:CONFIRM"


@pytest.mark.parametrize(("module", "call"), CALLS.items())
def test_what_is_struck_exists(module: str, call: str) -> None:
    """The names that are appended to a module's copy are its own, and the classes have the methods."""
    owner, name = re.match(r'\w+\((\w+), "(\w+)"', call).groups()  # type: ignore[union-attr]
    found = getattr(importlib.import_module(f"{UTILS}.{module.removesuffix('.py').replace('/', '.')}"), owner)
    assert name in found.__init__.__kwdefaults__ if call.startswith("default") else callable(getattr(found, name))


@pytest.mark.parametrize("module", attested_matrix.STEPS)
def test_steps_of_a_module_are_struck_wherever_it_is_imported(module: str) -> None:
    owner, methods = attested_matrix.STEPS[module]
    program = (
        "import importlib, sys, attested_matrix; attested_matrix.watch(); "
        f"owner = getattr(importlib.import_module({UTILS!r} + sys.argv[1]), {owner!r}); "
        f"print([getattr(owner, one).__name__ for one in {[*methods]}])"
    )
    paths = [str(Path(attested_matrix.__file__).parent), *sys.path]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    argv = [sys.executable, "-c", program, f".{module}"]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == str(["struck"] * len(methods)), done.stderr


def test_the_door_of_the_lab_closes_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    """The default that is changed is the one that the bootstrapper uses."""
    defaults = Bootstrapper.__init__.__kwdefaults__
    monkeypatch.setitem(defaults, "linger_seconds", defaults["linger_seconds"])
    attested_matrix.default(Bootstrapper, "linger_seconds", 1.5)
    given = dict.fromkeys(("race", "claims", "listener", "log"), None)
    parts = type("P", (), {"machine": type("M", (), {"clock": None})(), "keys": None})()
    one = object.__new__(Bootstrapper)
    with pytest.raises(TypeError):  # its parts are no dataclass: what it keeps before is what is looked at
        Bootstrapper.__init__(one, parts, founder=lambda _stop: None, serve_init=False, **given)
    assert one._linger_seconds == 1.5


def test_each_order_strikes_once_before_its_step_and_after_the_one_before_it(
    road: Road, steps: tuple[Callable[[str], None], list[str]], harmless: list[tuple[str, ...]]
) -> None:
    step, done = steps
    tell(road, MACHINE, Order(point="join:LOCK", fault="cut"), Order(point="join:WRITE", fault="kill"))
    step("WRITE")
    assert (done, struck_on(road, MACHINE)) == (["WRITE"], [])
    for name in ("LOCK", "LOCK", "WRITE", "WRITE"):
        step(name)
    assert [(one["point"], one["fault"]) for one in struck_on(road, MACHINE)] == [
        ("join:LOCK", "cut"),
        ("join:WRITE", "kill"),
    ]
    assert harmless == [*attested_matrix.COMMANDS["cut"], *attested_matrix.COMMANDS["kill"]]
    assert done == ["WRITE", "LOCK", "LOCK", "WRITE", "WRITE"]
    suffer(road, MACHINE, Order(point="join:LOCK", fault="cut"), Order(point="join:WRITE", fault="kill"))


def test_new_orders_forget_the_old_ones(
    road: Road, steps: tuple[Callable[[str], None], list[str]], harmless: list[tuple[str, ...]]
) -> None:
    step, _done = steps
    tell(road, MACHINE, Order(point="join:LOCK", fault="cut"), Order(point="join:WRITE", fault="kill"))
    step("LOCK")
    tell(road, MACHINE, Order(point="join:CONFIRM", fault="kill"))
    step("WRITE")
    assert struck_on(road, MACHINE) == []


def test_who_is_held_goes_on_when_it_is_let_go(road: Road, steps: tuple[Callable[[str], None], list[str]]) -> None:
    step, done = steps
    tell(road, MACHINE, Order(point="join:LOCK", fault=HOLD))
    worker = threading.Thread(target=step, args=("LOCK",))
    worker.start()
    wait_for(lambda: bool(struck_on(road, MACHINE)))
    assert done == []
    let_go(road, MACHINE)
    worker.join()
    assert done == ["LOCK"]


def test_the_faults_are_known_to_the_machine_and_end_by_themselves() -> None:
    """A cut is mended by a unit that no kill of the bootstrapper ends; it deletes just what was inserted."""
    assert set(attested_matrix.COMMANDS) == {*FAULTS, HOLD, attested_matrix.END}
    *inserted, mended = attested_matrix.COMMANDS["cut"]
    assert mended[0] == "systemd-run"
    assert mended[-1].split("; ")[1:] == [" ".join(one).replace("--insert", "--delete") for one in inserted]


def test_the_machine_and_the_host_mean_the_same_place(road: Road) -> None:
    """The volume's name on the host is that of the role."""
    role = Path(__file__).parents[2] / "roles" / "lab" / "files" / "host" / "machines.py"
    assert f'"{VOLUME.name}": "{VOLUME}"' in role.read_text()
    assert attested_matrix.PLACE.is_relative_to(VOLUME)
    tell(road, MACHINE, Order(point="join:LOCK", fault="cut"))
    assert json.loads((place_of(road, MACHINE) / ORDERS).read_text()) == [{"point": "join:LOCK", "fault": "cut"}]
    assert not [name for name in (STRUCK, HELD) if (place_of(road, MACHINE) / name).exists()]


def test_a_slice_is_drawn_by_the_commit_and_has_each_fault_once() -> None:
    """Another commit draws another one; over many commits each fault comes before each step."""
    slices = [slice_of_the_matrix(f"{number:040x}") for number in range(400)]
    assert slices[0] == slice_of_the_matrix(f"{0:040x}")
    for one in slices:
        assert sorted(order.fault for order in one) == sorted(FAULTS)
        places = [boundaries.FIRST_JOIN.index(order.point) for order in one]
        assert places == sorted(set(places))
    seen = {(order.point, order.fault) for one in slices for order in one}
    assert seen == {(point, fault) for point in boundaries.FIRST_JOIN for fault in FAULTS}
