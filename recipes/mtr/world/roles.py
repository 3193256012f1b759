"""What a player that knows an encyclopedia says as ToolMaker and as ToolActor. Pure.

It stands for two models. As ToolMaker it reads which relations a question speaks of and writes
tools for them, beside one that is of no use: with other names, arguments and granularity for each
question. As ToolActor it gets a tool and arguments, and looks up what the tool's `returns` has
properties for. Its facts are those of the world, as a large model's are those of its training.

Like a model it is not to be relied on, in the same places each time:
- tools of every second question want an `edition` and do not say which: the first call is a guess;
- one call in SLIPS gets an observation without the value at first, and right when it is told so;
- arguments that do not fit it answers as well, with a fact of something else.
So without the checks of tools wrong facts come back, and without corrections calls fail.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from tasks.worlds.encyclopedia import Encyclopedia
from tasks.worlds.questions import SHAPE
from tasks.worlds.relations import RELATIONS, Relation

EDITIONS = ("first", "second", "third", "fourth")
WITH_EDITION = 2  # of so many questions one has tools that want an edition
SLIPS = 8
UNKNOWN = "unknown"
"""What a tool says that has found nothing."""
NAMES = ("find_{}", "{}_of", "get_{}")
RECORDS = ("{}_record", "{}_file", "look_up_{}")
OPTIONS = ("{}", "name")
"""Names of tools for a fact, of tools for all that is told of an entity, and of arguments."""

Json = dict[str, Any]
_T = TypeVar("_T")


def tool_set(question: str) -> list[Json]:
    """The tools of a question, as ToolMaker writes them; the same for the same question."""
    spoken = [one for one in SHAPE.told if _speaks_of(question, one)]
    argument = OPTIONS[drawn(len(OPTIONS), "argument", question)]
    edition = None
    if not drawn(WITH_EDITION, "edition", question):
        edition = EDITIONS[drawn(len(EDITIONS), "which", question)]
    if drawn(2, "record", question):
        form = RECORDS[drawn(len(RECORDS), "name", question)]
        kinds = _and_one_more([one.of for one in spoken], [one.of for one in SHAPE.told], question)
        tools = [_record(kind, form, argument, edition) for kind in kinds]
    else:
        form = NAMES[drawn(len(NAMES), "name", question)]
        facts = _and_one_more(spoken, SHAPE.told, question)
        tools = [_fact(one, form, argument, edition) for one in facts]
    return sorted(tools, key=lambda one: drawn(1 << 30, one["function"]["name"], question))


class Actor:
    """ToolActor over one encyclopedia."""

    def __init__(self, encyclopedia: Encyclopedia) -> None:
        self._encyclopedia = encyclopedia
        self._names = [name for names in encyclopedia.entities.values() for name in names]

    def observation(self, tool: Mapping[str, Any], arguments: Mapping[str, Any]) -> Json:
        """What the tool returns: a value for each property of `returns`."""
        return {name: self._value(name, tool, arguments) for name in _properties(tool, "returns")}

    def slip(self, tool: Mapping[str, Any], arguments: Mapping[str, Any]) -> Json:
        """The same, or what does not fit `returns`: a call that it gets wrong at first."""
        text = json.dumps([tool.get("name"), arguments], sort_keys=True)
        return {} if not drawn(SLIPS, "slip", text) else self.observation(tool, arguments)

    def _value(self, relation: str, tool: Mapping[str, Any], arguments: Mapping[str, Any]) -> str:
        about = subject(arguments)
        if not fits(tool, arguments):
            about = self._names[drawn(len(self._names), "else", f"{relation} {about}")]
            known = RELATIONS.get(relation)
            if known is not None:
                kind = self._encyclopedia.entities[known.of]
                about = kind[drawn(len(kind), "else", about)]
        try:
            return self._encyclopedia.fact(about, relation).value
        except KeyError:
            return UNKNOWN


def subject(arguments: Mapping[str, Any]) -> str:
    """What a call is about."""
    return next((str(value) for name, value in arguments.items() if name != "edition"), "")


def fits(tool: Mapping[str, Any], arguments: Mapping[str, Any]) -> bool:
    """Whether the arguments are those that the tool wants."""
    wanted = _properties(tool, "parameters")
    if set(wanted) != set(arguments):
        return False
    return all(
        arguments[name] in one.get("enum", [arguments[name]]) for name, one in wanted.items()
    )


def _properties(tool: Mapping[str, Any], schema: str) -> dict[str, Mapping[str, Any]]:
    """Properties of one of the tool's schemas; empty if it is not an object's."""
    found = tool.get(schema)
    listed = found.get("properties") if isinstance(found, Mapping) else None
    if not isinstance(listed, Mapping):
        return {}
    return {name: one if isinstance(one, Mapping) else {} for name, one in listed.items()}


def drawn(count: int, *of: str) -> int:
    """A number below `count` that depends on nothing but the texts."""
    return zlib.crc32("\n".join(of).encode()) % count


def pieces_told() -> Iterator[str]:
    """Texts that tool sets are made of: for a tokenizer."""
    for one in SHAPE.told:
        yield from (one.name, one.of)
    for form in (*NAMES, *RECORDS):
        yield form.replace("{}", "")
    yield from (" of a ", "all about a ", *EDITIONS)


def _and_one_more(some: Sequence[_T], every: Sequence[_T], question: str) -> list[_T]:
    """Each once, and one of the others; all without `some`."""
    chosen = list(dict.fromkeys(some or every))
    others = [one for one in dict.fromkeys(every) if one not in chosen]
    return [*chosen, others[drawn(len(others), "other", question)]] if others else chosen


def _speaks_of(question: str, relation: Relation) -> bool:
    wordings = (one.split("{x}") for one in SHAPE.wordings_of(relation))
    return any(all(part in question for part in parts) for parts in wordings)


def _fact(relation: Relation, form: str, argument: str, edition: str | None) -> Json:
    about = f"{relation.name} of a {relation.of}"
    name, argument = form.format(relation.name), argument.format(relation.of)
    return _tool(name, about, argument, edition, [relation])


def _record(kind: str, form: str, argument: str, edition: str | None) -> Json:
    told = [one for one in SHAPE.told if one.of == kind]
    return _tool(form.format(kind), f"all about a {kind}", argument.format(kind), edition, told)


def _tool(
    name: str, description: str, argument: str, edition: str | None, told: Sequence[Relation]
) -> Json:
    properties: Json = {argument: {"type": "string"}}
    if edition is not None:
        properties["edition"] = {"type": "string", "enum": [edition]}
    function = {"name": name, "description": description, "parameters": _object(properties)}
    returns = _object({one.name: {"type": "string"} for one in told})
    return {"type": "function", "function": function, "returns": returns}


def _object(properties: Json) -> Json:
    return {"type": "object", "properties": properties, "required": list(properties)}
