# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The commands as they are run: every parameter pinned, keys over standard input alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.command import CommandResult
from ansible_collections.attested.kubernetes.plugins.module_utils.disk import gateway
from ansible_collections.attested.kubernetes.plugins.module_utils.disk.gateway import LinuxDevice
from ansible_collections.attested.kubernetes.plugins.module_utils.disk.paths import StatePaths
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.master import DiskKey
from ansible_collections.attested.kubernetes.tests.support.canary import spellings
from ansible_collections.attested.kubernetes.tests.support.luks import vector
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of

FIRST, PERMANENT = DiskKey(bytes(range(32))), DiskKey(bytes(range(64, 96)))
UUID = "71111111-2222-4333-8444-555555555555"


class Recorder:
    """Takes commands and remembers them; ends as it is told."""

    def __init__(self, *, returncode=0, lines=()):
        self.calls = []
        self.returncode = returncode
        self.lines = lines

    def run(self, argv, *, stdin=None, timeout_seconds=60, env=None, check=True):
        del timeout_seconds, check
        self.calls.append((tuple(argv), env, stdin))
        return CommandResult(argv=tuple(argv), returncode=self.returncode, stdout=b"", stderr=b"said")

    def follow(self, argv, *, stdin, on_line, timeout_seconds):
        for line in self.lines:
            on_line(line)
        self.run(argv, stdin=stdin, timeout_seconds=timeout_seconds)


@pytest.fixture
def disk(tmp_path):
    """A file in the place of the device, with a header, and a recorder."""
    image = tmp_path / "disk"
    image.write_bytes(vector("state-disk"))
    paths = StatePaths(memory=tmp_path, mount_point=tmp_path / "point", directories=())

    def make(**options):
        recorder = Recorder(**options)
        return LinuxDevice(str(image), paths=paths, runner=recorder, follower=recorder), recorder

    return make


def test_the_shape_of_a_disk_is_pinned():
    words = gateway.format_disk("/dev/vdb", uuid=UUID)
    assert words == (
        *("cryptsetup", "luksFormat", "--batch-mode", "--type", "luks2", "--cipher", "aes-xts-plain64"),
        *("--key-size", "512", "--integrity", "hmac-sha256", "--sector-size", "4096"),
        *("--luks2-metadata-size", "16384", "--luks2-keyslots-size", "16744448", "--label", "attested-state"),
        *("--key-slot", "0", "--pbkdf", "pbkdf2", "--hash", "sha256", "--pbkdf-force-iterations", "1000"),
        *("--key-file", "-", "--keyfile-size", "32", "--uuid", UUID),
        *("--progress-json", "--progress-frequency", "5", "/dev/vdb"),
    )


def test_a_disk_is_opened_by_the_copied_header_alone():
    words = gateway.open_disk("/dev/vdb", "name", header=Path("/run/copy"))
    assert words[-4:] == ("--header", "/run/copy", "/dev/vdb", "name")
    assert "--disable-external-tokens" in words


def test_a_key_is_in_no_argument_and_no_environment(disk):
    device, recorder = disk()
    device.format(uuid=UUID, key=FIRST, progress=lambda _done, _size: None)
    device.add_key(slot=1, known=FIRST, new=PERMANENT)
    device.drop_key(slot=0, known=PERMANENT)
    device.opens(0, PERMANENT)
    device.open(PERMANENT)
    assert [stdin for _argv, _env, stdin in recorder.calls] == [
        FIRST.reveal(),
        FIRST.reveal() + PERMANENT.reveal(),
        *[PERMANENT.reveal()] * 3,
    ]
    shown = b"".join(word.encode() for argv, _env, _stdin in recorder.calls for word in argv)
    assert not [one for key in (FIRST, PERMANENT) for one in spellings(key.reveal()) if one in shown]
    assert [env for _argv, env, _stdin in recorder.calls] == [None] * 5


@pytest.mark.parametrize(("returncode", "opens"), [(0, True), (2, False)], ids=["it opens", "it does not"])
def test_a_key_is_tried(disk, returncode, opens):
    assert disk(returncode=returncode)[0].opens(0, PERMANENT) is opens


def test_a_trial_that_failed_is_no_wrong_key(disk):
    assert code_of(lambda: disk(returncode=1)[0].opens(0, PERMANENT)) == "COMMAND_FAILED"


def test_the_progress_of_a_wipe_is_told(disk):
    seen = []
    lines = ("Device is busy", '{"device":"x","device_bytes":"5","device_size":"9","speed":"1"}')
    device, _recorder = disk(lines=lines)
    device.format(uuid=UUID, key=FIRST, progress=lambda done, size: seen.append((done, size)))
    assert seen == [(5, 9)]


def test_the_copied_header_is_root_only(disk, tmp_path):
    assert disk()[0].copy_header().label == "attested-state"
    assert (tmp_path / "header").stat().st_mode & 0o777 == 0o600


def test_a_file_is_no_disk(disk):
    assert disk()[0].facts(UUID) is None
