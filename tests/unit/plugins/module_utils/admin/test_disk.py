# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What preflight sees of a state disk; how the device itself is read is the state disk's own test."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.admin import preflight
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.preflight_checks import DiskView
from ansible_collections.attested.kubernetes.plugins.module_utils.core.command import CommandResult
from ansible_collections.attested.kubernetes.plugins.module_utils.disk.plan import DiskFacts, Signature
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import SystemFault
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.tests.support.luks import vector

DEVICE = "/dev/disk/by-id/virtio-state"
LUKS = (Signature(type="crypto_LUKS", offset=0),)
EMPTY = DiskFacts(
    device=DEVICE, node="/dev/vdb", size_bytes=1 << 30, sector_bytes=512, signatures=(), blank=True, begin=bytes(32768)
)
FORMATTED = replace(EMPTY, blank=False, signatures=LUKS, begin=vector())


class Cryptsetup:
    """Says its version, or is not there."""

    def __init__(self, said: str | None = "cryptsetup 2.6.1 flags: UDEV BLKID KEYRING KERNEL_CAPI \n") -> None:
        self.said = said

    def run(self, argv, **_options):
        if self.said is None:
            raise SystemFault("no cryptsetup", reason=Reason.COMMAND_MISSING)
        return CommandResult(argv=tuple(argv), returncode=0, stdout=self.said.encode(), stderr=b"")


def seen(monkeypatch: pytest.MonkeyPatch, facts: DiskFacts | None) -> DiskView:
    class Device:
        def __init__(self, device, **_parts):
            assert device == DEVICE

        def facts(self, uuid):
            assert uuid == ""
            return facts

    monkeypatch.setattr(preflight, "LinuxDevice", Device)
    return preflight.read_disk_view(DEVICE, runner=Cryptsetup(), follower=None)


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        pytest.param(None, {"present": False}, id="no disk"),
        pytest.param(EMPTY, {}, id="an empty one"),
        pytest.param(FORMATTED, {"ours": True, "contents": "crypto_LUKS at 0"}, id="one of ours, closed"),
        pytest.param(
            replace(FORMATTED, users=("attested-state_dif",)),
            {"ours": True, "contents": "crypto_LUKS at 0"},
            id="one of ours, open",
        ),
        pytest.param(replace(EMPTY, users=("vg0-data",)), {"users": ("vg0-data",)}, id="in use by another"),
        pytest.param(
            replace(FORMATTED, begin=b"LUKS\xba\xbe" + bytes(32762)), {"contents": "crypto_LUKS at 0"}, id="other LUKS"
        ),
        pytest.param(replace(EMPTY, blank=False), {"contents": "data of no known kind"}, id="unknown data"),
    ],
)
def test_a_disk_as_it_is(monkeypatch: pytest.MonkeyPatch, facts: DiskFacts | None, expected: dict[str, object]):
    known = {} if facts is None else {"size_bytes": 1 << 30}
    assert seen(monkeypatch, facts) == replace(DiskView(cryptsetup=(2, 6)), **known, **expected)


@pytest.mark.parametrize(
    ("said", "version"),
    [
        pytest.param("cryptsetup 2.10.0 flags: UDEV", (2, 10), id="two digits"),
        pytest.param("another program 1.0", None, id="another program"),
        pytest.param(None, None, id="none"),
    ],
)
def test_the_version_of_cryptsetup(said: str | None, version: tuple[int, int] | None):
    view = preflight.read_disk_view("/dev/disk/by-id/no-such-disk", runner=Cryptsetup(said), follower=None)
    assert (view.present, view.cryptsetup) == (False, version)


def test_a_disk_that_is_not_named_by_its_id_is_told_by_its_code():
    view = preflight.read_disk_view("/dev/sdb", runner=Cryptsetup(), follower=None)
    assert "(STATE_DISK_OPTION)" in view.problem
