# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The source tree as data: files, imports, lengths of functions. For tests of the house rules."""

from __future__ import annotations

import ast
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ansible_collections.attested import kubernetes as collection

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from collections.abc import Set as AbstractSet

Node = TypeVar("Node")

ROOT = Path(__file__).resolve().parents[2]
SOURCES = Path(next(iter(collection.__path__))).parents[2]
"""The root from which ``ansible_collections`` is imported; the tree may be checked out anywhere."""
UTILS = ROOT / "plugins" / "module_utils"
COLLECTION = "ansible_collections.attested.kubernetes"
OURS = f"{COLLECTION}.plugins"


@dataclass(frozen=True, slots=True)
class Import:
    """One imported module by absolute name, with its line; ``typing_only``: below TYPE_CHECKING."""

    module: str
    line: int
    typing_only: bool


@dataclass(frozen=True, slots=True)
class Function:
    """One function: place, lines without docstring, positional parameters without self."""

    where: str
    lines: int
    positional: int


@cache
def tracked(pattern: str = "*") -> tuple[Path, ...]:
    """Return the files that git tracks or would add."""
    argv = ["git", "ls-files", "-z", "-co", "--exclude-standard", "--", pattern]
    listed = subprocess.run(argv, cwd=ROOT, check=True, capture_output=True).stdout.decode().split("\0")
    return tuple(sorted(path for name in set(listed) if name and (path := ROOT / name).is_file()))


@cache
def plugin_files() -> tuple[Path, ...]:
    """Return every Python file under ``plugins/``."""
    return tuple(sorted((ROOT / "plugins").rglob("*.py")))


@cache
def tree_of(path: Path) -> ast.Module:
    """Return the parsed file."""
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def shown(path: Path) -> str:
    """Return ``path`` relative to the root."""
    return str(path.relative_to(ROOT))


@cache
def imports_of(path: Path) -> tuple[Import, ...]:
    """Return the imports of ``path``; ``from package import name`` counts as ``package.name`` if that is a file."""
    found: list[Import] = []
    typing_only = _typing_lines(tree_of(path))
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            found += [Import(alias.name, node.lineno, node.lineno in typing_only) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(path, node)
            for alias in node.names:
                full = f"{base}.{alias.name}"
                module = full if file_of(full) else base
                found.append(Import(module, node.lineno, node.lineno in typing_only))
    return tuple(found)


def file_of(module: str) -> Path | None:
    """Return the file of a module of this collection, or None."""
    if not module.startswith(f"{COLLECTION}."):
        return None
    base = ROOT.joinpath(*module.removeprefix(f"{COLLECTION}.").split("."))
    return next((path for path in (base.with_suffix(".py"), base / "__init__.py") if path.is_file()), None)


@cache
def targets_of(path: Path, *, typing: bool = False) -> frozenset[Path]:
    """Return our files that ``path`` imports at run time, with ``typing`` also those for types only."""
    items = (item for item in imports_of(path) if typing or not item.typing_only)
    return frozenset(target for item in items if (target := file_of(item.module))) - {path}


def installed_by(path: Path) -> list[tuple[Path, str]]:
    """Return file and function of each ``installed("file:function")`` in ``path`` (docs/adr/0064)."""
    found = []
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "installed":
            file, _colon, function = ast.literal_eval(node.args[0]).partition(":")
            found.append((UTILS.joinpath(*file.split(".")).with_suffix(".py"), function))
    return found


@cache
def names_of(path: Path) -> frozenset[str]:
    """Return the names that the file defines at top level: classes, functions, constants, type aliases."""
    found: set[str] = set()
    todo: list[ast.AST] = [*tree_of(path).body]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)  # nested names are not at top level
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif not _is_typing(node):
            todo += ast.iter_child_nodes(node)
    return frozenset(found)


def borrowed_names(path: Path) -> list[str]:
    """Return the imports of ``path`` from a file of ours that does not define the name, or that are private there."""
    found = []
    for node in (one for one in ast.walk(tree_of(path)) if isinstance(one, ast.ImportFrom)):
        base = _absolute(path, node)
        source = file_of(base)
        if source is None or "_deps" in source.parts:  # `_deps` re-exports libraries and defines no names
            continue
        borrowed = [one.name for one in node.names if one.name[0] == "_" or one.name not in names_of(source)]
        wrong = [name for name in borrowed if file_of(f"{base}.{name}") is None]
        found += [f"line {node.lineno}: {name} from {shown(source)}" for name in wrong]
    return found


def cycle_of(graph: Mapping[Node, AbstractSet[Node]]) -> dict[Node, frozenset[Node]]:
    """Return the cycle of each node: the nodes that it reaches and that reach it, and the node itself."""
    reached: dict[Node, set[Node]] = {}
    for node in graph:
        reached[node], todo = set(), [node]
        while todo:
            new = graph[todo.pop()] - reached[node]
            reached[node] |= new
            todo += new
    return {node: frozenset({one for one in reached[node] if node in reached[one]} | {node}) for node in graph}


def cycles(graph: Mapping[Node, AbstractSet[Node]]) -> list[list[str]]:
    """Return each cycle of two nodes or more, by name."""
    return sorted(sorted(str(node) for node in one) for one in set(cycle_of(graph).values()) if len(one) > 1)


def package_of(path: Path) -> str:
    """Return the package below module_utils that holds ``path`` (a lone file is its own package)."""
    return path.relative_to(UTILS).parts[0].removesuffix(".py")


def between_packages(files: Iterable[Path]) -> dict[str, set[str]]:
    """Return which package of module_utils imports which, for types as well; a lone file counts as a package."""
    found: dict[str, set[str]] = {}
    for path in files:
        targets = {package_of(target) for target in targets_of(path, typing=True) if UTILS in target.parents}
        found.setdefault(package_of(path), set()).update(targets - {package_of(path)})
    return found


@cache
def reachable(start: Path) -> frozenset[Path]:
    """Return all of our files that an import of ``start`` loads or ships, with those of the packages."""
    seen: set[Path] = set()
    todo = [start]
    while todo:
        path = todo.pop()
        if path in seen:
            continue
        seen.add(path)
        for item in imports_of(path):
            target = file_of(item.module)
            if target is not None:
                todo += [target, *_package_files(target)]
    return frozenset(seen - {start})


def functions() -> list[Function]:
    """Return every function under ``plugins/``."""
    found: list[Function] = []
    for path in plugin_files():
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                body = node.body[1:] if ast.get_docstring(node) else node.body
                lines = (node.end_lineno or 0) - body[0].lineno + 1 if body else 0
                names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
                positional = len([name for name in names if name not in {"self", "cls"}])
                found.append(Function(f"{shown(path)}:{node.lineno} {node.name}", lines, positional))
    return found


def code_lines(path: Path, *, imports: bool = True) -> int:
    """Return the lines of code in ``path``, without blank lines, comments and documentation."""
    text = path.read_text(encoding="utf-8").splitlines()
    prose: set[int] = set()
    for node in (one for one in ast.walk(tree_of(path)) if isinstance(one, ast.stmt)):
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node, ast.Assign):
            is_text = ast.unparse(node.targets[0]) in {"DOCUMENTATION", "EXAMPLES", "RETURN"}
        if is_text or (not imports and isinstance(node, ast.Import | ast.ImportFrom)):
            prose |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return sum(
        1 for at, row in enumerate(text, 1) if row.strip() and not row.strip().startswith("#") and at not in prose
    )


def _package_files(target: Path) -> list[Path]:
    """Return the ``__init__.py`` files that an import of ``target`` runs first."""
    return [init for parent in target.parents if UTILS in parent.parents and (init := parent / "__init__.py").is_file()]


def _absolute(path: Path, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    here = [COLLECTION, *path.relative_to(ROOT).with_suffix("").parts]
    return ".".join([*here[: -node.level], *([node.module] if node.module else [])])


def _is_typing(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def _typing_lines(tree: ast.Module) -> frozenset[int]:
    lines: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and _is_typing(node):
            for child in node.body:
                lines |= set(range(child.lineno, (child.end_lineno or child.lineno) + 1))
    return frozenset(lines)
