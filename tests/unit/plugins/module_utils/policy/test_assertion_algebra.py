# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is true of every assertion, end and exception: to demand less never refuses more, to prove less or come later
never accepts more, and nobody but its machine has an exception."""

from __future__ import annotations

import hashlib
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import PolicyError
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.assertions import (
    Assertions,
    BootFacts,
    Loader,
    Lockdown,
    failed_assertions,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.cluster import (
    NamedDigest,
    PolicyException,
    plan_policy,
    profile_sha256,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.decision import decide
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.in_force import CountingProfiles, SignedPolicy
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.profile import (
    AllowedValue,
    MeasurementProfile,
    Posture,
)
from hypothesis import given
from hypothesis import strategies as st

NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)
VALUE = b"v" * 32
MACHINES = tuple(f"{number:064x}" for number in range(3))

OPTIONS = ["ro", "rw", "quiet", "init=/bin/sh", "root=/dev/a", "lockdown=none", "lockdown=integrity"]
VERSIONS = ["1.2", "1.10", "1.10-3", "2"]
RELEASES = ["6.1.0", "6.12.117", "6.12.118"]
SIGNERS = ["SHA256:a", "SHA256:b"]
CONFIGS = ["aa" * 32, "bb" * 32]
GENERATIONS = st.dictionaries(st.sampled_from(["sbat", "shim", "grub"]), st.integers(0, 4), max_size=3)

ASSERTIONS = st.builds(
    Assertions,
    secure_boot=st.booleans(),
    lockdown=st.sampled_from([None, *Lockdown]),
    boot_options=st.none() | st.lists(st.sampled_from([*OPTIONS, "root=*", "lockdown=*"]), max_size=4).map(tuple),
    firmware_minimum=st.sampled_from(["", *VERSIONS]),
    kernels=st.lists(st.sampled_from(RELEASES), max_size=2).map(tuple),
    sbat_minimum=GENERATIONS,
    source_signers=st.lists(st.sampled_from(SIGNERS), max_size=2).map(tuple),
    source_minimum=st.integers(0, 3),
    node_configs=st.lists(st.sampled_from(CONFIGS), max_size=2).map(tuple),
)
FACTS = st.builds(
    BootFacts,
    secure_boot=st.sampled_from([None, False, True]),
    command_lines=st.dictionaries(
        st.sampled_from(Loader),
        st.lists(st.lists(st.sampled_from(OPTIONS), max_size=3).map(" ".join), max_size=2).map(tuple),
    ),
    firmware_version=st.sampled_from(["", *VERSIONS]),
    kernel=st.sampled_from([b"", *(hashlib.sha256(one.encode()).digest() for one in RELEASES)]),
    sbat_level=GENERATIONS,
    source_signer=st.sampled_from(["", "SHA256:c", *SIGNERS]),
    source_version=st.integers(0, 3),
)
TIMES = st.integers(-2, 2).map(lambda hours: NOW + timedelta(hours=hours))


def holds(assertions, facts, by=Loader.IMAGE):
    return not failed_assertions(assertions, facts, measured_by=by)


def codes(assertions, facts):
    return {failed.reason.name for failed in failed_assertions(assertions, facts, measured_by=Loader.IMAGE)}


@given(assertions=ASSERTIONS, facts=FACTS, name=st.sampled_from([field.name for field in fields(Assertions)]))
def test_an_assertion_that_is_dropped_never_refuses_more(assertions, facts, name):
    less = replace(assertions, **{name: getattr(Assertions(), name)})
    assert codes(less, facts) <= codes(assertions, facts)


@given(assertions=ASSERTIONS, facts=FACTS, option=st.sampled_from([*OPTIONS, "init=*"]))
def test_one_more_boot_option_never_refuses_more(assertions, facts, option):
    more = replace(assertions, boot_options=(*(assertions.boot_options or ()), option))
    if assertions.boot_options is not None:
        assert holds(more, facts) >= holds(assertions, facts)


@given(assertions=ASSERTIONS, facts=FACTS, release=st.sampled_from(RELEASES))
def test_one_more_kernel_never_refuses_more(assertions, facts, release):
    if assertions.kernels:
        more = replace(assertions, kernels=(*assertions.kernels, release))
        assert holds(more, facts) >= holds(assertions, facts)


@given(assertions=ASSERTIONS, facts=FACTS, data=st.data())
def test_a_lower_minimum_never_refuses_more(assertions, facts, data):
    lower = replace(
        assertions,
        lockdown=Lockdown.INTEGRITY if assertions.lockdown else None,
        firmware_minimum=data.draw(
            st.sampled_from(["", *VERSIONS[: [*VERSIONS, ""].index(assertions.firmware_minimum)]])
        ),
        sbat_minimum={name: data.draw(st.integers(0, least)) for name, least in assertions.sbat_minimum.items()},
        source_minimum=data.draw(st.integers(0, assertions.source_minimum)),
    )
    assert holds(lower, facts) >= holds(assertions, facts)


@given(assertions=ASSERTIONS, facts=FACTS, name=st.sampled_from([field.name for field in fields(BootFacts)]))
def test_what_is_not_proven_never_accepts_more(assertions, facts, name):
    less = replace(facts, **{name: getattr(BootFacts(), name)})
    assert holds(assertions, less) <= holds(assertions, facts)


@given(assertions=ASSERTIONS, facts=FACTS, line=st.lists(st.sampled_from(OPTIONS), max_size=3).map(" ".join))
def test_one_more_command_line_never_accepts_more(assertions, facts, line):
    """All that a kernel was started with is judged, not the best of it."""
    told = facts.lines_by(Loader.IMAGE)
    if told:
        more = replace(facts, command_lines={**facts.command_lines, Loader.IMAGE: (*told, line)})
        assert holds(assertions, more) <= holds(assertions, facts)


@given(assertions=ASSERTIONS, facts=FACTS, by=st.sampled_from(Loader))
def test_to_know_nothing_of_who_measured_never_accepts_more(assertions, facts, by):
    assert holds(assertions, facts, None) <= holds(assertions, facts, by)


@given(assertions=ASSERTIONS, facts=FACTS, other=FACTS, by=st.sampled_from(Loader))
def test_what_another_loader_would_have_measured_changes_nothing(assertions, facts, other, by):
    """Whoever rules the machine may write the registers of a loader that did not run."""
    forged = {**other.command_lines, by: facts.lines_by(by)}
    kernel = facts.kernel if by is Loader.IMAGE else other.kernel
    assert holds(assertions, replace(facts, command_lines=forged, kernel=kernel), by) == holds(assertions, facts, by)


def accepting(profiles, facts, now):
    """Return the name of the profile that accepts, or None."""
    try:
        return decide(profiles, {4: VALUE, 7: VALUE}, (), facts=facts, now=now).profile
    except PolicyError:
        return None


def profile_of(name, **said):
    held = (AllowedValue(VALUE, "v"),)
    return MeasurementProfile(
        name=name, posture=Posture.BOOT, registers={4: held, 7: held}, loader=Loader.IMAGE, **said
    )


PROFILES = st.lists(
    st.builds(
        profile_of, st.sampled_from("abc"), assertions=ASSERTIONS, expires=st.none() | TIMES, retired=st.booleans()
    ),
    max_size=3,
    unique_by=lambda profile: profile.name,
)


@given(profiles=PROFILES, facts=FACTS, now=TIMES)
def test_a_boot_is_accepted_if_and_only_if_a_profile_in_force_asserts_nothing_against_it(profiles, facts, now):
    allowing = [
        one.name
        for one in profiles
        if not one.retired and (one.expires is None or now < one.expires) and holds(one.assertions, facts)
    ]
    assert accepting(profiles, facts, now) == min(allowing, default=None)


@given(profiles=PROFILES, facts=FACTS, now=TIMES, later=st.integers(0, 4))
def test_time_alone_never_accepts(profiles, facts, now, later):
    if accepting(profiles, facts, now + timedelta(hours=later)) is not None:
        assert accepting(profiles, facts, now) is not None


EXCEPTIONS = st.lists(
    st.builds(
        lambda one, machines, expires: PolicyException(
            profile=NamedDigest(one.name, profile_sha256(one)), machines=tuple(machines), expires=expires, why="tried"
        ),
        st.sampled_from([profile_of(name) for name in "xyz"]),
        st.lists(st.sampled_from(MACHINES), max_size=2, unique=True),
        TIMES,
    ),
    max_size=4,
)


def counting(exceptions, machine, now, objects="abxyz"):
    """Return the profiles that count for a machine under a policy that names a and b and excepts some others."""
    policy = plan_policy(generation=1, profiles=map(profile_of, "ab"), identities=(), revoked=(), exceptions=exceptions)
    found = SignedPolicy(
        counting=CountingProfiles(policy, [profile_of(name) for name in objects]),
        revoked=frozenset(),
        identities=(),
        ek_sha256=machine,
        now=now,
    )
    return {one.name for one in found.profiles()}


@given(exceptions=EXCEPTIONS, machine=st.sampled_from(MACHINES), now=TIMES)
def test_an_exception_counts_for_its_machines_until_it_ends_and_for_nothing_else(exceptions, machine, now):
    excepted = {one.profile.name for one in exceptions if machine in one.machines and now < one.expires}
    assert counting(exceptions, machine, now) == {"a", "b"} | excepted


@given(exceptions=EXCEPTIONS, more=EXCEPTIONS, machine=st.sampled_from(MACHINES), now=TIMES)
def test_one_more_exception_never_refuses_more(exceptions, more, machine, now):
    assert counting([*exceptions, *more], machine, now) >= counting(exceptions, machine, now)


@given(exceptions=EXCEPTIONS, machine=st.sampled_from(MACHINES), now=TIMES, hours=st.integers(0, 4))
def test_an_exception_never_comes_back(exceptions, machine, now, hours):
    assert counting(exceptions, machine, now + timedelta(hours=hours)) <= counting(exceptions, machine, now)


@given(exceptions=EXCEPTIONS, machine=st.sampled_from(MACHINES), now=TIMES)
def test_an_exception_brings_no_profile_that_is_not_there(exceptions, machine, now):
    """The digest says what counts; the object itself has to be there, and to say just that."""
    assert counting(exceptions, machine, now, objects="ab") == {"a", "b"}


@pytest.mark.parametrize("said", [{"retired": True}, {"expires": NOW}, {"assertions": Assertions(secure_boot=True)}])
def test_an_exception_for_a_profile_is_none_for_another_of_its_name(said):
    one = PolicyException(
        profile=NamedDigest("x", profile_sha256(profile_of("x"))),
        machines=MACHINES,
        expires=NOW + timedelta(hours=1),
        why="tried",
    )
    policy = plan_policy(generation=1, profiles=(), identities=(), revoked=(), exceptions=[one])
    assert policy.excepted(profile_of("x"), MACHINES[0], now=NOW)
    assert not policy.excepted(profile_of("x", **said), MACHINES[0], now=NOW)
