# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An action that stands in for a module: when it does, and that nobody can tell by the answer which of both it was."""

from __future__ import annotations

import enum
import importlib
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from ansible.errors import AnsibleActionFail
from ansible.module_utils.testing import patch_module_args
from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import ArgumentSpec, Form, run_form
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import SystemFault
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.result import Diff, Result
from ansible_collections.attested.kubernetes.plugins.plugin_utils import node_action
from ansible_collections.attested.kubernetes.plugins.plugin_utils.node_action import NodeAction, OnNode, ProcessAction
from ansible_collections.attested.kubernetes.tests.support.house import OURS, ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping


class Colour(enum.StrEnum):
    RED = "red"


def greet(params: Mapping[str, Any], check_mode: bool) -> Result:
    """Do what a module may: change, show, refuse, answer with what is no plain value."""
    if params["name"] == "nobody":
        raise SystemFault("expected somebody, got nobody", reason=Reason.FILE_UNUSABLE)
    return Result(
        changed=params["times"] > 0,
        values={"greeting": params["name"], "colours": (Colour.RED,), "checked": check_mode, "given": dict(params)},
        diff=Diff(before="", after=f"hello {params['name']}\n", header="said"),
    )


SPEC = ArgumentSpec(
    options={
        "name": {"type": "str", "required": True},
        "times": {"type": "int", "default": 1},
        "rows": {"type": "list", "elements": "dict", "options": {"mode": {"type": "str", "default": "0644"}}},
    },
    required_by={"rows": ("name",)},
)
GREETING = Form(spec=SPEC, run=greet, libraries=("json",))


class Greeting(NodeAction):
    FORM = GREETING

    def _execute_module(self, **options: Any) -> dict[str, Any]:
        return {"by_module": True, "in_background": bool(options.get("wrap_async"))}

    def _remove_tmp_path(self, _path: str | None, **_options: Any) -> None:
        """Have none."""


class Plain:
    """A templar of what has no templates."""

    def template(self, value: Any) -> Any:
        return value


HERE = {"ansible_python_interpreter": sys.executable}


def action(arguments: dict[str, Any], kind: type[OnNode] = Greeting, **more: Any) -> OnNode:
    """Return the action of a task with these arguments, on this machine unless ``more`` says something else."""
    given = {"check_mode": False, "diff": False, "async_val": 0, "environment": None, "delegate_to": None}
    task = SimpleNamespace(
        args=arguments, action="greeting", **{name: more.pop(name, one) for name, one in given.items()}
    )
    shell = SimpleNamespace(tmpdir=None, env_prefix=lambda **_environment: "")
    connection = SimpleNamespace(
        **{"transport": "local", "become": None, "has_native_async": False, "_shell": shell, **more}
    )
    made: OnNode = kind(task, connection, SimpleNamespace(), loader=None, templar=Plain(), shared_loader_obj=None)
    return made


def by_module(capsys: pytest.CaptureFixture[str], form: Form, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return what the module prints that has this form."""
    with patch_module_args(arguments), pytest.raises(SystemExit):
        run_form(form)
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    answer.pop("invocation", None)
    return answer


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param({"name": "w-1"}, id="a change"),
        pytest.param({"name": "w-1", "times": 0}, id="none"),
        pytest.param({"name": "w-1", "times": "2", "rows": [{"mode": "0600"}, {}]}, id="options that are converted"),
        pytest.param({"name": "nobody"}, id="a refusal"),
    ],
)
@pytest.mark.parametrize("check", [False, True], ids=["done", "checked"])
@pytest.mark.parametrize("diff", [False, True], ids=["no diff", "diff"])
def test_the_answer_is_the_modules(
    capsys: pytest.CaptureFixture[str], arguments: dict[str, Any], check: bool, diff: bool
) -> None:
    expected = by_module(capsys, GREETING, {**arguments, "_ansible_check_mode": check, "_ansible_diff": diff})
    answer = action(arguments, check_mode=check, diff=diff).run(task_vars=HERE)
    assert {"changed": False, **answer} == {"changed": False, **expected}
    assert json.loads(json.dumps(answer)) == answer
    assert not any(isinstance(one, enum.Enum) for one in answer.get("colours", ()))


def test_a_missing_library_is_the_modules_failure(capsys: pytest.CaptureFixture[str]) -> None:
    class Lacking(Greeting):
        FORM = Form(spec=SPEC, run=greet, libraries=("json", "no_such_library"))

    answer = action({"name": "w-1"}, Lacking).run(task_vars=HERE)
    assert answer["reason"] == "DEPENDENCY_MISSING"
    assert answer == by_module(capsys, Lacking.FORM, {"name": "w-1"})


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        pytest.param({"name": "w-1", "nmae": "x"}, "nmae", id="an option that there is not"),
        pytest.param({"times": 1}, "name", id="an option that is missing"),
        pytest.param({"name": "w-1", "times": "often"}, "often", id="a value of another type"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_done(
    capsys: pytest.CaptureFixture[str], arguments: dict[str, Any], word: str
) -> None:
    with pytest.raises(AnsibleActionFail, match=word):
        action(arguments).run(task_vars=HERE)
    assert word in by_module(capsys, GREETING, arguments)["msg"]


@pytest.fixture
def other_python(tmp_path: Path) -> str:
    """Return the path of a virtual environment's Python, which is a link to this one's program."""
    link = tmp_path / "bin" / "python"
    link.parent.mkdir()
    link.symlink_to(Path(sys.executable).resolve())
    return str(link)


NAMES = {"ansible.builtin.local": True, "local": True, "ssh": False, "community.docker.docker": False}


@pytest.mark.parametrize(("transport", "here"), NAMES.items(), ids=NAMES)
def test_only_the_local_connection_is_this_machine(transport: str, here: bool) -> None:
    assert action({}, transport=transport).runs_here(HERE) is here


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"become": SimpleNamespace(name="sudo")}, id="another user's rights"),
        pytest.param({"async_val": 60}, id="the background"),
        pytest.param({"environment": [{"KUBECONFIG": "/other"}]}, id="another environment"),
    ],
)
def test_what_this_process_is_not_is_left_to_the_module(more: dict[str, Any]) -> None:
    answer = action({"name": "w-1"}, **more).run(task_vars=HERE)
    assert answer == {"by_module": True, "in_background": "async_val" in more}


@pytest.mark.parametrize(
    "variables",
    [
        pytest.param({}, id="one that Ansible looks for"),
        pytest.param({"ansible_python_interpreter": "auto"}, id="one that Ansible is told to look for"),
        pytest.param({"ansible_python_interpreter": "/no/such/python"}, id="one that there is not"),
        pytest.param({"ansible_python_interpreter": "/bin/sh"}, id="another program"),
    ],
)
def test_another_python_is_left_to_the_module(variables: dict[str, str]) -> None:
    assert action({"name": "w-1"}).run(task_vars=variables)["by_module"]


def test_a_link_to_the_same_program_has_other_libraries(other_python: str) -> None:
    assert not action({}).runs_here({"ansible_python_interpreter": other_python})


def test_this_python_may_have_a_second_name(monkeypatch: pytest.MonkeyPatch, other_python: str) -> None:
    beside = Path(other_python).with_name("python3")
    beside.symlink_to("python")
    monkeypatch.setattr(sys, "executable", other_python)
    assert action({}).runs_here({"ansible_python_interpreter": str(beside)})


def test_an_empty_environment_is_this_one() -> None:
    assert action({}, environment=[{}, {}]).runs_here(HERE)


def test_whom_a_task_is_delegated_to_says_which_python() -> None:
    other = {"ansible_python_interpreter": "/usr/bin/other"}
    there = {**HERE, "ansible_delegated_vars": {"here": other}}
    here = {**other, "ansible_delegated_vars": {"here": HERE}}
    assert not action({}, delegate_to="here").runs_here(there)
    assert action({}, delegate_to="here").runs_here(here)


TELLING = """
import json, sys
given = json.load(sys.stdin)["ANSIBLE_MODULE_ARGS"]
print(json.dumps({"changed": True, "invocation": {}, "given": given, "module": sys.argv[2].rpartition(".")[2]}))
"""


@pytest.mark.parametrize("check", [False, True], ids=["done", "checked"])
def test_a_process_of_its_own_is_given_its_options_and_no_argument_shows_them(
    monkeypatch: pytest.MonkeyPatch, check: bool
) -> None:
    monkeypatch.setattr(node_action, "_LAUNCH", TELLING)
    answer = action({"name": "w-1"}, ProcessAction, check_mode=check).run(task_vars=HERE)
    private = {"_ansible_check_mode": check, "_ansible_diff": False, "_ansible_no_log": True}
    assert answer == {"changed": True, "given": {"name": "w-1", **private}, "module": "greeting"}


def test_a_process_of_its_own_that_dies_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_action, "_LAUNCH", "import sys; print('half'); sys.exit('on fire')")
    answer = action({"name": "w-1"}, ProcessAction).run(task_vars=HERE)
    assert (answer["failed"], answer["rc"], answer["module_stdout"]) == (True, 1, "half\n")
    assert "on fire" in answer["module_stderr"]


def _actions(base: type[OnNode] = NodeAction) -> list[Any]:
    """Return those of our actions that stand in for a module, in this process or in one of its own."""
    found = []
    for path in sorted((ROOT / "plugins" / "action").glob("*.py")):
        kind = importlib.import_module(f"{OURS}.action.{path.stem}").ActionModule
        if issubclass(kind, base):
            found.append(pytest.param(path.stem, kind, id=path.stem))
    return found


def _secret(options: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the names of options that hold a secret, those within options too."""
    inner = [name for option in options.values() for name in _secret(option.get("options", {}))]
    return inner + [name for name, option in options.items() if option.get("no_log")]


@pytest.mark.parametrize(("name", "kind"), _actions())
def test_an_action_does_what_the_module_of_its_name_does(name: str, kind: type[NodeAction]) -> None:
    module = importlib.import_module(f"{OURS}.modules.{name}")
    assert kind.FORM is module.FORM
    assert module.FORM.spec is module.SPEC


@pytest.mark.parametrize(("name", "kind"), _actions())
def test_none_takes_a_secret(name: str, kind: type[NodeAction]) -> None:
    """A module's answer is searched for what its secret options held; nobody does that here."""
    assert _secret(kind.FORM.spec.options) == [], name


def test_a_secret_option_would_be_found() -> None:
    assert _secret({"rows": {"options": {"password": {"no_log": True}}}}) == ["password"]


def test_what_holds_keys_has_a_process_of_its_own() -> None:
    """ADR 0039 names them."""
    keepers = {
        "cluster_keys",
        "containerd_settings",
        "join_ticket",
        "kubeadm_cluster",
        "kubeadm_node",
        "rotation_phase",
        "rotation_share",
        "state_disk",
        "stored_secrets",
        "tpm_authorization",
    }
    assert not keepers & {one.id for one in _actions()}
    assert {one.id for one in _actions(ProcessAction)} == {
        "containerd_settings",
        "kubeadm_cluster",
        "kubeadm_node",
    }
    assert keepers <= {path.stem for path in (ROOT / "plugins" / "modules").glob("*.py")}
