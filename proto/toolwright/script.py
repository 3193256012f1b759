"""Runs a file of a recipe as a program: its function `main`, whose parameters are the options.

    python -m toolwright.script world/policy.py --output run/untrained --seed 1

The file may import its neighbours relatively, which `python world/policy.py` cannot. A keyword-only
parameter is an option `--name`. Any other parameter is positional. `Annotated[Path, "..."]` has its
help, `Literal` its choices, and a bool is a pair of flags, `--name` and `--no-name`. The first
paragraph of the function's docstring is the description.
"""

from __future__ import annotations

import argparse
import inspect
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

from toolwright.imports import ImportPathError, load_file

Output = Annotated[Path, "file or folder to write"]


def run(main: Callable[..., None], words: Sequence[str] | None = None, program: str = "") -> None:
    """Calls a function with the options that `words` give; None = those of the command line.

    Raises SystemExit for words that do not fit.
    """
    parser = argparse.ArgumentParser(
        prog=program or None, description=(inspect.getdoc(main) or "").partition("\n\n")[0]
    )
    signature = inspect.signature(main, eval_str=True)
    for name, parameter in signature.parameters.items():
        option = parameter.kind is inspect.Parameter.KEYWORD_ONLY
        spelling = f"--{name.replace('_', '-')}" if option else name
        parser.add_argument(spelling, **_argument(parameter, option=option))
    bound = signature.bind_partial()
    for name, value in vars(parser.parse_args(words)).items():
        bound.arguments[name] = value
    main(*bound.args, **bound.kwargs)


def _argument(parameter: inspect.Parameter, *, option: bool) -> dict[str, Any]:
    """How argparse takes a parameter."""
    kind, help_text = parameter.annotation, ""
    if get_origin(kind) is Annotated:
        kind, help_text = get_args(kind)
    help_text = help_text.replace("%", "%%")
    given = parameter.default
    if kind is bool:
        flag = {"action": argparse.BooleanOptionalAction, "help": help_text}
        return flag | ({} if given is inspect.Parameter.empty else {"default": given})
    found: dict[str, Any] = {"help": help_text}
    if get_origin(kind) is Literal:
        found["choices"] = get_args(kind)
        found["type"] = type(get_args(kind)[0])
    else:
        found["type"] = next((one for one in get_args(kind) if one is not type(None)), kind)
    if given is inspect.Parameter.empty:
        return found | {"required": True} if option else found
    if given is not None:
        found["help"] = f"{help_text} (default: {str(given).replace('%', '%%')})".lstrip()
    return found | {"default": given} | ({} if option else {"nargs": "?"})


def main() -> None:
    """Raises SystemExit with a sentence for a file that is not such a program."""
    if not sys.flags.safe_path:
        del sys.path[0]  # the present folder, whose files may have the names of our packages
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit("usage: python -m toolwright.script FILE.py [OPTIONS]")
    file, *words = sys.argv[1:]
    try:
        found = getattr(load_file(Path(file)), "main", None)
    except ImportPathError as error:
        sys.exit(f"script: {error}")
    if not callable(found):
        sys.exit(f"script: {file} has no function main: run it with python {file}")
    run(found, words, program=Path(file).name)


if __name__ == "__main__":
    main()
