"""A policy folder's chat template: messages to text, as transformers renders them.

transformers itself imports torch if it is installed, which costs the engine a quarter of a
gigabyte. Templates may use what transformers' documentation of chat templates promises: a sandboxed
Jinja that trims blocks, loop controls, `tojson` without escapes, `raise_exception`, `strftime_now`,
and the names of the special tokens.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

from jinja2 import Template, TemplateError, nodes
from jinja2.ext import Extension
from jinja2.meta import find_undeclared_variables
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from toolwright.recipe import TEMPLATE_NAMES

_TEMPLATE_FAILS = (
    TemplateError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError,
    RecursionError,
)  # fmt: skip
"""Errors of a template: it computes with values of messages, such as `'\\n' + content`."""
_WITH_TOOLS = "tool_use"
"""Name of the template for conversations with tools, in tokenizers with several templates."""


class ChatTemplate:
    """The templates of a folder. `sources`: by name; most folders have one, "default", some
    none."""

    def __init__(
        self,
        sources: Mapping[str, str],
        special_tokens: Mapping[str, str],
        variables: Mapping[str, Any] | None = None,
    ) -> None:
        """variables: the recipe's policy.template."""
        self.sources = dict(sources)
        self._special_tokens = dict(special_tokens)
        self._variables = dict(variables or {})
        self._compiled: dict[str, Template] = {}

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
        *,
        generation_prompt: bool,
    ) -> str:
        """The text of a conversation.

        Raises ValueError without a template, if it cannot render the messages, or if it would leave
        out their calls.
        """
        name = _WITH_TOOLS if tools and _WITH_TOOLS in self.sources else "default"
        if name not in self.sources:
            raise ValueError(
                "the policy has no chat template: add chat_template.jinja to its folder"
            )
        if "tool_calls" not in self.sources[name]:
            for number, message in enumerate(messages, 1):
                if message.get("tool_calls"):
                    raise ValueError(
                        f"the chat template does not write `tool_calls`, and message {number} has "
                        "some: write the calls into its content"
                    )
        try:
            return self._template(name).render(
                **{**self._special_tokens, **self._variables},
                messages=[dict(message) for message in messages],
                tools=[dict(tool) for tool in tools] if tools else None,
                documents=None,
                add_generation_prompt=generation_prompt,
            )
        except _TEMPLATE_FAILS as error:
            raise ValueError(f"the chat template cannot render the messages: {error}") from error

    def names(self) -> frozenset[str]:
        """Variables that the templates read from the recipe. Raises ValueError for broken
        syntax."""
        environment = _environment()
        found: set[str] = set()
        try:
            for source in self.sources.values():
                found |= _read_names(environment.parse(source))
        except TemplateError as error:
            raise ValueError(f"the chat template cannot be read: {error}") from error
        known = {*TEMPLATE_NAMES} | self._special_tokens.keys() | environment.globals.keys()
        return frozenset(one for one in found - known if not one.endswith("_token"))

    def _template(self, name: str) -> Template:
        if name not in self._compiled:
            self._compiled[name] = _environment().from_string(self.sources[name])
        return self._compiled[name]


def _read_names(template: nodes.Template) -> set[str]:
    """Variables that a template reads from outside.

    One that it also assigns counts only if it assigns a default: under `if NAME is not defined`, or
    with a value made of NAME.
    """
    defaults: set[str] = set()
    for branch in template.find_all(nodes.If):
        tested = _tested(branch.test)
        defaults |= {name for one in branch.body for name in _stored(one)} & tested
    for assigned in template.find_all(nodes.Assign):
        defaults |= _stored(assigned.target) & _tested(assigned.node)
    return set(find_undeclared_variables(template)) - (_stored(template) - defaults)


def _tested(node: nodes.Node) -> set[str]:
    """Variables that an expression tests for being defined, or gives a default."""
    found: set[str] = set()
    for kind, names in ((nodes.Test, ("defined", "undefined")), (nodes.Filter, ("default", "d"))):
        inside = [*node.find_all(kind), *([node] if isinstance(node, kind) else [])]
        operands = [one.node for one in inside if one.name in names]
        found |= {one.name for one in operands if isinstance(one, nodes.Name)}
    return found


def _stored(node: nodes.Node) -> set[str]:
    return {one.name for one in _names_in(node) if one.ctx != "load"}


def _names_in(node: nodes.Node) -> Iterator[nodes.Name]:
    if isinstance(node, nodes.Name):
        yield node
    yield from node.find_all(nodes.Name)


class _Generation(Extension):
    """`{% generation %}` marks the assistant's text; rendering ignores it."""

    tags = {"generation"}  # noqa: RUF012 - Jinja's own attribute

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _environment() -> ImmutableSandboxedEnvironment:
    made = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[_Generation, "jinja2.ext.loopcontrols"],
    )
    made.filters["tojson"] = _to_json
    made.globals["raise_exception"] = _refuse
    made.globals["strftime_now"] = lambda format: datetime.datetime.now().strftime(format)
    return made


def _to_json(value: object, **options: Any) -> str:
    return json.dumps(value, **{"ensure_ascii": False, **options})


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)
