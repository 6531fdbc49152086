# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every small lie about a source file: one changed comparison, condition, constant, reason, step or element each.

Not changed: annotations, decorators, docstrings, texts of errors, and the bodies of classes outside their methods.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
}
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
_CALLS = {"min": "max", "max": "min", "any": "all", "all": "any", "sorted": "list"}
_TEXTS = {"Refusal", "PolicyError", "NodeLockError", "SystemFault", "RegisterDeviation"}
_OTHER_REASON = "COMMAND_MISSING"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One lie: in which function (``<module>`` for a constant), at which line, what became what; ``tree`` compiles."""

    function: str
    line: int
    change: str
    tree: ast.Module

    def __str__(self) -> str:
        """Return what a list of survivors calls it: the line may move, this does not."""
        return f"{self.function}: {self.change}"


def mutants_of(source: str) -> Iterator[Mutant]:
    """Yield each mutant of a module's ``source``, in the order of its lines."""
    for index, place in enumerate(_places(ast.parse(source))):
        for variant, (change, _replacement) in enumerate(_variants(place)):
            tree = ast.parse(source)
            again = list(_places(tree))[index]
            _replaced, new = list(_variants(again))[variant]
            again.put(new)
            ast.fix_missing_locations(tree)
            yield Mutant(function=place.function, line=place.line, change=change, tree=tree)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """A node, where it hangs, and whose function it is in."""

    node: ast.AST
    parent: ast.AST
    field: str
    index: int | None
    function: str
    in_text: bool

    @property
    def line(self) -> int:
        return int(getattr(self.node, "lineno", 0))

    def put(self, new: ast.AST) -> None:
        """Hang ``new`` where the node hung."""
        ast.copy_location(new, self.node)
        if self.index is None:
            setattr(self.parent, self.field, new)
        else:
            getattr(self.parent, self.field)[self.index] = new


def _places(tree: ast.Module) -> Iterator[_Place]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _below(node, node.name, in_text=False)
        elif isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield from _below(inner, f"{node.name}.{inner.name}", in_text=False)
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None and not _is_all(node):
            place = _Place(node=node.value, parent=node, field="value", index=None, function="<module>", in_text=False)
            yield place
            yield from _below(node.value, "<module>", in_text=False)


def _is_all(node: ast.Assign | ast.AnnAssign) -> bool:
    return isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "__all__"


def _below(parent: ast.AST, function: str, *, in_text: bool) -> Iterator[_Place]:
    for field, value in ast.iter_fields(parent):
        if field in {"annotation", "returns", "decorator_list", "args"} and not isinstance(parent, ast.Call):
            continue
        children = enumerate(value) if isinstance(value, list) else [(None, value)]
        for index, node in children:
            if not isinstance(node, ast.AST) or _is_docstring(node):
                continue
            text = in_text or isinstance(node, ast.JoinedStr) or _is_text(node)
            yield _Place(node=node, parent=parent, field=field, index=index, function=function, in_text=text)
            if not isinstance(node, ast.JoinedStr):
                yield from _below(node, function, in_text=text)


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_text(node: ast.AST) -> bool:
    """Tell whether strings below ``node`` are words for a person."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _TEXTS


def _variants(place: _Place) -> Iterator[tuple[str, ast.AST]]:
    node = place.node
    before = ast.unparse(node) if not isinstance(node, ast.cmpop | ast.operator | ast.expr_context) else ""
    for new in _changed(place):
        after = ast.unparse(ast.fix_missing_locations(ast.copy_location(new, node)))
        if len(before) > 90:
            before = before.partition("\n")[0][:90] + "…"
        yield f"{before} => {after.partition(chr(10))[0][:90]}", new


def _changed(place: _Place) -> Iterator[ast.AST]:
    node = place.node
    for kind, changes in _CHANGES.items():
        if isinstance(node, kind):
            yield from changes(node)
    if isinstance(node, ast.Constant):
        yield from _constants(node, in_text=place.in_text)
    if place.field in {"test", "ifs"} and not isinstance(node, ast.Constant):
        yield ast.Constant(value=False)
        if not isinstance(place.parent, ast.While):
            yield ast.Constant(value=True)


def _statements(node: ast.stmt) -> Iterator[ast.AST]:
    """Leave out a step: a call for its effect, a refusal, an addition."""
    if isinstance(node, ast.Raise | ast.AugAssign) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
        yield ast.Pass()


def _comparisons(node: ast.Compare) -> Iterator[ast.AST]:
    for index, operator in enumerate(node.ops):
        for other in _COMPARISONS[type(operator)]:
            changed: list[ast.cmpop] = [*node.ops[:index], other(), *node.ops[index + 1 :]]
            yield ast.Compare(left=node.left, ops=changed, comparators=node.comparators)


def _connections(node: ast.BoolOp) -> Iterator[ast.AST]:
    yield ast.BoolOp(op=ast.Or() if isinstance(node.op, ast.And) else ast.And(), values=node.values)
    for index in range(len(node.values)):
        rest = _without(node.values, index)
        yield rest[0] if len(rest) == 1 else ast.BoolOp(op=node.op, values=rest)


def _constants(node: ast.Constant, *, in_text: bool) -> Iterator[ast.AST]:
    value = node.value
    if isinstance(value, bool):
        yield ast.Constant(value=not value)
    elif isinstance(value, int):
        yield ast.Constant(value=value + 1)
    elif isinstance(value, bytes):
        yield ast.Constant(value=value + b"\x00")
    elif isinstance(value, str) and not in_text and " " not in value:
        yield ast.Constant(value=value + "X")


def _calls(node: ast.Call) -> Iterator[ast.AST]:
    if isinstance(node.func, ast.Name) and node.func.id in _CALLS:
        other = ast.Name(id=_CALLS[node.func.id], ctx=ast.Load())
        keywords = [] if other.id == "list" else node.keywords
        yield ast.Call(func=other, args=node.args, keywords=keywords)
    if len(node.args) > 2:
        for index in range(len(node.args)):
            yield ast.Call(func=node.func, args=_without(node.args, index), keywords=node.keywords)


def _shorter(node: ast.Tuple | ast.List | ast.Set) -> Iterator[ast.AST]:
    if len(node.elts) < 2:
        return
    for index in range(len(node.elts)):
        rest = _without(node.elts, index)
        if isinstance(node, ast.Set):
            yield ast.Set(elts=rest)
        elif isinstance(node.ctx, ast.Load):
            yield type(node)(elts=rest, ctx=node.ctx)


def _negations(node: ast.UnaryOp) -> Iterator[ast.AST]:
    if isinstance(node.op, ast.Not):
        yield node.operand


def _operations(node: ast.BinOp) -> Iterator[ast.AST]:
    if type(node.op) in _OPERATORS:
        yield ast.BinOp(left=node.left, op=_OPERATORS[type(node.op)](), right=node.right)


def _tables(node: ast.Dict) -> Iterator[ast.AST]:
    for index in range(len(node.keys)):
        yield ast.Dict(keys=_without(node.keys, index), values=_without(node.values, index))


def _reasons(node: ast.Attribute) -> Iterator[ast.AST]:
    if isinstance(node.value, ast.Name) and node.value.id == "Reason":
        yield ast.Attribute(value=node.value, attr=_OTHER_REASON, ctx=node.ctx)


def _without(items: list[Any], index: int) -> list[Any]:
    return [*items[:index], *items[index + 1 :]]


_CHANGES: dict[type[ast.AST], Callable[[Any], Iterator[ast.AST]]] = {
    ast.Attribute: _reasons,
    ast.BinOp: _operations,
    ast.BoolOp: _connections,
    ast.Call: _calls,
    ast.Compare: _comparisons,
    ast.Dict: _tables,
    ast.List: _shorter,
    ast.Set: _shorter,
    ast.Tuple: _shorter,
    ast.UnaryOp: _negations,
    ast.stmt: _statements,
}
