# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module's walk over a real TPM: predicted, taken, found, its marker lost, and refused."""

from __future__ import annotations

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import NodeLockError
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.node_lock import run
from ansible_collections.attested.kubernetes.plugins.module_utils.result import Diff

CLUSTER = "12" * 32
UNLOCKED = {"lock": "unlocked", "cluster_id": ""}
LOCKED = {"lock": "locked", "cluster_id": CLUSTER}


@pytest.fixture
def node_lock(swtpm, tmp_path):
    """Call ``node_lock(check_mode=…, **options)`` as the module calls it."""

    def call(*, check_mode=False, **options):
        params = {
            "directory": str(tmp_path / "run"),
            "firmware_log": str(tmp_path / "none"),
            "userspace_log": str(tmp_path / "none"),
            "cluster_id": CLUSTER,
            "tcti": swtpm.tcti,
            "tpm_timeout_seconds": 60,
            "register": 15,
            **options,
        }
        return run(params, check_mode)

    return call


def test_check_mode_tells_what_would_be_and_does_nothing(node_lock, tmp_path):
    for _again in range(2):
        result = node_lock(check_mode=True)
        assert (result.changed, result.values, result.diff) == (True, UNLOCKED, Diff(before=UNLOCKED, after=LOCKED))
    assert not (tmp_path / "run" / "locked").exists()


def test_the_lock_is_taken_once_and_found_from_then_on(node_lock, tmp_path):
    taken = node_lock()
    assert (taken.changed, taken.values, taken.diff) == (True, LOCKED, Diff(before=UNLOCKED, after=LOCKED))
    assert (tmp_path / "run" / "locked").read_text() == f"{CLUSTER}\n"
    for check_mode in (True, False):
        found = node_lock(check_mode=check_mode)
        assert (found.changed, found.values, found.diff) == (False, LOCKED, Diff(before=LOCKED, after=LOCKED))


def test_a_lost_marker_is_written_again(node_lock, tmp_path):
    node_lock()
    (tmp_path / "run" / "locked").unlink()
    assert node_lock(check_mode=True).changed
    assert node_lock().changed
    assert (tmp_path / "run" / "locked").exists()
    assert not node_lock().changed


def test_a_marker_without_a_lock_is_no_lock(node_lock, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "locked").write_text(f"{CLUSTER}\n")
    taken = node_lock()
    assert (taken.changed, taken.values) == (True, LOCKED)


@pytest.mark.parametrize("check_mode", [False, True], ids=["in earnest", "in check mode"])
@pytest.mark.parametrize(
    ("cluster_id", "reason"),
    [
        pytest.param("34" * 32, "NODELOCK_OTHER_CLUSTER", id="another cluster"),
        pytest.param("no digits", "NODELOCK_CLUSTER_ID_MALFORMED", id="no digits"),
        pytest.param("12" * 31, "NODELOCK_CLUSTER_ID_MALFORMED", id="a byte too few"),
    ],
)
def test_what_would_be_refused_is_refused_in_check_mode_as_well(node_lock, cluster_id, reason, check_mode):
    node_lock()
    with pytest.raises(NodeLockError) as caught:
        node_lock(check_mode=check_mode, cluster_id=cluster_id)
    assert caught.value.code == reason
