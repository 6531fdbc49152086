# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S21: who had the disk rewrites its LUKS2 header: no encryption, another key, endless work. The node looks first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.disk.apply import StateDisk
from ansible_collections.attested.kubernetes.plugins.module_utils.disk.paths import StatePaths
from ansible_collections.attested.kubernetes.plugins.module_utils.disk.plan import Target, Wanted
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.master import DiskKey
from ansible_collections.attested.kubernetes.tests.support.luks import (
    metadata,
    with_bytes,
    with_json,
    with_sequence,
    with_text,
)
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of
from ansible_collections.attested.kubernetes.tests.support.threats import Threat
from ansible_collections.attested.kubernetes.tests.unit.fakes.disk import BASE, DEVICE, UUID, FakeCounter, FakeDevice

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

THREAT = Threat(
    id="S21",
    title="LUKS2 header rewritten",
    case="CVE-2025-59054, CVE-2025-58356: the null cipher in eight systems",
    bed="bytes",
    stops=(
        ("disk/luks_check.py step 3", "LUKS_HEADER_FOREIGN"),
        ("disk/luks_check.py step 2", "LUKS_HEADER_FOREIGN"),
        ("disk/luks_check.py step 4", "LUKS_KEYSLOTS"),
        ("disk/luks_check.py step 4", "LUKS_HEADER_FOREIGN"),
        ("disk/luks_check.py step 5", "LUKS_HEADER_FOREIGN"),
        ("disk/luks_check.py step 6", "LUKS_VOLUME_FOREIGN"),
        ("disk/luks_check.py step 7", "LUKS_HEADER_FOREIGN"),
        ("disk/luks_header.py", "LUKS_DAMAGED"),
        ("disk/luks_header.py", "LUKS_HEADER_MALFORMED"),
    ),
)

KEY = DiskKey(b"p" * 32)
NULL = "cipher_null-ecb"
HOUR = 4294967295


def header(edit: Callable[[dict[str, Any]], object]) -> Callable[[bytes], bytes]:
    """Return what writes a changed JSON into both copies of a header, with right checksums."""
    return lambda begin: with_json(begin, edit)


def second(section: str) -> Callable[[dict[str, Any]], object]:
    return lambda one: one[section].update({"1": one[section]["0"]})


def slot_more(number: str) -> Callable[[dict[str, Any]], object]:
    """Add a slot in an area of its own, as cryptsetup would."""

    def edit(one: dict[str, Any]) -> None:
        one["keyslots"][number] = metadata(BASE)["keyslots"]["1"]
        one["digests"]["0"]["keyslots"] = ["0", number]

    return edit


HOSTILE = [
    pytest.param(
        header(lambda one: one["segments"]["0"].update(encryption=NULL)),
        "LUKS_HEADER_FOREIGN: the cipher",
        id="null cipher",
    ),
    pytest.param(
        header(lambda one: one["keyslots"]["0"]["area"].update(encryption=NULL)),
        "LUKS_HEADER_FOREIGN: the cipher",
        id="null slot",
    ),
    pytest.param(
        header(lambda one: one["segments"]["0"].pop("integrity")),
        "LUKS_HEADER_FOREIGN: integrity by",
        id="no integrity",
    ),
    pytest.param(
        header(lambda one: one["config"].update(requirements={"mandatory": ["online-reencrypt-v2"]})),
        "LUKS_HEADER_FOREIGN: no re-encryption",
        id="re-encryption under way",
    ),
    pytest.param(header(slot_more("5")), "LUKS_KEYSLOTS", id="a slot where no exchange of keys puts one"),
    pytest.param(
        header(lambda one: one["keyslots"]["0"]["kdf"].update(iterations=HOUR)),
        "LUKS_HEADER_FOREIGN: within its bounds",
        id="a slot for an hour",
    ),
    pytest.param(header(second("digests")), "LUKS_HEADER_FOREIGN: digest", id="another volume key's digest"),
    pytest.param(
        header(lambda one: one["digests"]["0"].update(iterations=HOUR)),
        "LUKS_HEADER_FOREIGN: digest",
        id="a digest for an hour",
    ),
    pytest.param(
        header(lambda one: one["digests"]["0"].update(digest="A" * 43 + "=")),
        "LUKS_VOLUME_FOREIGN",
        id="another volume",
    ),
    pytest.param(
        header(lambda one: one["tokens"].update({"1": {"type": "systemd-tpm2", "keyslots": ["0"]}})),
        "LUKS_HEADER_FOREIGN: expected the token",
        id="a token more",
    ),
    pytest.param(
        lambda begin: with_sequence(begin, 99, copies=(1,)), "LUKS_DAMAGED: two equal copies", id="two headers"
    ),
    pytest.param(
        lambda begin: with_json(begin, lambda one: one["segments"]["0"].update(encryption=NULL), copies=(1,)),
        "LUKS_DAMAGED: two equal copies",
        id="two headers, the second one without encryption",
    ),
    pytest.param(
        lambda begin: with_bytes(begin, 8, (4 << 20).to_bytes(8, "big")),
        "LUKS_HEADER_MALFORMED: expected a header of",
        id="4 MiB",
    ),
    pytest.param(lambda begin: with_text(begin, b"[" * 12000), "LUKS_HEADER_MALFORMED: JSON", id="12000 levels"),
    pytest.param(
        lambda begin: with_text(begin, b'{"config":' * 9 + b"0" + b"}" * 9), "LUKS_HEADER_MALFORMED: JSON", id="deep"
    ),
    pytest.param(lambda begin: begin[:20000].ljust(32768, b"\0"), "LUKS_DAMAGED: checksum", id="its second copy cut"),
]


class Watched(FakeDevice):
    """A disk in use whose header the attacker has rewritten; remembers what is done to it, and with which key."""

    def __init__(self, paths: StatePaths, folder: Path) -> None:
        super().__init__(paths, folder)
        self.rewritten: Callable[[bytes], bytes] = lambda begin: begin
        self.done: list[str] = []

    def begin(self) -> bytes:
        return self.rewritten(super().begin())

    def opens(self, slot: int, key: DiskKey) -> bool:
        self.done.append("opens")
        return slot in self.slots and bool(super().opens(slot, key))

    def __getattribute__(self, name: str) -> Any:
        if name in {"erase", "format", "write_token", "add_key", "drop_key", "open", "make_filesystem", "mount"}:
            self.done.append(name)
        return super().__getattribute__(name)


class Node:
    """A node whose disk was in use in an earlier boot, and who remembers its volume."""

    def __init__(self, folder: Path) -> None:
        mounts = folder / "mounts"
        mounts.write_text(f"none {folder}/memory tmpfs rw 0 0\n", encoding="utf-8")
        self.paths = StatePaths(
            memory=folder / "memory",
            journal=folder / "journal.json",
            mount_point=folder / "point",
            directories=(folder / "kubelet",),
            mounts=mounts,
        )
        self.device, self.counter = Watched(self.paths, folder), FakeCounter()
        self.volume: bytes | None = None
        self.run()
        self.volume = self.disk().volume().volume
        self.device.reboot()
        self.device.done.clear()

    def disk(self) -> StateDisk:
        wanted = Wanted(device=DEVICE, uuid=UUID, target=Target.OPENED, minimum_bytes=1, volume=self.volume)
        return StateDisk(self.device, wanted, paths=self.paths, counter=self.counter, key=KEY)

    def run(self) -> None:
        disk = self.disk()
        disk.apply(disk.plan())


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_the_disk_as_it_was_left_is_opened(node: Node) -> None:
    """The measure of the others."""
    node.run()
    assert node.device.mapped
    assert {"opens", "open", "mount"} <= set(node.device.done)


@pytest.mark.parametrize(("rewritten", "code"), HOSTILE)
def test_a_rewritten_header_gets_no_key_and_the_disk_is_not_touched(
    node: Node, rewritten: Callable[[bytes], bytes], code: str
) -> None:
    """Not even tried: what opens a slot would parse the header, and work for as long as that says."""
    node.device.rewritten = rewritten
    assert code_of(node.run) == code
    assert (node.device.done, node.device.mapped) == ([], False)


def test_a_slot_of_the_attackers_where_an_exchange_puts_one_is_refused_and_nothing_is_opened(node: Node) -> None:
    """A disk between two keys has two slots: ours are tried in both, since a judged slot costs what ours cost."""
    node.device.rewritten = header(slot_more("1"))
    assert code_of(node.run) == "LUKS_KEYSLOTS"
    assert (set(node.device.done), node.device.mapped) == ({"opens"}, False)
