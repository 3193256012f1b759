"""ToolMaker: a model that writes the tools of a question.

Its prompt has only the question of the task.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection

from toolsvc.backends.chat_model import ChatModel
from toolsvc.schemas.functions import FunctionTool, NotTools, function_tools, json_in
from toolsvc.schemas.lint import MOST_TOOLS, lint
from toolsvc.schemas.ordinary import ordinary_tools
from toolsvc.sources.simulated import form
from toolsvc.sources.simulated.asking import Manner, Unfit, ask
from toolwright.text.filling import filled

PLACES = ("{most_tools}", "{keywords}")
ROLE = """You design tools for an agent that has to answer a question. Write 1 to {most_tools} \
tools that look up or compute what the answer needs, each a small step that would serve other \
questions too. Do not answer the question, and do not hint at the answer. Write a JSON list, and \
nothing else, of objects with "type": "function", "function": {"name", "description", \
"parameters": JSON schema of an object}, "returns": JSON schema of the output. Schemas may use \
{keywords}. Names have letters, digits and _ only.
An example, for another question, of a list with one tool:
[{"type": "function", "function": {"name": "film_director", "description": "Names the director \
of a film.", "parameters": {"type": "object", "properties": {"title": {"type": "string"}}, \
"required": ["title"]}}, "returns": {"type": "object", "properties": {"director": {"type": \
"string"}}, "required": ["director"]}}]"""
_KEYWORDS = (
    "type, enum, pattern, minLength, maxLength, minimum, maximum, minItems, maxItems, items, "
    "required, properties and description"
)


def messages(question: str, *, role: str = ROLE, constrained: bool = False) -> list[dict[str, str]]:
    """The request's messages; pure. role: the system prompt, whose PLACES are filled.
    `constrained`: the answer is held to `form.FORM`."""
    keywords = form.KEYWORDS if constrained else _KEYWORDS
    said = filled(role, {"most_tools": str(MOST_TOOLS), "keywords": keywords})
    return [
        {"role": "system", "content": said},
        {"role": "user", "content": f"Question:\n{question}"},
    ]


def checked(
    answer: str, taken: Collection[str], changes: Counter[str], *, constrained: bool = False
) -> list[FunctionTool]:
    """The tools that the answer holds, their schemas made ordinary. Unfit says what is wrong with
    them. `changes` counts what was changed in tools that pass. `constrained`: as in `make`."""
    try:
        written = json_in(answer)
        if isinstance(written, dict) and "tools" not in written:
            written = [written]  # weak models write one tool without its list
        written, changed = ordinary_tools(form.completed(written) if constrained else written)
        tools = function_tools(written)
    except (NotTools, ValueError) as error:
        raise Unfit([str(error)]) from error
    faults = lint(tools, taken)
    if faults:
        raise Unfit(faults)
    changes.update(changed)
    return tools


async def make(
    model: ChatModel,
    question: str,
    taken: Collection[str],
    manner: Manner,
    changes: Counter[str],
    *,
    role: str,
    constrained: bool,
) -> str:
    """The tools, as JSON. Raises Unfit if no answer has tools fit for a policy, and as
    `ChatModel.complete` does. `taken`: names that the session has. `changes`, `role`: as in
    `checked` and `messages`. `constrained`: the endpoint gets `form.FORM` too."""
    tools = await ask(
        model,
        messages(question, role=role, constrained=constrained),
        lambda answer: checked(answer, taken, changes, constrained=constrained),
        manner,
        json_schema=form.FORM if constrained else None,
    )
    return json.dumps([tool.as_json() for tool in tools])
