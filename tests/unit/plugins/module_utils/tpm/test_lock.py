# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""lock.py: one client at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import TpmError
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.authorization import tpm_lock
from ansible_collections.attested.kubernetes.tests.support.tpm import SteppingClock

if TYPE_CHECKING:
    from pathlib import Path


def _lock(folder: Path, tcti: str = "swtpm:path=/a"):
    return tpm_lock(tcti, folder / "run", timeout_seconds=5, clock=SteppingClock())


def test_a_second_client_is_told_that_the_tpm_is_busy(tmp_path: Path) -> None:
    with _lock(tmp_path), pytest.raises(TpmError, match="within 5 s") as caught, _lock(tmp_path):
        pytest.fail("two clients hold the lock")
    assert caught.value.reason is Reason.TPM_BUSY


def test_the_lock_is_free_again_after_use_and_after_a_failure(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="inside"), _lock(tmp_path):
        raise ValueError("inside")
    with _lock(tmp_path):
        assert [path.stat().st_mode & 0o777 for path in (tmp_path / "run").iterdir()] == [0o600]


def test_another_tpm_has_another_lock(tmp_path: Path) -> None:
    with _lock(tmp_path), _lock(tmp_path, "swtpm:path=/b"):
        assert len(list((tmp_path / "run").iterdir())) == 2


def test_a_folder_that_is_a_file_is_an_error_with_a_reason(tmp_path: Path) -> None:
    (tmp_path / "run").touch()
    with pytest.raises(TpmError, match="cannot open the lock file") as caught, _lock(tmp_path):
        pytest.fail("locked in nothing")
    assert caught.value.reason is Reason.TPM_UNREACHABLE


def test_a_planted_link_is_not_followed(tmp_path: Path) -> None:
    with _lock(tmp_path):
        (name,) = [path.name for path in (tmp_path / "run").iterdir()]
    (tmp_path / "run" / name).unlink()
    (tmp_path / "run" / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(TpmError, match="cannot open the lock file"), _lock(tmp_path):
        pytest.fail("followed the link")
    assert not (tmp_path / "elsewhere").exists()
