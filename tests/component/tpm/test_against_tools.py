# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What tpm2-tools says, our client says, and what one makes the other accepts."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemRandom
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import TpmError
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.constants import (
    ALG_SHA1,
    ALG_SHA256,
    ALG_SHA384,
    PERSISTENT_AK,
    PERSISTENT_EK_RSA,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.keys import (
    load_attestation_key,
    load_endorsement_key,
    persist_keys,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.structures import Attest, sized
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.templates import Credential, make_credential

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ansible_collections.attested.kubernetes.tests.support.swtpm import Opened, Swtpm

AK, EK = f"{PERSISTENT_AK:#x}", f"{PERSISTENT_EK_RSA:#x}"
_BLOB_HEADER = bytes.fromhex("badcc0de00000001")


def test_the_tools_accept_our_quote(swtpm: Swtpm, opened: Opened, tool: Callable[..., str], tmp_path: Path) -> None:
    with opened(swtpm) as tpm:
        ak, nonce = load_attestation_key(tpm), bytes(range(32))
        quote = tpm.quote(ak, nonce, range(24))
        tpm.pcr_event(23, b"something else")
        later = tpm.quote(ak, nonce, range(24))
    (tmp_path / "ak.pub").write_bytes(sized(ak.public.marshal()))
    (tmp_path / "quote").write_bytes(quote.attest)
    (tmp_path / "signature").write_bytes(quote.signature)
    check = ("checkquote", "-u", "ak.pub", "-m", "quote", "-s", "signature", "-g", "sha256", "-q")
    tool(None, *check, nonce.hex())
    with pytest.raises(AssertionError):
        tool(None, *check, (b"x" * 32).hex())
    (tmp_path / "quote").write_bytes(later.attest)
    with pytest.raises(AssertionError):
        tool(None, *check, nonce.hex())


def test_the_tools_read_in_our_quote_what_we_read(
    swtpm: Swtpm, opened: Opened, tool: Callable[..., str], tmp_path: Path
) -> None:
    with opened(swtpm) as tpm:
        ak = load_attestation_key(tpm)
        quote = tpm.quote(ak, b"\xab" * 20, [0, 7, 15])
    (tmp_path / "quote").write_bytes(quote.attest)
    printed, parsed = tool(None, "print", "-t", "TPMS_ATTEST", "quote"), Attest.parse(quote.attest)
    for text in (
        "magic: ff544347",
        "type: 8018",
        f"qualifiedSigner: {parsed.qualified_signer.hex()}",
        f"extraData: {parsed.extra_data.hex()}",
        f"clock: {parsed.clock_info.clock}",
        f"resetCount: {parsed.clock_info.reset_count}",
        f"pcrDigest: {parsed.pcr_digest.hex()}",
        "pcrSelect: 818000",
    ):
        assert text in printed
    assert [selection.indices for selection in parsed.pcr_selections] == [(0, 7, 15)]


def test_registers_are_those_that_the_tools_read(
    swtpms: Callable[..., Swtpm], opened: Opened, tool: Callable[..., str]
) -> None:
    swtpm = swtpms("banks", banks="sha1,sha256,sha384")
    with opened(swtpm) as tpm:
        events = tpm.pcr_event(15, b"cluster")
        tpm.pcr_extend(7, {ALG_SHA1: b"1" * 20, ALG_SHA256: b"2" * 32})
        ours = {bank: tpm.pcr_read(range(24), bank=bank) for bank in (ALG_SHA1, ALG_SHA256, ALG_SHA384)}
        assert tpm.banks() == (ALG_SHA1, ALG_SHA256, ALG_SHA384)
    assert events[ALG_SHA256] == hashlib.sha256(b"cluster").digest()
    assert ours[ALG_SHA256][7] == hashlib.sha256(bytes(32) + b"2" * 32).digest()
    for bank, name in ((ALG_SHA1, "sha1"), (ALG_SHA256, "sha256"), (ALG_SHA384, "sha384")):
        listed = dict(line.split(":") for line in tool(swtpm, "pcrread", name).splitlines() if "0x" in line)
        theirs = {int(index): bytes.fromhex(value.strip()[2:]) for index, value in listed.items()}
        assert ours[bank] == theirs


def test_a_bank_that_is_not_active_is_named(swtpm: Swtpm, opened: Opened) -> None:
    with opened(swtpm) as tpm, pytest.raises(TpmError) as caught:
        tpm.pcr_read([0], bank=ALG_SHA384)
    assert caught.value.reason is Reason.TPM_PCR_UNAVAILABLE


def test_keys_and_names_are_those_that_the_tools_read(
    swtpm: Swtpm, opened: Opened, tool: Callable[..., str], tmp_path: Path
) -> None:
    with opened(swtpm) as tpm:
        persist_keys(tpm)
        keys = {AK: load_attestation_key(tpm), EK: load_endorsement_key(tpm)}
    for handle, key in keys.items():
        tool(swtpm, "readpublic", "-c", handle, "-n", "name", "-o", "key.der", "-f", "der", "-q", "qualified")
        assert (tmp_path / "name").read_bytes() == key.name
        assert (tmp_path / "key.der").read_bytes() == key.public.spki()
        assert (tmp_path / "qualified").read_bytes() == key.public.qualified_name(0x4000000B)


def test_the_endorsement_key_is_the_one_that_the_tools_make(
    swtpms: Callable[..., Swtpm], opened: Opened, tool: Callable[..., str], tmp_path: Path
) -> None:
    swtpm = swtpms("plain", certified=False)
    tool(swtpm, "createek", "-c", "ek.ctx", "-G", "rsa", "-u", "ek.pub")
    with opened(swtpm) as tpm:
        ours = load_endorsement_key(tpm)
    assert (tmp_path / "ek.pub").read_bytes() == sized(ours.public.marshal())


def test_the_certificate_is_the_one_that_the_tools_read(
    swtpm: Swtpm, opened: Opened, tool: Callable[..., str], tmp_path: Path
) -> None:
    with opened(swtpm) as tpm:
        (certificate,) = load_endorsement_key(tpm).certificates
    tool(swtpm, "nvread", "0x01c00002", "-o", "ek.crt")
    assert (tmp_path / "ek.crt").read_bytes() == certificate


def test_the_tools_open_our_credential(swtpm: Swtpm, opened: Opened, tool: Callable[..., str], tmp_path: Path) -> None:
    with opened(swtpm) as tpm:
        persist_keys(tpm)
        ek, ak = load_endorsement_key(tpm), load_attestation_key(tpm)
    made = make_credential(ek.public, ak.name, b"what only this TPM may know", SystemRandom())
    (tmp_path / "blob").write_bytes(_BLOB_HEADER + made.id_object + made.encrypted_secret)
    tool(swtpm, "startauthsession", "--policy-session", "-S", "s.ctx")
    tool(swtpm, "policysecret", "-S", "s.ctx", "-c", "e")
    tool(swtpm, "activatecredential", "-c", AK, "-C", EK, "-i", "blob", "-o", "opened", "-P", "session:s.ctx")
    assert (tmp_path / "opened").read_bytes() == b"what only this TPM may know"


@pytest.mark.parametrize("algorithm", ["rsa", "ecc"])
def test_we_open_the_tools_credential(
    algorithm: str, swtpms: Callable[..., Swtpm], opened: Opened, tool: Callable[..., str], tmp_path: Path, use_ecc_ek
) -> None:
    swtpm = swtpms("plain", certified=False)
    if algorithm == "ecc":
        use_ecc_ek(swtpm)
    with opened(swtpm) as tpm:
        ek, ak = load_endorsement_key(tpm), load_attestation_key(tpm)
        (tmp_path / "ek.pub").write_bytes(sized(ek.public.marshal()))
        (tmp_path / "secret").write_bytes(b"made by the tools")
        tool(None, "makecredential", "-u", "ek.pub", "-s", "secret", "-n", ak.name.hex(), "-o", "blob", "-T", "none")
        blob = (tmp_path / "blob").read_bytes()
        assert blob.startswith(_BLOB_HEADER)
        size = 10 + int.from_bytes(blob[8:10], "big")
        assert tpm.activate_credential(ak, ek, Credential(blob[8:size], blob[size:])) == b"made by the tools"
