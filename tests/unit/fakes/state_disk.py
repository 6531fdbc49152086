# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A worker with a state disk in memory: the real plan, steps and job of the disk, in this process."""

from __future__ import annotations

import json
from functools import partial

from ansible_collections.attested.kubernetes.plugins.module_utils.core.command import CommandResult
from ansible_collections.attested.kubernetes.plugins.module_utils.disk.apply import StateDisk
from ansible_collections.attested.kubernetes.plugins.module_utils.disk.helper import keys_of
from ansible_collections.attested.kubernetes.plugins.module_utils.disk.paths import StatePaths
from ansible_collections.attested.kubernetes.plugins.module_utils.disk.plan import Target, Wanted
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.derive import cluster_id
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.master import DiskKey, MeasurementSecret
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.ticket import SealedSecrets, TicketSecrets
from ansible_collections.attested.kubernetes.plugins.module_utils.node.state_disk import (
    DiskSettings,
    MachineDisk,
    VolumeFile,
    held_key,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.identity import Role
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.sealed_box import OneTimeKey, seal
from ansible_collections.attested.kubernetes.tests.unit.fakes.disk import DEVICE, FakeCounter, FakeDevice

KEY = DiskKey(b"p" * 32)
MEASUREMENT_SECRET = MeasurementSecret(b"the measurement secret of tests!")
SALT = b"m" * 32
SECRET, BINDING = b"s" * 32, b"b" * 32
TCTI = "device:/dev/tpmrm0"


def sealed_key(key=KEY, *, name="", others=(), **changes):
    """Return the secrets of a worker's ticket with the key of its disk, as they come; ``others``: during a rotation."""
    secrets = TicketSecrets(
        disk_key=key,
        measurement_secret=MEASUREMENT_SECRET,
        measurement_salt=SALT,
        disk_key_name=name,
        other_disk_keys=tuple(others),
    )
    one_time_key = OneTimeKey.generate()
    known = {
        "box": seal(secrets.to_bytes(), secret=SECRET, binding=BINDING, recipient=one_time_key.public),
        "secret": SECRET,
        "binding": BINDING,
        "one_time_key": one_time_key,
        "cluster_id": cluster_id(MEASUREMENT_SECRET, SALT),
        "role": Role.WORKER,
    }
    return SealedSecrets(**{**known, **changes})


class FakeVolume(FakeDevice):
    """A disk whose directories take the place of the machine's, and leave empty ones behind."""

    def bind(self, target):
        super().bind(target)
        inside = self.paths.inside(target)
        inside.mkdir(parents=True, exist_ok=True)
        if target.exists():
            target.rmdir()
        target.symlink_to(self.filesystem / inside.relative_to(self.paths.mount_point))

    def _unmount(self):
        for target in self.targets:
            target.unlink()
            target.mkdir()
        super()._unmount()


class FakeProcess:
    """Does the job of the process that holds keys, with a disk in memory; remembers every job and command line."""

    def __init__(self, device, paths):
        self.device = device
        self.paths = paths
        self.counter = FakeCounter()
        self.jobs = []
        self.commands = []

    def run(self, argv, *, stdin=None, timeout_seconds=60, env=None, check=True):
        del timeout_seconds, env, check
        self.commands.append(tuple(argv))
        self.jobs.append(json.loads(stdin))
        try:
            answer = self._perform(self.jobs[-1])
        except AttestedError as error:
            kind = type(error).__name__
            answer = {"failed": error.message, "reason": error.code, "hint": error.hint, "kind": kind}
        return CommandResult(argv=tuple(argv), returncode=0, stdout=json.dumps(answer).encode(), stderr=b"")

    def _perform(self, job):
        keys = keys_of(job, mounts=self.paths.mounts)
        wanted = Wanted(
            device=job["device"],
            uuid=job["uuid"],
            target=Target(job["state"]),
            minimum_bytes=job["minimum_bytes"],
            erase=job["erase"],
            volume=bytes.fromhex(job["volume"]) if job["volume"] else None,
            key_name=keys.name,
        )
        held = {"key": keys.key, "former": keys.former}
        disk = StateDisk(self.device, wanted, paths=self.paths, counter=self.counter, **held)
        todo = disk.plan()
        steps = [step.name.lower() for step in todo.steps]
        if job["apply"]:
            disk.apply(todo)
        if wanted.target is Target.DESTROYED:
            return {"steps": steps, "volume": "", "initialised": False}
        volume = disk.volume()
        return {"steps": steps, "volume": volume.volume.hex(), "initialised": volume.initialised}


class DiskBed:
    """One machine's disk below ``root``, and what a site says of it."""

    def __init__(self, root):
        state = root / "run/attested/state-disk"
        mounts = root / "mounts"
        mounts.write_text(f"none {root}/run tmpfs rw 0 0\n")
        (root / "var/lib").mkdir(parents=True, exist_ok=True)
        self.paths = StatePaths(
            memory=state,
            journal=root / "var/lib/attested/state-disk.json",
            mount_point=root / "var/lib/state",
            directories=(root / "var/lib/kubelet",),
            mounts=mounts,
        )
        self.key_directory = root / "run/attested/disk-key"
        self.device = FakeVolume(self.paths, root)
        self.process = FakeProcess(self.device, self.paths)
        self.volumes = VolumeFile(root / "var/lib/attested/volume")

    def disk(self, *, erase=""):
        return MachineDisk(
            DiskSettings(device=DEVICE, erase=erase, minimum_bytes=1 << 30),
            tcti=TCTI,
            paths=self.paths,
            volumes=self.volumes,
            runner=self.process,
            mounts=self.device,
            hold=partial(held_key, directory=self.key_directory, require_memory=lambda _folder: None),
        )
