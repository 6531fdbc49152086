# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of one control plane through a rotation; whatever write a run is killed at, who signs is believed."""

from __future__ import annotations

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError, KubeadmError
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm import ca_files as module
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.ca_files import (
    AuthorityFiles,
    PlaneRotation,
    observe_kubelet,
    parse_successors,
    remove_serving_certificate,
    render_successors,
    split,
    trust_as_kubelet,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.certificate_renewal import RenewalPlan
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.credential import authorities_of
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.spec import KubernetesPaths
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.rotation.authorities import AUTHORITIES, CERTIFYING

NAMES = tuple(one.name for one in AUTHORITIES)
BESIDE = "etc/kubernetes/attested-authorities"


def before_and_after(files):
    """Return, by authority, who signs now and who is to."""
    found = files.observe(name="cp-1")
    return dict(found.signers), dict(found.staged)


def bundles(*keys):
    return {name: tuple(one[name] for one in keys) for name in NAMES}


def content_of(pki, *, besides=()):
    return {path: data for path, (_mode, data) in pki.contents().items() if not any(one in path for one in besides)}


def test_what_kubeadm_made_is_seen_as_it_is(files):
    found = files.observe(name="cp-1")
    assert set(found.signers) == set(NAMES)
    assert found.trusted == {name: (signer,) for name, signer in found.signers.items()}
    assert found.issued == {one.name: frozenset({found.signers[one.name]}) for one in CERTIFYING}
    assert (found.staged, found.taken) == ({}, True)


def test_successors_are_made_once_and_change_nothing_that_is_in_force(files, pki):
    before = content_of(pki)
    files.make()
    made = files.staged()
    files.make()
    assert files.staged() == made
    assert content_of(pki, besides=[BESIDE]) == before
    old, new = before_and_after(files)
    assert set(old.values()).isdisjoint(new.values())
    modes = {path: mode & 0o777 for path, (mode, _data) in pki.contents().items() if BESIDE in path}
    assert {mode for path, mode in modes.items() if path.endswith(".key")} == {0o600}
    assert (pki.root / BESIDE).stat().st_mode & 0o777 == 0o700
    assert all(one.private.decode() not in repr(made) for one in made.values())


def test_another_control_plane_takes_the_whole_set_or_none(files, pki, tmp_path, clock):
    files.make()
    given = files.staged()
    (tmp_path / "other/etc/kubernetes").mkdir(parents=True)
    other = AuthorityFiles(KubernetesPaths(root=tmp_path / "other"), clock=clock)
    with pytest.raises(AttestedError) as caught:
        other.stage({name: given[name] for name in NAMES[1:]})
    assert caught.value.code == "AUTHORITY_UNUSABLE"
    swapped = {**given, "cluster": given["service-accounts"]}
    with pytest.raises(AttestedError) as caught:
        other.stage(swapped)
    assert caught.value.code == "AUTHORITY_UNUSABLE"
    assert other.staged() == {}
    assert other.stage(given)
    assert not other.stage(given)
    assert other.staged() == given
    del pki


def test_a_whole_way(files, pki, paths):
    """Both are believed, then the new one signs, then it is alone; what other programs read is told each time."""
    files.make()
    old, new = before_and_after(files)
    known = files.known()
    files.trust(bundles(old, new), known)
    found = files.observe(name="cp-1")
    assert (found.signers, found.trusted) == (old, bundles(old, new))
    assert not found.taken
    files.mark()
    assert files.observe(name="cp-1").taken
    for name in ("admin.conf", "controller-manager.conf", "kubelet.conf", "scheduler.conf"):
        assert authorities_of((paths.kubernetes / name).read_bytes()) == paths.ca.read_bytes()
    manifest = (paths.kubernetes / "manifests/kube-controller-manager.yaml").read_text()
    assert "--cluster-signing-cert-file=/etc/kubernetes/pki/ca-signing.crt\n" in manifest
    assert "--root-ca-file=/etc/kubernetes/pki/ca.crt\n" in manifest
    assert list(split((paths.kubernetes / "pki/ca-signing.crt").read_bytes())) == [old["cluster"]]

    files.activate(bundles(new, old), known)
    found = files.observe(name="cp-1")
    assert (found.signers, found.trusted) == (new, bundles(new, old))
    assert found.issued == {one.name: frozenset({old[one.name]}) for one in CERTIFYING}
    assert not found.taken
    assert list(split((paths.kubernetes / "pki/ca-signing.crt").read_bytes())) == [new["cluster"]]

    files.trust(bundles(new), known)
    assert files.remove_staged()
    assert not files.remove_staged()
    found = files.observe(name="cp-1")
    assert (found.trusted, found.staged, found.taken) == (bundles(new), {}, True)
    assert found.issued == {one.name: frozenset({""}) for one in CERTIFYING}, "leaves of the old one are nobody's"
    assert list((paths.kubernetes).glob(".attested*")) == []
    del pki


def test_nothing_leads_that_does_not_lie_here(files):
    old = files.observe(name="cp-1").signers
    with pytest.raises(AttestedError) as caught:
        files.activate(bundles(old), files.known())
    assert caught.value.code == "AUTHORITY_UNUSABLE"


class Killed(Exception):
    """The run ends here."""


@pytest.mark.parametrize("phase", ["trust", "activate"])
def test_wherever_a_run_is_killed_who_signs_is_believed_and_a_repetition_ends_it(files, phase, monkeypatch):
    files.make()
    old, new = before_and_after(files)
    known, order = files.known(), bundles(old, new) if phase == "trust" else bundles(new, old)
    left = [0]
    write = module.write_atomic

    def killing(*arguments, **options):
        if not left[0]:
            raise Killed
        left[0] -= 1
        return write(*arguments, **options)

    monkeypatch.setattr(module, "write_atomic", killing)
    for moment in range(40):
        left[0] = moment
        try:
            getattr(files, phase)(order, known)
        except Killed:
            found = files.observe(name="cp-1")
            assert all(found.signers[name] in found.trusted[name] for name in NAMES), moment
            assert all(old[name] in found.trusted[name] for name in NAMES), moment
        else:
            break
    assert moment > len(NAMES)
    assert files.observe(name="cp-1").trusted == order


def test_a_kubelet_believes_what_both_of_its_files_name(files, paths):
    files.make()
    old, new = before_and_after(files)
    credential = paths.kubelet_credential
    credential.parent.mkdir(parents=True)
    credential.write_bytes((paths.kubernetes / "pki/apiserver-kubelet-client.crt").read_bytes())
    both = files.known()[old["cluster"]] + files.known()[new["cluster"]]
    paths.ca.write_bytes(both)
    assert observe_kubelet(paths, name="w-1").trusted == {old["cluster"]}
    files.trust(bundles(old, new), files.known())
    found = observe_kubelet(paths, name="w-1")
    assert (found.name, found.trusted, found.issued) == ("w-1", {old["cluster"], new["cluster"]}, old["cluster"])


class Around:
    """Pods, members, turns and the renewal of leaves; writes down what it was asked for."""

    def __init__(self):
        self.told = []
        self.sick = ""

    def is_healthy(self, _component):
        return True

    def restart(self, component):
        self.told.append(component)
        if component == self.sick:
            raise KubeadmError("not well", reason=Reason.CONTROL_PLANE_COMPONENT_UNHEALTHY)

    def require_healthy(self):
        self.told.append("members?")

    def take(self):
        self.told.append("turn")

    def free(self):
        self.told.append("free")

    def plan(self, *, at_once=False):
        self.told.append(f"all at once: {at_once}")
        return RenewalPlan(due=())

    def apply(self, _todo):
        self.told.append("renew")
        return ()


class Services:
    """The kubelet and the key service."""

    def __init__(self, around):
        self.around = around

    def restart(self):
        self.around.restart("services")


@pytest.fixture
def around():
    return Around()


@pytest.fixture
def rotation(files, around):
    return PlaneRotation(files, renewal=around, pods=around, members=around, turns=around, services=Services(around))


def test_components_start_anew_one_after_the_other_in_their_turns(files, rotation, around):
    files.make()
    old, new = before_and_after(files)
    rotation.trust(bundles(old, new), files.known())
    etcd = ["turn", "members?", "etcd"]
    others = [
        word for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler") for word in ("turn", name)
    ]
    assert around.told == [*etcd, *others, "free", "services"]
    assert files.observe(name="cp-1").taken


def test_what_keeps_the_old_cas_in_memory_is_started_anew_before_all_is_said_to_run(files, rotation, around):
    files.make()
    old, new = before_and_after(files)
    around.sick = "services"
    for deed, wanted in ((rotation.trust, bundles(old, new)), (rotation.issue, bundles(new, old))):
        with pytest.raises(KubeadmError):
            deed(wanted, files.known())
        assert not files.observe(name="cp-1").taken


def test_one_that_does_not_come_up_ends_it_and_a_repetition_starts_all_again(files, rotation, around):
    files.make()
    old, new = before_and_after(files)
    around.sick = "kube-apiserver"
    with pytest.raises(KubeadmError):
        rotation.trust(bundles(old, new), files.known())
    assert around.told == ["turn", "members?", "etcd", "turn", "kube-apiserver", "free"]
    assert not files.observe(name="cp-1").taken
    around.sick = ""
    rotation.trust(bundles(old, new), files.known())
    assert files.observe(name="cp-1").taken


def test_the_successors_sign_before_the_certificates_are_made_anew(files, rotation, around):
    files.make()
    old, new = before_and_after(files)
    rotation.issue(bundles(new, old), files.known())
    assert around.told == ["all at once: True", "renew", "services"]
    assert files.observe(name="cp-1").signers == new
    assert files.observe(name="cp-1").taken


@pytest.fixture
def kubelet(files, paths):
    """A worker's files: it shows a certificate of the cluster CA, and has no file of a control plane that counts."""
    del files
    paths.kubelet_credential.parent.mkdir(parents=True)
    paths.kubelet_credential.write_bytes((paths.kubernetes / "pki/apiserver-kubelet-client.crt").read_bytes())
    return paths


@pytest.fixture
def known(files):
    files.make()
    return {name: files.known()[key] for name, key in zip(("old", "new"), names_of_cluster(files), strict=True)}


def names_of_cluster(files):
    return [one["cluster"] for one in before_and_after(files)]


@pytest.mark.parametrize("ends", [("old", "new"), ("new",)], ids=["both", "the new one alone"])
def test_a_kubelet_that_was_not_started_anew_is_never_taken_for_one_that_was(files, kubelet, known, ends):
    """Between the two files it is started; a run that is killed there leaves the two different."""
    old, new = names_of_cluster(files)
    begins = known["old"] if len(ends) > 1 else known["old"] + known["new"]
    assert trust_as_kubelet(kubelet, begins, restart=lambda: None) or len(ends) > 1
    wanted = b"".join(known[name] for name in ends)

    def killed():
        raise Killed

    with pytest.raises(Killed):
        trust_as_kubelet(kubelet, wanted, restart=killed)
    found = observe_kubelet(kubelet, name="w-1")
    assert found.trusted != found.named
    assert (found.trusted if len(ends) > 1 else found.named) == ({old} if len(ends) > 1 else {old, new})
    told = []
    assert trust_as_kubelet(kubelet, wanted, restart=lambda: told.append("anew"))
    assert not trust_as_kubelet(kubelet, wanted, restart=lambda: told.append("again"))
    assert told == ["anew"]
    found = observe_kubelet(kubelet, name="w-1")
    assert found.trusted == found.named == {old, new} - ({old} if len(ends) == 1 else set())


def test_a_certificate_to_serve_with_is_forgotten_once_another_ca_signs(kubelet, known):
    served = kubelet.kubelet_credential.with_name("kubelet-server-current.pem")
    assert not remove_serving_certificate(kubelet, known["new"])
    served.write_bytes(kubelet.kubelet_credential.read_bytes())
    assert not remove_serving_certificate(kubelet, known["old"] + known["new"])
    assert served.exists()
    assert remove_serving_certificate(kubelet, known["new"] + known["old"])
    assert not served.exists()


def test_successors_travel_whole(files):
    files.make()
    assert parse_successors(render_successors(files.staged())) == files.staged()


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"{", b'{"etcd": 7}', b'{"etcd": ["a"]}', '{"etcd": ["ä", "b"]}'.encode(), b"[" * 100_000],
    ids=["nothing", "a list", "half", "a number", "one half", "no ASCII", "deep"],
)
def test_what_is_no_parcel_is_refused_without_its_text(data):
    with pytest.raises(AttestedError) as caught:
        parse_successors(data)
    assert caught.value.code == "AUTHORITY_UNUSABLE"
    assert caught.value.__cause__ is None
