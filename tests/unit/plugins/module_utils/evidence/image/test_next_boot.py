# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What lies ready to be booted: found on disk, told as plain data, held against the profiles in force."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import PolicyError
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.image import next_boot
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.image.next_boot import (
    NextBoot,
    Shown,
    Verdict,
    find_next_boots,
    judge,
    judge_next_boot,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.image.pe import read_image
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.image.prediction import (
    predict,
    predict_profile,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.assertions import Assertions, Lockdown
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.identity import Role
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.learning import Preset
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.profile import AllowedValue, Applicant
from ansible_collections.attested.kubernetes.tests.support import pe
from ansible_collections.attested.kubernetes.tests.support.boot_facts import learned

if TYPE_CHECKING:
    from ansible_collections.attested.kubernetes.plugins.module_utils.policy.profile import MeasurementProfile

IMAGE = pe.image(stub=252)
BOOTED_KERNEL = "ed8f0dbdbefe3994093937f5ee934818ae902b88cb0b6bc423811c10d55b87b0"
BASE = learned("deb13-base", Preset.IMAGE)
SECURE = learned("deb13-secureboot", Preset.SECURE_BOOT)
NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
REFUSED = "no active profile would accept the machine after booting it"


def put(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def expected(data: bytes = IMAGE, **options: object) -> MeasurementProfile:
    prediction = predict(read_image(data), secure_boot=False, **options)  # type: ignore[arg-type]
    return predict_profile(BASE, "next", prediction, label="x")


def asserting(data: bytes, **assertions: object) -> MeasurementProfile:
    """A profile that holds the very image (PCR 4), and asserts something."""
    program = AllowedValue(predict(read_image(data), secure_boot=False).registers[4], "x")
    told = Assertions(**assertions)  # type: ignore[arg-type]
    return dataclasses.replace(BASE, registers={4: (program,)}, assertions=told)


def judged(data: bytes, *profiles: MeasurementProfile) -> str:
    return judge_next_boot(NextBoot(path="/efi/a.efi", image=read_image(data)), profiles, now=NOW)


def test_images_and_the_newest_kernel_are_found(tmp_path: Path) -> None:
    put(tmp_path / "boot/efi/EFI/Linux/debian.efi", IMAGE)
    for version in ("6.9.0", "6.12.1"):
        put(tmp_path / f"boot/vmlinuz-{version}", version.encode())
        put(tmp_path / f"boot/initrd.img-{version}", b"initrd")
    image, kernel = find_next_boots(tmp_path)
    assert (image.path, image.image) == (str(tmp_path / "boot/efi/EFI/Linux/debian.efi"), read_image(IMAGE))
    assert (kernel.kernel, kernel.initrd) == (hashlib.sha256(b"6.12.1").digest(), hashlib.sha256(b"initrd").digest())


@pytest.mark.parametrize("place", ["boot/efi/EFI/Linux", "boot/EFI/Linux", "efi/EFI/Linux"])
def test_images_are_found_at_each_place_of_the_partition(place: str, tmp_path: Path) -> None:
    put(tmp_path / place / "a.efi", IMAGE)
    assert [found.image for found in find_next_boots(tmp_path)] == [read_image(IMAGE)]


@pytest.mark.parametrize("order", [*itertools.permutations(("6.9.0", "6.10.3", "6.12.1"))])
def test_the_newest_kernel_is_the_one_with_the_highest_numbers(
    order: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In whatever order the folder names them."""
    paths = [tmp_path / f"boot/vmlinuz-{version}" for version in order]
    for path in paths:
        put(path, path.name.encode())
    named = {"vmlinuz-*": paths}
    monkeypatch.setattr(Path, "glob", lambda _folder, pattern: iter(named.get(pattern, [])))
    (found,) = find_next_boots(tmp_path)
    assert found.kernel == hashlib.sha256(b"vmlinuz-6.12.1").digest()


def test_a_kernel_that_cannot_be_read_is_told_with_its_problem(tmp_path: Path) -> None:
    (tmp_path / "boot/vmlinuz-1").mkdir(parents=True)
    (found,) = find_next_boots(tmp_path)
    assert (found.path, found.kernel) == (str(tmp_path / "boot/vmlinuz-1"), b"")
    assert "vmlinuz-1" in found.problem


def test_a_kernel_without_an_initrd_has_none(tmp_path: Path) -> None:
    put(tmp_path / "boot/vmlinuz-1", b"kernel")
    (found,) = find_next_boots(tmp_path)
    assert (found.initrd, found.problem) == (b"", "")


def test_images_are_found_in_the_order_of_their_names_up_to_a_bound(tmp_path: Path) -> None:
    names = [f"{number:02}.efi" for number in range(17)]
    for name in reversed(names):
        put(tmp_path / "efi/EFI/Linux" / name, IMAGE)
    assert [found.path.rpartition("/")[2] for found in find_next_boots(tmp_path)] == names[:-1]


@pytest.mark.parametrize("size", [8, 9])
def test_what_is_too_large_to_be_booted_is_not_read(size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(next_boot, "MAX_IMAGE_BYTES", 8)
    put(tmp_path / "boot/vmlinuz-1", bytes(size))
    put(tmp_path / "efi/EFI/Linux/a.efi", bytes(size))
    boots = find_next_boots(tmp_path)
    assert [f"expected at most 8 bytes in {found.path}" in found.problem for found in boots] == [size > 8] * 2
    assert ["IMAGE_MALFORMED" in found.problem for found in boots if found.kernel or "vmlinuz" in found.path] == [
        size > 8
    ]


def test_a_machine_without_any_is_found_empty(tmp_path: Path) -> None:
    assert find_next_boots(tmp_path) == ()


def test_an_image_that_cannot_be_read_is_told_with_its_problem(tmp_path: Path) -> None:
    put(tmp_path / "efi/EFI/Linux/broken.efi", b"MZ")
    found = find_next_boots(tmp_path)[0]
    assert "IMAGE_MALFORMED" in found.problem
    (tmp_path / "efi/EFI/Linux/a.efi").mkdir()
    assert "a.efi" in find_next_boots(tmp_path)[0].problem
    assert "cannot be read, so nobody knows" in judge_next_boot(found, [BASE], now=NOW)


def test_it_travels_as_plain_data(tmp_path: Path) -> None:
    put(tmp_path / "boot/vmlinuz-1", b"kernel")
    put(tmp_path / "efi/EFI/Linux/a.efi", IMAGE)
    for found in find_next_boots(tmp_path):
        assert NextBoot.of_mapping(json.loads(json.dumps(found.to_mapping()))) == found


DEEP: list[Any] = []
for _level in range(100_000):
    DEEP = [DEEP]
TOLD = NextBoot(path="/efi/a.efi", image=read_image(IMAGE)).to_mapping()


@pytest.mark.parametrize(
    "told",
    [
        pytest.param({}, id="nothing"),
        pytest.param([], id="a list"),
        pytest.param({**TOLD, "kernel": 7}, id="a number for a digest"),
        pytest.param({**TOLD, "kernel": "xy"}, id="a digest that is no hex"),
        pytest.param({**TOLD, "image": "x"}, id="an image that is a text"),
        pytest.param({**TOLD, "path": DEEP}, id="a path without end"),
        pytest.param({**TOLD, "image": {**TOLD["image"], "sections": []}}, id="sections in a list"),
        pytest.param({**TOLD, "image": {**TOLD["image"], "stub": float("inf")}}, id="a version without end"),
    ],
)
def test_what_a_machine_tells_otherwise_is_refused(told: Any) -> None:
    with pytest.raises(PolicyError) as caught:
        NextBoot.of_mapping(told)
    assert caught.value.code == "IMAGE_MALFORMED"
    assert "expected what next_boot_info returns" in caught.value.message


@pytest.mark.parametrize("options", [{}, {"phases": ("enter-initrd", "leave-initrd", "sysinit", "ready")}])
def test_an_image_that_a_profile_expects_gives_no_warning(options: dict[str, object]) -> None:
    """Whether systemd runs in the initrd is not in the image, so either way is right."""
    assert judged(IMAGE, BASE, expected(**options)) == ""


def test_an_image_that_no_profile_expects_is_warned_of_with_each_register() -> None:
    other = NextBoot(path="/efi/b.efi", image=read_image(pe.image(stub=252, linux=pe.kernel(b"another"))))
    warning = judge_next_boot(other, [expected()], now=NOW)
    assert warning.startswith(
        "/efi/b.efi: no active profile would accept the machine after booting it (next: PCR 4 will"
    )
    assert "PCR 9" not in warning
    assert "PCR 11 will be" in warning


@pytest.mark.parametrize(
    ("registers", "told"),
    [
        pytest.param({0: bytes(32)}, "", id="the firmware of the profile"),
        pytest.param({0: b"x" * 32}, f"(next: PCR 0 is {(b'x' * 32).hex()})", id="another firmware"),
        pytest.param({4: b"x" * 32}, "", id="what the image moves is not looked at"),
        pytest.param({}, "", id="not shown"),
    ],
)
def test_a_machine_with_another_firmware_is_told(registers: dict[int, bytes], told: str) -> None:
    """PCR 0 is the only one that no boot path moves; a profile without it takes any firmware."""
    profile = expected()
    held = dataclasses.replace(profile, registers={**profile.registers, 0: (AllowedValue(bytes(32), "x"),)})
    free = dataclasses.replace(profile, registers={pcr: profile.registers[pcr] for pcr in (4, 9, 11)})
    found = NextBoot(path="/efi/a.efi", image=read_image(IMAGE))
    judged = judge(found, [held], now=NOW, shown=Shown(registers=registers))
    assert judged.why.endswith(told)
    assert judged.verdict is (Verdict.REFUSED if told else Verdict.ALLOWED)
    assert judge(found, [free], now=NOW, shown=Shown(registers=registers)).verdict is Verdict.ALLOWED


def with_line(line: str, *, stub: int = 257) -> bytes:
    return pe.image(stub=stub, cmdline=line.encode(), uname=b"6.12.1")


ALLOWED = "root=LABEL=root ro quiet"


def test_a_profile_that_no_image_moves_expects_every_image() -> None:
    """Preset secure-boot lives through kernel updates."""
    assert judged(with_line(ALLOWED), BASE, SECURE) == ""


def test_an_option_that_is_not_allowed_is_warned_of() -> None:
    data = with_line(f"{ALLOWED} init=/bin/sh")
    options = tuple(ALLOWED.split())
    assert judged(with_line(ALLOWED), asserting(with_line(ALLOWED), boot_options=options)) == ""
    warning = judged(data, asserting(data, boot_options=options))
    assert f"{REFUSED} (deb13-base: assertion: expected no other boot option than" in warning
    assert warning.endswith(", got init=/bin/sh)")


def test_assertions_of_a_profile_that_holds_no_loader_are_warned_of() -> None:
    data = with_line(ALLOWED)
    free = dataclasses.replace(SECURE, assertions=Assertions(boot_options=("ro",)), loader=BASE.loader)
    assert "got a profile that does not name the loader that measured it" in judged(data, free)


@pytest.mark.parametrize(
    ("data", "assertions", "told"),
    [
        pytest.param(
            with_line(f"{ALLOWED} lockdown=integrity"), {"lockdown": Lockdown.INTEGRITY}, "", id="lockdown asked for"
        ),
        pytest.param(
            with_line(ALLOWED),
            {"lockdown": Lockdown.INTEGRITY},
            "expected lockdown=integrity on the kernel's command line, got none",
            id="lockdown left out",
        ),
        pytest.param(with_line(ALLOWED), {"kernels": ("6.12.1",)}, "", id="an accepted release"),
        pytest.param(
            with_line(ALLOWED),
            {"kernels": ("6.12.2",)},
            "expected a kernel of the releases 6.12.2, got one whose hash is",
            id="another release",
        ),
        pytest.param(
            with_line(ALLOWED, stub=252),
            {"kernels": ("6.12.1",)},
            "got no release in the log",
            id="a stub that does not measure the release",
        ),
        pytest.param(
            with_line(ALLOWED, stub=253),
            {"kernels": ("6.12.1",)},
            "the kernel's release cannot be computed: systemd-stub 253 measures sections of its own choice",
            id="a stub that nobody compared",
        ),
        pytest.param(
            with_line(ALLOWED, stub=253),
            {"boot_options": tuple(ALLOWED.split())},
            "",
            id="a release that nobody asserts",
        ),
        pytest.param(
            pe.image(cmdline=b""),
            {"lockdown": Lockdown.INTEGRITY, "boot_options": ("quiet",)},
            "",
            id="no command line of its own: whoever starts it gives one",
        ),
        pytest.param(
            with_line(" "), {"boot_options": ("quiet",)}, "got no command line that the log proves", id="an empty one"
        ),
        pytest.param(
            with_line("quiet\u00a0quiet"),
            {"boot_options": ("quiet",)},
            "got no command line that the log proves",
            id="one that the kernel reads otherwise",
        ),
        pytest.param(with_line(ALLOWED), {"firmware_minimum": "9999"}, "", id="firmware, which no image tells"),
    ],
)
def test_what_an_image_tells_is_held_against_assertions(data: bytes, assertions: dict[str, object], told: str) -> None:
    warning = judged(data, asserting(data, **assertions))
    assert told in warning
    assert bool(warning) is bool(told)


def test_registers_and_assertions_are_told_together() -> None:
    """An image whose registers are expected may still break what is asserted."""
    wanted = dataclasses.replace(expected(), assertions=Assertions(kernels=("6.12.2",)))
    assert f"{REFUSED} (next: assertion: expected a kernel of the releases 6.12.2" in judged(IMAGE, wanted)
    other = judged(pe.image(stub=252, linux=pe.kernel(b"another")), wanted)
    assert "next: PCR 4 will be" in other
    assert ", assertion: expected a kernel" in other


@pytest.mark.parametrize(
    ("change", "told"),
    [
        pytest.param({"retired": True}, "retired", id="retired"),
        pytest.param({"registers": {}}, "without values for a register", id="without registers"),
        pytest.param({"registers": {7: ()}}, "without values for a register", id="without a value"),
        pytest.param({"expires": NOW}, "expired at 2026-11-22T12:00:00+00:00", id="expired this moment"),
    ],
)
def test_profiles_out_of_force_expect_nothing(change: dict[str, object], told: str) -> None:
    """Also where no other profile is left; the same profile in force would expect the image."""
    assert judged(IMAGE, expected()) == ""
    gone = dataclasses.replace(expected(), **change)  # type: ignore[arg-type]
    assert judged(IMAGE, gone) == f"/efi/a.efi: {REFUSED} (next: {told})"
    assert f"; next: {told})" in judged(IMAGE, BASE, gone)


def test_a_profile_expects_until_it_expires() -> None:
    assert judged(IMAGE, dataclasses.replace(expected(), expires=NOW + timedelta(seconds=1))) == ""


def test_without_any_profile_nothing_is_expected() -> None:
    assert judged(IMAGE) == f"/efi/a.efi: {REFUSED} (there is none)"


@pytest.mark.parametrize(
    ("kernel", "initrd", "told"),
    [
        pytest.param(
            "ed8f0dbdbefe3994093937f5ee934818ae902b88cb0b6bc423811c10d55b87b0", "", "", id="the booted kernel"
        ),
        pytest.param("00" * 32, "", "kernel in no reference event of PCR 9", id="another kernel"),
        pytest.param("00" * 32, "11" * 32, "kernel and initrd in no reference event", id="another of both"),
    ],
)
def test_a_kernels_file_is_looked_for_in_what_grub_measured(kernel: str, initrd: str, told: str) -> None:
    found = NextBoot(path="/boot/vmlinuz-1", kernel=bytes.fromhex(kernel), initrd=bytes.fromhex(initrd))
    warning = judge_next_boot(found, [learned("deb13-grub")], now=NOW)
    assert told in warning
    assert bool(warning) is bool(told)


# What a node may be rebooted into: allowed, refused, or not known.

GRUB = learned("deb13-grub")
WORKER = Applicant(role=Role.WORKER, ek_sha256="ab" * 32)


def grub(**changes: str) -> NextBoot:
    """The files of the recorded boot of GRUB, as tests/vectors/boots/deb13-grub/boot.txt names them."""
    files = {
        "grub.cfg": "64f32d8592783ef092a9b8091d3fb971e077213b2e885d2bdeb497ba032a3fdc",
        "debian/grub.cfg": "1653e12099376d7b78de831942cc6c80ddb60f073a2c888150b51732ff6a63e0",
        **changes,
    }
    read = {name: bytes.fromhex(value) for name, value in files.items()}
    return NextBoot(path="/boot/efi/EFI/debian/shimx64.efi", kernel=bytes.fromhex(BOOTED_KERNEL), files=read)


def judged_boot(found: NextBoot, *profiles: MeasurementProfile, **shown: Any) -> tuple[Verdict, str]:
    judgement = judge(found, profiles, now=NOW, shown=Shown(**shown))
    assert (judgement.why == "") is (judgement.verdict is Verdict.ALLOWED)
    return judgement.verdict, judgement.profile or judgement.why


def boot_of(data: bytes = IMAGE) -> NextBoot:
    return NextBoot(path="/efi/a.efi", image=read_image(data))


def test_an_image_is_allowed_by_the_profile_that_was_computed_from_it() -> None:
    assert judged_boot(boot_of(), BASE, expected()) == (Verdict.ALLOWED, "next")


def test_another_image_is_refused_and_each_profile_says_why() -> None:
    other = boot_of(pe.image(stub=252, linux=pe.kernel(b"another")))
    verdict, why = judged_boot(other, expected(), dataclasses.replace(expected(), name="old", retired=True))
    assert (verdict, "next: PCR 4 will be" in why, "old: retired" in why) == (Verdict.REFUSED, True, True)


def test_without_a_profile_everything_is_refused() -> None:
    assert judged_boot(boot_of())[0] is Verdict.REFUSED
    assert judged_boot(grub())[0] is Verdict.REFUSED


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        pytest.param({"roles": (Role.WORKER,)}, Verdict.ALLOWED, id="its role"),
        pytest.param({"machines": (WORKER.ek_sha256,)}, Verdict.ALLOWED, id="its key"),
        pytest.param({"roles": (Role.CONTROL_PLANE,)}, Verdict.REFUSED, id="another role"),
        pytest.param({"machines": ("cd" * 32,)}, Verdict.REFUSED, id="another machine"),
    ],
)
def test_a_profile_of_others_allows_nothing(changes: dict[str, Any], verdict: Verdict) -> None:
    limited = dataclasses.replace(expected(), **changes)
    found, told = judged_boot(boot_of(), limited, applicant=WORKER)
    assert found is verdict
    assert ("counts for" in told) is (verdict is Verdict.REFUSED)
    assert judged_boot(boot_of(), limited)[0] is Verdict.ALLOWED


def test_what_only_a_boot_can_show_is_not_known() -> None:
    """PCR 9 of an initrd that no machine booted, behind a stub that adds to it; a known deviation beside it refuses."""
    new = boot_of(pe.image(stub=257, initrd=b"another"))
    profile = expected()
    only = dataclasses.replace(profile, registers={9: profile.registers[9]})
    verdict, why = judged_boot(new, only)
    assert (verdict, "PCR 9 cannot be computed" in why) == (Verdict.UNKNOWN, True)
    assert judged_boot(new, profile)[0] is Verdict.REFUSED
    assert judged_boot(new, profile, only)[0] is Verdict.UNKNOWN


def test_a_kernels_release_that_cannot_be_computed_is_not_known() -> None:
    data = pe.image(stub=253)
    verdict, why = judged_boot(boot_of(data), asserting(data, kernels=("6.12.1",)))
    assert (verdict, "the kernel's release cannot be computed" in why) == (Verdict.UNKNOWN, True)
    assert "a kernel of the releases" not in why


def test_a_boot_with_a_problem_is_not_known_whatever_is_allowed() -> None:
    found = dataclasses.replace(boot_of(), problem="Boot0004 gives it options")
    assert judged_boot(found, expected()) == (Verdict.UNKNOWN, "/efi/a.efi: Boot0004 gives it options")


@pytest.mark.parametrize(
    ("running", "verdict"),
    [
        pytest.param(BASE, Verdict.UNKNOWN, id="it runs an image"),
        pytest.param(GRUB, Verdict.ALLOWED, id="it runs GRUB"),
        pytest.param(None, Verdict.ALLOWED, id="not shown"),
    ],
)
def test_keys_of_another_signer_are_not_known_ahead(running: MeasurementProfile | None, verdict: Verdict) -> None:
    """From image to image firmware notes the same in PCR 7, unless another key signs; from GRUB it does not."""
    registers = {7: b"x" * 32}
    assert judged_boot(boot_of(), expected(), registers=registers, profile=running)[0] is verdict


def test_keys_are_not_compared_where_grub_follows_an_image() -> None:
    assert 7 in GRUB.registers
    assert judged_boot(grub(), GRUB, registers={7: b"x" * 32}, profile=BASE)[0] is Verdict.ALLOWED


def test_a_file_is_looked_for_in_the_registers_that_the_profile_has() -> None:
    """GRUB notes the files that it reads in PCR 9, of which this profile says nothing."""
    assert judged_boot(grub(), dataclasses.replace(GRUB, registers={8: GRUB.registers[8]}))[0] is Verdict.UNKNOWN


def test_the_boot_of_grub_that_was_recorded_is_allowed_again() -> None:
    assert judged_boot(grub(), GRUB) == (Verdict.ALLOWED, "deb13-grub")


@pytest.mark.parametrize("changed", ["grub.cfg", "debian/grub.cfg", "grub/grubenv", "grubx64.efi"])
def test_each_file_that_grub_measures_makes_its_next_boot_unknown(changed: str) -> None:
    verdict, why = judged_boot(grub(**{changed: "00" * 32}), GRUB)
    assert (verdict, f"{changed} in no reference event of PCR 4, 8, 9" in why) == (Verdict.UNKNOWN, True)


def test_another_kernel_for_grub_is_not_known() -> None:
    found = dataclasses.replace(grub(), kernel=bytes(32))
    verdict, why = judged_boot(found, GRUB)
    assert (verdict, "kernel in no reference event" in why) == (Verdict.UNKNOWN, True)


def test_a_profile_that_holds_nothing_of_what_moves_allows_any_loader() -> None:
    assert judged_boot(grub(**{"grub.cfg": "00" * 32}), SECURE) == (Verdict.ALLOWED, SECURE.name)
