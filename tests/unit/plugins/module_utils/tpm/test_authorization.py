# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The file that holds a machine's auth values: root's alone, on tmpfs, believed by nobody else's writing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError, SystemFault
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.authorization import HeldAuths
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.constants import RH_ENDORSEMENT, RH_OWNER

if TYPE_CHECKING:
    from pathlib import Path

TCTI = "swtpm:path=/srv/tpm"
BOTH = {RH_OWNER: b"owner", RH_ENDORSEMENT: b"endorsement"}


def held(directory: Path, tcti: str = TCTI) -> HeldAuths:
    return HeldAuths(tcti, directory, require_memory=lambda _directory: None)


def file_in(directory: Path) -> Path:
    (path,) = directory.glob("*.auth")
    return path


def test_what_is_written_is_read_by_hierarchy(tmp_path: Path) -> None:
    assert [held(tmp_path).write(BOTH), held(tmp_path).write(BOTH)] == [True, False]
    assert (held(tmp_path).get(RH_OWNER), held(tmp_path).get(RH_ENDORSEMENT)) == (b"owner", b"endorsement")
    assert file_in(tmp_path).stat().st_mode & 0o777 == 0o600


def test_nothing_is_held_without_a_file_or_for_another_tpm(tmp_path: Path) -> None:
    held(tmp_path).write(BOTH)
    assert held(tmp_path / "away").get(RH_OWNER) is None
    assert held(tmp_path, "device:/dev/tpmrm0").get(RH_OWNER) is None


def test_forgetting_removes_the_file(tmp_path: Path) -> None:
    held(tmp_path).write(BOTH)
    assert [held(tmp_path).write({}), held(tmp_path).write({})] == [True, False]
    assert list(tmp_path.iterdir()) == []


def test_a_directory_on_a_disk_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    def on_disk(directory: Path) -> None:
        raise SystemFault(f"expected {directory} on tmpfs", reason=Reason.NOT_TMPFS)

    with pytest.raises(AttestedError) as caught:
        HeldAuths(TCTI, tmp_path, require_memory=on_disk).write(BOTH)
    assert caught.value.code == "NOT_TMPFS"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("{}", id="no version"),
        pytest.param('{"version": 2, "auths": {}}', id="another version"),
        pytest.param('{"version": 1, "auths": {"owner": "not hex"}}', id="no value"),
        pytest.param('{"version": 1, "auths": 7}', id="no values"),
    ],
)
def test_other_contents_are_refused_and_not_shown(tmp_path: Path, text: str) -> None:
    held(tmp_path).write(BOTH)
    file_in(tmp_path).write_text(text)
    with pytest.raises(AttestedError, match="found something else") as caught:
        held(tmp_path).get(RH_OWNER)
    assert caught.value.code == "TPM_HIERARCHY_AUTH"
    assert caught.value.__context__ is None


def test_a_file_that_others_may_read_or_that_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    held(tmp_path).write(BOTH)
    path = file_in(tmp_path)
    path.chmod(0o640)
    with pytest.raises(AttestedError) as open_to_others:
        held(tmp_path).get(RH_OWNER)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(AttestedError) as led:
        held(tmp_path).get(RH_OWNER)
    assert {open_to_others.value.code, led.value.code} == {"TPM_HIERARCHY_AUTH"}
