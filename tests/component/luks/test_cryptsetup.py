# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Headers that this machine's cryptsetup writes, without integrity: that needs device mapper, and is recorded."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.disk.luks_check import (
    STATE_DISK,
    state_token,
    verify_header,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.disk.luks_header import (
    AREA_BYTES,
    Header,
    read_header,
)
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of

if TYPE_CHECKING:
    from pathlib import Path

UUID = "61111111-2222-4333-8444-555555555555"
PLAIN = dataclasses.replace(STATE_DISK, integrity=frozenset({""}))
PBKDF = ("--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000")


def cryptsetup(*words: object, stdin: bytes = b"") -> bytes:
    argv = ["cryptsetup", *map(str, words)]
    return subprocess.run(argv, input=stdin, capture_output=True, check=True).stdout


def header_of(image: Path) -> Header:
    with image.open("rb") as stream:
        return read_header(stream.read(AREA_BYTES))


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """A disk of ours but for its integrity, with our token; its key is in `first`."""
    if shutil.which("cryptsetup") is None:
        pytest.skip("no cryptsetup here (package cryptsetup-bin)")
    path = tmp_path / "disk.img"
    with path.open("wb") as stream:
        stream.truncate(20 << 20)
    for name in ("first", "other"):
        (tmp_path / name).write_bytes(name.encode().ljust(32, b"."))
    words = ("--cipher", "aes-xts-plain64", "--key-size", 512, "--sector-size", 4096, "--label", STATE_DISK.label)
    cryptsetup("luksFormat", "-q", "--type", "luks2", *words, *PBKDF, "--uuid", UUID, path, tmp_path / "first")
    token(image=path, initialised=False)
    return path


def token(*, image: Path, initialised: bool) -> None:
    text = json.dumps(state_token(initialised=initialised)).encode()
    replace = ("--token-replace",) if initialised else ()
    cryptsetup("token", "import", "--token-id", 0, *replace, "--json-file", "-", image, stdin=text)


def test_a_disk_is_known_through_its_life(image: Path) -> None:
    """Formatted, its key exchanged, in use: the volume stays the same, and the sequence grows."""
    fresh = verify_header(header_of(image), PLAIN, uuid=UUID)
    cryptsetup("luksAddKey", "-q", "--key-slot", 1, "--key-file", image.parent / "first", *PBKDF, image,
               image.parent / "other")  # fmt: skip
    assert code_of(lambda: verify_header(header_of(image), PLAIN)) == "LUKS_KEYSLOTS"
    both = verify_header(header_of(image), PLAIN, volume=fresh.volume, slots=frozenset({0, 1}))
    cryptsetup("luksKillSlot", "-q", "--key-file", image.parent / "other", image, 0)
    token(image=image, initialised=True)
    used = verify_header(header_of(image), PLAIN, volume=fresh.volume, slots=frozenset({1}))
    assert (fresh.initialised, used.initialised) == (False, True)
    assert fresh.sequence < both.sequence < used.sequence


def test_a_disk_formatted_anew_with_the_same_uuid_is_another(image: Path) -> None:
    before = verify_header(header_of(image), PLAIN, uuid=UUID)
    cryptsetup("luksFormat", "-q", "--type", "luks2", "--cipher", "aes-xts-plain64", "--key-size", 512,
               "--sector-size", 4096, "--label", STATE_DISK.label, *PBKDF, "--uuid", UUID, image,
               image.parent / "first")  # fmt: skip
    token(image=image, initialised=False)
    again = header_of(image)
    assert code_of(lambda: verify_header(again, PLAIN, uuid=UUID, volume=before.volume)) == "LUKS_VOLUME_FOREIGN"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        pytest.param(("config", "--label", "other"), "LUKS_DISK_DIFFERS: the label", id="another label"),
        pytest.param(
            ("luksUUID", "-q", "--uuid", UUID.replace("6", "7", 1)),
            "LUKS_DISK_DIFFERS: expected the disk",
            id="another UUID",
        ),
        pytest.param(("config", "--priority", "ignore", "--key-slot", "0"), "LUKS_KEYSLOTS", id="a slot ignored"),
        pytest.param(
            ("token", "add", "--key-description", "x"),
            "LUKS_HEADER_FOREIGN: expected the token",
            id="a token of the keyring",
        ),
        pytest.param(("token", "remove", "--token-id", "0"), "LUKS_HEADER_FOREIGN: expected the token", id="no token"),
    ],
)
def test_what_cryptsetup_changes_is_seen(words: tuple[str, ...], code: str, image: Path) -> None:
    cryptsetup(*words, image)
    assert code_of(lambda: verify_header(header_of(image), PLAIN, uuid=UUID)) == code


def test_a_state_disk_without_integrity_is_none(image: Path) -> None:
    assert code_of(lambda: verify_header(header_of(image), STATE_DISK)) == "LUKS_HEADER_FOREIGN: integrity by"


def test_a_header_that_cryptsetup_repairs_by_itself_is_refused_before(image: Path) -> None:
    """It takes the good copy of two and goes on; whoever opens a disk without looking never learns of the other one."""
    with image.open("r+b") as stream:
        stream.seek(4096)
        stream.write(b"[")
    assert code_of(lambda: header_of(image)) == "LUKS_DAMAGED: checksum"
    cryptsetup("luksDump", image)
    assert header_of(image).uuid == UUID
