# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbook `secrets` with a recovery kit: kept, the site lost, brought back; and nothing shows meanwhile."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.admin import secrets
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.age_file import (
    parse_identities,
    require_passphrase,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.envelope import KitKeys, open_kit
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.site_directory import Site
from ansible_collections.attested.kubernetes.tests.component.playbooks.test_site import (
    PASSWORD,
    VaultLibrary,
    clear_secrets,
    copy_example,
    files,
    leaks,
    play,
)
from ansible_collections.attested.kubernetes.tests.support.canary import ProcessWatch, spellings, spellings_of_pem
from ansible_collections.attested.kubernetes.tests.support.kits import missing_for_age

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

WORDS = "correct horse battery staple"
IDENTITY = "host_vars/w-1/identity.yml"
PROFILE = "policy/r650-debian13.yml"
needs_age = pytest.mark.skipif(bool(missing_for_age()), reason=missing_for_age())


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site with an identity and a profile; its folder holds the passwords too."""
    path = tmp_path_factory.mktemp("sites") / "prod"
    copy_example(path)
    for name, text in ((IDENTITY, "attested_ek: sha256:00\n"), (PROFILE, "kind: MeasurementProfile\n")):
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(text, encoding="utf-8")
    (path.parent / "password").write_text(PASSWORD, encoding="utf-8")
    (path.parent / "passphrase").write_text(WORDS + "\n", encoding="ascii")
    return path


@pytest.fixture(scope="module")
def kept(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a kit under a passphrase, written at the highest verbosity; what was said lies beside it."""
    folder = tmp_path_factory.mktemp("kept")
    home = folder / "home"
    with ProcessWatch() as watch:
        done = run(
            site, "-vvvv", "--diff", **by_passphrase(site, folder / "prod.kit"),
            env={"HOME": str(home), "ANSIBLE_HOME": str(home / ".ansible"), "ANSIBLE_LOG_PATH": str(folder / "log")},
        )  # fmt: skip
        seen = watch.seen()
    assert done.returncode == 0, done.stdout + done.stderr
    (folder / "output").write_text(done.stdout + done.stderr, encoding="utf-8")
    (folder / "seen").write_bytes(b"\n".join(data for _channel, data in seen))
    return folder


def run(
    site: Path, *options: str, env: dict[str, str] | None = None, **variables: object
) -> subprocess.CompletedProcess[str]:
    words = [*options, "--vault-password-file", str(site.parent / "password"), "-e", json.dumps(variables)]
    return play("secrets", *words, cwd=site, **env or {})


def by_passphrase(site: Path, kit: Path) -> dict[str, str]:
    return {
        "attested_recovery_kit": str(kit),
        "attested_recovery_kit_passphrase_file": str(site.parent / "passphrase"),
    }


def needles(site: Path) -> list[str]:
    """Return every secret of the site and the passphrase, in every spelling."""
    bundle = secrets.load(Site.at(site), VaultLibrary())
    policy = VaultLibrary().decrypt(Site.at(site).policy_key.read_bytes())
    raw = (
        bundle.master.key.reveal(),
        bundle.master.salt.reveal(),
        bundle.measurement_secret().reveal(),
        WORDS.encode(),
    )
    found = [one for value in raw for one in spellings(value)]
    found += [one for value in (bundle.join_ca_key.reveal(), policy) for one in spellings_of_pem(value)]
    return [one.decode("latin-1") for one in found] + clear_secrets(site, VaultLibrary())


def test_no_secret_shows_at_full_verbosity_and_a_planted_one_would(site: Path, kept: Path) -> None:
    canaries = needles(site)
    texts = [(kept / name).read_bytes().decode("latin-1") for name in ("output", "log", "seen", "prod.kit")]
    assert len(texts[2]) > 1000  # the watch has seen processes
    elsewhere = (kept / "home", site)
    assert leaks(canaries, tuple(texts), elsewhere) == set()
    planted = texts[0] + canaries[1] + canaries[-1]
    assert leaks(canaries, (planted,), elsewhere) >= {canaries[1], canaries[-1]}
    assert (kept / "prod.kit").stat().st_mode & 0o777 == 0o600


def test_a_second_run_changes_nothing_and_a_change_is_kept(site: Path, kept: Path, tmp_path: Path) -> None:
    kit = kept / "prod.kit"
    assert run(site, **by_passphrase(site, kit)).returncode == 0  # another test may have written a kit for others
    before = kit.read_bytes()
    again = run(site, **by_passphrase(site, kit))
    assert again.returncode == 0, again.stdout
    assert "changed=0" in again.stdout
    assert kit.read_bytes() == before
    (site / IDENTITY).write_text("attested_ek: sha256:11\n", encoding="utf-8")
    foreseen = run(site, "--check", **by_passphrase(site, kit))
    assert "changed=1" in foreseen.stdout
    assert kit.read_bytes() == before
    assert "changed=1" in run(site, **by_passphrase(site, kit)).stdout
    keys = KitKeys(passphrase=require_passphrase(WORDS.encode()))
    assert dict(open_kit(kit.read_bytes(), keys).files)[IDENTITY] == b"attested_ek: sha256:11\n"


def test_a_site_that_asks_for_no_kit_has_none(site: Path, kept: Path, tmp_path: Path) -> None:
    assert kept.exists()
    copy = tmp_path / "prod"
    shutil.copytree(site, copy)
    shutil.copy(site.parent / "password", tmp_path)
    Site.at(copy).kit_mark.unlink()
    done = run(copy)
    assert "changed=0" in done.stdout
    assert not Site.at(copy).kit_mark.exists()
    assert "skipping" in done.stdout


def test_a_lost_site_comes_back_from_its_kit_with_the_same_keys(site: Path, kept: Path, tmp_path: Path) -> None:
    assert run(site, **by_passphrase(site, kept / "prod.kit")).returncode == 0
    lost = tmp_path / "prod"
    shutil.copy(site.parent / "password", tmp_path)
    shutil.copy(site.parent / "passphrase", tmp_path)
    copy_example(lost)
    opened = {"kit_from": str(kept / "prod.kit"), "kit_passphrase_file": str(tmp_path / "passphrase")}
    foreseen = run(lost, "--check", "--diff", **opened)
    assert "+policy-key.pem" in foreseen.stdout
    assert not Site.at(lost).cluster_file.exists()
    done = run(lost, "-vvvv", **opened)
    assert done.returncode == 0, done.stdout
    ours, theirs = (secrets.load(Site.at(one), VaultLibrary()) for one in (lost, site))
    assert ours == theirs
    assert VaultLibrary().decrypt(Site.at(lost).policy_key.read_bytes()) == VaultLibrary().decrypt(
        Site.at(site).policy_key.read_bytes()
    )
    for name in ("cluster.yml", IDENTITY, PROFILE):
        assert (lost / name).read_bytes() == (site / name).read_bytes()
    assert leaks(needles(site), (done.stdout, done.stderr), (lost,)) == set()
    assert "changed=0" in run(lost, **opened).stdout


@pytest.mark.parametrize(
    ("variables", "code"),
    [
        pytest.param({"attested_recovery_kit": "{kit}"}, "KIT_KEY_WRONG: got none", id="a kit without a lock"),
        pytest.param(
            {"kit_from": "{kit}", "kit_passphrase_file": "{wrong}"},
            "KIT_KEY_WRONG: got another one",
            id="a wrong passphrase",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_and_nothing_changes(
    variables: dict[str, str], code: str, site: Path, kept: Path, tmp_path: Path
) -> None:
    (tmp_path / "wrong").write_text("another passphrase\n", encoding="ascii")
    places = {"site": site, "kit": kept / "prod.kit", "wrong": tmp_path / "wrong"}
    before = files(site)
    done = run(site, **{name: text.format(**places) for name, text in variables.items()})
    assert done.returncode != 0
    reason, _colon, words = code.partition(": ")
    assert reason in done.stdout
    assert words in " ".join(done.stdout.split())
    assert files(site) == before


@needs_age
def test_a_kit_for_recipients_needs_no_secret_to_be_written_and_an_identity_to_be_opened(
    site: Path, kept: Path, tmp_path: Path
) -> None:
    import pyrage  # noqa: PLC0415  # optional

    assert kept.exists()
    identity, kit = pyrage.x25519.Identity.generate(), tmp_path / "prod.age"
    (tmp_path / "identity").write_text(f"{identity}\n", encoding="ascii")
    closed = {"attested_recovery_kit": str(kit), "attested_recovery_kit_recipients": [str(identity.to_public())]}
    assert "changed=1" in run(site, **closed).stdout
    assert "changed=0" in run(site, **closed).stdout
    keys = KitKeys(identities=parse_identities((tmp_path / "identity").read_bytes()))
    assert open_kit(kit.read_bytes(), keys).master == secrets.load(Site.at(site), VaultLibrary()).master
    copy = tmp_path / "prod"
    shutil.copytree(site, copy)
    shutil.copy(site.parent / "password", tmp_path)
    shutil.rmtree(copy / ".secrets")
    done = run(copy, kit_from=str(kit), kit_identity_file=str(tmp_path / "identity"))
    assert done.returncode == 0, done.stdout
    assert secrets.load(Site.at(copy), VaultLibrary()) == secrets.load(Site.at(site), VaultLibrary())
