# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The model of the join protocol holds, and each copy that lacks one binding falls to exactly its attacks."""

from __future__ import annotations

from itertools import combinations_with_replacement

import pytest
from ansible_collections.attested.kubernetes.tests.support.maude import World, search_all

PROPERTIES = (
    "secrecy",
    "secrecy-later",
    "identity",
    "csr-key",
    "disk-id",
    "channel",
    "agreement",
    "foreign-key",
    "cluster",
)

CLAIMS = [(machine, key) for machine in ("n", "m") for key in ("ak(n)", "ak(m)", "akSoft")]
"""Whatever a challenge can be asked for: the endorsement key of an enrolled machine, and any attestation key."""

DEEP = [
    pytest.param(runs, claims, id=f"{runs} runs, challenges for {claims}")
    for runs, sessions in ((3, 1), (2, 2), (1, 3))
    for claims in combinations_with_replacement(CLAIMS, sessions)
]
"""Who is first among the sessions makes no difference, so a choice is a set."""

BOUNDS = [
    pytest.param(World(boot="before", runs=1, sessions=2), id="one run, two sessions, booted otherwise before"),
    pytest.param(World(boot="before", runs=2, sessions=1), id="two runs, one session, booted otherwise before"),
    pytest.param(World(boot="good", runs=1, sessions=2), id="one run, two sessions"),
    pytest.param(World(boot="good", runs=2, sessions=1), id="two runs, one session"),
]

# what a copy lacks, which properties it breaks (all others must hold), and one attack on it
ATTACKS = [
    pytest.param(
        "exporter",
        {"channel", "agreement"},
        ("channel", ("challenge", "answer", "release")),
        id="without the exporter a relay stands in the channel",
    ),
    pytest.param(
        "request",
        {"csr-key", "disk-id", "agreement", "foreign-key"},
        ("foreign-key", ("challenge", "answer", "release")),
        id="without the request a certificate is signed for the attacker's key",
    ),
    pytest.param(
        "activation",
        {"secrecy", "secrecy-later", "identity", "csr-key", "disk-id", "channel", "agreement", "foreign-key"},
        ("secrecy", ("challenge", "release")),
        id="without the activation a key made in software speaks for any machine",
    ),
    pytest.param(
        "onetime",
        {"secrecy-later", "agreement"},
        ("secrecy-later", ("challenge", "answer", "reboot-otherwise", "release")),
        id="without the one-time key the same machine booted otherwise later opens the box",
    ),
    pytest.param(
        "pin",
        {"cluster"},
        ("cluster", ("challenge", "answer", "release", "accept")),
        id="without the pin a foreign join service, helped by one bad node, hands out a disk key",
    ),
    pytest.param(
        "profile",
        {"secrecy-later", "identity", "csr-key", "disk-id", "channel", "agreement", "foreign-key"},
        ("secrecy-later", ("reboot-otherwise", "challenge", "release")),
        id="without the registers any boot gets the keys",
    ),
]

HAPPENINGS = [
    pytest.param("node-joins", World(), id="a node joins"),
    pytest.param(
        "node-rejoins",
        World(runs=2, sessions=2, claims=(("n", "ak(n)"), ("n", "ak(n)"))),
        id="a node joins and asks again with its disk id",
    ),
    pytest.param("other-node-joins", World(), id="the attacker's own enrolled machine joins as itself"),
]


@pytest.mark.parametrize("world", BOUNDS)
def test_nothing_is_broken_with_all_bindings(world):
    (search,) = search_all("none", world, ["breaks(any, Z:World)"])
    print(f"\n{world}: {search.states} states")
    assert search.path is None


@pytest.mark.slow
@pytest.mark.parametrize(("runs", "claims"), DEEP)
def test_nothing_is_broken_in_more_runs_and_sessions(runs, claims):
    """One search for each choice of challenges: together they are the search that no memory holds."""
    world = World(boot="before", runs=runs, sessions=len(claims), claims=claims)
    (search,) = search_all("none", world, ["breaks(any, Z:World)"])
    print(f"\n{world}: {search.states} states")
    assert search.path is None


@pytest.mark.parametrize(("happening", "world"), HAPPENINGS)
def test_the_model_is_not_empty(happening, world):
    (search,) = search_all("none", world, [f"happens({happening}, Z:World)"])
    print(f"\n{happening}: {', '.join(search.path or ())}")
    assert search.path is not None


@pytest.mark.parametrize(("part", "broken", "attack"), ATTACKS)
def test_a_copy_without_one_binding_falls_to_its_attacks_alone(part, broken, attack):
    searches = search_all(part, World(), [f"breaks({name}, Z:World)" for name in PROPERTIES])
    paths = {name: search.path for name, search in zip(PROPERTIES, searches, strict=True) if search.path is not None}
    name, path = attack
    states = max(search.states for search in searches)
    print(f"\nwithout {part}: {states} states, breaks {', '.join(paths)}; {name} by {', '.join(paths.get(name, ()))}")
    assert set(paths) == broken
    assert paths[name] == path
