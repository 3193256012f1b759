"""Converts VerlTool's observations to results and back; pure.

Theirs is a text, or a dictionary with the text at `obs`. It may have `reward`, `invalid_reason`,
`error`, `metrics`, and `image` and `audio`: a data URL each, or a list of such. Where
an image stands in the text is marked `<image>`, a sound `<audio>`; those without a mark come last.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from toolsvc.types import Media, Part, Result, Text, ToolError
from toolwright.types import BlobRef, ToolErrorKind

_KINDS = ("image", "audio", "video")
_MARK = re.compile(f"<({'|'.join(_KINDS)})>")
_DATA_URL = re.compile(r"data:([a-z]+/[A-Za-z0-9.+-]+);base64,(.*)", re.DOTALL)


def as_result(observation: object, done: object, valid: object) -> Result:
    """What `conduct_action` returned. Raises TypeError or ValueError for what cannot be an
    observation."""
    fields: Mapping[str, Any]
    fields = observation if isinstance(observation, Mapping) else {"obs": observation}
    text = fields.get("obs")
    if not isinstance(text, str):
        raise TypeError(f"an observation is a text, or a dictionary with one at obs: {text!r:.80}")
    reason = ""
    if not valid:
        reason = str(fields.get("invalid_reason") or text or "the tool called the action invalid")
    error = None
    if fields.get("error"):
        error = ToolError(kind=ToolErrorKind.EXCEPTION, message=str(fields["error"]))
    elif not (valid or done):  # an answer that ends the trajectory is called invalid there, too
        error = ToolError(kind=ToolErrorKind.INVALID_ACTION, message=reason)
    return Result(
        observation=tuple(_parts(text, {kind: _media(fields.get(kind)) for kind in _KINDS})),
        valid=bool(valid),
        invalid_reason=reason,
        done=bool(done),
        reward=fields.get("reward"),
        metrics=fields.get("metrics") or {},
        error=error,
    )


def as_observation(result: Result, blob: Callable[[str], bytes]) -> str | dict[str, Any]:
    """The result as VerlTool's trainer reads it; `blob` gives the bytes of media that are named by
    their SHA-256."""
    texts: list[str] = []
    fields: dict[str, Any] = {}
    for part in result.observation:
        if isinstance(part, Text):
            texts.append(part.text)
            continue
        kind = part.media_type.partition("/")[0]
        data = blob(part.sha256) if isinstance(part, BlobRef) else part.data
        url = f"data:{part.media_type};base64,{base64.b64encode(data).decode()}"
        fields.setdefault(kind, []).append(url)
        texts.append(f"<{kind}>")
    if result.reward is not None:
        fields["reward"] = result.reward
    if result.metrics:
        fields["metrics"] = dict(result.metrics)
    if result.invalid_reason:
        fields["invalid_reason"] = result.invalid_reason
    if result.error is not None:
        fields["error"] = result.error.message
    text = "".join(texts)
    return {"obs": text, **fields} if fields else text


def _media(given: Any) -> list[Media]:
    urls = [] if given is None else [given] if isinstance(given, str) else list(given)
    return [_decoded(url) for url in urls]


def _decoded(url: object) -> Media:
    found = _DATA_URL.match(url) if isinstance(url, str) else None
    if found is None:
        raise ValueError(f"media of an observation are base64 data URLs, not {url!r:.80}")
    try:
        return Media(media_type=found[1], data=base64.b64decode(found[2], validate=True))
    except binascii.Error as error:
        raise ValueError(f"media of an observation are no base64: {error}") from error


def _parts(text: str, media: Mapping[str, list[Media]]) -> Iterator[Part]:
    waiting = {kind: iter(found) for kind, found in media.items()}
    said = 0
    for mark in _MARK.finditer(text):
        placed = next(waiting[mark[1]], None)
        if placed is None:  # no mark of ours: text like any other
            continue
        yield from _text(text[said : mark.start()])
        yield placed
        said = mark.end()
    yield from _text(text[said:])
    for left in waiting.values():
        yield from left


def _text(text: str) -> Iterator[Text]:
    if text:
        yield Text(text=text)
