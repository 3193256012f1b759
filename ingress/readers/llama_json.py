"""{"name": ..., "parameters": {...}} as the whole text, as Llama 3 models write. Pure.

Several calls are separated by ";". A text that begins otherwise is text. A text that begins with an
object is held until it ends.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from ingress.readers.types import BLANKS, NotACall, Tools, read_call, words
from ingress.types import IllFormed, Piece, ReadCall
from toolwright.reading.json_text.json_bounds import check_values

_TAG = "<|python_tag|>"


class LlamaJsonReader:
    """Reader of one completion."""

    def __init__(self, tools: Tools = ()) -> None:
        self._held: list[str] = []
        self._start = ""
        """The first characters that are not blank, until they decide."""
        self._plain = False

    def feed(self, text: str) -> list[Piece]:
        if self._plain:
            return words(text)
        self._held.append(text)
        if len(self._start) < len(_TAG):
            begun = self._start + (text if self._start else text.lstrip(BLANKS))
            self._start = begun[: len(_TAG)]
        if self._start and not self._start.startswith("{") and not _TAG.startswith(self._start):
            self._plain = True
            return words(self._rest())
        return []

    def end(self) -> list[Piece]:
        text = self._rest()
        body = text.strip(BLANKS)
        tagged = body.startswith(_TAG)
        if not body:
            return words(text)
        try:
            calls = _calls(body.removeprefix(_TAG).strip(BLANKS))
        except NotACall as error:
            if tagged or '"name"' in body:
                return [IllFormed(text=text, reason=str(error))]
            return words(text)
        return [*calls]

    def _rest(self) -> str:
        text = "".join(self._held)
        self._held = []
        return text


def _calls(body: str) -> list[ReadCall]:
    """The calls of a text. Raises NotACall for a text that is not calls alone."""
    decoder, at = json.JSONDecoder(), 0
    calls: list[ReadCall] = []
    while True:
        try:
            value, at = decoder.raw_decode(body, at)
            check_values(value)
        except RecursionError:
            raise NotACall("the call is nested too deeply") from None
        except ValueError as error:
            raise NotACall(f"the call is not JSON: {error}") from error
        calls.append(_call(value))
        rest = _skipped(body, at)
        if rest == len(body):
            return calls
        if body[rest] != ";":
            raise NotACall("text after a call")
        at = _skipped(body, rest + 1)
        if at == len(body):
            return calls


def _skipped(text: str, at: int) -> int:
    while at < len(text) and text[at] in BLANKS:
        at += 1
    return at


def _call(value: object) -> ReadCall:
    name = value.get("name") if isinstance(value, Mapping) else None
    if not isinstance(value, Mapping) or not isinstance(name, str):
        raise NotACall('the call needs {"name", "parameters"}')
    arguments = value.get("parameters", value.get("arguments"))
    if not isinstance(arguments, Mapping):
        raise NotACall('"parameters" is not a JSON object')
    return read_call(name, arguments)
