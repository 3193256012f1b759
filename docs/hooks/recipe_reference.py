"""Writes the tables of docs/train/recipe.md from the models of the recipe.

`python docs/hooks/recipe_reference.py` replaces all that follows the marker in the page, `--check`
exits with 1 if the page differs. The text of a table is the docstring of its model. The text of a
key is the docstring under its field, or its description. A key without text is refused, so the page
has every key.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
import textwrap
import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import JsonValue
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from toolwright.recipe import Shared, Table, registered_tables

PAGE = Path(__file__).resolve().parents[1] / "train" / "recipe.md"
MARKER = "<!-- `make reference` writes all that follows, from the models of the recipe. -->\n"
FIRST = ("engine", "render", "learner", "sft", "console")
"""Registered tables in the page's order; the others follow by name."""
PAGES: Mapping[str, str] = {
    "run": "[loss and correction](objective.md), [staleness](../understand/staleness.md)",
    "policy": "[prompts](prompts.md#chat-templates)",
    "task": "[protocols and rewards](protocols-and-rewards.md), [prompts](prompts.md)",
    "task.dynamic_sampling": "[groups](groups.md#groups-that-vary)",
    "task.branching": "[groups](groups.md#branches)",
    "task.agent": "[outside agents](agents.md)",
    "tasks.NAME": "[several tasks](groups.md#several-tasks)",
    "sampler": "[the sampler](../operate/sampler.md), [APIs](evaluation-endpoints.md)",
    "tools.NAME": "[tools](../tools/index.md), [several](prompts.md#several-tool-services)",
    "engine.evaluation.suites": "[evaluation](evaluation.md), "
    "[how results are counted](../operate/metrics.md#evaluations)",
    "render": "[the warm-up](warm-up.md)",
    "sft": "[the warm-up](warm-up.md)",
    "learner.advantage": "[advantages and credit](advantages.md)",
    "learner.credit": "[advantages and credit](advantages.md#of-turns)",
    "learner.loss": "[loss and correction](objective.md)",
    "learner.correction": "[the correction](objective.md#the-correction)",
    "learner.distill": "[a teacher](objective.md#a-teacher)",
    "learner.publish": "[weights from memory to memory](on-gpus.md#weights-from-memory-to-memory)",
    "learner.lora": "[adapters](../operate/sampler.md#adapters)",
    "learner.parallel": "[on GPUs](on-gpus.md)",
    "console.ablations": "[variations](ablations.md)",
    "ingress": "[outside agents](agents.md)",
    "memory": "[the tool memory](memory.md)",
}
"""Pages that explain a table, by its dotted name."""
NAMES: Mapping[Any, str] = {
    str: "text", Path: "path", int: "integer", float: "number", bool: "boolean", Any: "any",
}  # fmt: skip
BOUNDS: Mapping[type, str] = {Ge: "ge", Gt: "gt", Le: "le", Lt: "lt"}


@dataclass(frozen=True)
class Section:
    """One table of the recipe."""

    path: str
    """Dotted name, such as `engine.evaluation.suites`."""
    model: type[Table]
    several: bool = False
    """Whether it is an array of tables."""

    @property
    def title(self) -> str:
        return f"[[{self.path}]]" if self.several else f"[{self.path}]"

    @property
    def link(self) -> str:
        """The title with a link to the section."""
        return f"[`{self.title}`](#{re.sub(r'[^a-z0-9_-]', '', self.path.lower())})"


@dataclass
class Reference:
    """The sections that were written so far."""

    sections: dict[type[Table], Section] = field(default_factory=dict)
    """The first section of each model."""
    keys: dict[tuple[type, str], Section] = field(default_factory=dict)
    """The section of each key, by the class that defines it and its name."""

    def write(self, section: Section) -> Iterator[str]:
        """Lines of a table and of the tables inside."""
        model, inner, inherited = section.model, list[Section](), dict[str, list[str]]()
        self.sections[model] = section
        rows: list[str] = []
        for name, info in model.model_fields.items():
            owner = next(one for one in model.__mro__ if name in inspect.get_annotations(one))
            text = _sentences(owner).get(name, info.description)
            if text is None:
                raise SystemExit(f"{section.title} {name}: write a docstring under the field")
            if (owner, name) in self.keys:
                inherited.setdefault(self.keys[owner, name].link, []).append(f"`{name}`")
                continue
            self.keys[owner, name] = section
            nested = _nested(f"{section.path}.{name}", info.annotation)
            if nested is not None and nested.model not in self.sections:
                inner.append(nested)
                continue
            kind = f"as {self.sections[nested.model].link}" if nested else values_of(info)
            cells = (f"`{name}`", kind, text)
            rows.append(f"|{'|'.join(cell.replace('|', chr(92) + '|') for cell in cells)}|")
        yield f"{'#' * (2 + section.path.removesuffix('.NAME').count('.'))} {section.title}\n"
        yield f"{inspect.cleandoc(model.__doc__ or '')}{self._more(section, inherited)}\n"
        if rows:
            yield "\n".join(["|key|default|meaning|", "|---|---|---|", *rows, ""])
        for one in inner:
            yield from self.write(one)

    def _more(self, section: Section, inherited: Mapping[str, Iterable[str]]) -> str:
        bases = [self.sections[one] for one in section.model.__mro__[1:] if one in self.sections]
        if bases:
            more = f"\n\nAll keys of {bases[0].link} count here too."
        else:
            more = "".join(
                f"\n\nAs in {link}: {', '.join(names)}." for link, names in inherited.items()
            )
        pages = PAGES.get(section.path)
        return f"{more}\n\nMore: {pages}." if pages else more


@cache
def _sentences(model: type) -> Mapping[str, str]:
    """Docstrings under the fields of a class, by field."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(model))).body
    assert isinstance(tree, ast.ClassDef)
    return {
        one.target.id: " ".join(after.value.value.split())
        for one, after in zip(tree.body, tree.body[1:], strict=False)
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        if isinstance(after.value.value, str)
    }


def _parts(annotation: Any) -> list[Any]:
    """Members of a union without None; the annotation itself if it is no union."""
    if get_origin(annotation) in (Union, types.UnionType):
        return [one for one in get_args(annotation) if one is not type(None)]
    return [annotation]


def _nested(path: str, annotation: Any) -> Section | None:
    """The table in a field's type; None if the field is a plain value."""
    for part in _parts(annotation):
        origin, inside = get_origin(part), get_args(part)
        own = inside[0] if origin is tuple else inside[1] if origin is dict else part
        if isinstance(own, type) and issubclass(own, Table):
            return Section(f"{path}.NAME" if origin is dict else path, own, origin is tuple)
    return None


def values_of(info: FieldInfo) -> str:
    """The default of a key, with its choices or bounds, and its type if the default does not show
    it. A default in bold is one of the choices after it."""
    default = default_of(info)
    choices = _choices(info.annotation)
    if default in choices:
        return ", ".join([f"**{default}**", *(one for one in choices if one != default)])
    bounds = " ".join(_bounds(info.metadata))
    shown = default not in ("required", "none", "`[]`", "`{}`")
    kind = bounds if shown else " ".join([_words(info.annotation), bounds]).strip()
    return ", ".join(filter(None, [default, kind]))


def _choices(annotation: Any) -> list[str]:
    """Values of a literal, as the page writes them; empty for another type."""
    (part, *others) = _parts(annotation)
    if others or get_origin(part) is not Literal:
        return []
    return [f"`{json.dumps(value)}`" for value in get_args(part)]


def _words(annotation: Any) -> str:
    origin, inside = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return " ".join([_words(inside[0]), *_bounds(_constraints(inside[1:]))])
    if origin is Literal:
        return ", ".join(f"`{json.dumps(value)}`" for value in inside)
    if origin is tuple:
        return f"list of {_words(inside[0])}"
    if origin is dict:
        return "table" if inside[1] in (Any, JsonValue) else f"table of {_words(inside[1])}"
    if len(parts := _parts(annotation)) > 1 or parts[0] is not annotation:
        return " or ".join(map(_words, parts))
    return NAMES.get(annotation, "any")


def _constraints(metadata: Iterable[Any]) -> Iterator[Any]:
    for one in metadata:
        yield from one.metadata if isinstance(one, FieldInfo) else (one,)


def _bounds(metadata: Iterable[Any]) -> list[str]:
    found = {type(one): getattr(one, key) for one in metadata if (key := BOUNDS.get(type(one)))}
    if Ge in found and Le in found:
        return [f"{found[Ge]} to {found[Le]}"]
    signs = {Ge: "≥", Gt: ">", Le: "≤", Lt: "<"}
    return [", ".join(f"{signs[kind]} {value}" for kind, value in found.items())] if found else []


def default_of(info: FieldInfo) -> str:
    """The default as TOML, or a word."""
    value = info.get_default(call_default_factory=True)
    if value is PydanticUndefined:
        return "required"
    if value is None:
        return "none"
    if isinstance(value, Table):
        return ""
    return f"`{json.dumps(value).replace('e-0', 'e-')}`"


def reference() -> str:
    """The tables of the recipe as Markdown."""
    out = Reference()
    registered = registered_tables()
    order = sorted(registered, key=lambda name: (FIRST.index(name) if name in FIRST else 9, name))
    sections = [_nested(name, info.annotation) for name, info in Shared.model_fields.items()]
    sections += [Section(name, registered[name].load()) for name in order]
    return "\n".join(line for one in sections if one is not None for line in out.write(one))


def main() -> int:
    page = PAGE.read_text(encoding="utf-8")
    head, marker, _ = page.partition(MARKER)
    if not marker:
        raise SystemExit(f"{PAGE} has no line {MARKER.strip()}")
    made = f"{head}{marker}\n{reference()}"
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(made, encoding="utf-8")
    elif made != page:
        print(f"{PAGE} is not what the models say: run `make reference`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
