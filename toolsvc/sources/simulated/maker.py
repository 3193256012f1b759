"""ToolMaker: a model that writes the tools of a question.

It is told the question and nothing else of the task.
"""

from __future__ import annotations

import json
from collections.abc import Collection

from toolsvc.backends.chat_model import ChatModel
from toolsvc.schemas.functions import FunctionTool, NotTools, function_tools, json_in
from toolsvc.schemas.lint import MOST_TOOLS, lint
from toolsvc.sources.simulated import form
from toolsvc.sources.simulated.asking import Manner, Unfit, ask

_ROLE = f"""You design tools for an agent that has to answer a question. Write 1 to {MOST_TOOLS} \
tools that look up or compute what the answer needs, each a small step that would serve other \
questions too. Do not answer the question, and do not hint at the answer. Write a JSON list, and \
nothing else, of objects with "type": "function", "function": {{"name", "description", \
"parameters": JSON schema of an object}}, "returns": JSON schema of the output. Schemas may use \
{{keywords}}. Names have letters, digits and _ only."""
_KEYWORDS = (
    "type, enum, pattern, minLength, maxLength, minimum, maximum, minItems, maxItems, items, "
    "required, properties and description"
)


def messages(question: str, *, constrained: bool = False) -> list[dict[str, str]]:
    """What the model is asked; pure. `constrained`: it is held to `form.FORM`."""
    said = _ROLE.replace("{keywords}", form.KEYWORDS if constrained else _KEYWORDS)
    return [
        {"role": "system", "content": said},
        {"role": "user", "content": f"Question:\n{question}"},
    ]


def checked(
    answer: str, taken: Collection[str], *, constrained: bool = False
) -> list[FunctionTool]:
    """The tools that the answer holds. Unfit says what is wrong with them. `constrained`: as in
    `make`."""
    try:
        written = json_in(answer)
        tools = function_tools(form.completed(written) if constrained else written)
    except (NotTools, ValueError) as error:
        raise Unfit([str(error)]) from error
    faults = lint(tools, taken)
    if faults:
        raise Unfit(faults)
    return tools


async def make(
    model: ChatModel,
    question: str,
    taken: Collection[str],
    manner: Manner,
    *,
    constrained: bool,
) -> str:
    """The tools, as JSON. Unfit where none came that may be given to a policy; raises what
    `ChatModel.complete` raises. `taken`: names that the session has. `constrained`: the endpoint is
    told `form.FORM` too."""
    tools = await ask(
        model,
        messages(question, constrained=constrained),
        lambda answer: checked(answer, taken, constrained=constrained),
        manner,
        json_schema=form.FORM if constrained else None,
    )
    return json.dumps([tool.as_json() for tool in tools])
