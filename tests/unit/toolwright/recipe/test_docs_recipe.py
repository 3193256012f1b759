"""docs/train/recipe.md names every key of every table, with the default that it has."""

from __future__ import annotations

import inspect
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from agents.config import AgentsTable
from console.config import Ablation, ConsoleTable, Prepared, SamplerStart, Service, Words
from engine.config import EngineTable, Evaluation, RenderTable, Suite
from engine.core.protocols.chat import Chat
from engine.core.protocols.tagged import Tagged
from ingress.config import IngressTable
from learner.config.objective import Advantage, Correction, Credit, Kl, Loss, Reject
from learner.config.tables import Heldout, LearnerTable, SftTable
from learner.config.weights import Lora, Optimizer, Parallel, Publish
from memory.config import MemoryTable
from tests.support.docs import DOCS
from toolwright.recipe import (
    Agent,
    Branching,
    DynamicSampling,
    Limits,
    MixedTask,
    Overlong,
    Policy,
    Run,
    Sampler,
    Table,
    TaskTable,
    Tool,
    registered_tables,
)

PAGE = (DOCS / "train" / "recipe.md").read_text(encoding="utf-8")

TABLES: Mapping[str, type[Table]] = {
    "[run]": Run,
    "[policy]": Policy,
    "[task]": TaskTable,
    "[task.overlong]": Overlong,
    "[task.dynamic_sampling]": DynamicSampling,
    "[task.agent]": Agent,
    "[task.branching]": Branching,
    "[task.limits]": Limits,
    "[tasks.NAME]": MixedTask,
    "[sampler]": Sampler,
    "[tools.NAME]": Tool,
    "[engine]": EngineTable,
    "[engine.evaluation]": Evaluation,
    "[[engine.evaluation.suites]]": Suite,
    "[render]": RenderTable,
    "[sft]": SftTable,
    "[sft.heldout]": Heldout,
    "[learner]": LearnerTable,
    "[learner.optimizer]": Optimizer,
    "[learner.advantage]": Advantage,
    "[learner.credit]": Credit,
    "[learner.loss]": Loss,
    "[learner.correction]": Correction,
    "[[learner.correction.reject]]": Reject,
    "[learner.kl]": Kl,
    "[learner.publish]": Publish,
    "[learner.lora]": Lora,
    "[learner.parallel]": Parallel,
    "[ingress]": IngressTable,
    "[agents]": AgentsTable,
    "[memory]": MemoryTable,
    "[console]": ConsoleTable,
    "[console.sampler]": SamplerStart,
    "[[console.prepare]]": Prepared,
    "[[console.services]]": Service,
    "[[console.ablations]]": Ablation,
    "[console.report]": Words,
}

IN_WORDS = {
    ("[[engine.evaluation.suites]]", "top_p"),
    ("[[engine.evaluation.suites]]", "top_k"),
    ("[[engine.evaluation.suites]]", "min_p"),
    ("[[engine.evaluation.suites]]", "repetition_penalty"),
    ("[[engine.evaluation.suites]]", "limits"),
    ("[tools.NAME]", "service"),
    ("[tools.NAME]", "serve"),
    ("[render]", "model"),
    ("[sft]", "model"),
    ("[sft]", "output"),
    ("[sft]", "epochs"),
    ("[learner.lora]", "targets"),
}
"""Keys whose default is told in words, since another key or file stands in for them."""


def section(heading: str) -> str:
    """The page from the heading that begins with `heading` to the next one."""
    begin = re.search(rf"^#+ {re.escape(heading)}", PAGE, flags=re.MULTILINE)
    assert begin is not None, f"the page has no heading {heading}"
    return re.split(r"^#", PAGE[begin.end() :], maxsplit=1, flags=re.MULTILINE)[0]


def documented(text: str, column: str) -> dict[str, str]:
    """Key and default of the table whose first column has this name; `a`, `b` are two keys."""
    rows = text.partition(f"| {column} | default | meaning |\n")[2].split("\n\n")[0].splitlines()
    out: dict[str, str] = {}
    for row in rows[1:]:
        keys, default = (cell.strip() for cell in row.split(" | ")[:2])
        names = re.findall(r"`([^`]+)`", keys)
        values = default.split(", ") if len(names) > 1 and default.count(", ") else [default]
        assert len(values) in (1, len(names)), row
        for number, name in enumerate(names):
            assert name not in out, f"{name} stands in the table twice"
            out[name] = values[number % len(values)]
    return out


def keys(model: type[Table]) -> dict[str, FieldInfo]:
    """The keys of a table; tables inside of it have tables of their own on the page, and so has one
    that it adds to."""
    base = model.__mro__[1]
    inherited = base.model_fields if base in TABLES.values() else {}  # type: ignore[attr-defined]
    return {
        name: field
        for name, field in model.model_fields.items()
        if not (isinstance(field.annotation, type) and issubclass(field.annotation, Table))
        and name not in ("suites", *inherited)
    }


def as_text(default: Any) -> str:
    """A default as the column of the page tells it, where it is no value."""
    if default is PydanticUndefined:
        return "required"
    return "none" if default is None else default


def value_of(cell: str) -> Any:
    """What a cell says: a word, or the TOML value in backquotes."""
    quoted = re.fullmatch(r"`(.*)`", cell)
    return tomllib.loads(f"value = {quoted[1]}")["value"] if quoted else cell


@pytest.mark.parametrize("heading", TABLES)
def test_the_page_has_every_key_with_its_default_and_choices_and_no_other(heading: str) -> None:
    text = section(heading)
    rows = documented(text, "key")
    fields = keys(TABLES[heading])
    assert {key for key in rows if not key.startswith("[")} == fields.keys()
    for name, field in fields.items():
        row = next(
            line for line in text.splitlines() if line.startswith("|") and f"`{name}`" in line
        )
        unnamed = [one for one in choices(field.annotation) if f'"{one}"' not in row]
        assert not [one for one in unnamed if isinstance(one, str)], name
        if (heading, name) in IN_WORDS:
            continue
        default = as_text(field.get_default(call_default_factory=True))
        wanted = list(default) if isinstance(default, tuple) else default
        told = value_of(rows[name] or "required")
        assert told == wanted and type(told) is type(wanted), name


def choices(annotation: Any) -> list[Any]:
    """Values of a Literal, also where it is one of several types."""
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    return [value for part in get_args(annotation) for value in choices(part)]


def test_every_table_that_a_process_registers_is_on_the_page() -> None:
    assert {f"[{name}]" for name in registered_tables()} <= TABLES.keys()


def test_the_page_tells_what_sft_has_otherwise_in_its_optimizer() -> None:
    row = next(line for line in section("[sft]").splitlines() if "`[sft.optimizer]`" in line)
    told = dict(re.findall(r"`(\w+) = ([^`]+)`", row))
    common, own = Optimizer(), SftTable(data=Path("d")).optimizer
    other = {key for key in Optimizer.model_fields if getattr(own, key) != getattr(common, key)}
    assert {key: tomllib.loads(f"value = {value}")["value"] for key, value in told.items()} == {
        key: getattr(own, key) for key in other
    }


@pytest.mark.parametrize(
    ("protocol", "path"),
    [(Tagged, "engine.api:Tagged"), (Chat, "engine.api:Chat")],
)
def test_the_page_has_every_option_of_a_protocol(protocol: type[Any], path: str) -> None:
    begin = section("Protocols").partition(f"`{path}`")[2]
    told = {name: value_of(cell) for name, cell in documented(begin, "option").items()}
    options = inspect.signature(protocol).parameters
    assert told == {name: parameter.default for name, parameter in options.items()}
