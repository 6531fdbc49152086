# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Small files in one go, and the list of what a machine lacks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.bundle.node_files import write_files
from ansible_collections.attested.kubernetes.plugins.module_utils.bundle.prerequisites import (
    Machine,
    MachineReader,
    findings_of,
    inspect_prerequisites,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.core.command import CommandResult
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import SystemFault
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def files(**texts: str) -> dict[str, Any]:
    return {"files": [{"path": f"/etc/x/{name}", "content": text, "mode": "0640"} for name, text in texts.items()]}


def test_check_apply_again_and_again_in_check(tmp_path: Path):
    walk = [write_files(files(a="1\n"), check, root=tmp_path).changed for check in (True, False, False, True)]

    assert walk == [True, True, False, False]
    assert (tmp_path / "etc/x/a").stat().st_mode & 0o777 == 0o640


def test_only_what_differs_is_written_and_shown(tmp_path: Path):
    write_files(files(a="1\n", b="1\n"), False, root=tmp_path)

    result = write_files(files(a="1\n", b="2\n", c="3\n"), False, root=tmp_path)

    assert result.values["written"] == ["/etc/x/b", "/etc/x/c"]
    assert result.diff is not None
    assert (result.diff.before, result.diff.after) == (
        "/etc/x/b (0640)\n1\n\n",
        "/etc/x/b (0640)\n2\n\n/etc/x/c (0640)\n3\n\n",
    )


def test_a_link_in_the_place_of_a_file_is_replaced_not_followed(tmp_path: Path):
    (tmp_path / "etc/x").mkdir(parents=True)
    (tmp_path / "victim").write_text("1\n")
    (tmp_path / "etc/x/a").symlink_to(tmp_path / "victim")

    write_files(files(a="2\n"), False, root=tmp_path)

    assert (tmp_path / "victim").read_text() == "1\n"
    assert not (tmp_path / "etc/x/a").is_symlink()


@pytest.mark.parametrize(
    "row",
    [
        pytest.param({"path": "etc/a", "content": "", "mode": "0644"}, id="relative path"),
        pytest.param({"path": "/etc/a", "content": "", "mode": "rw"}, id="mode in letters"),
        pytest.param({"path": "/etc/a", "content": "", "mode": "4755"}, id="set-user-id"),
    ],
)
def test_a_row_that_cannot_be_meant_is_refused(tmp_path: Path, row):
    with pytest.raises(SystemFault) as caught:
        write_files({"files": [row]}, False, root=tmp_path)
    assert caught.value.reason is Reason.FILE_UNUSABLE


GOOD = Machine(missing_packages=(), swaps=(), cgroup_version=2, missing_kernel_parts=(), systemd=True)


def test_a_good_machine_lacks_nothing():
    assert findings_of(GOOD, allow_cgroup_v1=False) == []


CASES = [
    pytest.param({"systemd": False}, "expected systemd", id="another init"),
    pytest.param({"missing_packages": ("a", "b")}, "packages a b", id="packages"),
    pytest.param({"swaps": ("/dev/sda2",)}, "no swap, found /dev/sda2", id="swap"),
    pytest.param({"cgroup_version": 1}, "cgroup v2, found v1", id="cgroup v1"),
    pytest.param({"missing_kernel_parts": ("overlay",)}, "a kernel with overlay", id="kernel"),
]


@pytest.mark.parametrize(("change", "said"), CASES)
def test_each_lack_is_named(change, said):
    facts = {name: getattr(GOOD, name) for name in Machine.__slots__} | change
    (finding,) = findings_of(Machine(**facts), allow_cgroup_v1=False)
    assert said in finding


def test_cgroup_v1_passes_only_where_it_was_allowed():
    machine = Machine(missing_packages=(), swaps=(), cgroup_version=1, missing_kernel_parts=(), systemd=True)
    assert findings_of(machine, allow_cgroup_v1=True) == []


class FakeMachine:
    """dpkg knows one package, modprobe one module."""

    def run(self, argv: Sequence[str], **_options: object) -> CommandResult:
        text = "containerd installed\nremoved config-files\n" if argv[0] == "dpkg-query" else ""
        code = int(argv[-1] == "overlay")
        return CommandResult(argv=tuple(argv), returncode=code, stdout=text.encode(), stderr=b"")


def test_everything_is_observed_in_one_go(tmp_path: Path):
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/swaps").write_text("Filename Type Size Used Priority\n/dev/sda2 partition 1 0 -2\n")
    asked = {"packages": ["containerd", "removed", "python3"], "kernel_modules": [], "allow_cgroup_v1": False}

    result = inspect_prerequisites(asked, False, reader=MachineReader(runner=FakeMachine(), root=tmp_path))

    assert result.values["missing_packages"] == ["removed", "python3"]
    assert [word in " ".join(result.values["findings"]) for word in ("systemd", "/dev/sda2", "v1", "overlay")] == [
        True
    ] * 4
    assert result.values["ready"] is False


class Programs:
    """A machine without the programs ``missing``; its rpm knows the packages ``known``."""

    def __init__(self, *known: str, missing: Sequence[str], reason: Reason = Reason.COMMAND_MISSING) -> None:
        self._known, self._missing, self._reason = known, missing, reason

    def run(self, argv: Sequence[str], **_options: object) -> CommandResult:
        if argv[0] in self._missing:
            raise SystemFault(f"no answer of {argv[0]}", reason=self._reason)
        code = int(argv[0] == "rpm" and argv[-1] not in self._known)
        return CommandResult(argv=tuple(argv), returncode=code, stdout=b"", stderr=b"")


def test_a_machine_with_rpm_is_asked_for_the_names_of_its_distribution(tmp_path: Path):
    runner = Programs("procps-ng", "util-linux", missing=["dpkg-query"])
    machine = MachineReader(runner=runner, root=tmp_path).observe(
        ["conntrack", "mount", "procps", "runc", "util-linux"]
    )
    assert (machine.package_manager, machine.missing_packages) == ("dnf", ("conntrack-tools", "runc"))


def test_a_machine_with_neither_dpkg_nor_rpm_is_not_asked_for_packages(tmp_path: Path):
    runner = Programs(missing=["dpkg-query", "rpm"])
    machine = MachineReader(runner=runner, root=tmp_path).observe(["conntrack"])
    assert (machine.package_manager, machine.missing_packages) == ("", ())


def test_an_error_of_a_package_manager_is_raised(tmp_path: Path):
    runner = Programs(missing=["dpkg-query"], reason=Reason.COMMAND_TIMEOUT)
    with pytest.raises(SystemFault, match="no answer of dpkg-query"):
        MachineReader(runner=runner, root=tmp_path).observe(["conntrack"])


def test_a_state_disk_needs_more_of_the_kernel_loaded_or_loadable(tmp_path: Path):
    (tmp_path / "sys/module/dm_crypt").mkdir(parents=True)
    reader = MachineReader(runner=OnlyModprobe("br_netfilter", "overlay"), root=tmp_path)
    assert reader.observe(()).missing_kernel_parts == ()
    assert reader.observe((), kernel_parts=("dm_crypt", "dm_integrity")).missing_kernel_parts == ("dm_integrity",)


class OnlyModprobe:
    """Knows some modules by name."""

    def __init__(self, *known: str) -> None:
        self._known = known

    def run(self, argv: Sequence[str], **_options: object) -> CommandResult:
        return CommandResult(argv=tuple(argv), returncode=int(argv[-1] not in self._known), stdout=b"", stderr=b"")
