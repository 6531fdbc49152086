# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A state disk in memory, with headers that the strict reader takes, and a counter beside it."""

from __future__ import annotations

from ansible_collections.attested.kubernetes.plugins.module_utils.disk.luks_check import state_token
from ansible_collections.attested.kubernetes.plugins.module_utils.disk.luks_header import read_header
from ansible_collections.attested.kubernetes.plugins.module_utils.disk.plan import DiskFacts, Signature
from ansible_collections.attested.kubernetes.tests.support.luks import vector, with_json, with_sequence

BASE = vector("state-disk-two-slots")
UUID = read_header(BASE).uuid
DEVICE = "/dev/disk/by-id/virtio-state"


class FakeCounter:
    """A counter that survives everything."""

    def __init__(self):
        self.value = None

    def define(self):
        if self.value is None:
            self.value = 41
        return self.value

    def read(self):
        return self.value

    def increment(self):
        self.value += 1
        return self.value


class FakeDevice:
    """One disk: slots and token of its header, a folder that is the file system inside of it."""

    def __init__(self, paths, folder):
        self.paths = paths
        self.filesystem = folder / "inside"
        self.slots = None
        self.token = None
        self.sequence = 0
        self.mapped = False
        self.targets = set()
        self.wipes = 0

    def reboot(self):
        """Lose what is in memory: mapping, mounts, and the files on tmpfs."""
        self._unmount()
        self.mapped = False
        for path in self.paths.memory.glob("*"):
            path.unlink()

    def facts(self, uuid):
        assert uuid == UUID
        begin = self.begin()
        luks = self.slots is not None
        return DiskFacts(
            device=DEVICE,
            node="/dev/vdb",
            size_bytes=8 << 30,
            sector_bytes=512,
            signatures=(Signature(type="crypto_LUKS", offset=0),) if luks else (),
            blank=not luks,
            begin=begin,
            mapped=self.mapped,
        )

    def begin(self):
        if self.slots is None:
            return bytes(32768)

        def edit(members):
            names = sorted(str(slot) for slot in self.slots)
            members["keyslots"] = {name: members["keyslots"][name] for name in names}
            members["digests"]["0"]["keyslots"] = names
            members["tokens"] = {} if self.token is None else {"0": state_token(initialised=self.token)}

        return with_sequence(with_json(BASE, edit), self.sequence)

    def opens(self, slot, key):
        assert self.paths.header.exists(), "a key is tried on a copy that was judged"
        return self.slots[slot] == key.reveal()

    def erase(self):
        self.slots = self.token = None

    def discard(self):
        assert not self.mapped
        self.slots = self.token = None

    def format(self, *, uuid, key, progress):
        assert uuid == UUID
        assert not self.mapped
        self._change({0: key.reveal()}, None)
        self.wipes += 1
        progress(1, 2)

    def write_token(self, *, initialised):
        assert (self.token is not None) == initialised, "the first one is new, the second one replaces it"
        self._change(self.slots, initialised)

    def add_key(self, *, slot, known, new):
        assert known.reveal() in self.slots.values()
        assert slot not in self.slots
        self._change({**self.slots, slot: new.reveal()}, self.token)

    def drop_key(self, *, slot, known):
        rest = {number: key for number, key in self.slots.items() if number != slot}
        assert known.reveal() in rest.values(), "a slot goes only if another one opens"
        self._change(rest, self.token)

    def copy_header(self):
        self.paths.header.write_bytes(self.begin())
        return read_header(self.begin())

    def open(self, key, *, slot=0):
        assert self.paths.header.exists(), "it is opened by a copy that was judged"
        assert self.slots[slot] == key.reveal()
        self.mapped = True

    def close(self):
        self._unmount()
        self.mapped = False

    def make_filesystem(self):
        assert self.mapped
        assert not self.mounted()
        assert not self.token, "a disk in use is never made anew"
        self.filesystem.mkdir(exist_ok=True)
        for path in self.filesystem.glob("*"):
            path.unlink()

    def mounted(self):
        return self.paths.mount_point.is_symlink()

    def mount(self, *, checked):
        del checked
        assert self.mapped
        if not self.mounted():
            self.paths.mount_point.symlink_to(self.filesystem)

    def bound(self, target):
        return target in self.targets

    def bind(self, target):
        assert self.mounted()
        self.targets.add(target)

    def _change(self, slots, token):
        self.slots, self.token = dict(slots), token
        self.sequence += 1

    def _unmount(self):
        self.paths.mount_point.unlink(missing_ok=True)
        self.targets.clear()
