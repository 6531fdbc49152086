# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which events differ: paired by what they are, told by what differs in them."""

from __future__ import annotations

import hashlib

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.events import event_deviations
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.profile import MeasuredEvent

SAME = "same"


def event(text: str, value: str = "", *, kind: str = "EV_IPL", pcr: int = 4, proven: bool = True) -> MeasuredEvent:
    """An event whose digest is that of ``value``, or of its text."""
    digest = hashlib.sha256((value or text).encode()).digest()
    return MeasuredEvent(pcr=pcr, digest=digest, text=text, proven=proven, kind=kind)


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def pairs(expected: list[MeasuredEvent], got: list[MeasuredEvent]) -> list[tuple[str | None, str | None]]:
    return [
        (one.expected and one.expected.text, one.got and one.got.text) for one in event_deviations(expected, got, [4])
    ]


@pytest.mark.parametrize(
    ("expected", "got", "paired"),
    [
        pytest.param(
            [event("EFI program \\a.efi", "1"), event("EFI program \\b.efi", "2")],
            [event("EFI program \\new.efi"), event("EFI program \\a.efi", "3"), event("EFI program \\b.efi", "4")],
            [
                (None, "EFI program \\new.efi"),
                ("EFI program \\a.efi", "EFI program \\a.efi"),
                ("EFI program \\b.efi", "EFI program \\b.efi"),
            ],
            id="one program more in front moves no other",
        ),
        pytest.param(
            [event("EFI variable PK = empty"), event("EFI variable db = empty")],
            [event("EFI variable db = CN=x"), event("EFI variable PK = CN=y")],
            [
                ("EFI variable db = empty", "EFI variable db = CN=x"),
                ("EFI variable PK = empty", "EFI variable PK = CN=y"),
            ],
            id="variables by their names, in whatever order they came",
        ),
        pytest.param(
            [event("/boot/vmlinuz-6.1.0-18-amd64", "1"), event("/boot/initrd.img-6.1.0-18-amd64", "2")],
            [event("/boot/initrd.img-6.1.0-20-amd64", "3"), event("/boot/vmlinuz-6.1.0-20-amd64", "4")],
            [
                ("/boot/initrd.img-6.1.0-18-amd64", "/boot/initrd.img-6.1.0-20-amd64"),
                ("/boot/vmlinuz-6.1.0-18-amd64", "/boot/vmlinuz-6.1.0-20-amd64"),
            ],
            id="files of another release",
        ),
        pytest.param(
            [event("grub_cmd: set x=old"), event("grub_cmd: linux /v ro")],
            [event("grub_cmd: linux /v rw"), event("grub_cmd: set x=new")],
            [("grub_cmd: linux /v ro", "grub_cmd: linux /v rw"), ("grub_cmd: set x=old", "grub_cmd: set x=new")],
            id="commands by their names",
        ),
        pytest.param(
            [event("kernel_cmdline: /vmlinuz-one ro")],
            [event("grub_cmd: insmod evil"), event("kernel_cmdline: /bzimage rw")],
            [(None, "grub_cmd: insmod evil"), ("kernel_cmdline: /vmlinuz-one ro", "kernel_cmdline: /bzimage rw")],
            id="a command line by its topic",
        ),
        pytest.param(
            [event("separator", kind="EV_SEPARATOR"), event("/boot/good")],
            [event("separator", kind="EV_SEPARATOR"), event("/boot/evil")],
            [("/boot/good", "/boot/evil")],
            id="one put in place of one of its type",
        ),
        pytest.param(
            [event("/boot/good"), event("/boot/more")],
            [event("/boot/evil")],
            [(None, "/boot/evil"), ("/boot/good", None), ("/boot/more", None)],
            id="which of two it stands for is not guessed",
        ),
        pytest.param(
            [event("one", kind="EV_ACTION")],
            [event("one", "other", kind="EV_IPL")],
            [(None, "one"), ("one", None)],
            id="another type is another thing",
        ),
        pytest.param(
            [event("one", kind="")],
            [event("one", "other")],
            [("one", "one")],
            id="a profile that knows no types",
        ),
        pytest.param(
            [event("first"), event("second"), event("third")],
            [event("second"), event("third"), event("first")],
            [("first", "first")],
            id="one that moved",
        ),
        pytest.param(
            [event("old"), *[event(SAME)] * 250],
            [event("new"), *[event(SAME)] * 250],
            [("old", "new")],
            id="a change in front of many equal ones is told alone",
        ),
    ],
)
def test_events_are_paired_by_what_they_are(
    expected: list[MeasuredEvent], got: list[MeasuredEvent], paired: list[tuple[str | None, str | None]]
) -> None:
    assert pairs(expected, got) == paired


@pytest.mark.parametrize(
    ("expected", "got", "told"),
    [
        pytest.param(
            [event("two", kind="")],
            [],
            [f"PCR 4 event: expected 'two' with digest {digest('two')}, got none"],
            id="one that is missing, with its digest",
        ),
        pytest.param(
            [event("one")],
            [event("one"), event("two", proven=False)],
            [f"PCR 4 event (EV_IPL): expected none, got 'two' (logged, not proven) with digest {digest('two')}"],
            id="one more, with its digest",
        ),
        pytest.param(
            [event("EFI program", "old")],
            [event("EFI program", "new", proven=False)],
            [
                (
                    f"PCR 4 event (EV_IPL) 'EFI program' (logged, not proven): expected {digest('old')}, "
                    f"got {digest('new')}"
                ),
            ],
            id="the same words, by the digests",
        ),
        pytest.param(
            [event("a"), event("b"), event("c")],
            [event("b"), event("c"), event("a")],
            ["PCR 4 event (EV_IPL) 'a': expected at another place of the log"],
            id="one that moved",
        ),
        pytest.param(
            [event("EFI variable db = CN=A | CN=Old | CN=B")],
            [event("EFI variable db = CN=A | CN=New | CN=B")],
            ["PCR 4 event (EV_IPL) 'EFI variable db': expected CN=Old, got CN=New"],
            id="a list by the entries that differ",
        ),
        pytest.param(
            [event("EFI variable dbx = hash 01")],
            [event("EFI variable dbx = hash 01 | hash 02", proven=False)],
            ["PCR 4 event (EV_IPL) 'EFI variable dbx': expected none, got hash 02 (logged, not proven)"],
            id="one entry more",
        ),
        pytest.param(
            [event("EFI variable db = CN=A | CN=B")],
            [event("EFI variable db = CN=B | CN=A")],
            ["PCR 4 event (EV_IPL): expected 'EFI variable db = CN=A | CN=B', got 'EFI variable db = CN=B | CN=A'"],
            id="the same entries in another order",
        ),
        pytest.param(
            [event("one ro")],
            [event("one rw")],
            ["PCR 4 event (EV_IPL): expected 'one ro', got 'one rw'"],
            id="other words",
        ),
    ],
)
def test_a_deviation_says_what_differs(
    expected: list[MeasuredEvent], got: list[MeasuredEvent], told: list[str]
) -> None:
    assert [str(one) for one in event_deviations(expected, got, [4])] == told


def test_events_of_one_rank_are_told_register_by_register() -> None:
    reference = (event("a", pcr=9), event("b", pcr=4))
    assert [one.pcr for one in event_deviations(reference, (), [9, 4])] == [4, 9]
