# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a further control plane keeps of its ticket, under a real TPM."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.node_lock import NodeLock, NodeLockPaths
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.key_bundle import KeyPaths, make_bundle
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.master import MasterSecret, SecretBytes
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.wrap import KeyStore, TpmSealer
from ansible_collections.attested.kubernetes.plugins.module_utils.node.config import EventLogPaths, NodeConfig
from ansible_collections.attested.kubernetes.plugins.module_utils.node.member import MemberKeys
from ansible_collections.attested.kubernetes.plugins.module_utils.node.order import ControlPlaneTicket
from ansible_collections.attested.kubernetes.tests.support.policy_site import POLICY_KEY, MemoryCounter, PolicySite

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.client import Tpm
    from ansible_collections.attested.kubernetes.tests.support.swtpm import Swtpm

    Open = Callable[[Swtpm], AbstractContextManager[Tpm]]

BUNDLE = make_bundle(
    master=MasterSecret(key=SecretBytes(b"k" * 32), salt=SecretBytes(b"s" * 32)),
    measurement_salt=b"m" * 32,
    join_ca_key=SecretBytes(b"PEM"),
    join_ca_certificate=b"PEM",
    policy_key=POLICY_KEY,
)
CONFIG = NodeConfig(
    name="cp-2",
    cluster_name="prod",
    cluster_id=BUNDLE.cluster_id,
    endpoints=(),
    join_ca=b"",
    tcti="",
    logs=EventLogPaths(firmware=Path("/f"), userspace=Path("/u")),
)


class Member:
    """A machine with a TPM that asked for its ticket: what it brings, and where that is kept."""

    def __init__(self, swtpm: Swtpm, opened: Open, root: Path) -> None:
        self.open = lambda: opened(swtpm)
        self.paths = KeyPaths(rest=root / "rest", opened=root / "run" / "key-service")
        self.store = KeyStore(self.paths, require_memory=lambda directory: None)
        self.lock_paths = NodeLockPaths(directory=root / "run", userspace_log=root / "none")
        self.counter = MemoryCounter()
        self.site = PolicySite(BUNDLE.cluster_id)
        with self.open() as tpm:
            judged = tpm.pcr_read([0, 4, 15])
        self.ticket = ControlPlaneTicket(files={}, bundle=BUNDLE.to_bytes(), policy=self.policy(), judged=judged)

    def policy(self) -> bytes:
        return json.dumps(self.site.sign([])).encode()

    def take(self, config: NodeConfig = CONFIG, **changes: bytes) -> bool:
        keys = MemberKeys(
            config, lock_paths=self.lock_paths, store=self.store, open_machine=self.open, counter=self.counter
        )
        return keys.take(dataclasses.replace(self.ticket, **changes))

    def lock(self) -> None:
        with self.open() as tpm:
            NodeLock(tpm, paths=self.lock_paths).acquire(BUNDLE.cluster_id)

    def is_empty(self) -> bool:
        return not self.paths.rest_file.exists() and not (self.paths.rest / "policy-record.json").exists()


@pytest.fixture
def member(swtpm: Swtpm, opened: Open, tmp_path: Path) -> Member:
    return Member(swtpm, opened, tmp_path)


def refused(take: Callable[[], object]) -> str:
    with pytest.raises(AttestedError) as caught:
        take()
    return caught.value.code


def test_keys_are_sealed_and_the_record_begins_and_a_repetition_changes_nothing(member: Member) -> None:
    assert member.take() is True
    assert json.loads((member.paths.rest / "policy-record.json").read_bytes())["generation"] == 1
    assert member.take() is False


def test_the_same_boot_opens_them_and_a_locked_one_does_not(member: Member) -> None:
    member.take()
    member.paths.opened_file.unlink()
    with member.open() as tpm:
        assert member.store.unlock(TpmSealer(tpm)) == BUNDLE
    member.paths.opened_file.unlink()
    member.lock()
    with member.open() as tpm:
        assert refused(lambda: member.store.unlock(TpmSealer(tpm))) == "STATE_CHANGED"


def test_a_locked_machine_takes_what_it_holds_and_nothing_else(member: Member) -> None:
    member.take()
    member.lock()
    assert member.take() is False
    member.paths.opened_file.unlink()
    assert refused(member.take) == "STATE_CHANGED"


def test_a_newer_policy_is_recorded_and_an_older_one_refused(member: Member) -> None:
    older = member.ticket.policy
    assert member.take(policy=member.policy()) is True
    assert refused(lambda: member.take(policy=older)) == "POLICY_ROLLED_BACK"


@pytest.mark.parametrize(
    ("policy", "code"),
    [
        pytest.param(b"{", "TICKET_MALFORMED", id="no JSON"),
        pytest.param(b"[]", "TICKET_MALFORMED", id="no object"),
        pytest.param(b"{}", "MANIFEST_INVALID", id="no policy"),
        pytest.param(
            json.dumps(PolicySite(bytes(32)).sign([])).encode(), "POLICY_SIGNATURE", id="the policy of another cluster"
        ),
    ],
)
def test_a_policy_that_the_site_has_not_signed_is_refused_before_anything_is_kept(
    member: Member, policy: bytes, code: str
) -> None:
    assert refused(lambda: member.take(policy=policy)) == code
    assert member.is_empty()


def test_the_keys_of_another_cluster_are_refused_before_anything_is_kept(member: Member) -> None:
    other = dataclasses.replace(CONFIG, cluster_id=bytes(32))
    policy = json.dumps(PolicySite(bytes(32)).sign([])).encode()
    assert refused(lambda: member.take(other, policy=policy)) == "CLUSTER_ID_MISMATCH"
    assert member.is_empty()
