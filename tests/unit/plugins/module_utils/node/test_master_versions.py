# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A rotation of the master secret on one machine: keys on tmpfs while they are used, a key service that starts anew."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.disk.state_disk import _job
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import DiskError
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.key_bundle import KeyPaths, make_bundle
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.master import (
    DiskKey,
    MasterSecret,
    SecretBytes,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.ring import NamedDiskKey
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.wrap import KeyStore
from ansible_collections.attested.kubernetes.plugins.module_utils.node.master_versions import (
    rekey,
    require_same_cluster,
    start_with,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.result import Result
from ansible_collections.attested.kubernetes.tests.support.canary import spellings
from ansible_collections.attested.kubernetes.tests.support.policy_site import POLICY_KEY
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of

OLD, NEW = "1-" + "ab" * 8, "2-" + "cd" * 8
CANARIES = (b"canary-canary-canary-canary-old!", b"canary-canary-canary-canary-new!")
KEYS = tuple(NamedDiskKey(name=name, key=DiskKey(key)) for name, key in zip((OLD, NEW), CANARIES, strict=True))
PARAMS = {
    "name": NEW,
    "device": "/dev/disk/by-id/virtio-state",
    "mount_point": "/var/lib/attested/state",
    "uuid": "71111111-2222-4333-8444-555555555555",
    "tcti": "device:/dev/tpmrm0",
    "tpm_timeout_seconds": 60,
}
FIRST, SECOND = (MasterSecret(key=SecretBytes(one * 32), salt=SecretBytes(b"s" * 32)) for one in (b"k", b"K"))


def bundle_of(master):
    return make_bundle(
        master=master,
        measurement_salt=b"m" * 32,
        join_ca_key=SecretBytes(b"ca"),
        join_ca_certificate=b"-----BEGIN CERTIFICATE-----",
        policy_key=POLICY_KEY,
    )


BUNDLE = bundle_of(FIRST)


class Exchange:
    """Stands where the process with keys is asked; it keeps what it was told, and what lay in the files then."""

    def __init__(self, fails=False):
        self.fails = fails
        self.params = None
        self.files = {}

    def __call__(self, params, check_mode):
        assert not check_mode
        self.params = dict(params)
        for name in (params["key_file"], *params["former_key_files"]):
            with open(name, "rb") as file:  # noqa: PTH123
                self.files[name] = file.read()
        if self.fails:
            raise DiskError("the disk went away", reason=Reason.STATE_DISK_CLOSED)
        return Result(changed=True, values={"steps": ["record"]})


def run(tmp_path, exchange, keys=KEYS, **params):
    return rekey(
        keys, {**PARAMS, **params}, directory=tmp_path / "rekey", change=exchange, require_memory=lambda _path: None
    )


def test_the_new_key_and_the_former_ones_lie_in_files_as_long_as_they_are_used(tmp_path):
    exchange = Exchange()
    done = run(tmp_path, exchange)
    assert (done.changed, done.values) == (True, {"steps": ["record"]})
    assert exchange.files[exchange.params["key_file"]] == CANARIES[1]
    assert [exchange.files[name] for name in exchange.params["former_key_files"]] == [CANARIES[0]]
    assert (exchange.params["state"], exchange.params["key_name"]) == ("rekeyed", NEW)
    assert list(tmp_path.iterdir()) == []


def test_the_form_of_the_state_disk_takes_what_it_is_told(tmp_path):
    exchange = Exchange()
    run(tmp_path, exchange)
    job = _job(exchange.params, apply=True)
    assert (job["state"], job["key_name"], len(job["former_key_files"])) == ("rekeyed", NEW, 1)


def test_no_key_is_left_or_told_where_the_exchange_fails(tmp_path):
    exchange = Exchange(fails=True)
    assert code_of(lambda: run(tmp_path, exchange)) == "STATE_DISK_CLOSED"
    assert list(tmp_path.iterdir()) == []


def test_no_key_is_in_what_is_told_or_returned(tmp_path):
    exchange = Exchange()
    said = repr((run(tmp_path, exchange), exchange.params, KEYS)).encode()
    needles = [one for key in CANARIES for one in spellings(key)]
    assert [one for one in needles if one in said] == []
    assert any(one in repr(exchange.files).encode() for one in needles), "a planted one is found"


def test_a_ticket_without_the_wanted_version_changes_nothing(tmp_path):
    exchange = Exchange()
    assert code_of(lambda: run(tmp_path, exchange, keys=KEYS[:1])) == "MASTER_SECRET_UNKNOWN"
    assert exchange.params is None


@pytest.mark.parametrize(
    ("opened", "wanted", "code"),
    [
        pytest.param(None, BUNDLE, "KEYS_ABSENT", id="no control plane"),
        pytest.param(BUNDLE, bundle_of(SECOND), "CLUSTER_ID_MISMATCH", id="another cluster's"),
        pytest.param(
            BUNDLE,
            replace(BUNDLE, ring=bundle_of(SECOND).ring),
            "CLUSTER_ID_MISMATCH",
            id="another measurement secret under the same id",
        ),
    ],
)
def test_only_versions_may_differ_from_what_a_control_plane_holds(opened, wanted, code):
    assert code_of(lambda: require_same_cluster(opened, wanted)) == code
    require_same_cluster(BUNDLE, replace(BUNDLE, ring=BUNDLE.ring.with_successor(SECOND)))


class Service:
    """systemd and a clock: the key service notes what it holds when it is started, or does not start."""

    def __init__(self, store, starts=True):
        self.store = store
        self.starts = starts
        self.commands = []
        self.time = 0.0

    def run(self, argv, **unused):
        del unused
        self.commands.append(list(argv))

    def monotonic(self):
        return self.time

    def sleep(self, seconds):
        self.time += seconds
        if self.starts and self.time > 1:
            self.store.note_held(BUNDLE)


@pytest.fixture
def store(tmp_path):
    (tmp_path / "opened").mkdir()
    return KeyStore(KeyPaths(rest=tmp_path / "rest", opened=tmp_path / "opened"), require_memory=lambda _path: None)


def test_a_key_service_starts_anew_until_it_runs_with_what_it_was_given(store):
    service = Service(store)
    assert start_with(store, BUNDLE.ring.names, runner=service, clock=service)
    assert service.commands == [["systemctl", "restart", "attested-key-service.service"]]
    assert not start_with(store, BUNDLE.ring.names, runner=service, clock=service)
    assert len(service.commands) == 1


def test_a_key_service_that_does_not_start_ends_the_phase(store):
    service = Service(store, starts=False)
    names = BUNDLE.ring.names
    assert code_of(lambda: start_with(store, names, runner=service, clock=service)) == "KEY_SERVICE_UNREACHABLE"
