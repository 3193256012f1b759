"""ToolActor: a model that plays a tool, one observation a call.

Its prompt has the tool, the arguments, and earlier answers of the session's tools. It has nothing
of the task's metadata, so no gold answer, unless the policy wrote it into its arguments.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from toolsvc.backends.chat_model import ChatModel
from toolsvc.schemas.functions import FunctionTool, json_in
from toolsvc.schemas.validation import violations
from toolsvc.sources.simulated.asking import Manner, Unfit, ask
from toolwright.reading.thoughts import after_thoughts

ROLE = """You play a tool. You are given its description, its schemas and the arguments of a \
call. Answer with what the tool would return, and with nothing else: no greeting, no explanation, \
no remark that you are a model. Use what you know; where you know nothing, answer as a tool does \
that has found nothing. Agree with the earlier calls that you are shown."""
_AS_JSON = "Answer with one JSON value that fits the tool's schema `returns`."
_AS_TEXT = "Answer with plain text."


class EarlierCall(NamedTuple):
    tool: str
    arguments: Mapping[str, Any]
    observation: str


def messages(
    tool: FunctionTool,
    arguments: Mapping[str, Any],
    earlier: Sequence[EarlierCall],
    role: str = ROLE,
) -> list[dict[str, str]]:
    """The request's messages; pure. role: the system prompt, which a sentence about the answer's
    form follows."""
    form = _AS_TEXT if tool.returns is None else _AS_JSON
    told = [f"Tool:\n{_json(tool.as_json())}"]
    if earlier:
        lines = (f"{one.tool} {_json(one.arguments)} -> {one.observation}" for one in earlier)
        told.append("Earlier calls:\n" + "\n".join(lines))
    told.append(f"Arguments:\n{_json(arguments)}")
    return [
        {"role": "system", "content": f"{role} {form}"},
        {"role": "user", "content": "\n\n".join(told)},
    ]


def checked(tool: FunctionTool, answer: str, *, post_check: bool) -> str:
    """The observation in the answer. Raises Unfit, which names the parts that the schema does not
    allow."""
    if tool.returns is None:
        text = after_thoughts(answer)
        if not text:
            raise Unfit([_fault("$", "minLength", "some text")])
        return text
    try:
        value = json_in(answer)
    except (ValueError, RecursionError):
        if not post_check:
            return answer.strip()
        raise Unfit([_fault("$", "type", "JSON")]) from None
    found = violations(tool.returns, value) if post_check else []
    if found:
        raise Unfit([one.as_json() for one in found])
    return _json(value)


async def observe(
    model: ChatModel,
    tool: FunctionTool,
    arguments: Mapping[str, Any],
    earlier: Sequence[EarlierCall],
    manner: Manner,
    *,
    role: str,
    post_check: bool,
    constrained: bool,
) -> str:
    """The observation. Raises Unfit if no answer fits the schema, and as `ChatModel.complete` does.
    `constrained`: the endpoint is told the schema too."""
    return await ask(
        model,
        messages(tool, arguments, earlier, role),
        lambda answer: checked(tool, answer, post_check=post_check),
        manner,
        json_schema=tool.returns if constrained else None,
    )


def _fault(path: str, rule: str, expected: str) -> dict[str, str]:
    return {"path": path, "rule": rule, "expected": expected}


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
