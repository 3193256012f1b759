"""The sentences that published rows write around <tools>, separated from the author's own. Pure.

Only known sentences next to the list of tools are left out. A system message may have instructions
of its own on both sides of them, and all of those are kept.
"""

from __future__ import annotations

from collections.abc import Sequence

_CALL = "For each function call return a json object with function name and arguments within"
_BEFORE = (
    "You are a function calling AI model.",
    "You are provided with function signatures within <tools></tools> XML tags.",
    "You are provided with function signatures within <tools></tools> XML tags:",
    "# Tools You may call one or more functions to assist with the user query.",
    "You may call one or more functions to assist with the user query.",
    "Don't make assumptions about what values to plug into functions.",
    "Here are the available tools:",
    "Functions may be called. Their signatures stand between <tools> and </tools>, one a line:",
)
"""Sentences of Nous' rows, of Qwen's chat template and of `engine sample` exports."""
_AFTER = (
    "Use the following pydantic model json schema for each tool call you will make: {'title': "
    "'FunctionCall', 'type': 'object', 'properties': {'arguments': {'title': 'Arguments', 'type': "
    "'object'}, 'name': {'title': 'Name', 'type': 'string'}}, 'required': ['arguments', 'name']}",
    'Use the following pydantic model json schema for each tool call you will make: {"properties": '
    '{"arguments": {"title": "Arguments", "type": "object"}, "name": {"title": "Name", "type": '
    '"string"}}, "required": ["arguments", "name"], "title": "FunctionCall", "type": "object"}',
    f"{_CALL} <tool_call></tool_call> XML tags as follows:",
    f"{_CALL} <tool_call></tool_call> tags with the following schema:",
    f"{_CALL} <tool_call></tool_call> XML tags:".replace("call return", "call, return"),
    "<tool_call>{'arguments': <args-dict>, 'name': <function-name>}</tool_call>",
    '<tool_call>{"arguments": <args-dict>, "name": <function-name>}</tool_call>',
    '<tool_call>{"name": <function-name>, "arguments": <args-json-object>}</tool_call>',
    '<tool_call>{"name": <function-name>, "arguments": <args-dict>}</tool_call>',
    "<tool_call>{tool_call}</tool_call>",
    "A call is a JSON object with the function's name and its arguments, between tags:",
    '<tool_call>{"name": <function>, "arguments": <object>}</tool_call>',
    "What comes of it stands between <tool_response> and </tool_response>.",
)
_LONGEST = 2_000
"""Longest sentence in a text, in characters, white space included."""


def without_frame(text: str, begins: int, ends: int) -> str:
    """A system message without its list of tools and the known sentences around it.

    The list is text[begins:ends]. White space inside the sentences is ignored, because rows break
    lines in different places.
    """
    after = _rest(text[ends:].strip(), _AFTER)
    # Read backwards, what ends with a sentence begins with it.
    before = _rest(text[:begins].strip()[::-1], [one[::-1] for one in _BEFORE])[::-1]
    return "\n\n".join(part for part in (before, after) if part)


def _rest(text: str, sentences: Sequence[str]) -> str:
    """The text after the known sentences that it begins with, each at most once."""
    left = ["".join(one.split()) for one in sentences]
    at = 0
    while True:
        for sentence in left:
            if length := _length(text[at : at + _LONGEST], sentence):
                break
        else:
            return text[at:].strip()
        at += length
        left.remove(sentence)


def _length(text: str, sentence: str) -> int:
    """Length of the sentence at the beginning of the text, in characters; 0 if it is not there."""
    found = 0
    for place, character in enumerate(text):
        if character.isspace():
            continue
        if character != sentence[found]:
            return 0
        found += 1
        if found == len(sentence):
            return place + 1
    return 0
