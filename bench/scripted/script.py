"""The tokens of a scripted reply.

Owns the `Script` protocol, the built-in scripts and their spelling on a command line. Invariant: a
script is a pure function of its `ScriptRequest`; it may return an endless iterable, which the
sampler reads only as far as the reply goes. Knows neither time nor the wire.

A reply ends at a stop id, at max_new_tokens, or where the script ends: the last token of a finite
script then counts as its end-of-sequence token.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Protocol, cast

from bench.scripted.types import ScriptError, ScriptRequest, Token
from toolwright.imports import ImportPathError, load_file

ScriptItem = int | tuple[int, float] | Token
"""A bare id gets `default_logprob`; a pair is (id, log-prob); a `Token` may say which tokens were
likeliest at its place."""


class Script(Protocol):
    """A pure function from a request to the tokens of its reply."""

    def __call__(self, request: ScriptRequest, /) -> Iterable[ScriptItem]: ...


def default_logprob(token_id: int, position: int) -> float:
    """A log-prob in (-2, 0) that differs between ids and positions, so that an exchange shows."""
    return -((token_id * 7919 + position * 104729) % 9973 + 1) / 5000


def tokens(script: Script, request: ScriptRequest) -> Iterator[Token]:
    """The reply as tokens, lazily.

    Raises:
        ScriptError: the script failed, or yielded something that is neither an id nor a pair.
    """
    try:
        yield from _checked(script(request))
    except ScriptError:
        raise
    except Exception as error:  # the boundary to the user's own function
        raise ScriptError(f"the script failed: {type(error).__name__}: {error}") from error


def _checked(items: Iterable[ScriptItem]) -> Iterator[Token]:
    for position, item in enumerate(items):
        if type(item) is Token and type(item.id) is int and type(item.logprob) is float:
            yield item  # nothing to convert: in a twentieth of the time of the general case
            continue
        match item:
            case bool():
                raise ScriptError(f"script yielded {item!r} at position {position}; give token ids")
            case int():
                yield Token(item, default_logprob(item, position))
            case (int() as token_id, int() | float() as logprob):
                yield Token(token_id, float(logprob))
            case _:
                raise ScriptError(
                    f"script yielded {item!r} at position {position}; "
                    "give a token id or a pair (id, log-prob)"
                )


def replies(turns: Sequence[Sequence[ScriptItem]]) -> Script:
    """Turn j of every conversation gets the j-th reply; later turns get the last one again."""
    if not turns:
        raise ScriptError("the list of replies is empty; give at least one list of token ids")
    fixed = tuple(tuple(turn) for turn in turns)

    def reply(request: ScriptRequest) -> Sequence[ScriptItem]:
        return fixed[min(request.turn, len(fixed) - 1)]

    return reply


def cycle(*, stop_id: int, every: int, vocabulary: int = 1000, seed: int = 0) -> Script:
    """Endless random ids below `vocabulary`, with `stop_id` as every `every`-th token only."""
    if every < 1:
        raise ScriptError(f"cycle needs a stop id every 1 or more tokens, not {every}")
    if vocabulary < 2:
        raise ScriptError(f"cycle needs a vocabulary of at least 2 ids, not {vocabulary}")

    def reply(request: ScriptRequest) -> Iterator[ScriptItem]:
        random = Random(f"{seed}:{request.conversation}:{request.turn}")
        position = 0
        while True:
            position += 1
            if position % every == 0:
                yield stop_id
                continue
            token_id = int(random.random() * vocabulary)
            yield token_id if token_id != stop_id else (token_id + 1) % vocabulary

    return reply


def load_function(spec: str) -> Script:
    """The function named by `FILE.py:function`. The file may import those beside it.

    Raises:
        ScriptError: no such file or function, or the file does not import.
    """
    file, _, name = spec.rpartition(":")
    if not file or not name:
        raise ScriptError(f"script {spec!r} is not of the form FILE.py:function")
    path = Path(file)
    if not path.is_file():
        raise ScriptError(f"script file {file!r} does not exist")
    try:
        module = load_file(path)
    except ImportPathError as error:
        raise ScriptError(f"script file {file!r} does not import: {error}") from error
    function: object = getattr(module, name, None)
    if not callable(function):
        raise ScriptError(f"script file {file!r} has no function {name!r}")
    try:
        takes_one = len(inspect.signature(function).bind(None).arguments) == 1
    except TypeError:
        takes_one = False
    if not takes_one:
        raise ScriptError(f"{spec} must take one argument, the ScriptRequest")
    return cast(Callable[[ScriptRequest], Iterable[ScriptItem]], function)


def load_replies(file: str) -> Script:
    """The replies of a JSON file: a list with one list of token ids (or [id, log-prob]) a turn.

    Raises:
        ScriptError: the file is missing, is not JSON, or has another shape.
    """
    try:
        turns = json.loads(Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise ScriptError(f"replies file {file!r} cannot be read: {error.strerror}") from error
    except json.JSONDecodeError as error:
        raise ScriptError(f"replies file {file!r} is not JSON: {error}") from error
    if not isinstance(turns, list) or not all(isinstance(turn, list) for turn in turns):
        raise ScriptError(f"replies file {file!r} must hold a list of lists of token ids")
    return replies([[_reply_item(item, file) for item in turn] for turn in turns])


def parse_cycle(spec: str, *, seed: int = 0) -> Script:
    """The script of `cycle:STOP_ID:EVERY[:VOCABULARY]`.

    Raises:
        ScriptError: another form.
    """
    kind, *numbers = spec.split(":")
    if kind != "cycle" or len(numbers) not in (2, 3) or not all(n.isdigit() for n in numbers):
        raise ScriptError(f"script {spec!r} is not of the form cycle:STOP_ID:EVERY[:VOCABULARY]")
    stop_id, every, *rest = map(int, numbers)
    return cycle(stop_id=stop_id, every=every, seed=seed, vocabulary=rest[0] if rest else 1000)


def parse_script(spec: str, *, seed: int = 0) -> Script:
    """`cycle:...` or `FILE.py:function`."""
    return parse_cycle(spec, seed=seed) if spec.startswith("cycle:") else load_function(spec)


def _reply_item(item: object, file: str) -> ScriptItem:
    match item:
        case bool():
            pass
        case int():
            return item
        case [int() as token_id, int() | float() as logprob]:
            return (token_id, float(logprob))
    raise ScriptError(f"replies file {file!r} holds {item!r}; give token ids or [id, log-prob]")
