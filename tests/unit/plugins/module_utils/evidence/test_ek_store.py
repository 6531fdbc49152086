# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The root store: files are trusted as named, a directory by what signed itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import SiteError
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.ek_profile import EkStore, load_ek_store
from ansible_collections.attested.kubernetes.tests.support.ek import Authority, der, pem

if TYPE_CHECKING:
    from pathlib import Path

ROOT = Authority.root()
MIDDLE = ROOT.below("middle")


def refused(path: Path) -> str:
    with pytest.raises(SiteError) as caught:
        load_ek_store([path])
    return caught.value.code


def test_no_paths_are_an_empty_store() -> None:
    assert load_ek_store([]) == EkStore()


def test_what_a_named_file_holds_is_trusted(tmp_path: Path) -> None:
    (tmp_path / "both.pem").write_bytes(pem(ROOT.certificate) + pem(MIDDLE.certificate))
    store = load_ek_store([tmp_path / "both.pem"])
    assert store == EkStore(roots=(ROOT.certificate, MIDDLE.certificate))


def test_in_a_directory_only_the_self_signed_are_roots(tmp_path: Path) -> None:
    (tmp_path / "maker.pem").write_bytes(pem(MIDDLE.certificate) + pem(ROOT.certificate))
    other = Authority.root("Other")
    (tmp_path / "other.cer").write_bytes(der(other.certificate))
    (tmp_path / "README.md").write_text("not a certificate")
    (tmp_path / "deeper").mkdir()
    store = load_ek_store([tmp_path])
    assert store == EkStore(roots=(ROOT.certificate, other.certificate), intermediates=(MIDDLE.certificate,))


def test_a_certificate_that_only_has_the_names_of_a_root(tmp_path: Path) -> None:
    """Issuer and subject are the same, the signature is another's: it is a cached issuer, and trusted for nothing."""
    fake = MIDDLE.issue(MIDDLE.name, Authority("x").key.public_key(), {})
    (tmp_path / "a.pem").write_bytes(pem(fake) + pem(ROOT.certificate))
    assert load_ek_store([tmp_path]).intermediates == (fake,)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        pytest.param("roots.pem", b"no certificate", id="a text"),
        pytest.param("roots.pem", pem(ROOT.certificate)[:200], id="a damaged certificate"),
        pytest.param("roots.der", der(ROOT.certificate)[:-1], id="damaged DER"),
        pytest.param(
            "roots.der",
            der(ROOT.certificate).replace(b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x07", 1),
            id="a version that does not exist",
        ),
    ],
)
def test_a_file_without_certificates(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    assert refused(tmp_path / name) == "EK_AUTHORITIES_UNUSABLE"
    assert refused(tmp_path) == "EK_AUTHORITIES_UNUSABLE"


def test_a_directory_without_a_root(tmp_path: Path) -> None:
    assert refused(tmp_path) == "EK_AUTHORITIES_UNUSABLE"
    (tmp_path / "middle.pem").write_bytes(pem(MIDDLE.certificate))
    assert refused(tmp_path) == "EK_AUTHORITIES_UNUSABLE"
