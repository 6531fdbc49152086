# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbook `rescue`: keys tried on an image that plain cryptsetup made, written, and shown nowhere."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.master import import_master_secret
from ansible_collections.attested.kubernetes.tests.component.playbooks.test_site import play
from ansible_collections.attested.kubernetes.tests.component.rescue.test_rescue import image, secret
from ansible_collections.attested.kubernetes.tests.support.canary import ProcessWatch, spellings, spellings_of_pem

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["image", "secret"]  # fixtures


def words(**variables: Path | str) -> tuple[str, str]:
    return "-e", json.dumps({name: str(value) for name, value in variables.items()})


def test_keys_are_tried_written_and_shown_nowhere(image: Path, secret: Path, tmp_path: Path) -> None:
    keys, home, log = tmp_path / "keys", tmp_path / "home", tmp_path / "log"
    before = image.read_bytes()
    quiet = {"HOME": str(home), "ANSIBLE_HOME": str(home / ".ansible"), "ANSIBLE_LOG_PATH": str(log)}
    asked = words(master_secret=secret, disk=image, keys_to=keys)
    with ProcessWatch() as watch:
        done = play("rescue", "-vvvv", "--diff", *asked, cwd=tmp_path, **quiet)
        seen = b"\n".join(data for _channel, data in watch.seen())
    assert done.returncode == 0, done.stdout + done.stderr
    assert "opens the disk" in done.stdout
    assert image.read_bytes() == before
    (disk,) = keys.glob("*.key")
    master = import_master_secret(secret.read_bytes())
    raw = [master.key.reveal(), master.salt.reveal(), disk.read_bytes(), (keys / "measurement-secret").read_bytes()]
    canaries = [one for value in raw for one in spellings(value)] + spellings_of_pem((keys / "ssh_ca").read_bytes())
    said = [done.stdout.encode(), done.stderr.encode(), log.read_bytes(), seen]
    said += [path.read_bytes() for path in home.rglob("*") if path.is_file()]
    assert len(seen) > 1000  # the watch has seen processes
    assert [one for one in canaries if any(one in text for text in said)] == []
    assert [one for one in canaries if one in said[0] + canaries[1]] == [canaries[1]]
    again = play("rescue", *asked, cwd=tmp_path)
    assert "changed=0" in again.stdout


def test_a_key_that_is_not_its_ends_the_run_before_anything_is_written(image: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text(json.dumps({"key": "QUFB" * 10 + "QUE=", "salt": "QkJC" * 10 + "QkI="}), encoding="ascii")
    done = play("rescue", *words(master_secret=other, disk=image, keys_to=tmp_path / "keys"), cwd=tmp_path)
    assert done.returncode != 0
    assert "DISK_KEY_WRONG" in done.stdout
    assert not (tmp_path / "keys").exists()


def test_without_a_secret_it_says_what_to_give(tmp_path: Path) -> None:
    done = play("rescue", cwd=tmp_path)
    assert done.returncode != 0
    assert "-e master_secret=FILE" in done.stdout + done.stderr
