# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bytes that somebody made up: every parser answers with an object or a `TpmError`, never with another exception."""

from __future__ import annotations

import contextlib

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import TpmError
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.client import Tpm
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.keys import der_prefix
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.storage import SealedObject
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.structures import Attest, Public, Signature
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.templates import (
    EK_ECC,
    EK_RSA,
    Credential,
    make_credential,
)
from ansible_collections.attested.kubernetes.tests.support.tpm import (
    CountingRandom,
    ScriptedTransport,
    SteppingClock,
    public_area,
    response,
    vector,
)
from hypothesis import example, given, settings
from hypothesis import strategies as st

PARSERS = {
    "public area": (Public.parse, [public_area(key) for key in ("ak-ecc", "ak-rsa", "ek")]),
    "quote": (Attest.parse, [vector(f"quote-{key}.tpms_attest") for key in ("ak-ecc", "ak-rsa")]),
    "signature": (Signature.parse, [vector(f"quote-{key}.tpmt_signature") for key in ("ak-ecc", "ak-rsa")]),
}
GOOD = [
    pytest.param(parse, data, id=f"{name} {n}")
    for name, (parse, all_) in PARSERS.items()
    for n, data in enumerate(all_)
]


@pytest.mark.parametrize(("parse", "data"), GOOD)
def test_every_truncation_is_refused(parse, data: bytes) -> None:
    for size in range(len(data)):
        with pytest.raises(TpmError):
            parse(data[:size])


@pytest.mark.parametrize(("parse", "data"), GOOD)
@given(tail=st.binary(min_size=1, max_size=64))
@settings(max_examples=30, deadline=None)
def test_every_trailing_byte_is_refused(parse, data: bytes, tail: bytes) -> None:
    with pytest.raises(TpmError):
        parse(data + tail)


def _use(parsed: object) -> None:
    """Do with an accepted structure what its users do."""
    if isinstance(parsed, Public):
        parsed.name()
        parsed.spki()
    if isinstance(parsed, Signature):
        parsed.raw()


@pytest.mark.parametrize(("parse", "data"), GOOD)
@given(
    changes=st.dictionaries(
        st.integers(min_value=0, max_value=600), st.integers(min_value=0, max_value=255), max_size=4
    )
)
@settings(max_examples=150, deadline=None)
def test_changed_bytes_are_refused_or_come_back_the_same(parse, data: bytes, changes: dict[int, int]) -> None:
    changed = bytearray(data)
    for offset, value in changes.items():
        changed[offset % len(data)] = value
    try:
        parsed = parse(bytes(changed))
        assert parsed.marshal() == bytes(changed)
        _use(parsed)
    except TpmError:
        pass


@pytest.mark.parametrize("parse", [parse for parse, _unused in PARSERS.values()], ids=list(PARSERS))
@given(data=st.binary(max_size=300))
@settings(max_examples=100, deadline=None)
def test_noise_is_refused_or_comes_back_the_same(parse, data: bytes) -> None:
    with contextlib.suppress(TpmError):
        assert parse(data).marshal() == data


@given(unique=st.binary(max_size=300), template=st.sampled_from([EK_RSA, EK_ECC]))
@settings(max_examples=100, deadline=None)
def test_a_made_up_endorsement_key_gets_a_credential_or_an_error(unique: bytes, template: Public) -> None:
    tail = len(unique).to_bytes(2, "big") + unique
    size = 258 if template is EK_RSA else 68
    try:
        made = make_credential(
            Public.parse(template.marshal()[:-size] + tail), b"\x00\x0b" + bytes(32), b"s", CountingRandom()
        )
        made.verify_form()
    except TpmError:
        pass


@given(id_object=st.binary(max_size=80), secret=st.binary(max_size=80))
@settings(max_examples=100, deadline=None)
def test_a_made_up_credential_is_sized_or_refused(id_object: bytes, secret: bytes) -> None:
    try:
        Credential(id_object, secret).verify_form()
        assert int.from_bytes(id_object[:2], "big") == len(id_object) - 2
        assert int.from_bytes(secret[:2], "big") == len(secret) - 2
    except TpmError:
        pass


@given(text=st.text(max_size=200) | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(repr))
@example('{"version": 1e400}')
@settings(max_examples=100, deadline=None)
def test_a_made_up_sealed_object_is_refused(text: str) -> None:
    with pytest.raises(TpmError):
        SealedObject.from_json(text)


@given(data=st.binary(max_size=200))
def test_cutting_a_certificate_out_never_makes_it_longer(data: bytes) -> None:
    assert data.startswith(der_prefix(data))


CALLS = {
    "registers": lambda tpm: tpm.pcr_read(range(24)),
    "event": lambda tpm: tpm.pcr_event(15, b"x"),
    "handles": lambda tpm: tpm.handles(0x81000000),
    "properties": lambda tpm: tpm.properties(),
    "banks": lambda tpm: tpm.banks(),
    "nv": lambda tpm: tpm.nv_read(0x01C00002),
    "public": lambda tpm: tpm.read_public(0x81010001),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=list(CALLS))
@given(bodies=st.lists(st.binary(max_size=120), min_size=8, max_size=8), tag=st.sampled_from([0x8001, 0x8002]))
@settings(max_examples=100, deadline=None)
def test_a_tpm_that_answers_noise_ends_in_an_error(call, bodies: list[bytes], tag: int) -> None:
    answers = [response(0, body, tag=tag) for body in bodies] + [response(0x101)] * 50
    tpm = Tpm(ScriptedTransport(*answers), random=CountingRandom(), clock=SteppingClock(), timeout_seconds=1)
    with contextlib.suppress(TpmError):
        call(tpm)
