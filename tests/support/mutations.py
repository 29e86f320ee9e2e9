"""Small changes of the source, each of which should make some test fail; `mutants.py` tries them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PACKAGES = ("gateway/envport", "bridges/envport_bridges", "envs/envport_envs")
SWAPPED = {"==": "!=", "<": "<=", ">": ">=", "in": "not in", "is": "is not", "and": "or", "break": "continue"}
SWAPPED |= {after: before for before, after in SWAPPED.items()}
SIGNS = {ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.In: "in"}
SIGNS |= {ast.NotIn: "not in", ast.Is: "is", ast.IsNot: "is not", ast.And: "and", ast.Or: "or"}
LOGGED = {"debug", "info", "warning", "error", "exception"}


@dataclass(frozen=True)
class Mutant:
    """A part of a file, in bytes as `ast` counts columns, and what stands there instead."""

    path: str
    source: bytes
    start: int
    end: int
    text: str

    @property
    def line(self) -> int:
        return self.source.count(b"\n", 0, self.start) + 1

    @property
    def changed(self) -> bytes:
        return self.source[: self.start] + self.text.encode() + self.source[self.end :]

    @property
    def change(self) -> str:
        """The line before and after; if it is more than one, as one."""
        first = self.source.rfind(b"\n", 0, self.start) + 1
        rest = len(self.source) - self.source.find(b"\n", self.end)
        before, after = (" ".join(it[first : len(it) - rest].decode().split()) for it in (self.source, self.changed))
        return f"{before}  =>  {after}"

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.change}"


class Finder(ast.NodeVisitor):
    """Finds the mutants of a file: none in annotations, messages, and what only a type checker or a script runs."""

    def __init__(self, path: str):
        self.found: list[Mutant] = []
        self._path, self._source = path, (ROOT / path).read_bytes()
        self._lines = list(accumulate((len(line) for line in self._source.splitlines(keepends=True)), initial=0))
        self.visit(ast.parse(self._source))

    def visit_Compare(self, node: ast.Compare) -> None:
        operands = [node.left, *node.comparators]
        for op, (before, after) in zip(node.ops, pairwise(operands), strict=True):
            self._swapped(SIGNS[type(op)], before, after)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        for before, after in pairwise(node.values):
            self._swapped(SIGNS[type(node.op)], before, after)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            start, _ = self._span(node)
            self._add(start, start + len("not "), "")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool | int):
            self._add(*self._span(node), str(not node.value if isinstance(node.value, bool) else node.value + 1))

    def visit_Expr(self, node: ast.Expr) -> None:
        call = node.value.value if isinstance(node.value, ast.Await) else node.value
        if isinstance(call, ast.Call) and not (isinstance(call.func, ast.Attribute) and call.func.attr in LOGGED):
            self._add(*self._span(node), "pass")
            self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None and ast.unparse(node.value) != "None":
            self._add(*self._span(node), "return None")
            self.generic_visit(node)

    def visit_Break(self, node: ast.Break | ast.Continue) -> None:
        self._add(*self._span(node), SWAPPED[ast.unparse(node)])

    visit_Continue = visit_Break

    def visit_JoinedStr(self, node: ast.AST) -> None:
        pass

    visit_Raise = visit_arg = visit_JoinedStr

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        node.returns = None
        self.generic_visit(node)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_If(self, node: ast.If) -> None:
        if not {"TYPE_CHECKING", "__name__"} & set(ast.unparse(node.test).split()):
            self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if ast.unparse(node.func) not in ("dataclass", "field"):
            self.generic_visit(node)

    def _swapped(self, sign: str, before: ast.expr, after: ast.expr) -> None:
        start = self._source.index(sign.encode(), self._span(before)[1], self._span(after)[0])
        self._add(start, start + len(sign), SWAPPED[sign])

    def _span(self, node: Any) -> tuple[int, int]:
        return self._lines[node.lineno - 1] + node.col_offset, self._lines[node.end_lineno - 1] + node.end_col_offset

    def _add(self, start: int, end: int, text: str) -> None:
        self.found.append(Mutant(self._path, self._source, start, end, text))


def mutants_in(chosen: Sequence[str]) -> Iterator[Mutant]:
    """The mutants in files, folders or single lines (`path:12`)."""
    for name, _, line in (text.partition(":") for text in chosen):
        where = (ROOT / name).resolve()
        for file in sorted(where.rglob("*.py")) if where.is_dir() else [where]:
            # Templates are played as copies under other names.
            if not {"bench", "templates"} & {*file.relative_to(ROOT).parts, file.stem}:
                found = Finder(str(file.relative_to(ROOT))).found
                yield from (mutant for mutant in found if not line or mutant.line == int(line))
