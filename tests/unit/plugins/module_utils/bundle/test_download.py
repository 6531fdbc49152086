# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A file from places that are away, wrong, slow or cut off: what is kept, what is told, what the next run does."""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.bundle import download
from ansible_collections.attested.kubernetes.plugins.module_utils.bundle.download import ROUNDS, Downloader, Upstream
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError, ComponentError
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.tests.unit.fakes.machine import FakeClock
from ansible_collections.attested.kubernetes.tests.unit.fakes.random import SeededRandom

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KUBELET = b"\x7fELF kubelet " * 100_000
FIRST, SECOND = "https://mirror.example/kubelet", "https://upstream.example/kubelet"
AWAY, ABSENT = Reason.COMPONENT_UNREACHABLE, Reason.COMPONENT_NOT_FOUND
PAGE = b"<!DOCTYPE html><title>Log in</title>"


@dataclass
class FakeReply:
    """A body that may break off after some bytes."""

    body: bytes
    start: int
    length: int | None
    is_page: bool
    breaks_after: int | None
    given: int = 0

    def read(self, size: int, /) -> bytes:
        """Return the next bytes; at the break, fail once something was given."""
        if self.breaks_after is not None and self.given >= self.breaks_after:
            raise ConnectionResetError("Connection reset by peer")
        end = min(self.start + self.given + size, self.start + (self.breaks_after or len(self.body)))
        chunk = self.body[self.start + self.given : end]
        self.given += len(chunk)
        return chunk


@dataclass
class FakeWeb:
    """Places by their URLs: content, or a reason; a list is one answer after the other, the last one for ever."""

    places: dict[str, list[bytes | Reason]]
    resumes: bool = True
    tells_length: bool = True
    html: bool = False
    breaks_after: dict[str, int] = field(default_factory=dict)
    asked: list[tuple[str, int]] = field(default_factory=list)

    @contextmanager
    def get(self, url: str, *, start: int) -> Iterator[FakeReply]:
        """Answer as the place does now."""
        self.asked.append((url, start))
        answers = self.places[url]
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Reason):
            raise ComponentError(f"{url}: no", reason=answer)
        begin = start if self.resumes and start < len(answer) else 0
        length = len(answer) - begin if self.tells_length else None
        yield FakeReply(answer, begin, length, self.html, self.breaks_after.pop(url, None))


class NotingClock(FakeClock):  # type: ignore[no-untyped-call]
    """A clock that notes the pauses."""

    def __init__(self) -> None:
        super().__init__()
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        """Note the pause."""
        self.slept.append(seconds)
        super().sleep(seconds)


class RushingClock(NotingClock):
    """Each look at it costs half an hour."""

    def monotonic(self) -> float:
        """Tell the time."""
        self.elapsed += 1800.0
        return self.elapsed


@dataclass
class Bed:
    """A place for the file, and a clock."""

    place: Path
    clock: NotingClock = field(default_factory=NotingClock)

    def fetch(self, web: FakeWeb, *urls: str) -> None:
        """Bring the kubelet."""
        upstream = Upstream(name="kubelet", urls=urls or (FIRST, SECOND), sha256=hashlib.sha256(KUBELET).hexdigest())
        Downloader(web=web, clock=self.clock, random=SeededRandom(1)).fetch(upstream, self.place)

    def error(self, web: FakeWeb, *urls: str) -> AttestedError:
        """Return why it was not brought."""
        with pytest.raises(AttestedError) as caught:
            self.fetch(web, *urls)
        return caught.value


@pytest.fixture
def bed(tmp_path: Path) -> Bed:
    return Bed(tmp_path / "kubelet")


def test_the_first_place_that_has_it_is_enough(bed: Bed) -> None:
    web = FakeWeb({FIRST: [KUBELET], SECOND: [ABSENT]})
    bed.fetch(web)
    assert bed.place.read_bytes() == KUBELET
    assert web.asked == [(FIRST, 0)]


def test_what_lies_there_already_is_not_brought_again(bed: Bed) -> None:
    bed.place.write_bytes(KUBELET)
    web = FakeWeb({FIRST: [AWAY]})
    bed.fetch(web, FIRST)
    assert web.asked == []


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(ABSENT, id="404"),
        pytest.param(AWAY, id="away"),
        pytest.param(KUBELET[::-1], id="another file"),
        pytest.param(PAGE, id="a page of a proxy"),
        pytest.param(b"", id="nothing"),
    ],
)
def test_a_mirror_that_has_it_not_leaves_it_to_the_next(bed: Bed, first: bytes | Reason) -> None:
    bed.fetch(FakeWeb({FIRST: [first], SECOND: [KUBELET]}))
    assert bed.place.read_bytes() == KUBELET
    assert bed.clock.slept == []


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        pytest.param(ABSENT, ABSENT, id="404"),
        pytest.param(KUBELET[::-1], Reason.COMPONENT_HASH_MISMATCH, id="another file"),
        pytest.param(PAGE, Reason.COMPONENT_IS_A_PAGE, id="a page of a proxy"),
        pytest.param(b"\n  <HTML>", Reason.COMPONENT_IS_A_PAGE, id="a page in capitals"),
    ],
)
def test_what_never_passes_is_asked_once_and_the_next_run_succeeds(
    bed: Bed, answer: bytes | Reason, reason: Reason
) -> None:
    web = FakeWeb({FIRST: [answer]})
    error = bed.error(web, FIRST)
    assert (error.reason, len(web.asked), bed.clock.slept) == (reason, 1, [])
    assert FIRST in error.message
    bed.fetch(FakeWeb({FIRST: [KUBELET]}), FIRST)
    assert bed.place.read_bytes() == KUBELET


def test_a_page_is_known_by_its_type_too_and_never_written(bed: Bed) -> None:
    error = bed.error(FakeWeb({FIRST: [b"Please log in"]}, html=True), FIRST)
    assert error.reason is Reason.COMPONENT_IS_A_PAGE
    assert bed.place.read_bytes() == b""


def test_a_place_that_is_away_is_asked_again_after_growing_pauses(bed: Bed) -> None:
    web = FakeWeb({FIRST: [AWAY]})
    assert bed.error(web, FIRST).reason is AWAY
    assert len(web.asked) == ROUNDS
    assert len(bed.clock.slept) == ROUNDS - 1
    windows = [2.0 * 2**attempt for attempt in range(1, ROUNDS)]
    assert all(0 < pause < window for pause, window in zip(bed.clock.slept, windows, strict=True))


def test_a_place_that_comes_back_is_enough(bed: Bed) -> None:
    bed.fetch(FakeWeb({FIRST: [AWAY, AWAY, KUBELET], SECOND: [ABSENT]}))
    assert bed.place.read_bytes() == KUBELET


def test_half_a_download_goes_on_where_it_broke_off(bed: Bed) -> None:
    web = FakeWeb({FIRST: [KUBELET]}, breaks_after={FIRST: 600_000})
    bed.fetch(web, FIRST)
    assert bed.place.read_bytes() == KUBELET
    assert web.asked == [(FIRST, 0), (FIRST, 600_000)]


def test_half_a_download_goes_on_at_another_mirror(bed: Bed) -> None:
    web = FakeWeb({FIRST: [KUBELET], SECOND: [KUBELET]}, breaks_after={FIRST: 600_000})
    bed.fetch(web)
    assert bed.place.read_bytes() == KUBELET
    assert web.asked[-1] == (SECOND, 600_000)


def test_a_server_that_cannot_go_on_begins_anew(bed: Bed) -> None:
    web = FakeWeb({FIRST: [KUBELET]}, resumes=False, breaks_after={FIRST: 600_000})
    bed.fetch(web, FIRST)
    assert bed.place.read_bytes() == KUBELET


def test_a_body_that_ends_early_without_an_error_is_half_a_download(bed: Bed) -> None:
    class Short(FakeWeb):
        @contextmanager
        def get(self, url: str, *, start: int) -> Iterator[FakeReply]:
            with super().get(url, start=start) as reply:
                reply.body = reply.body[:1000]
                yield reply

    error = bed.error(Short({FIRST: [KUBELET]}), FIRST)
    assert error.reason is Reason.COMPONENT_INCOMPLETE
    assert f"of {len(KUBELET)} bytes" in error.message
    assert bed.place.stat().st_size == 1000


def test_a_killed_runs_half_is_gone_on_with_by_the_next(bed: Bed) -> None:
    bed.place.write_bytes(KUBELET[:700_000])
    web = FakeWeb({FIRST: [KUBELET]})
    bed.fetch(web, FIRST)
    assert web.asked == [(FIRST, 700_000)]
    assert bed.place.read_bytes() == KUBELET


def test_a_half_of_something_else_is_thrown_away(bed: Bed) -> None:
    bed.place.write_bytes(b"x" * 700_000)
    web = FakeWeb({FIRST: [KUBELET]})
    bed.fetch(web, FIRST)
    assert web.asked == [(FIRST, 700_000), (FIRST, 0)]
    assert bed.place.read_bytes() == KUBELET


def test_a_length_that_nobody_tells_is_judged_by_the_hash(bed: Bed) -> None:
    bed.fetch(FakeWeb({FIRST: [KUBELET]}, tells_length=False), FIRST)
    assert bed.place.read_bytes() == KUBELET


def test_a_stream_without_end_is_left_and_not_kept(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "MAX_BYTES", 1000)
    error = bed.error(FakeWeb({FIRST: [KUBELET]}), FIRST)
    assert error.reason is Reason.COMPONENT_TOO_LARGE
    assert not bed.place.exists()


def test_a_stream_that_drips_is_left_after_an_hour_and_gone_on_with(bed: Bed) -> None:
    bed.clock = RushingClock()
    web = FakeWeb({FIRST: [KUBELET]})
    bed.fetch(web, FIRST)
    assert bed.place.read_bytes() == KUBELET
    starts = [start for _url, start in web.asked]
    assert len(starts) > 1
    assert starts == sorted(set(starts))


def test_a_full_disk_is_named_and_what_was_brought_makes_room(bed: Bed) -> None:
    """/dev/full takes nothing, as a full disk does."""
    bed.place.symlink_to("/dev/full")
    error = bed.error(FakeWeb({FIRST: [KUBELET]}), FIRST)
    assert error.reason is Reason.FILE_UNUSABLE
    assert "No space left" in error.message
    bed.place.unlink()
    bed.fetch(FakeWeb({FIRST: [KUBELET]}), FIRST)
    assert bed.place.read_bytes() == KUBELET


def test_the_error_is_the_one_that_says_most_and_has_every_story(bed: Bed) -> None:
    error = bed.error(FakeWeb({FIRST: [AWAY], SECOND: [PAGE]}))
    assert error.reason is Reason.COMPONENT_IS_A_PAGE
    assert "COMPONENT_UNREACHABLE" in error.message
    assert "Log in" in error.message
