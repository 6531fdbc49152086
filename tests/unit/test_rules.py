# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rules of the house that a program can hold: docs/house-style.md says why."""

from __future__ import annotations

import ast
import re
import statistics
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING

import pytest
import yaml
from ansible_collections.attested.kubernetes.plugins.module_utils import errors
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.tests.support import house
from ansible_collections.attested.kubernetes.tests.support.house import OURS, ROOT, UTILS, shown

if TYPE_CHECKING:
    from pathlib import Path

SERVING = ("core/runtime.py", "core/metrics.py", "transport/grpc_server.py")
TIERS = (
    {"reasons", "errors", "result", "key_kinds", "_deps", "proto", "core"},
    {"tpm", "transport", "source", "bundle", "policy", "evidence"},
    {"keyservice", "disk", "kubeadm", "rotation", "admin"},
    {"services", "node", "rescue", "cli"},
)
"""Low to high: a package imports from its own tier and from lower ones, and no packages import each other."""
MOST_SHIPPED = 60
INSTALLED = {
    "addon_release",
    "admin_certificate",
    "cluster_keys",
    "control_plane_settings",
    "etcd_snapshot",
    "join_ticket",
    "kubeadm_node",
    "kubelet_authorities",
    "node_kubernetes",
    "rotation_info",
    "rotation_phase",
    "rotation_share",
    "state_disk_key",
    "stored_secrets",
}
"""Modules whose work only the wheel in the node's environment has: they ship none."""
SMALL = 60  # a file with fewer lines of code than this belongs into its only importer
SMALL_ALONE = {
    "keyservice/service.py": "a program",
    "kubeadm/endpoint_list.py": "a command of attested-agent",
    "node/agent.py": "a program",
    "node/boot_record.py": "client.py, its importer, has 318 of 400 lines",
    "node/join_turn.py": "a module imports it",
    "node/status_info.py": "a module imports it",
    "node/reattest.py": "a command of attested-agent",
    "services/recovery_helper.py": "a process of its own, without gRPC",
    "services/init_service.py": "a program",
    "services/recovery_service.py": "a program",
}
ALL = house.plugin_files()
UTIL_FILES = [pytest.param(path, id=shown(path)) for path in house.plugin_files() if UTILS in path.parents]
ALL_FILES = [pytest.param(path, id=shown(path)) for path in house.plugin_files()]
MODULES = [pytest.param(path, id=path.stem) for path in sorted((ROOT / "plugins" / "modules").glob("*.py"))]


def _tier(path: Path) -> int:
    (found,) = (at for at, packages in enumerate(TIERS) if house.package_of(path) in packages)
    return found


@pytest.mark.parametrize("path", UTIL_FILES)
def test_nothing_points_up(path):
    targets = [(item, house.file_of(item.module)) for item in house.imports_of(path)]
    wrong = [
        f"line {item.line}: {item.module}"
        for item, target in targets
        if target is not None and (UTILS not in target.parents or _tier(target) > _tier(path))
    ]
    assert wrong == []


def test_a_small_file_has_several_importers():
    importers = Counter(target for path in ALL for target in house.targets_of(path))
    importers.update(target for path in ALL for target, _function in house.installed_by(path))
    found = {
        str(path.relative_to(UTILS))
        for path in ALL
        if UTILS in path.parents and path.parent not in {UTILS, UTILS / "_deps"} and path.name != "__init__.py"
        if house.code_lines(path, imports=False) < SMALL and importers[path] <= 1
    }
    assert found == set(SMALL_ALONE)


def test_no_packages_import_each_other_in_a_circle():
    assert house.cycles(house.between_packages(path for path in ALL if UTILS in path.parents)) == []


@pytest.mark.parametrize("path", ALL_FILES)
def test_names_are_imported_from_the_file_that_defines_them(path):
    """A package has no face: a module ships the files that it needs, and no others (docs/adr/0056)."""
    assert house.borrowed_names(path) == []


def test_no_files_import_each_other_in_a_circle():
    assert house.cycles({path: house.targets_of(path) for path in ALL}) == []


@pytest.mark.parametrize("path", UTIL_FILES)
def test_third_party_libraries_come_through_deps(path):
    package = house.package_of(path)
    allowed = {"_deps": {item.module.split(".")[0] for item in house.imports_of(path)}, "core": {"ansible"}}
    roots = {item.module.split(".")[0]: item for item in house.imports_of(path) if not item.typing_only}
    foreign = set(roots) - set(sys.stdlib_module_names) - {"ansible_collections"} - allowed.get(package, set())
    assert foreign == set()


@pytest.mark.parametrize(
    ("library", "packages"),
    [
        pytest.param("tls", {"transport"}, id="only transport speaks TLS"),
        pytest.param("grpc", {"transport", "services"}, id="grpc stays in transport, services and clients"),
    ],
)
def test_a_library_has_its_place(library, packages):
    wrong = [
        shown(path)
        for path in house.plugin_files()
        if any(item.module == f"{OURS}.module_utils._deps.{library}" for item in house.imports_of(path))
        and house.package_of(path) not in packages
        and not (library == "grpc" and path.name == "client.py")
    ]
    assert wrong == []


@pytest.mark.parametrize("path", MODULES)
def test_a_module_ships_no_service_and_few_files(path):
    """What needs more imports it from the node's environment (docs/adr/0064)."""
    shipped = [shown(target) for target in house.reachable(path)]
    assert [name for name in shipped if name.endswith("service.py") or name.endswith(SERVING)] == []
    assert sum(name.startswith("plugins/module_utils/") for name in shipped) <= MOST_SHIPPED


def test_what_names_its_work_has_an_environment_of_ours():
    """What runs before prepare, or where the wheel has another version, ships all that it uses."""
    found = {path: house.installed_by(path) for path in sorted((ROOT / "plugins" / "modules").glob("*.py"))}
    lacking = {
        path.stem
        for path, works in found.items()
        if not house.reachable(path).issuperset(file for file, _name in works)
    }
    assert lacking == INSTALLED
    assert [(file, name) for works in found.values() for file, name in works if name not in house.names_of(file)] == []
    assert [shown(path) for path in ALL if UTILS in path.parents and house.installed_by(path)] == []


@pytest.mark.parametrize("path", MODULES)
def test_a_module_ships_for_types_only_the_work_that_it_names(path):
    """Ansible ships what is imported for types too. The work itself is imported when it runs (docs/adr/0064)."""
    named = {file for file, _name in house.installed_by(path)}
    assert house.targets_of(path, typing=True) - house.targets_of(path) <= named
    assert not house.targets_of(path) & named


@pytest.mark.parametrize("file", ["evidence.verify", "evidence.node_lock", "services.judge", "core.module"])
def test_importing_verification_loads_neither_grpc_nor_kubernetes(file):
    code = (
        f"import sys, {OURS}.module_utils.{file}\n"
        "print([name for name in ('grpc', 'kubernetes', 'OpenSSL') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_one_loader_reads_what_others_wrote():
    """The others read a node's own state, the answers of its own processes, or a header in its one spelling."""
    own = {
        "plugins/module_utils/keyservice/audit_log.py",
        "plugins/module_utils/bundle/store.py",
        "plugins/module_utils/services/ticket_store.py",
        "plugins/module_utils/keyservice/wrap.py",
        "plugins/module_utils/kubeadm/operation.py",
        "plugins/module_utils/disk/luks_header.py",
        "plugins/module_utils/node/answers.py",
        "plugins/module_utils/node/boot_record.py",
        "plugins/module_utils/node/claim.py",
        "plugins/module_utils/node/disk_record.py",
        "plugins/module_utils/node/journal.py",
        "plugins/module_utils/node/renewal_record.py",
        "plugins/module_utils/evidence/node_lock.py",
        "plugins/module_utils/disk/state_disk.py",
        "plugins/module_utils/disk/gateway.py",
        "plugins/module_utils/disk/process.py",
        "plugins/module_utils/core/documents.py",
        "plugins/module_utils/tpm/authorization.py",
        "plugins/plugin_utils/action.py",
        "plugins/plugin_utils/node_action.py",
    }
    parsers = re.compile(r"\bjson\.loads?\(|\byaml\.(safe_)?load|\byaml\.(parse|compose)")
    assert {shown(path) for path in house.plugin_files() if parsers.search(path.read_text(encoding="utf-8"))} == own


def test_whoever_catches_a_bad_certificate_catches_all_that_the_library_raises():
    """`x509.InvalidVersion`, for one, is no `ValueError`."""
    parses = re.compile(r"x509\.load_(der|pem)_x509_")
    tries = [
        (path, node)
        for path in house.plugin_files()
        for node in ast.walk(house.tree_of(path))
        if isinstance(node, ast.Try) and any(parses.search(ast.unparse(one)) for one in node.body)
    ]
    assert len(tries) > 10
    narrow = [
        f"{shown(path)}:{node.lineno}"
        for path, node in tries
        if not any(one.type and "unreadable(" in ast.unparse(one.type) for one in node.handlers)
    ]
    assert narrow == []


def test_only_one_file_starts_processes():
    starters = {"subprocess", "pty", "multiprocessing"}
    found = {
        shown(path)
        for path in house.plugin_files()
        if any(item.module.split(".")[0] in starters for item in house.imports_of(path))
    }
    assert found == {"plugins/module_utils/core/command.py"}


@pytest.mark.parametrize("path", ALL_FILES)
def test_every_file_begins_with_the_header_and_a_sentence(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    header = (ROOT / "plugins/module_utils/errors.py").read_text(encoding="utf-8").splitlines()[:3]
    assert [line for line in lines[:5] if not line.startswith("#!")][:3] == header
    documented = any(line.startswith("DOCUMENTATION") for line in lines)
    assert documented or ast.get_docstring(house.tree_of(path))


LONE_UNDERSCORE = re.compile(r"\b_\b")


def test_no_name_is_a_lone_underscore():
    found = [
        f"{shown(path)}:{node.lineno}"
        for path in house.tracked("*.py")
        if LONE_UNDERSCORE.search(path.read_text(encoding="utf-8"))  # a tree takes longer than a look
        for node in ast.walk(house.tree_of(path))
        if (isinstance(node, ast.Name) and node.id == "_") or (isinstance(node, ast.arg) and node.arg == "_")
    ]
    assert found == [], "ansible-test refuses it: write what is not used, for example _size"


def test_functions_are_short():
    functions = house.functions()
    sizes = sorted(function.lines for function in functions)
    assert [function for function in functions if function.lines > 60] == []
    assert sizes[int(len(sizes) * 0.95)] <= 40
    assert statistics.median(sizes) <= 12


def test_functions_take_at_most_five_positional_parameters():
    assert [function for function in house.functions() if function.positional > 5] == []


@pytest.mark.parametrize("path", ALL_FILES)
def test_files_hold_at_most_400_lines_of_code(path):
    table = shown(path) in {"plugins/module_utils/reasons.py", "plugins/module_utils/proto/descriptors.py"}
    assert table or house.code_lines(path) <= 400


@pytest.mark.parametrize("path", MODULES)
def test_a_module_is_a_form(path):
    assert house.code_lines(path) <= 120


def test_every_module_is_in_the_action_group():
    text = (ROOT / "meta" / "runtime.yml").read_text(encoding="utf-8")
    modules = sorted(path.stem for path in ROOT.glob("plugins/modules/*.py"))
    assert re.findall(r"^    - (\w+)$", text, re.MULTILINE) == modules


@pytest.mark.parametrize("role", [pytest.param(path, id=path.name) for path in sorted(ROOT.glob("roles/*/"))])
def test_a_role_says_what_it_does_and_takes(role):
    assert (role / "README.md").is_file()
    said = yaml.safe_load((role / "meta" / "argument_specs.yml").read_text(encoding="utf-8"))
    told = yaml.safe_load((role / "meta" / "main.yml").read_text(encoding="utf-8"))  # read by Galaxy
    assert told["galaxy_info"]["description"] == said["argument_specs"]["main"]["short_description"]


PLACES = re.compile(r"(?<![\w.])/(?:work|tmp/(?:venv|team|stage|housetest))/|/root/|\.pyenv")
UNPUBLISHED = re.compile(r"\bdesign(?:\.md)? \d|\bconstellation\.md|\bpeers(?:\.md)? S?\d|\bstyle \d+\.\d")
# written in parts, so that this file does not match itself
REGISTRIES = re.compile(
    "|".join(
        re.escape(".".join(parts))
        for parts in (
            ("pypi", "org"),
            ("pythonhosted", "org"),
            ("proxy", "golang", "org"),
            ("galaxy", "ansible", "com"),
            ("deb", "debian", "org"),
        )
    )
)


@pytest.mark.parametrize(
    ("pattern", "spared"),
    [
        pytest.param(PLACES, {"tests/unit/test_rules.py"}, id="no path of one machine"),
        pytest.param(REGISTRIES, set(), id="no host of a package registry"),
        pytest.param(UNPUBLISHED, {"tests/unit/test_rules.py"}, id="no document that is not in the repository"),
    ],
)
def test_the_tree_names_nothing_that_a_reader_does_not_have(pattern, spared):
    hits = []
    for path in house.tracked():
        if shown(path) in spared or "vectors" in path.parts or path.name in {"LICENSE", "go.sum"}:
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        hits += [f"{shown(path)}: {match.group()}" for match in pattern.finditer(text)]
    assert hits == []


def test_reason_codes_are_alphabetical_and_distinct():
    names = list(Reason.__members__)
    assert names == sorted(names)
    assert len(Reason) == len(names), "two codes with the same texts are one member"


@pytest.mark.parametrize("reason", [pytest.param(reason, id=reason.name) for reason in Reason])
def test_a_reason_says_what_happened_and_what_to_do(reason):
    text = reason.value
    assert text.summary.endswith(".")
    assert text.hint.endswith(".")
    assert text.command
    assert reason.name == reason.name.upper()


_DIALECT = re.compile(r"\b(anew|believed?|harmless|is none|nobody|somebody|told|whoever)\b", re.IGNORECASE)


@pytest.mark.parametrize("reason", [pytest.param(reason, id=reason.name) for reason in Reason])
def test_a_reason_is_written_in_plain_words_and_short_sentences(reason):
    for text in (reason.value.summary, reason.value.hint):
        assert _DIALECT.findall(text) == []
        assert [one for one in re.split(r"(?<=[.:;])\s", text) if len(one.split()) > 30] == []


def _mentions(folder: str, *, besides: str) -> str:
    files = [path for path in house.tracked(folder) if path.suffix in {".py", ".yml", ".j2"} and path.name != besides]
    return "\n".join(path.read_text(encoding="utf-8") for path in files)


@pytest.mark.parametrize("folders", [("plugins", "roles", "playbooks"), ("tests",)], ids=["used", "tested"])
def test_every_reason_is_used_and_tested(folders):
    text = "\n".join(_mentions(folder, besides="reasons.py") for folder in folders)
    words = set(re.findall(r"[A-Z][A-Z0-9_]+", text))
    assert [reason.name for reason in Reason if reason.name not in words] == []


def test_every_code_that_a_play_prints_is_in_the_table():
    text = "\n".join(_mentions(folder, besides="reasons.py") for folder in ("roles", "playbooks"))
    printed = set(re.findall(r"\b(?!TOUR_)([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+): expected ", text))
    assert "CONFIRMATION_MISSING" in printed
    assert sorted(printed - set(Reason.__members__)) == []


def test_the_tree_of_errors_is_the_one_that_its_docstring_draws():
    drawn = re.findall(r"[├└]── (\w+)", errors.__doc__ or "")
    classes = [
        name for name, value in vars(errors).items() if isinstance(value, type) and value.__module__ == errors.__name__
    ]
    assert sorted(drawn) == drawn
    assert [name for name in classes if name != "AttestedError"] == drawn


def test_labs_have_addresses_of_their_own():
    """So that two of them can run on one host."""
    names = {}
    for path in [*ROOT.glob("tests/system/*/*.py"), *ROOT.glob("tests/bench/*.py"), *ROOT.glob("tests/e2e/*.py")]:
        labs = re.findall(r"(attested-[a-z0-9-]+)\W{1,4}(127\.\d+\.0)\b", path.read_text(encoding="utf-8"))
        for name, loopback in labs:
            names.setdefault(loopback, set()).add(name)
    assert len(names) > 20
    assert {loopback: found for loopback, found in names.items() if len(found) > 1} == {}
