# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The first half of the playbook boot_image, run for real: built, signed, and its profile in the site.

The reference machine is this one, with a /boot of its own. What a machine then does with the image:
tests/system/vm_bed/test_boot_image.py.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.image.pe import (
    parse_program,
    read_image,
    signature_of,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.image.prediction import predict
from ansible_collections.attested.kubernetes.plugins.module_utils.node.boot_image import STUBS
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.manifest import (
    parse_documents,
    render_document,
    render_profile,
)
from ansible_collections.attested.kubernetes.tests.support import boots, pe
from ansible_collections.attested.kubernetes.tests.support.boot_facts import learned
from ansible_collections.attested.kubernetes.tests.support.tpm2_tools import require_tool

STUB = Path("/usr/lib/systemd/boot/efi") / STUBS[0]
LINE = "root=LABEL=root rw quiet"
OWN_BOOT = """
set -eu
mkdir -p /boot /var/lib/attested
mount -t tmpfs none /boot
mount -t tmpfs none /var/lib/attested
cp "$1" /boot/vmlinuz-6.1.0-1-amd64
shift
exec "$@"
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site whose machines boot GRUB, with a key for Secure Boot."""
    if os.geteuid():
        pytest.skip("needs root for a /boot of its own")
    if not STUB.exists():
        pytest.skip(f"needs {STUB} of the package systemd-boot-efi")
    require_tool("sbsign", "sbsigntool")
    folder = tmp_path_factory.mktemp("site")
    (folder / "kernel").write_bytes(pe.kernel())
    (folder / "initrd").write_bytes(b"initrd" * 900)
    (folder / "policy").mkdir()
    text = render_document(render_profile(learned("deb13-grub")))
    (folder / "policy" / "deb13-grub.yml").write_text(text, encoding="utf-8")
    machine = {"ansible_connection": "local"}
    nodes = {"control_planes": {"hosts": {"cp-1": machine}}, "workers": {"hosts": {"w-1": machine}}}
    settings = {
        "attested_policy_dir": str(folder / "policy"),
        "attested_boot_command_line": LINE,
        "attested_boot_reference": "w-1",
        "attested_boot_initrd": str(folder / "initrd"),
    }
    inventory = {"all": {"children": {"nodes": {"children": nodes, "vars": settings}}}}
    (folder / "hosts.yml").write_text(json.dumps(inventory), encoding="utf-8")
    key = ("-keyout", str(folder / "key.pem"), "-out", str(folder / "certificate.pem"))
    words = ("req", "-new", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=site", "-days", "2")
    subprocess.run(["openssl", *words, *key], check=True, capture_output=True, timeout=900)
    return folder


def play(site: Path, *words: str, **variables: str) -> tuple[int, int, str]:
    """Run the playbook; return its exit code, how many tasks changed something, and what it printed."""
    program = str(Path(sys.executable).parent / "ansible-playbook")
    given = json.dumps({"ansible_python_interpreter": sys.executable, "profile": "deb13-grub", **variables})
    argv = [program, "-i", "hosts.yml", "attested.kubernetes.boot_image", "-e", given, *words]
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", OWN_BOOT, "sh", str(site / "kernel"), *argv],
        cwd=site,
        env={**os.environ, "ANSIBLE_STDOUT_CALLBACK": "default", "ANSIBLE_FORCE_COLOR": "0"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    said = done.stdout + done.stderr
    return done.returncode, sum(map(int, re.findall(r"changed=(\d+)", said))), said


@pytest.fixture(scope="module")
def built(site: Path) -> Path:
    """The image of a run that is limited to another machine than the reference machine."""
    code, changed, said = play(site, "--limit", "cp-1", image="fleet-1")
    assert (code, changed > 0) == (0, True), said
    return site / "boot-images" / "fleet-1.efi"


def test_check_mode_writes_nothing_into_the_site(site: Path) -> None:
    code, changed, said = play(site, "--check", image="fleet-0")
    assert (code, changed) == (0, 1), said
    assert not (site / "boot-images" / "fleet-0.efi").exists()
    assert not (site / "policy" / "fleet-0.yml").exists()


def test_the_image_is_made_of_the_reference_machines_parts(built: Path) -> None:
    found = read_image(built.read_bytes())
    assert (found.command_line, found.release) == (LINE, "6.1.0-1-amd64")
    assert parse_program(built.read_bytes()).sections[".initrd"] == b"initrd" * 900


def test_its_profile_is_in_the_site_before_a_machine_boots_it(site: Path, built: Path) -> None:
    text = (site / "policy" / "fleet-1.yml").read_text(encoding="utf-8")
    (profile,) = parse_documents([("fleet-1", text)]).profiles
    expected = dict(predict(read_image(built.read_bytes()), secure_boot=False).registers)
    expected |= {pcr: boots.load("deb13-base").pcrs[pcr] for pcr in (0, 7)}
    assert {pcr: [one.digest for one in allowed] for pcr, allowed in profile.registers.items()} == {
        pcr: [value] for pcr, value in expected.items()
    }
    assert profile.registers[4][0].label == "fleet-1"


def test_a_second_run_changes_nothing_in_the_site(site: Path, built: Path) -> None:
    """Built again from the same parts, on a machine that has forgotten the first image."""
    before = {path: path.read_bytes() for path in (built, site / "policy" / "fleet-1.yml")}
    code, changed, said = play(site, image="fleet-1")
    assert (code, changed) == (0, 1), said
    assert {path: path.read_bytes() for path in before} == before


def test_a_signed_image_has_the_profile_of_the_unsigned_one(site: Path, built: Path) -> None:
    pair = {"attested_boot_key": str(site / "key.pem"), "attested_boot_certificate": str(site / "certificate.pem")}
    code, _changed, said = play(site, image="fleet-2", **pair)
    assert code == 0, said
    signed = (site / "boot-images" / "fleet-2.efi").read_bytes()
    assert signature_of(signed)
    assert parse_program(signed).digest == parse_program(built.read_bytes()).digest
    assert play(site, image="fleet-2", **pair)[:2] == (0, 1)
    assert (site / "boot-images" / "fleet-2.efi").read_bytes() == signed


def test_the_sites_own_key_signs_without_being_named_and_is_opened_in_memory_alone(site: Path, built: Path) -> None:
    """Made by secrets, encrypted in the site; at -vvvv nothing of it is printed, and no file holds it in clear."""
    (site / "password").write_text("password\n")
    (site / ".secrets").mkdir(exist_ok=True)
    vault = ("--vault-password-file", "password")
    program = str(Path(sys.executable).parent / "ansible")
    options = json.dumps({"site": str(site), "cluster_name": "prod", "secure_boot_key": True})
    argv = [program, "localhost", *vault, "-m", "attested.kubernetes.master_secret", "-a", options]
    for words, changed, there in ((["--check"], True, False), ([], True, True), (["--check"], False, True)):
        made = subprocess.run([*argv, *words], cwd=site, capture_output=True, text=True, check=False, timeout=120)
        assert made.returncode == 0, made.stdout + made.stderr
        assert ("CHANGED" in made.stdout, (site / "secure-boot.pem").exists()) == (changed, there), made.stdout
    try:
        code, _changed, said = play(site, *vault, "-vvvv", image="fleet-4")
        assert code == 0, said
        view = [f"{program}-vault", "view", *vault, ".secrets/secure-boot-key.pem"]
        clear = subprocess.run(view, cwd=site, capture_output=True, text=True, check=True, timeout=900).stdout
        needles = [line for line in clear.splitlines() if line and "-----" not in line]
        assert len(needles) > 20
        found = [path for path in site.rglob("*") if path.is_file() and needles[0].encode() in path.read_bytes()]
        assert ([one for one in needles if one in said], found) == ([], [])
        image = site / "boot-images" / "fleet-4.efi"
        checked = ["sbverify", "--cert", str(site / "secure-boot.pem"), str(image)]
        assert subprocess.run(checked, capture_output=True, check=False, timeout=900).returncode == 0
        certificate = (site / "boot-images" / "secure-boot.cer").read_bytes()
        assert certificate in signature_of(image.read_bytes())
        assert parse_program(image.read_bytes()).digest == parse_program(built.read_bytes()).digest
        assert play(site, *vault, image="fleet-5", attested_boot_key="")[0] == 0
        assert not signature_of((site / "boot-images" / "fleet-5.efi").read_bytes())
    finally:
        for path in (site / "secure-boot.pem", site / ".secrets" / "secure-boot-key.pem"):
            path.unlink()


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        pytest.param({"attested_boot_command_line": "quiet"}, "OPTION_INVALID", id="no root"),
        pytest.param({"attested_boot_initrd": "/nowhere"}, "FILE_UNUSABLE", id="no initrd"),
        pytest.param({"profile": "nobody"}, "PROFILE_UNKNOWN", id="no base"),
    ],
)
def test_what_makes_no_image_ends_the_run(site: Path, variables: dict[str, str], told: str) -> None:
    code, _changed, said = play(site, **{"image": "fleet-3", **variables})
    assert (code != 0, told in said) == (True, True), said
    assert not (site / "policy" / "fleet-3.yml").exists()
