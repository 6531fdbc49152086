# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which keys a TPM gives us, and that they are kept only once and only where there is room."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemRandom
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import TpmError
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.constants import (
    ALG_ECC,
    ALG_RSA,
    PERSISTENT_AK,
    PERSISTENT_EK_ECC,
    PERSISTENT_EK_RSA,
    RH_ENDORSEMENT,
    RH_OWNER,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.keys import (
    load_attestation_key,
    load_endorsement_key,
    load_second_endorsement_key,
    persist_keys,
    plan_persistence,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.storage import NvCounter, seal, unseal
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.templates import AK, EK_RSA, SRK, make_credential

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.structures import Public
    from ansible_collections.attested.kubernetes.tests.support.swtpm import Opened, Swtpm


def test_a_certified_rsa_key_comes_with_its_certificate(swtpm: Swtpm, opened: Opened) -> None:
    with opened(swtpm) as tpm:
        ek = load_endorsement_key(tpm)
    assert (ek.public.type, len(ek.certificates)) == (ALG_RSA, 1)


def test_without_any_certificate_it_is_the_rsa_key(swtpms: Callable[..., Swtpm], opened: Opened) -> None:
    with opened(swtpms("plain", certified=False)) as tpm:
        ek = load_endorsement_key(tpm)
    assert (ek.public.type, ek.certificates, ek.persistent) == (ALG_RSA, (), False)


def test_a_tpm_certified_for_p256_works_throughout(swtpms: Callable[..., Swtpm], opened: Opened, use_ecc_ek) -> None:
    swtpm = swtpms("plain", certified=False)
    use_ecc_ek(swtpm)
    with opened(swtpm) as tpm:
        ek, ak = load_endorsement_key(tpm), load_attestation_key(tpm)
        made = make_credential(ek.public, ak.name, b"s" * 32, SystemRandom())
        assert (ek.public.type, len(ek.certificates)) == (ALG_ECC, 1)
        assert tpm.activate_credential(ak, ek, made) == b"s" * 32
        assert persist_keys(tpm).changed
        assert load_endorsement_key(tpm).handle == PERSISTENT_EK_ECC
        assert unseal(tpm, seal(tpm, b"secret", tpm.pcr_read([0]))) == b"secret"


@pytest.mark.parametrize(
    ("index", "reason", "text"),
    [
        pytest.param(0x01C00016, Reason.TPM_EK_UNSUPPORTED, "ECC P-384", id="certified for P-384 only"),
        pytest.param(0x01C00002, Reason.TPM_EK_MISMATCH, "another key", id="a certificate for another key"),
    ],
)
def test_a_tpm_is_refused_that_is(
    index: int, reason: Reason, text: str, swtpms: Callable[..., Swtpm], opened: Opened, put_certificate
) -> None:
    swtpm = swtpms("plain", certified=False)
    put_certificate(swtpm, index, b"\x30\x03abc")
    with opened(swtpm) as tpm, pytest.raises(TpmError, match=text) as caught:
        load_endorsement_key(tpm)
    assert caught.value.reason is reason


def test_issuers_in_the_tpm_come_after_the_certificate(swtpm: Swtpm, opened: Opened, put_certificate) -> None:
    put_certificate(swtpm, 0x01C00100, b"\x30\x03abc\x30")
    put_certificate(swtpm, 0x01C00101, b"\x02de\xff\xff")
    with opened(swtpm) as tpm:
        assert load_endorsement_key(tpm).certificates[1:] == (b"\x30\x03abc", b"\x30\x02de")


def test_keys_are_kept_once_and_stay_the_same(swtpms: Callable[..., Swtpm], opened: Opened) -> None:
    swtpm = swtpms("plain", certified=False)
    with opened(swtpm) as tpm:
        before = [load_endorsement_key(tpm).name, load_attestation_key(tpm).name]
        assert plan_persistence(tpm).changed
        assert len(persist_keys(tpm).missing) == 2
        assert [load_endorsement_key(tpm).name, load_attestation_key(tpm).name] == before
        assert load_attestation_key(tpm).handle == PERSISTENT_AK
        assert not persist_keys(tpm).changed
        assert tpm.handles(0x80000000) == ()
    swtpm.reset()
    with opened(swtpm) as tpm:
        assert [load_endorsement_key(tpm).handle, load_attestation_key(tpm).handle] == [
            PERSISTENT_EK_RSA,
            PERSISTENT_AK,
        ]
        assert not plan_persistence(tpm).changed
        assert tpm.handles(0x80000000) == ()


@pytest.mark.parametrize(
    ("hierarchy", "template"),
    [
        pytest.param(RH_OWNER, SRK, id="a storage key"),
        pytest.param(RH_OWNER, AK, id="the same template in another hierarchy"),
        pytest.param(RH_ENDORSEMENT, EK_RSA, id="another key of the endorsement hierarchy"),
    ],
)
def test_a_handle_in_use_is_left_alone_and_not_believed(
    hierarchy: int, template: object, swtpms: Callable[..., Swtpm], opened: Opened
) -> None:
    swtpm = swtpms("plain", certified=False)
    with opened(swtpm) as tpm:
        squatter = tpm.create_primary(hierarchy, template)
        tpm.evict(squatter, PERSISTENT_AK)
    with opened(swtpm) as tpm:
        plan = persist_keys(tpm)
        ak = load_attestation_key(tpm)
        assert [kind.persistent for kind in plan.occupied] == [PERSISTENT_AK]
        assert tpm.read_public(PERSISTENT_AK)[0] == squatter.public
        assert (ak.persistent, ak.public.as_template()) == (False, AK)


def test_an_object_of_an_unknown_kind_is_left_alone_too(swtpm: Swtpm, opened: Opened, tool: Callable[..., str]) -> None:
    tool(swtpm, "createprimary", "-C", "o", "-c", "parent.ctx")
    tool(swtpm, "create", "-C", "parent.ctx", "-G", "hmac", "-c", "hmac.ctx")
    tool(swtpm, "flushcontext", "-t")
    tool(swtpm, "evictcontrol", "-C", "o", "-c", "hmac.ctx", f"{PERSISTENT_AK:#x}")
    with opened(swtpm) as tpm:
        assert [kind.persistent for kind in persist_keys(tpm).occupied] == [PERSISTENT_AK]
        assert not load_attestation_key(tpm).persistent


@pytest.mark.parametrize(
    ("hierarchy", "action"),
    [
        pytest.param("endorsement", load_attestation_key, id="endorsement: no attestation key"),
        pytest.param("owner", persist_keys, id="owner: nothing is kept"),
        pytest.param("owner", lambda tpm: seal(tpm, b"s", {0: bytes(32)}), id="owner: nothing is sealed"),
    ],
)
def test_a_hierarchy_with_a_password_is_refused_by_name(
    hierarchy: str, action, swtpm: Swtpm, opened: Opened, tool: Callable[..., str]
) -> None:
    tool(swtpm, "changeauth", "-c", hierarchy, "password")
    with opened(swtpm) as tpm:
        properties = tpm.properties()
        assert (properties.owner_auth_set, properties.endorsement_auth_set) == (
            hierarchy == "owner",
            hierarchy == "endorsement",
        )
        with pytest.raises(TpmError, match=f"the {hierarchy} hierarchy") as caught:
            action(tpm)
    assert caught.value.reason is Reason.TPM_HIERARCHY_AUTH


@pytest.mark.parametrize(
    ("hierarchy", "action"),
    [
        pytest.param("endorsement", load_attestation_key, id="endorsement: no attestation key"),
        pytest.param("owner", persist_keys, id="owner: nothing is kept"),
        pytest.param("owner", lambda tpm: seal(tpm, b"s", {0: bytes(32)}), id="owner: nothing is sealed"),
        pytest.param("owner", lambda tpm: NvCounter(tpm).define(), id="owner: no counter"),
    ],
)
def test_a_wrong_password_of_a_hierarchy_is_told_by_its_name(
    hierarchy: str, action, swtpm: Swtpm, opened: Opened, tool: Callable[..., str]
) -> None:
    tool(swtpm, "changeauth", "-c", hierarchy, "password")
    number = {"owner": RH_OWNER, "endorsement": RH_ENDORSEMENT}[hierarchy]
    with opened(swtpm, auths={number: b"password"}) as tpm:
        load_attestation_key(tpm)
    said = pytest.raises(TpmError, match=f"password of the {hierarchy} hierarchy, the TPM refuses")
    with opened(swtpm, auths={number: b"another"}) as tpm, said as caught:
        action(tpm)
    assert caught.value.reason is Reason.TPM_HIERARCHY_AUTH


def test_a_hierarchy_that_is_off_is_told_by_its_code(swtpm: Swtpm, opened: Opened, tool: Callable[..., str]) -> None:
    """Also of a key that was kept: its handle is still listed, and hidden."""
    with opened(swtpm) as tpm:
        persist_keys(tpm)
    tool(swtpm, "hierarchycontrol", "-C", "e", "ehEnable", "clear")
    for load in (load_attestation_key, load_endorsement_key):
        with opened(swtpm) as tpm, pytest.raises(TpmError) as caught:
            load(tpm)
        assert caught.value.reason is Reason.TPM_HIERARCHY_DISABLED


def test_what_a_lockout_bars_is_told_by_its_code(
    swtpms: Callable[..., Swtpm], opened: Opened, put_certificate, lock_out: Callable[[Swtpm], None]
) -> None:
    """A certificate in an index that its maker left protected against trying passwords."""
    swtpm = swtpms("plain", certified=False)
    put_certificate(swtpm, 0x01C00002, b"0" * 8, attributes="ownerwrite|ownerread|authread")
    with opened(swtpm) as tpm:
        assert tpm.nv_read(0x01C00002) == b"0" * 8
    lock_out(swtpm)
    with opened(swtpm) as tpm, pytest.raises(TpmError) as caught:
        tpm.nv_read(0x01C00002)
    assert caught.value.reason is Reason.TPM_LOCKOUT


def test_a_credential_for_another_tpm_is_refused(swtpms: Callable[..., Swtpm], opened: Opened) -> None:
    with opened(swtpms("b")) as tpm:
        other = load_endorsement_key(tpm)
    with opened(swtpms("a")) as tpm:
        ek, ak = load_endorsement_key(tpm), load_attestation_key(tpm)
        with pytest.raises(TpmError) as caught:
            tpm.activate_credential(ak, ek, make_credential(other.public, ak.name, b"s", SystemRandom()))
        assert caught.value.reason is Reason.TPM_CREDENTIAL_REFUSED
        assert tpm.handles(0x02000000) == ()


def test_a_file_of_a_tpm_is_not_needed(tmp_path: Path, opened: Opened, swtpms: Callable[..., Swtpm]) -> None:
    swtpm = swtpms("tcp", tcp=True)
    assert swtpm.tcti.startswith("swtpm:host=127.0.0.1,port=")
    with opened(swtpm) as tpm:
        assert load_endorsement_key(tpm).certificates
    swtpm.reset()
    assert not (tmp_path / "tpms" / "tcp" / "tpm").exists()


def test_both_endorsement_keys_open_credentials_for_the_one_attestation_key(swtpm: Swtpm, opened: Opened) -> None:
    """The proof that they are of one chip; neither is kept, and making one does not disturb the other."""
    with opened(swtpm) as tpm:
        kept = tpm.handles(0x81000000)
        first, second, ak = load_endorsement_key(tpm), load_second_endorsement_key(tpm), load_attestation_key(tpm)
        assert (first.public.type, second.public.type, second.certificates) == (ALG_RSA, ALG_ECC, ())
        for ek in (first, second, first):
            made = make_credential(ek.public, ak.name, b"s" * 32, SystemRandom())
            assert tpm.activate_credential(ak, ek, made) == b"s" * 32
        assert not second.persistent
    with opened(swtpm) as tpm:
        assert load_second_endorsement_key(tpm).name == second.name
        assert tpm.handles(0x81000000) == kept


def test_the_second_key_of_one_certified_for_p256_is_the_rsa_key(
    swtpms: Callable[..., Swtpm], opened: Opened, use_ecc_ek
) -> None:
    swtpm = swtpms("plain", certified=False)
    with opened(swtpm) as tpm:
        rsa = load_endorsement_key(tpm)
    use_ecc_ek(swtpm)
    with opened(swtpm) as tpm:
        second = load_second_endorsement_key(tpm)
        assert (load_endorsement_key(tpm).public.type, second.name) == (ALG_ECC, rsa.name)


@pytest.fixture
def opens(tool: Callable[..., str], tmp_path: Path) -> Callable[..., bytes]:
    """Let tpm2-tools open a credential under the P-256 EK of a TPM, for the AK that they find at ``ak``."""

    def activate(swtpm: Swtpm, ek: Public, *, ak: str, name: bytes) -> bytes:
        made = make_credential(ek, name, b"s" * 32, SystemRandom())
        (tmp_path / "blob").write_bytes(bytes.fromhex("badcc0de00000001") + made.id_object + made.encrypted_secret)
        tool(swtpm, "createek", "-c", "ek.ctx", "-G", "ecc", "-u", "ek.pub")
        tool(swtpm, "flushcontext", "-t")
        tool(swtpm, "startauthsession", "--policy-session", "-S", "session.ctx")
        tool(swtpm, "policysecret", "-S", "session.ctx", "-c", "e")
        words = ("-c", ak, "-C", "ek.ctx", "-i", "blob", "-o", "secret", "-P", "session:session.ctx")
        try:
            tool(swtpm, "activatecredential", *words)
        finally:
            tool(swtpm, "flushcontext", "session.ctx")
        return (tmp_path / "secret").read_bytes()

    return activate


def test_a_tpm_opens_no_credential_for_an_attestation_key_of_which_it_has_the_public_half_only(
    swtpms: Callable[..., Swtpm], opened: Opened, tool: Callable[..., str], opens: Callable[..., bytes], tmp_path: Path
) -> None:
    """What enrolment of a second key rests on: another TPM's AK, loaded here, has its Name and opens nothing."""
    with opened(swtpms("a")) as tpm:
        foreign = load_attestation_key(tpm)
    area = foreign.public.marshal()
    (tmp_path / "ak.pub").write_bytes(len(area).to_bytes(2, "big") + area)
    other = swtpms("b")
    with opened(other) as tpm:
        persist_keys(tpm)
        ek, own = load_second_endorsement_key(tpm).public, load_attestation_key(tpm)
    assert opens(other, ek, ak=f"{PERSISTENT_AK:#x}", name=own.name) == b"s" * 32
    tool(other, "loadexternal", "-C", "n", "-u", "ak.pub", "-c", "foreign.ctx", "-n", "foreign.name")
    tool(other, "flushcontext", "-t")
    assert (tmp_path / "foreign.name").read_bytes() == foreign.name
    with pytest.raises(AssertionError, match="not available for selected entity"):
        opens(other, ek, ak="foreign.ctx", name=foreign.name)
