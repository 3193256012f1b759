"""Digests of a request: the engine finds by them where a conversation goes on from. Pure.

The root is the digest of tools and template options. The digest of message i covers the digest
before it and the canonical form of the message. The canonical form leaves out what a client changes
without meaning: ids of calls, how arguments are written as JSON, arguments that are their schema's
default (Claude Code adds them), null in place of "", blanks around an assistant's text, and
reasoning.

Invariants
- A completion that a client sends back as it got it has the digest that `reply_digests` gave.
- Requests with other tools, other texts or another order have other digests.
- The work is linear in the request.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from math import isfinite
from typing import Any, NamedTuple

from ingress.types import Message, ModelRequest
from toolwright.ingress.limits import DIGEST_BYTES

_NOT_ZERO = re.compile(r"[-.0]*[1-9]")
"""Beginning of the text of a number that is not 0."""
WHOLE = 10**21
"""Clients write whole numbers below it with all their digits. Larger ones keep their exponent, so
that a short text has no long canonical form."""
BILLING = "x-anthropic-billing-header:"
"""Beginning of a line of system messages that Claude Code changes at each request."""

Defaults = Mapping[str, Mapping[str, Any]]
"""Name of a tool -> name of an argument -> its default, in the form of `canonical_arguments`."""


class Digests(NamedTuple):
    """Digests of one request."""

    root: bytes
    messages: tuple[bytes, ...]
    """One for each message; each covers the conversation up to it."""
    reasoning: dict[int, bytes]
    """By the number of an assistant's message that comes with reasoning."""
    request: bytes
    """The digest of the whole request with its parameters."""
    defaults: Defaults
    """Defaults of the request's tools."""


class ReplyDigests(NamedTuple):
    """Digests of a completion."""

    message: bytes
    reasoning: bytes
    """b"" without reasoning."""


def digests_of(request: ModelRequest, options: Mapping[str, Any]) -> Digests:
    """options: variables of the chat template, as the recipe sets them."""
    head = [request.tools, dict(options)] if request.raw is None else "raw"
    root = _digest(b"root", _json(head))
    chain, last, defaults = [], root, _defaults(request.all_tools)
    for message in request.messages:
        last = _digest(last, _json(canonical(message, defaults)))
        chain.append(last)
    thoughts = {
        number: _reasoning(message)
        for number, message in enumerate(request.messages)
        if message.role == "assistant" and message.reasoning.strip()
    }
    whole = _digest(last, *thoughts.values(), _json(_parameters(request)))
    return Digests(root, tuple(chain), thoughts, whole, defaults)


def reply_digests(digests: Digests, message: Message) -> ReplyDigests:
    """Digests of a completion of the request, as the client sees it."""
    last = digests.messages[-1] if digests.messages else digests.root
    thought = _reasoning(message) if message.reasoning.strip() else b""
    return ReplyDigests(_digest(last, _json(canonical(message, digests.defaults))), thought)


def canonical(message: Message, defaults: Defaults) -> list[Any]:
    """The parts of a message that make it another message."""
    calls = [
        [call.name, _without(canonical_arguments(call.arguments), defaults.get(call.name))]
        for call in message.calls
    ]
    text = message.text.strip() if message.role == "assistant" else message.text
    return [message.role, text, calls, message.name]


def canonical_arguments(text: str) -> Any:
    """Arguments as data. Numbers are equal if their values are: JavaScript writes 1.0 as 1, and
    1e21 for an integer. Text that is not JSON stays as it is, and so does text with a number that
    no client holds."""
    try:
        return [json.loads(text, parse_float=_double, parse_int=_integer)]
    except (ValueError, RecursionError):
        return text


def _without(arguments: Any, defaults: Mapping[str, Any] | None) -> Any:
    """Arguments without those that have their default."""
    match arguments:
        case [dict(given)] if defaults:
            return [{key: one for key, one in given.items() if not _is(one, defaults.get(key))}]
    return arguments


def _is(value: object, default: list[Any] | None) -> bool:
    return default is not None and _json([value]) == _json(default)


def _defaults(tools: Sequence[Mapping[str, Any]]) -> Defaults:
    found: dict[str, dict[str, Any]] = {}
    for tool in tools:
        match tool.get("function"):
            case {"name": str(name), "parameters": {"properties": dict(properties)}}:
                found[name] = {
                    key: canonical_arguments(json.dumps(schema["default"]))
                    for key, schema in properties.items()
                    if isinstance(schema, Mapping) and "default" in schema
                }
    return found


def without_billing(text: str) -> str:
    """A system message's text without the line that Claude Code changes at each request."""
    if BILLING not in text:
        return text
    return "\n".join(line for line in text.split("\n") if not line.startswith(BILLING))


def call_id(digests: Digests, choice: int, number: int) -> str:
    """Id of a completion's call, the same when the completion is replayed."""
    return f"call_{_digest(digests.request, f'{choice} {number}'.encode()).hex()[:24]}"


def _double(text: str) -> float:
    """A double. A whole one is the int that its shortest text names, as a client writes it. Raises
    ValueError for a number that overflows, or becomes 0."""
    found = float(text)
    if not isfinite(found) or (not found and _NOT_ZERO.match(text)):
        raise ValueError(f"{text} is not a double")
    return _whole(found) if found.is_integer() and abs(found) < WHOLE else found


def _integer(text: str) -> float:
    """An int. From `WHOLE` on, an int that the shortest text of a double names is that double."""
    found = int(text)
    if abs(found) < WHOLE:
        return found
    try:
        double = float(found)
    except OverflowError:
        return found
    return double if _whole(double) == found else found


def _whole(double: float) -> int:
    """The int that the shortest text of a whole double names, as clients write it."""
    return int(Decimal(repr(double)))


def _parameters(request: ModelRequest) -> list[Any]:
    sampling = request.sampling
    values = [getattr(sampling, name) for name in sampling.__slots__]
    return [
        *(request.model, request.tool_choice, request.named_tool, request.schema, request.n),
        *(request.stops, values),
    ]


def _reasoning(message: Message) -> bytes:
    return _digest(b"reasoning", message.reasoning.strip().encode("utf-8", "surrogatepass"))


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":")).encode()


def _digest(*parts: bytes) -> bytes:
    made = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for part in parts:
        made.update(len(part).to_bytes(8, "little"))
        made.update(part)
    return made.digest()


def agent_label(request: ModelRequest, digests: Digests) -> str:
    """Label of the agent inside the application: one for each system message and set of tools."""
    system = [one.text for one in request.messages if one.role == "system"]
    return _digest(digests.root, _json(system[:1])).hex()[:8]
