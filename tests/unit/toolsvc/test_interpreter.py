"""How a confined interpreter splits a program into its statements and its last expression."""

import ast
import types

import pytest

from toolsvc.sandbox.jailed.drivers.interpreter import _compiled

NAME = "<call 1>"
HEADS = (
    "x = 1", "x = 1;", "def f():\n    return 2", "if x:\n    y = 2",
    "try:\n    y = 2\nexcept E:\n    y = 3", '"a docstring"', 's = """\n', "x = (1,", "x = 1 + \\",
    "@f", "while True:", "# said \\", "x = 1\r", "x = 1\x0c", "x = [\n1]",
    "class A:\n    b: int = 1", "import math\n\n", "x = = 1", "",
)  # fmt: skip
TAILS = (
    "x", "print(x)  # and more", "x\n\n", "y = x", "x; y", "else: x", "else:\n    x", "  x", ")",
    '"""', '""" + s', "(x,\n y)", "x if y else z", "def g(): pass", "*x, y", "yield x", "x := 1",
    "not x", "-x", "\u00e9", "\u00b2", "x \\", "x\ry", "lambda: x", "# only said",
)  # fmt: skip


def by_tree(code: str) -> tuple[types.CodeType | None, types.CodeType | None]:
    tree = ast.parse(code, NAME)
    last = tree.body[-1] if tree.body else None
    if isinstance(last, ast.Expr):
        tree.body.pop()
    statements = compile(tree, NAME, "exec", dont_inherit=True) if tree.body else None
    expression = None
    if isinstance(last, ast.Expr):
        expression = compile(ast.Expression(last.value), NAME, "eval", dont_inherit=True)
    return statements, expression


def told(code: types.CodeType | None) -> object:
    """What it does, and at which lines."""
    if code is None:
        return None
    constants = [
        told(one) if isinstance(one, types.CodeType) else repr(one) for one in code.co_consts
    ]
    lines = [line for _, _, line in code.co_lines()]
    return code.co_code, constants, code.co_names, lines


@pytest.mark.parametrize("head", HEADS)
def test_a_program_is_split_as_its_tree_would_be(head: str) -> None:
    for tail in TAILS:
        code = f"{head}\n{tail}"
        try:
            expected = by_tree(code)
        except SyntaxError as error:
            with pytest.raises(SyntaxError) as found:
                _compiled(code, NAME)
            assert (found.value.msg, found.value.lineno) == (error.msg, error.lineno), code
            continue
        statements, expression = _compiled(code, NAME)
        assert told(expression) == told(expected[1]), code
        if expected[0] is None and statements is not None:  # of comments alone
            assert (
                statements.co_names == () and statements.co_code == compile("", "", "exec").co_code
            )
        else:
            assert told(statements) == told(expected[0]), code
