# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""connection.py and client.py against scripted answers: what a real TPM seldom does."""

from __future__ import annotations

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import TpmError
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.client import Tpm
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.commands import Command, ResponseError
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.structures import (
    PcrSelection,
    marshal_selections,
    sized,
    u8,
    u16,
    u32,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.templates import AK, SRK
from ansible_collections.attested.kubernetes.tests.support.tpm import (
    CountingRandom,
    ScriptedTransport,
    SteppingClock,
    response,
)

SIMPLE = Command(code=0x165)
NONE_LOADED = response(0, u8(0) + u32(1) + u32(0))


def _tpm(*answers: bytes, managed: bool = False) -> tuple[Tpm, ScriptedTransport, SteppingClock]:
    transport, clock = ScriptedTransport(*answers, managed=managed), SteppingClock()
    return Tpm(transport, random=CountingRandom(), clock=clock, timeout_seconds=10), transport, clock


def _handles(*handles: int, more: bool = False) -> bytes:
    return response(0, u8(more) + u32(1) + u32(len(handles)) + b"".join(map(u32, handles)))


@pytest.mark.parametrize("code", [0x922, 0x908, 0x90A], ids=["RETRY", "YIELDED", "TESTING"])
def test_a_tpm_that_is_not_ready_is_asked_again_with_the_same_bytes(code: int) -> None:
    tpm, transport, clock = _tpm(response(code), response(code), response())
    tpm.execute(SIMPLE)
    assert len(transport.sent) == 3
    assert len(set(transport.sent)) == 1
    assert clock.seconds == pytest.approx(0.03)


def test_a_tpm_that_never_gets_ready_is_busy() -> None:
    tpm, transport, clock = _tpm(*[response(0x922)] * 100)
    with pytest.raises(ResponseError, match="TPM_RC_RETRY") as caught:
        tpm.execute(SIMPLE)
    assert caught.value.reason is Reason.TPM_BUSY
    assert 10 <= clock.seconds < 11
    assert len(transport.sent) < 40


def test_what_a_killed_client_left_is_flushed_when_there_is_no_room() -> None:
    tpm, transport, _unused = _tpm(
        response(0x902), _handles(0x80000000), _handles(0x02000001), response(), response(), response()
    )
    tpm.execute(SIMPLE)
    flushed = [frame[10:].hex() for frame in transport.sent[3:5]]
    assert flushed == ["80000000", "02000001"]
    assert transport.sent[5] == transport.sent[0]


def test_the_clients_own_objects_are_not_flushed_to_make_room() -> None:
    own = Command(code=0x131, returns_handle=True)
    tpm, transport, _unused = _tpm(response(0, u32(0x80000000)), response(0x902), _handles(0x80000000), _handles())
    tpm.execute(own)
    with pytest.raises(ResponseError, match="OBJECT_MEMORY") as caught:
        tpm.execute(SIMPLE)
    assert "tpm2_flushcontext" in caught.value.hint
    assert len(transport.sent) == 4


def test_behind_a_resource_manager_nothing_of_others_is_touched() -> None:
    tpm, transport, _unused = _tpm(response(0x902), managed=True)
    with pytest.raises(ResponseError, match="OBJECT_MEMORY"):
        tpm.execute(SIMPLE)
    assert len(transport.sent) == 1


def test_closing_flushes_what_was_loaded_last_first_and_goes_on_after_an_error() -> None:
    load = Command(code=0x131, returns_handle=True)
    answers = [response(0, u32(handle)) for handle in (0x80000000, 0x80000001)]
    tpm, transport, _unused = _tpm(*answers, response(0x18B), response())
    tpm.execute(load)
    tpm.execute(load)
    tpm.close()
    assert [frame[10:].hex() for frame in transport.sent[2:]] == ["80000001", "80000000"]
    assert transport.closed


def test_handles_are_read_page_by_page() -> None:
    tpm, transport, _unused = _tpm(_handles(0x81000000, 0x81000001, more=True), _handles(0x81010001))
    assert tpm.handles(0x81000000) == (0x81000000, 0x81000001, 0x81010001)
    assert transport.sent[1][14:18] == u32(0x81000002)


def test_handles_without_end_are_refused() -> None:
    tpm, _unused, _unused = _tpm(*[_handles(0x81000000 + n, more=True) for n in range(9)])
    with pytest.raises(TpmError, match="pages of handles"):
        tpm.handles(0x81000000)


def test_handles_behind_the_last_one_are_refused() -> None:
    tpm, _unused, _unused = _tpm(_handles(0xFFFFFFFF, more=True))
    with pytest.raises(TpmError, match="the last handle without more after it") as caught:
        tpm.handles(0x81000000)
    assert caught.value.reason is Reason.TPM_MALFORMED


def test_another_capability_than_the_one_asked_for_is_refused() -> None:
    tpm, _unused, _unused = _tpm(response(0, u8(0) + u32(6) + u32(0)))
    with pytest.raises(TpmError, match="expected capability 1, got 6"):
        tpm.handles(0x81000000)


def _registers(counter: int, *indices: int, fill: int = 0, selected: tuple[int, ...] | None = None) -> bytes:
    selection = PcrSelection.of(indices if selected is None else selected)
    values = b"".join(sized(bytes([fill]) * 32) for _unused in indices)
    return response(0, u32(counter) + marshal_selections([selection]) + u32(len(indices)) + values)


def test_registers_come_in_several_answers() -> None:
    tpm, transport, _unused = _tpm(_registers(7, *range(8)), _registers(7, 8, 9))
    assert sorted(tpm.pcr_read(range(10))) == list(range(10))
    assert transport.sent[1][10:] == marshal_selections([PcrSelection.of([8, 9])])


def test_registers_that_move_between_two_answers_are_read_again() -> None:
    tpm, _unused, _unused = _tpm(
        _registers(7, *range(8), fill=1), _registers(8, 8, fill=1), _registers(8, *range(8)), _registers(8, 8)
    )
    assert set(tpm.pcr_read(range(9)).values()) == {bytes(32)}


def test_registers_that_never_stand_still_are_an_error() -> None:
    tpm, _unused, _unused = _tpm(
        *[answer for n in range(5) for answer in (_registers(2 * n, *range(8)), _registers(2 * n + 1, 8))]
    )
    with pytest.raises(TpmError, match="stay the same") as caught:
        tpm.pcr_read(range(9))
    assert caught.value.reason is Reason.TPM_BUSY


def test_a_bank_without_registers_is_named() -> None:
    tpm, _unused, _unused = _tpm(_registers(7))
    with pytest.raises(TpmError, match=r"0x000b with the registers \[4\]") as caught:
        tpm.pcr_read([4])
    assert caught.value.reason is Reason.TPM_PCR_UNAVAILABLE


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(_registers(7, 4, selected=(5,)), id="another register"),
        pytest.param(_registers(7, 4, selected=(4, 5)), id="fewer values than registers"),
        pytest.param(_registers(7, 4)[:5] + b"\x00" + _registers(7, 4)[6:], id="a wrong size"),
    ],
)
def test_an_answer_that_is_not_the_registers_asked_for_is_refused(answer: bytes) -> None:
    tpm, _unused, _unused = _tpm(answer)
    with pytest.raises(TpmError) as caught:
        tpm.pcr_read([4])
    assert caught.value.reason is Reason.TPM_MALFORMED


def test_a_key_that_is_not_of_the_template_is_refused() -> None:
    created = u32(0x80000000) + u32(len(sized(SRK.marshal()))) + sized(SRK.marshal()) + sized(b"") + u8(1) + sized(b"")
    tpm, _unused, _unused = _tpm(response(0, u8(0) + u32(6) + u32(0)), response(0, created, tag=0x8002))
    with pytest.raises(TpmError, match="a key of the template"):
        tpm.create_primary(0x4000000B, AK)


@pytest.mark.parametrize(
    ("hierarchy", "permanent", "text"),
    [
        pytest.param(0x40000001, 1, "the owner hierarchy", id="owner"),
        pytest.param(0x4000000B, 2, "the endorsement hierarchy", id="endorsement"),
    ],
)
def test_a_hierarchy_with_a_password_is_named(hierarchy: int, permanent: int, text: str) -> None:
    tpm, transport, _unused = _tpm(response(0, u8(0) + u32(6) + u32(1) + u32(0x200) + u32(permanent)))
    with pytest.raises(TpmError, match=text) as caught:
        tpm.create_primary(hierarchy, AK)
    assert caught.value.reason is Reason.TPM_HIERARCHY_AUTH
    assert len(transport.sent) == 1


def test_an_nv_index_is_read_in_the_pieces_that_the_tpm_gives() -> None:
    public = sized(u32(0x1C00002) + u16(0xB) + u32(1 << 18) + sized(b"") + u16(5)) + sized(b"")
    parts = [
        response(0, u32(len(part) + 2) + sized(part) + sized(b"") + u8(1) + sized(b""), tag=0x8002)
        for part in (b"abc", b"de")
    ]
    limit = response(0, u8(0) + u32(6) + u32(1) + u32(0x12C) + u32(3))
    tpm, transport, _unused = _tpm(response(0, public), limit, *parts)
    assert tpm.nv_read(0x1C00002) == b"abcde"
    assert [frame[-4:] for frame in transport.sent[2:]] == [u16(3) + u16(0), u16(2) + u16(3)]


def _authorised(parameters: bytes) -> bytes:
    return response(0, u32(len(parameters)) + parameters + sized(b"") + u8(1) + sized(b""), tag=0x8002)


def test_an_nv_index_that_gives_nothing_does_not_go_on_for_ever() -> None:
    public = sized(u32(0x1C00002) + u16(0xB) + u32(1 << 18) + sized(b"") + u16(5)) + sized(b"")
    tpm, _unused, _unused = _tpm(response(0, public), response(0, u8(0) + u32(6) + u32(0)), _authorised(sized(b"")))
    with pytest.raises(TpmError, match="5 bytes in NV index 0x01c00002, got 0"):
        tpm.nv_read(0x1C00002)


def test_an_event_in_a_bank_of_unknown_size_is_refused() -> None:
    tpm, _unused, _unused = _tpm(_authorised(u32(1) + u16(0x12) + bytes(32)))
    with pytest.raises(TpmError, match="a SHA-1 or SHA-2 bank"):
        tpm.pcr_event(15, b"x")


@pytest.mark.parametrize(
    ("index", "size"),
    [pytest.param(0x1C00003, 5, id="another index"), pytest.param(0x1C00002, 20000, id="more than a certificate")],
)
def test_an_nv_index_is_refused_that_is(index: int, size: int) -> None:
    public = sized(u32(index) + u16(0xB) + u32(1 << 18) + sized(b"") + u16(size)) + sized(b"")
    tpm, _unused, _unused = _tpm(response(0, public))
    with pytest.raises(TpmError) as caught:
        tpm.nv_read(0x1C00002)
    assert caught.value.reason is Reason.TPM_MALFORMED
