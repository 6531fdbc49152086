# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The policy's counter in a real TPM: it only rises, and tpm2-tools read the same value and attributes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemRandom
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import TpmError
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.constants import (
    NV_POLICY_COUNTER,
    RH_ENDORSEMENT,
    RH_OWNER,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.keys import (
    load_attestation_key,
    load_endorsement_key,
    persist_keys,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.storage import (
    COUNTER_ATTRIBUTES,
    NvCounter,
    NvPublic,
    seal,
    unseal,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.templates import Credential, make_credential

if TYPE_CHECKING:
    from collections.abc import Callable

    from ansible_collections.attested.kubernetes.tests.support.swtpm import Opened, Swtpm

INDEX = f"{NV_POLICY_COUNTER:#x}"


def test_it_rises_by_one_and_outlives_resets(swtpm: Swtpm, opened: Opened) -> None:
    with opened(swtpm) as tpm:
        counter = NvCounter(tpm)
        assert counter.read() is None
        first = counter.define()
        assert (counter.define(), counter.increment(), counter.read()) == (first, first + 1, first + 1)
    swtpm.reset()
    with opened(swtpm) as tpm:
        assert NvCounter(tpm).read() == first + 1


def test_deleting_it_brings_no_old_value_back(swtpm: Swtpm, opened: Opened, tool: Callable[..., str]) -> None:
    with opened(swtpm) as tpm:
        counter = NvCounter(tpm)
        counter.define()
        last = counter.increment()
    tool(swtpm, "nvundefine", INDEX, "-C", "o")
    with opened(swtpm) as tpm:
        assert NvCounter(tpm).read() is None
        assert NvCounter(tpm).define() > last


def test_the_tools_read_our_counter(swtpm: Swtpm, opened: Opened, tool: Callable[..., str], tmp_path) -> None:
    with opened(swtpm) as tpm:
        counter = NvCounter(tpm)
        counter.define()
        value = counter.increment()
    tool(swtpm, "nvread", INDEX, "-C", "o", "-o", "counter")
    assert int.from_bytes((tmp_path / "counter").read_bytes(), "big") == value
    printed = tool(swtpm, "nvreadpublic", INDEX)
    assert f"value: {COUNTER_ATTRIBUTES | 1 << 29:#010X}".replace("0X", "0x") in printed
    assert "friendly: ownerwrite|nt=counter|ownerread|authread|no_da|written" in printed.replace("nt=0x1", "nt=counter")
    assert "size: 8" in printed


def test_we_read_the_counter_that_the_tools_increment(swtpm: Swtpm, opened: Opened, tool: Callable[..., str]) -> None:
    with opened(swtpm) as tpm:
        value = NvCounter(tpm).define()
    tool(swtpm, "nvincrement", INDEX, "-C", "o")
    with opened(swtpm) as tpm:
        assert NvCounter(tpm).read() == value + 1


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(("-s", "8", "-a", "ownerwrite|ownerread|authread|no_da"), id="ordinary memory"),
        pytest.param(("-a", "nt=counter|ownerwrite|ownerread|authread|no_da|authwrite"), id="anybody may increment"),
        pytest.param(("-a", "nt=counter|ownerwrite|ownerread|authread|no_da|orderly"), id="lost in a power cut"),
        pytest.param(("-a", "nt=counter|ownerwrite|ownerread|authread"), id="under the lockout"),
        pytest.param(("-a", "nt=counter|ownerwrite|ownerread|authread|no_da", "-g", "sha1"), id="named by SHA-1"),
    ],
)
@pytest.mark.parametrize("action", ["define", "read", "increment"])
def test_an_index_that_is_something_else_is_refused(
    options: tuple[str, ...], action: str, swtpm: Swtpm, opened: Opened, tool: Callable[..., str]
) -> None:
    tool(swtpm, "nvdefine", INDEX, "-C", "o", *options)
    with opened(swtpm) as tpm, pytest.raises(TpmError, match="expected a counter of ours") as caught:
        getattr(NvCounter(tpm), action)()
    assert caught.value.reason is Reason.TPM_NV_FOREIGN


def test_what_does_not_exist_is_not_incremented(swtpm: Swtpm, opened: Opened) -> None:
    with opened(swtpm) as tpm, pytest.raises(TpmError, match="found none") as caught:
        NvCounter(tpm).increment()
    assert caught.value.reason is Reason.TPM_NV_FOREIGN


def test_a_public_area_that_the_bus_changed_opens_nothing(swtpm: Swtpm, opened: Opened, monkeypatch) -> None:
    """The HMAC covers the index's Name, so whoever shows another public area gets no read past us."""
    with opened(swtpm) as tpm:
        counter = NvCounter(tpm)
        counter.define()
        honest = counter._required()
        with pytest.raises(TpmError):
            counter._read(replace(honest, size=7))


def test_its_public_area_survives_the_round_trip() -> None:
    public = NvPublic(index=0x1800001, name_alg=0xB, attributes=5, auth_policy=b"p" * 32, size=8)
    assert NvPublic.parse(public.marshal()) == public
    with pytest.raises(TpmError) as caught:
        NvPublic.parse(public.marshal() + b"\0")
    assert caught.value.reason is Reason.TPM_MALFORMED


# ---- auth values of hierarchies

AUTHS = {RH_OWNER: b"owner-auth", RH_ENDORSEMENT: b"endorsement-auth"}


@pytest.fixture
def guarded(swtpm: Swtpm, tool: Callable[..., str]) -> Swtpm:
    """A TPM whose owner and endorsement hierarchies have auth values."""
    tool(swtpm, "changeauth", "-c", "owner", AUTHS[RH_OWNER].decode())
    tool(swtpm, "changeauth", "-c", "endorsement", AUTHS[RH_ENDORSEMENT].decode())
    return swtpm


def test_the_counter_works_under_the_owners_auth_value(
    guarded: Swtpm, opened: Opened, tool: Callable[..., str], tmp_path
) -> None:
    with opened(guarded, auths=AUTHS) as tpm:
        counter = NvCounter(tpm)
        counter.define()
        value = counter.increment()
    tool(guarded, "nvread", INDEX, "-C", "o", "-P", AUTHS[RH_OWNER].decode(), "-o", "counter")
    assert int.from_bytes((tmp_path / "counter").read_bytes(), "big") == value


def test_keys_credentials_and_seals_work_under_auth_values(guarded: Swtpm, opened: Opened) -> None:
    with opened(guarded, auths=AUTHS) as tpm:
        persist_keys(tpm)
        ek, ak = load_endorsement_key(tpm), load_attestation_key(tpm)
        made: Credential = make_credential(ek.public, ak.name, b"s" * 32, SystemRandom())
        assert tpm.activate_credential(ak, ek, made) == b"s" * 32
        assert unseal(tpm, seal(tpm, b"secret", tpm.pcr_read([7]))) == b"secret"


@pytest.mark.parametrize(
    ("auths", "name"),
    [
        pytest.param({}, "owner", id="none given"),
        pytest.param({RH_ENDORSEMENT: AUTHS[RH_ENDORSEMENT]}, "owner", id="only the endorsement hierarchy's"),
    ],
)
def test_a_counter_in_a_hierarchy_with_an_auth_value_is_refused_by_name(
    auths: dict[int, bytes], name: str, guarded: Swtpm, opened: Opened
) -> None:
    with opened(guarded, auths=auths) as tpm, pytest.raises(TpmError, match=f"the {name} hierarchy") as caught:
        NvCounter(tpm).define()
    assert caught.value.reason is Reason.TPM_HIERARCHY_AUTH


def test_a_wrong_auth_value_is_refused(guarded: Swtpm, opened: Opened) -> None:
    with (
        opened(guarded, auths={**AUTHS, RH_OWNER: b"guess"}) as tpm,
        pytest.raises(TpmError, match="BAD_AUTH|AUTH_FAIL"),
    ):
        NvCounter(tpm).define()
