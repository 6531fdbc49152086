# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""containerd's settings: what is rendered, what is refused by name, and what happens on the machine."""

from __future__ import annotations

import stat
import tomllib
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.bundle import containerd
from ansible_collections.attested.kubernetes.plugins.module_utils.bundle.containerd import (
    CONFIGURATION,
    PROGRAM,
    apply_settings,
    render_configuration,
    require_allowed,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.bundle.containerd_files import (
    PROXY,
    REGISTRIES,
    registry_files,
    render_proxy,
    to_toml,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.core.command import CommandResult
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError, SystemFault
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

CRI = "io.containerd.grpc.v1.cri"
PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----"
SECRET = "hunter2-hunter2"


def options(**given: Any) -> dict[str, Any]:
    plain = {"sandbox_image": "pause:1", "cni_bin_dir": "/usr/lib/cni", "restrict_oom_score": False}
    plain |= {"registry_credentials": [], "proxy": {}, "own_addresses": []}
    return {**plain, "registries": [], "runtimes": [], "drop_ins": {}, **given}


def rendered(**given: Any) -> dict[str, Any]:
    return tomllib.loads(render_configuration(options(**given), sandbox_image="pause:1"))


def test_containerd_of_a_distribution_knows_one_directory_of_plugins():
    text = render_configuration(options(), sandbox_image="pause:1", of_bundle=False)
    plugins = tomllib.loads(text)["plugins"]
    assert plugins[CRI]["cni"] == {"bin_dir": "/usr/lib/cni", "conf_dir": "/etc/cni/net.d"}
    assert set(rendered()["plugins"]) - set(plugins) == {"io.containerd.cri.v1.runtime"}


class Machine:
    """systemctl and ctr, for a containerd that takes no configuration with the word broken."""

    def __init__(self, root: Path, *, running: bool = True) -> None:
        self.root, self.running, self.restarts, self.stale = root, running, 0, False

    def run(self, argv: Sequence[str], **_keywords: Any) -> CommandResult:
        answer = b""
        if list(argv[:2]) == ["systemctl", "show"]:
            state = "active" if self.running else "inactive"
            reload = "yes" if self.stale else "no"
            states = f"ActiveState={state}\nUnitFileState=enabled\nNeedDaemonReload={reload}\n"
            answer = f"Id=containerd.service\n{states}".encode()
        elif argv[0] == "ctr":
            state = "error" if self.broken() else "ok"
            answer = f"TYPE ID PLATFORMS STATUS\nio.containerd.grpc.v1 cri linux/amd64 {state}\n".encode()
        elif "restart" in argv:
            self.restarts += 1
        return CommandResult(argv=tuple(argv), returncode=0, stdout=answer, stderr=b"")

    def broken(self) -> bool:
        path = self.root / CONFIGURATION.lstrip("/")
        return path.is_file() and b"broken" in path.read_bytes()


def test_without_settings_only_what_this_collection_rules():
    cri = rendered()["plugins"][CRI]
    assert cri["sandbox_image"] == "pause:1"
    assert cri["registry"] == {"config_path": REGISTRIES}
    assert cri["cni"] == {
        "bin_dirs": ["/opt/cni/bin", "/usr/local/libexec/cni", "/usr/lib/cni"],
        "conf_dir": "/etc/cni/net.d",
    }
    assert cri["containerd"]["runtimes"]["runc"]["options"] == {"SystemdCgroup": True}


def test_runtimes_keep_the_manager_of_control_groups():
    made = rendered(
        runtimes=[
            {"name": "nvidia", "binary": "/usr/bin/nvidia-container-runtime"},
            {"name": "kata", "type": "io.containerd.kata.v2", "options": 'ConfigPath = "/etc/kata.toml"'},
        ]
    )["plugins"][CRI]["containerd"]["runtimes"]
    assert made["nvidia"]["options"] == {"SystemdCgroup": True, "BinaryName": "/usr/bin/nvidia-container-runtime"}
    assert made["kata"] == {"runtime_type": "io.containerd.kata.v2", "options": {"ConfigPath": "/etc/kata.toml"}}


def test_drop_ins_are_merged_in_the_order_of_their_names():
    one = {"plugins": {CRI: {"max_container_log_line_size": 1}}, "debug": {"level": "info"}}
    made = rendered(drop_ins={"b": "[debug]\nlevel = 'warn'\n", "a": one})
    assert made["debug"] == {"level": "warn"}
    assert made["plugins"][CRI]["max_container_log_line_size"] == 1
    assert made["plugins"][CRI]["sandbox_image"] == "pause:1"


def test_what_is_written_reads_as_it_was_meant():
    odd = {
        "x.y": 'a "b" \\ \n\x7f\x01 ü 🐛',
        "list": [1, "two", {"three": [True]}],
        "empty": {},
        "deep": {"er": {"z": -1}},
    }
    assert tomllib.loads(to_toml(odd)) == odd


def nested(path: tuple[str, ...]) -> dict[str, Any]:
    table: Any = "x"
    for key in reversed(path):
        table = {key.replace("*", "io.containerd.snapshotter.v1.overlayfs"): table}
    return dict(table)


@pytest.mark.parametrize("path", sorted(containerd._RULED), ids=".".join)  # the list is what is tested
@pytest.mark.parametrize("shout", [False, True], ids=["as is", "in capitals"])
def test_a_drop_in_that_sets_what_is_ruled_is_refused_by_name(path: tuple[str, ...], shout: bool):
    path = tuple(key.upper() if shout and key != "plugins" and not key.startswith("io.") else key for key in path)
    with pytest.raises(AttestedError) as caught:
        rendered(drop_ins={"mine": nested(path)})
    assert caught.value.reason is Reason.CONFIG_INVALID
    assert "attested_containerd_drop_ins.mine" in caught.value.message
    assert path[-1] in caught.value.message


@pytest.mark.parametrize(
    ("given", "says"),
    [
        pytest.param({"drop_ins": {"a": {"plugins": 5}}}, "expected a table at plugins", id="a value for a table"),
        pytest.param({"drop_ins": {"a": {"plugins": {CRI: {"cni": ""}}}}}, "a table at cni", id="deeper"),
        pytest.param({"drop_ins": {"a": "x = "}}, "expected TOML", id="no TOML"),
        pytest.param({"drop_ins": {"a": ["x"]}}, "a mapping or a text", id="a list"),
        pytest.param({"drop_ins": {"a": {"x": 1.5}}}, "got float", id="a number that TOML and we write otherwise"),
        pytest.param({"runtimes": [{"name": "runc"}]}, "never runc", id="runc is ours"),
        pytest.param({"runtimes": [{"name": "a"}, {"name": "a"}]}, "each name once", id="twice"),
        pytest.param({"runtimes": [{"name": "A b"}]}, "small letters", id="a bad name"),
        pytest.param({"runtimes": [{"name": "a", "options": {"SystemdCgroup": False}}]}, "SystemdCgroup", id="cgroups"),
        pytest.param({"runtimes": [{"name": "a", "binary": "nvidia"}]}, "absolute path", id="a relative binary"),
        pytest.param({"runtimes": [{"name": "a", "path": "/x"}]}, "got path", id="an unknown key"),
        pytest.param({"registries": [{"server": "../x"}]}, "server as HOST", id="a server with a path"),
        pytest.param({"registries": [{"server": "a"}, {"server": "a"}]}, "each server once", id="a server twice"),
        pytest.param({"registries": [{"server": "a", "skip_verify": True}]}, "always verified", id="no verification"),
        pytest.param(
            {"registries": [{"server": "a", "ca": "PRIVATE KEY"}]}, "certificates in PEM", id="a CA that is none"
        ),
        pytest.param({"registries": [{"server": "a", "mirrors": [{"url": "http://m"}]}]}, "expected https", id="http"),
        pytest.param({"registries": [{"server": "a", "mirrors": [{"url": "m"}]}]}, "https://HOST", id="no URL"),
        pytest.param({"registries": [{"server": "a", "mirrors": ["m"]}]}, "list of mappings", id="a text"),
        pytest.param(
            {"registries": [{"server": "a", "mirrors": [{"url": "https://m", "capabilities": ["fly"]}]}]},
            "pull, resolve, push",
            id="a capability",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(given: dict[str, Any], says: str):
    with pytest.raises(AttestedError, match=says) as caught:
        require_allowed(options(**given))
    assert caught.value.reason is Reason.CONFIG_INVALID


@pytest.mark.parametrize("key", ["password", "Auth", "header", "identitytoken", "username"])
@pytest.mark.parametrize("in_mirror", [False, True])
def test_a_credential_is_refused_and_not_shown(key: str, in_mirror: bool):
    entry: dict[str, Any] = {"server": "a"}
    entry |= {"mirrors": [{"url": "https://m", key: SECRET}]} if in_mirror else {key: SECRET}
    with pytest.raises(AttestedError, match="attested_registry_credentials or imagePullSecrets") as caught:
        require_allowed(options(registries=[entry]))
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({"runtimes": [{"name": "a", "options": {"Password": SECRET}}]}, id="of a runtime"),
        pytest.param({"runtimes": [{"name": "a", "options": f"token = '{SECRET}'"}]}, id="of a runtime, TOML"),
        pytest.param({"drop_ins": {"a": {"plugins": {"x": [{"auth": SECRET}]}}}}, id="in a list of a drop-in"),
        pytest.param(
            {"drop_ins": {"a": f'[plugins."{CRI}".registry.configs."r".auth]\npassword = "{SECRET}"'}},
            id="where containerd takes it",
        ),
        pytest.param({"registries": [{"server": f"user:{SECRET}@a"}]}, id="in the name of a server"),
    ],
)
def test_a_credential_elsewhere_is_refused_and_not_shown(given: dict[str, Any]):
    with pytest.raises(AttestedError) as caught:
        require_allowed(options(**given))
    assert caught.value.reason is Reason.CONFIG_INVALID
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("url", [f"https://user:{SECRET}@m", f"https://m/?token={SECRET}", f"https://[{SECRET}"])
def test_a_url_with_a_secret_is_refused_and_not_shown(url: str):
    with pytest.raises(AttestedError) as caught:
        require_allowed(options(registries=[{"server": "a", "mirrors": [{"url": url}]}]))
    assert SECRET not in str(caught.value)


def test_the_files_of_a_registry():
    mirror = {"url": "https://m:5000", "ca": PEM, "override_path": True}
    files = {file.path: file for file in registry_files([{"server": "docker.io", "ca": PEM, "mirrors": [mirror]}])}
    directory = f"{REGISTRIES}/docker.io"
    assert set(files) == {f"{directory}/{name}" for name in ("ca.crt", "mirror-1.crt", "hosts.toml")}
    assert tomllib.loads(files[f"{directory}/hosts.toml"].content.decode()) == {
        "ca": f"{directory}/ca.crt",
        "host": {
            "https://m:5000": {
                "capabilities": ["pull", "resolve"],
                "override_path": True,
                "ca": f"{directory}/mirror-1.crt",
            }
        },
    }


LOGIN = {"host": "m:5000", "username": "nodes", "password": SECRET}
BASIC = "Basic bm9kZXM6aHVudGVyMi1odW50ZXIy"


def test_a_credential_is_a_header_of_its_host_alone_in_a_file_for_root():
    """A registry without another setting has a file for it; the other files are for everybody."""
    entries = [
        {"server": "docker.io", "mirrors": [{"url": "https://m:5000"}, {"url": "https://m"}]},
        {"server": "quay.io", "mirrors": [{"url": "https://other"}]},
    ]
    token = {"host": "r.example", "token": "abc._~+/-=="}
    files = {file.path: file for file in registry_files(entries, [LOGIN, token])}
    read = {path: tomllib.loads(file.content.decode()) for path, file in files.items()}
    docker, quay, other = (f"{REGISTRIES}/{name}/hosts.toml" for name in ("docker.io", "quay.io", "r.example"))

    assert {path: file.mode for path, file in files.items()} == {docker: 0o600, quay: 0o644, other: 0o600}
    assert read[docker]["host"]["https://m:5000"]["header"] == {"Authorization": BASIC}
    assert "header" not in read[docker]["host"]["https://m"]
    assert "header" not in read[docker]
    assert read[other] == {"header": {"Authorization": "Bearer abc._~+/-=="}}


@pytest.mark.parametrize(
    ("row", "says"),
    [
        pytest.param({"host": "_default", "username": "u", "password": SECRET}, "HOST or HOST:PORT", id="any host"),
        pytest.param({"host": "https://m", "token": SECRET}, "HOST or HOST:PORT", id="a URL"),
        pytest.param({"host": f"u:{SECRET}@m", "token": "t"}, "HOST or HOST:PORT", id="a secret in the host"),
        pytest.param({"token": SECRET}, "HOST or HOST:PORT", id="no host"),
        pytest.param({"host": "m"}, "username and password, or token", id="nothing"),
        pytest.param({"host": "m", "username": "u"}, "username and password", id="no password"),
        pytest.param({"host": "m", "password": SECRET}, "username and password", id="no user"),
        pytest.param({"host": "m", "username": "u", "password": "p", "token": SECRET}, "or token", id="both"),
        pytest.param({"host": "m", "username": "u", "token": SECRET}, "or token", id="a user and a token"),
        pytest.param(
            {"host": "m", "username": "u:v", "password": SECRET}, "control characters", id="a user with a colon"
        ),
        pytest.param({"host": "m", "username": "u", "password": f"{SECRET}\n"}, "control characters", id="a line"),
        pytest.param({"host": "m", "token": f"{SECRET} x"}, "control characters", id="a token with a blank"),
    ],
)
def test_a_credential_that_cannot_be_meant_is_refused_and_not_shown(row: dict[str, Any], says: str):
    with pytest.raises(AttestedError, match=says) as caught:
        require_allowed(options(registry_credentials=[row]))
    assert caught.value.reason is Reason.CONFIG_INVALID
    assert SECRET not in str(caught.value)


def test_two_credentials_of_one_host_are_refused():
    with pytest.raises(AttestedError, match="each host once"):
        require_allowed(options(registry_credentials=[LOGIN, LOGIN]))


def test_a_credential_comes_changes_and_goes_without_a_restart_and_is_never_shown(tmp_path: Path):
    machine = Machine(tmp_path)
    apply_settings(options(), False, root=tmp_path, runner=machine)
    place = tmp_path / REGISTRIES.lstrip("/") / "m:5000/hosts.toml"
    entry = {"server": "m:5000", "ca": PEM}
    steps = [
        options(registries=[entry], registry_credentials=[LOGIN]),
        options(registries=[entry], registry_credentials=[{**LOGIN, "password": f"{SECRET}-2"}]),
        options(registries=[entry]),
    ]
    for step, mode in zip(steps, (0o600, 0o600, 0o644), strict=True):
        for check in (True, False, False):
            done = apply_settings(step, check, root=tmp_path, runner=machine)
            text = f"{done.diff} {done.values}"
            assert not any(one in text for one in (SECRET, BASIC, BASIC[6:20]))
            assert done.changed is (check or "(not shown)" in text)
        assert stat.S_IMODE(place.stat().st_mode) == mode
    assert machine.restarts == 1


PROXIES = {
    "http": "http://proxy.example:3128",
    "https": "http://[2001:db8::1]:3128/",
    "no_proxy": [".intern", "10.0.0.0/8"],
}


def test_a_proxy_is_in_the_environment_of_the_unit_and_the_cluster_is_reached_without_it():
    own = ["api.example:6443", "[2001:db8::2]:6443", "2001:db8::3", "10.244.0.0/16", "w-1", "w-1"]
    lines = render_proxy(options(proxy=PROXIES, own_addresses=own)).splitlines()
    cluster = "localhost,127.0.0.0/8,::1,.svc,.cluster.local,api.example,2001:db8::2,2001:db8::3,10.244.0.0/16,w-1"
    assert lines[1:] == [
        "[Service]",
        'Environment="HTTP_PROXY=http://proxy.example:3128"',
        'Environment="HTTPS_PROXY=http://[2001:db8::1]:3128/"',
        f'Environment="NO_PROXY={cluster},.intern,10.0.0.0/8"',
    ]


@pytest.mark.parametrize("proxy", [{}, {"http": "", "https": None}, {"no_proxy": ["a"]}])
def test_without_a_proxy_there_is_no_drop_in(proxy: dict[str, Any]):
    assert render_proxy(options(proxy=proxy)) == ""


@pytest.mark.parametrize(
    "proxy",
    [
        pytest.param({"https": f"http://user:{SECRET}@proxy"}, id="with a password"),
        pytest.param({"http": f"http://proxy/?{SECRET}"}, id="with a query"),
        pytest.param({"http": f"socks5://{SECRET}"}, id="of another kind"),
        pytest.param({"http": f'http://proxy"\n{SECRET}'}, id="with a quote"),
        pytest.param({"http": "http://p", "no_proxy": ['a"b']}, id="a quote in no_proxy"),
        pytest.param({"http": "http://p", "no_proxy": ["a,b"]}, id="two in one"),
        pytest.param({"http": "http://p", "no_proxy": ["%i"]}, id="a specifier of systemd"),
    ],
)
def test_a_proxy_that_cannot_be_meant_is_refused(proxy: dict[str, Any]):
    with pytest.raises(AttestedError, match="attested_proxy") as caught:
        require_allowed(options(proxy=proxy))
    assert caught.value.reason is Reason.CONFIG_INVALID
    assert SECRET not in str(caught.value)


def test_a_proxy_comes_and_goes_with_a_restart_each(tmp_path: Path):
    machine = Machine(tmp_path)
    place = tmp_path / PROXY.lstrip("/")
    apply_settings(options(), False, root=tmp_path, runner=machine)
    walk = [
        apply_settings(options(proxy=PROXIES), check, root=tmp_path, runner=machine) for check in (True, False, False)
    ]
    assert [one.changed for one in walk] == [True, True, False]
    assert walk[1].values["written"] == [PROXY]
    assert (machine.restarts, stat.S_IMODE(place.stat().st_mode)) == (2, 0o644)
    foreseen = apply_settings(options(), True, root=tmp_path, runner=machine)
    assert (foreseen.values["removed"], place.exists()) == ([PROXY], True)
    machine.stale = True  # systemd sees that a drop-in is gone
    gone = apply_settings(options(), False, root=tmp_path, runner=machine)
    assert (gone.changed, gone.values["removed"], machine.restarts) == (True, [PROXY], 3)
    assert not place.exists()


def test_a_proxy_is_taken_back_with_a_configuration_that_does_not_work(tmp_path: Path):
    machine = Machine(tmp_path)
    apply_settings(options(proxy=PROXIES), False, root=tmp_path, runner=machine)
    before = (tmp_path / PROXY.lstrip("/")).read_bytes()
    for proxy in ({"http": "http://other"}, {}):
        with pytest.raises(SystemFault, match="runs with the former one again"):
            apply_settings(options(proxy=proxy, drop_ins={"a": {"x": "broken"}}), False, root=tmp_path, runner=machine)
        assert (tmp_path / PROXY.lstrip("/")).read_bytes() == before


def test_check_apply_again_and_only_the_configuration_restarts(tmp_path: Path):
    machine = Machine(tmp_path)
    walk = [apply_settings(options(), check, root=tmp_path, runner=machine) for check in (True, False, False, True)]
    assert [one.changed for one in walk] == [True, True, False, False]
    assert machine.restarts == 1

    registries = [{"server": "quay.io", "mirrors": [{"url": "https://m", "ca": PEM}]}]
    added = apply_settings(options(registries=registries), False, root=tmp_path, runner=machine)
    assert (added.changed, machine.restarts) == (True, 1)
    shorter = [{"server": "quay.io", "mirrors": [{"url": "https://m"}]}]
    for check in (True, False):
        done = apply_settings(options(registries=shorter), check, root=tmp_path, runner=machine)
        assert done.values["removed"] == [f"{REGISTRIES}/quay.io/mirror-1.crt"]
    gone = apply_settings(options(), False, root=tmp_path, runner=machine)
    assert gone.values["removed"] == [f"{REGISTRIES}/quay.io"]
    assert list((tmp_path / REGISTRIES.lstrip("/")).iterdir()) == []
    assert machine.restarts == 1


def test_a_link_in_place_of_a_registry_is_replaced(tmp_path: Path):
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / REGISTRIES.lstrip("/") / "quay.io"
    link.parent.mkdir(parents=True)
    link.symlink_to(tmp_path / "elsewhere")
    apply_settings(options(registries=[{"server": "quay.io"}]), False, root=tmp_path, runner=Machine(tmp_path))
    assert [path.name for path in link.iterdir()] == ["hosts.toml"]
    assert not link.is_symlink()
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_check_mode_and_the_diff_show_the_files(tmp_path: Path):
    machine = Machine(tmp_path)
    registries = [{"server": "quay.io", "ca": PEM}]
    shown = apply_settings(options(registries=registries), True, root=tmp_path, runner=machine)
    assert list(tmp_path.iterdir()) == []
    assert shown.diff is not None
    assert shown.diff.before == ""
    assert PEM in str(shown.diff.after)
    assert 'sandbox_image = "pause:1"' in str(shown.diff.after)
    assert shown.values["written"][-1] == CONFIGURATION


def test_without_an_option_the_sandbox_image_stays(tmp_path: Path):
    machine = Machine(tmp_path)
    apply_settings(options(sandbox_image="pause:old"), False, root=tmp_path, runner=machine)
    assert not apply_settings(options(sandbox_image=None), False, root=tmp_path, runner=machine).changed


def test_without_an_option_and_a_configuration_there_is_no_sandbox_image(tmp_path: Path):
    with pytest.raises(AttestedError, match="expected sandbox_image, or"):
        apply_settings(options(sandbox_image=None), False, root=tmp_path, runner=Machine(tmp_path))


def test_a_configuration_that_containerd_does_not_take_is_taken_back(tmp_path: Path):
    machine = Machine(tmp_path)
    apply_settings(options(), False, root=tmp_path, runner=machine)
    path = tmp_path / CONFIGURATION.lstrip("/")
    before = path.read_bytes()
    for restarts in (3, 5):
        with pytest.raises(SystemFault, match="runs with the former one again") as caught:
            apply_settings(options(drop_ins={"a": {"x": "broken"}}), False, root=tmp_path, runner=machine)
        assert caught.value.reason is Reason.COMMAND_FAILED
        assert path.read_bytes() == before
        assert machine.restarts == restarts


def test_without_a_former_configuration_the_refused_one_is_removed(tmp_path: Path):
    machine = Machine(tmp_path)
    with pytest.raises(SystemFault, match="runs with its defaults again"):
        apply_settings(options(drop_ins={"a": {"x": "broken"}}), False, root=tmp_path, runner=machine)
    assert not (tmp_path / CONFIGURATION.lstrip("/")).exists()


def test_a_configuration_that_was_there_and_does_not_work_is_no_success(tmp_path: Path):
    """A run that was cut off after it had written the file left it so."""
    path = tmp_path / CONFIGURATION.lstrip("/")
    path.parent.mkdir(parents=True)
    broken = options(drop_ins={"a": {"x": "broken"}})
    path.write_text(render_configuration(broken, sandbox_image="pause:1"))
    path.chmod(0o644)
    with pytest.raises(SystemFault, match="expected the plugin"):
        apply_settings(broken, False, root=tmp_path, runner=Machine(tmp_path))
    assert path.exists()


def test_what_could_not_be_written_restarts_nothing(tmp_path: Path):
    machine = Machine(tmp_path)
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/containerd").write_text("in the way")
    with pytest.raises(SystemFault) as caught:
        apply_settings(options(), False, root=tmp_path, runner=machine)
    assert (caught.value.reason, machine.restarts) == (Reason.FILE_UNUSABLE, 0)


class Process(Machine):
    """A machine whose containerd runs from the file behind ``/proc/77/exe``."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.told: list[str] = []
        for path in ("usr/bin/containerd", PROGRAM.lstrip("/")):
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(path)
        self.start("usr/bin/containerd")

    def start(self, path: str) -> None:
        (self.root / "proc/77").mkdir(parents=True, exist_ok=True)
        (self.root / "proc/77/exe").unlink(missing_ok=True)
        (self.root / "proc/77/exe").hardlink_to(self.root / path)

    def run(self, argv: Sequence[str], **keywords: Any) -> CommandResult:
        self.told.append(" ".join(argv[:2]))
        if "--value" in argv:
            return CommandResult(argv=tuple(argv), returncode=0, stdout=b"77\n", stderr=b"")
        if "restart" in argv:
            self.start(PROGRAM.lstrip("/"))
        return super().run(argv, **keywords)


def test_containerd_is_restarted_once_it_is_another_program(tmp_path: Path):
    machine = Process(tmp_path)
    walk = [apply_settings(options(), check, root=tmp_path, runner=machine) for check in (True, False, False, True)]
    assert [one.changed for one in walk] == [True, True, False, False]
    assert machine.restarts == 1
    assert machine.told.index("systemctl daemon-reload") < machine.told.index("systemctl restart")
    machine.start("usr/bin/containerd")
    walk = [apply_settings(options(), check, root=tmp_path, runner=machine) for check in (True, False, True)]
    assert [(one.changed, one.values["units"]) for one in walk] == [
        (True, ["containerd.service"]),
        (True, ["containerd.service"]),
        (False, []),
    ]
    assert machine.restarts == 2


def test_the_same_program_under_a_new_file_is_another_one(tmp_path: Path):
    """A process keeps the file that it was started from."""
    machine = Process(tmp_path)
    apply_settings(options(), False, root=tmp_path, runner=machine)
    fresh = tmp_path / "fresh"
    fresh.write_text((tmp_path / PROGRAM.lstrip("/")).read_text())
    fresh.replace(tmp_path / PROGRAM.lstrip("/"))
    assert apply_settings(options(), False, root=tmp_path, runner=machine).changed
    assert machine.restarts == 2


def test_a_containerd_that_does_not_run_is_started_from_the_bundle(tmp_path: Path):
    machine = Process(tmp_path)
    apply_settings(options(), False, root=tmp_path, runner=machine)
    (tmp_path / "proc/77/exe").unlink()
    assert apply_settings(options(), False, root=tmp_path, runner=machine).values["units"] == ["containerd.service"]
    assert machine.restarts == 2
