# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One image for many machines: what goes in, what is refused, and what is written.

objcopy and sbsign are played here; tests/component/attestation/test_boot_image.py has the real ones.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.command import CommandResult
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError, PolicyError, SystemFault
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.image.pe import parse_program, read_image
from ansible_collections.attested.kubernetes.plugins.module_utils.node.boot_image import (
    Parts,
    assemble,
    generic_initrd,
    newest_kernel,
    run_built,
    run_signed,
)
from ansible_collections.attested.kubernetes.tests.support import pe
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

STUB = pe.program({".text": b"stub", ".sbat": pe.SBAT % 252})
PARTS = Parts(
    stub=STUB,
    os_release=b"ID=debian\n",
    command_line="root=LABEL=root rw quiet",
    release="6.1.0-1-amd64",
    initrd=b"initrd",
    kernel=pe.kernel(),
)
SIGNATURE = b"signed!!"
PRIVATE, OTHER = (rsa.generate_private_key(public_exponent=65537, key_size=size) for size in (2048, 2048))


@dataclasses.dataclass(kw_only=True)
class Tools:
    """objcopy, mkinitramfs, sbsign and sbverify as the code sees them."""

    initrd: bytes = b"made"
    lose: str = ""
    other: bool = False
    seen: list[tuple[str, ...]] = dataclasses.field(default_factory=list)
    settings: dict[str, str] = dataclasses.field(default_factory=dict)
    env: Mapping[str, str] | None = None

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes | None = None,
        timeout_seconds: float = 60,
        env: Mapping[str, str] | None = None,
        check: bool = True,
    ) -> CommandResult:
        """Do what the program of this name does."""
        words = tuple(argv)
        assert (stdin, timeout_seconds > 0) == (pem(PRIVATE) if words[0] == "sbsign" else None, True)
        self.seen.append(words)
        self.env = env or self.env
        code = getattr(self, f"_{words[0]}")(words) or 0
        assert not code or not check
        return CommandResult(argv=words, returncode=code, stdout=b"", stderr=b"")

    def _objcopy(self, words: tuple[str, ...]) -> None:
        added = dict(word.removeprefix("--add-section=").split("=") for word in words if "--add-section" in word)
        sections = parse_program(Path(words[-2]).read_bytes()).sections
        content = {**sections, **{name: Path(file).read_bytes() for name, file in added.items() if name != self.lose}}
        Path(words[-1]).write_bytes(pe.program(content) + b"sym")

    def _mkinitramfs(self, words: tuple[str, ...]) -> None:
        folder = Path(words[2])
        self.settings = {path.name: path.read_text() for path in folder.iterdir() if path.is_file()}
        Path(words[4]).write_bytes(self.initrd)

    def _sbsign(self, words: tuple[str, ...]) -> None:
        made = {".text": b"other"} if self.other else parse_program(Path(words[-1]).read_bytes()).sections
        Path(words[-2]).write_bytes(pe.program(dict(made), signature=SIGNATURE))

    def _sbverify(self, words: tuple[str, ...]) -> int:
        return int(not Path(words[-1]).read_bytes().endswith(SIGNATURE))


def refused(parts: Parts, **changes: Any) -> AttestedError:
    with pytest.raises(AttestedError) as caught:
        assemble(dataclasses.replace(parts, **changes), runner=Tools())
    return caught.value


def test_the_image_has_each_part_and_the_kernel_last() -> None:
    tools = Tools()
    made = assemble(PARTS, runner=tools)
    sections = parse_program(made).sections
    assert {name: sections[name] for name in PARTS.sections} == PARTS.sections
    found = read_image(made)
    assert (found.stub, found.command_line, found.release) == (252, PARTS.command_line, PARTS.release)
    added = [word.partition("=")[2].partition("=")[0] for word in tools.seen[0] if word.startswith("--add")]
    assert added[-2:] == [".initrd", ".linux"]
    assert len(made) % 8 == 0


def test_the_sections_stand_behind_those_of_the_stub_a_page_each_at_least() -> None:
    tools = Tools()
    assemble(dataclasses.replace(PARTS, initrd=bytes(5000)), runner=tools)
    placed = [int(word.rpartition("=")[2], 16) for word in tools.seen[0] if word.startswith("--change")]
    assert placed[0] >= max(4096, len(STUB))
    assert all(at % 4096 == 0 for at in placed)
    assert [after - before for before, after in itertools.pairwise(placed)] == [4096, 4096, 4096, 8192]


def test_what_objcopy_leaves_out_is_found() -> None:
    with pytest.raises(PolicyError, match=r"the sections \.initrd in the image as they were given") as caught:
        assemble(PARTS, runner=Tools(lose=".initrd"))
    assert caught.value.code == "IMAGE_MALFORMED"


@pytest.mark.parametrize(
    ("changes", "code", "told"),
    [
        pytest.param({"initrd": b""}, "IMAGE_MALFORMED", "an empty file", id="no initrd"),
        pytest.param({"kernel": b"\x7fELF" * 99}, "IMAGE_MALFORMED", "got another file", id="no EFI program"),
        pytest.param({"stub": b"stub"}, "IMAGE_MALFORMED", "a file that ends in it", id="no stub"),
        pytest.param({"stub": pe.image()}, "IMAGE_MALFORMED", "got a whole image", id="an image as its stub"),
        pytest.param({"command_line": "root=a\nrw"}, "OPTION_INVALID", "one line of ASCII", id="two lines"),
        pytest.param({"command_line": "root=\xa0"}, "OPTION_INVALID", "one line of ASCII", id="not ASCII"),
        pytest.param({"command_line": "rw quiet"}, "OPTION_INVALID", "root= or roothash=", id="no root"),
        pytest.param({"command_line": ""}, "OPTION_INVALID", "root= or roothash=", id="no command line"),
    ],
)
def test_parts_that_make_no_image_are_refused(changes: dict[str, Any], code: str, told: str) -> None:
    error = refused(PARTS, **changes)
    assert error.code == code
    assert told in error.message


def test_a_root_hash_is_a_root() -> None:
    assert assemble(dataclasses.replace(PARTS, command_line="roothash=ab quiet"), runner=Tools())


def test_the_initrd_takes_nothing_of_this_machine() -> None:
    tools = Tools(initrd=b"generic")
    assert generic_initrd("6.1", (), runner=tools) == b"generic"
    assert tools.settings["initramfs.conf"].splitlines()[0] == "MODULES=most"
    assert "RESUME=none" in tools.settings["initramfs.conf"]
    assert tools.settings["modules"] == ""
    assert tools.env == {"SOURCE_DATE_EPOCH": "1"}
    assert tools.seen[0][-1] == "6.1"
    generic_initrd("6.1", ("ext4", "nvme"), runner=tools)
    assert tools.settings["initramfs.conf"].splitlines()[0] == "MODULES=list"
    assert tools.settings["modules"] == "ext4\nnvme\n"


def test_the_newest_kernel_is_the_one_with_the_highest_numbers(tmp_path: Path) -> None:
    for name in ("vmlinuz-6.1.0-9-amd64", "vmlinuz-6.1.0-56-amd64", "initrd.img-7"):
        (tmp_path / name).touch()
    assert newest_kernel(tmp_path).name == "vmlinuz-6.1.0-56-amd64"
    with pytest.raises(AttestedError, match="expected a kernel") as caught:
        newest_kernel(tmp_path / "empty")
    assert caught.value.code == "OPTION_INVALID"


@pytest.fixture
def order(tmp_path: Path) -> dict[str, Any]:
    """Options of the module, with files that are there."""
    (tmp_path / "vmlinuz-6.1.0-1-amd64").write_bytes(PARTS.kernel)
    (tmp_path / "stub").write_bytes(STUB)
    (tmp_path / "os-release").write_bytes(PARTS.os_release)
    return {
        "path": str(tmp_path / "images" / "fleet.efi"),
        "command_line": PARTS.command_line,
        "kernel": str(tmp_path / "vmlinuz-6.1.0-1-amd64"),
        "initrd": None,
        "initrd_modules": [],
        "stub": str(tmp_path / "stub"),
        "os_release": str(tmp_path / "os-release"),
    }


def test_an_image_is_built_once(order: dict[str, Any]) -> None:
    path = Path(order["path"])
    foreseen = run_built(order, True, runner=Tools())
    assert (foreseen.changed, path.exists()) == (True, False)
    result = run_built(order, False, runner=Tools())
    assert result.changed
    assert result.values == {
        "path": str(path),
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "release": "6.1.0-1-amd64",
        "command_line": PARTS.command_line,
    }
    assert result.values == foreseen.values
    assert not run_built(order, False, runner=Tools()).changed
    assert run_built({**order, "command_line": "root=/dev/sda1"}, True, runner=Tools()).changed


def test_a_given_initrd_is_taken_as_it_is(order: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "initrd").write_bytes(b"given")
    tools = Tools()
    run_built({**order, "initrd": str(tmp_path / "initrd")}, False, runner=tools)
    assert parse_program(Path(order["path"]).read_bytes()).sections[".initrd"] == b"given"
    assert [words[0] for words in tools.seen] == ["objcopy"]


@pytest.mark.parametrize("missing", ["kernel", "initrd", "stub", "os_release"])
def test_a_missing_file_is_told(order: dict[str, Any], missing: str) -> None:
    with pytest.raises(SystemFault, match="cannot read /nowhere") as caught:
        run_built({**order, missing: "/nowhere/vmlinuz-1"}, False, runner=Tools())
    assert caught.value.code == "FILE_UNUSABLE"


def certificate(key: rsa.RSAPrivateKey) -> bytes:
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "site")])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + timedelta(days=1))
    return made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def pem(key: rsa.RSAPrivateKey, *, password: bytes = b"") -> bytes:
    lock = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, lock)


@pytest.fixture
def signing(tmp_path: Path) -> dict[str, Any]:
    """Options of the state signed."""
    (tmp_path / "image").write_bytes(pe.image(stub=252))
    (tmp_path / "key").write_bytes(pem(PRIVATE))
    (tmp_path / "certificate").write_bytes(certificate(PRIVATE))
    names = {name: str(tmp_path / name) for name in ("image", "key", "certificate")}
    return {**names, "path": str(tmp_path / "signed.efi")}


def test_an_image_is_signed_once(signing: dict[str, Any]) -> None:
    foreseen = run_signed(signing, True, runner=Tools())
    assert (foreseen.changed, Path(signing["path"]).exists()) == (True, False)
    assert run_signed(signing, False, runner=Tools()).changed
    tools = Tools()
    assert not run_signed(signing, False, runner=tools).changed
    assert [words[0] for words in tools.seen] == ["sbverify"]


def test_the_certificate_lies_beside_the_image_as_firmware_takes_it(signing: dict[str, Any]) -> None:
    result = run_signed(signing, False, runner=Tools())
    written = Path(signing["path"]).with_name("certificate.cer")
    assert result.values["certificate"] == str(written)
    assert x509.load_der_x509_certificate(written.read_bytes()).public_key() == PRIVATE.public_key()
    written.write_bytes(b"another")
    assert run_signed(signing, True, runner=Tools()).changed
    assert written.read_bytes() == b"another"
    assert run_signed(signing, False, runner=Tools()).changed


def test_an_encrypted_key_is_opened_in_memory(signing: dict[str, Any]) -> None:
    """Who signs gets it by standard input; nothing of it is in the words or the result."""
    Path(signing["key"]).write_bytes(pem(PRIVATE)[::-1])
    tools = Tools()
    result = run_signed(signing, False, runner=tools, open_key=lambda data: data[::-1])
    (words,) = (words for words in tools.seen if words[0] == "sbsign")
    assert words[1:3] == ("--key", "/dev/stdin")
    assert "PRIVATE" not in f"{tools.seen} {result}"


def test_another_image_under_the_name_is_signed_again(signing: dict[str, Any]) -> None:
    run_signed(signing, False, runner=Tools())
    Path(signing["image"]).write_bytes(pe.image(stub=252, linux=pe.kernel(b"next")))
    assert run_signed(signing, False, runner=Tools()).changed


def test_a_signature_that_does_not_verify_is_made_again(signing: dict[str, Any]) -> None:
    Path(signing["path"]).write_bytes(Path(signing["image"]).read_bytes())
    assert run_signed(signing, False, runner=Tools()).changed


def test_another_program_than_the_one_to_sign_is_refused(signing: dict[str, Any]) -> None:
    with pytest.raises(AttestedError, match="the same program with a signature") as caught:
        run_signed(signing, False, runner=Tools(other=True))
    assert caught.value.code == "IMAGE_MALFORMED"
    assert not Path(signing["path"]).exists()


@pytest.mark.parametrize(
    ("file", "content"),
    [
        pytest.param("key", pem(OTHER), id="the key of another"),
        pytest.param("certificate", certificate(OTHER), id="the certificate of another"),
        pytest.param("key", b"no key", id="no key"),
        pytest.param("key", pem(PRIVATE, password=b"secret"), id="a key with a password"),
        pytest.param("certificate", b"no certificate", id="no certificate"),
    ],
)
def test_a_key_that_is_not_that_of_the_certificate_is_refused(
    signing: dict[str, Any], file: str, content: bytes
) -> None:
    Path(signing[file]).write_bytes(content)
    tools = Tools()
    with pytest.raises(AttestedError) as caught:
        run_signed(signing, False, runner=tools)
    assert (caught.value.code, tools.seen) == ("BOOT_KEY_MISMATCH", [])
