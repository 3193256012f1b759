"""Checks of a request's keys that several dialects need. Pure. All raise ApiError."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ingress.errors import wrong
from toolwright.ingress.limits import MOST_STOPS

MOST_MESSAGES = 4096
LONGEST_STOP = 256
"""Characters."""
MOST_TOOLS = 1024
_MOST_TOKENS = 2**31 - 1


def objects(body: Mapping[str, Any], key: str, most: int) -> list[Mapping[str, Any]]:
    """A list of objects; empty if the key is absent or null."""
    found = body.get(key)
    if found is None:
        return []
    if not isinstance(found, list) or not all(isinstance(one, Mapping) for one in found):
        raise wrong(key, "it must be a list of objects")
    if len(found) > most:
        raise wrong(key, f"it has {len(found)} entries, and {most} are the most")
    return found


def text_at(body: Mapping[str, Any], key: str, where: str = "") -> str:
    """A text; "" if the key is absent or null."""
    found = body.get(key)
    if found is None:
        return ""
    if not isinstance(found, str):
        raise wrong(f"{where}{key}", "it must be a text")
    return found


def number_at(body: Mapping[str, Any], key: str, lowest: float, highest: float) -> float | None:
    """A number in the range; None if the key is absent or null."""
    found = body.get(key)
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found):
        raise wrong(key, "it must be a number")
    if not lowest <= found <= highest:
        raise wrong(key, f"it must be from {lowest:g} to {highest:g}")
    return float(found)


def whole_at(body: Mapping[str, Any], key: str, lowest: int, highest: int = 0) -> int | None:
    """A whole number in the range; None if the key is absent or null. highest: 0 = 2**31 - 1."""
    found = body.get(key)
    highest = highest or _MOST_TOKENS
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int):
        raise wrong(key, "it must be a whole number")
    if not lowest <= found <= highest:
        raise wrong(key, f"it must be from {lowest} to {highest}")
    return found


def flag_at(body: Mapping[str, Any], key: str) -> bool:
    """True or false; false if the key is absent or null."""
    found = body.get(key)
    if found is not None and not isinstance(found, bool):
        raise wrong(key, "it must be true or false")
    return bool(found)


def stops_at(body: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """A text or a list of texts."""
    found = body.get(key)
    texts = [found] if isinstance(found, str) else found or []
    if not isinstance(texts, list) or not all(isinstance(one, str) and one for one in texts):
        raise wrong(key, "it must be a text or a list of texts, none of them empty")
    if len(texts) > MOST_STOPS or any(len(one) > LONGEST_STOP for one in texts):
        raise wrong(key, f"at most {MOST_STOPS} texts of {LONGEST_STOP} characters")
    return tuple(texts)


UNSEEN = "[an image, which this model cannot see]"
"""Stands for an image in a tool's result: coding agents have a tool that reads images."""
_IMAGES = ("image", "image_url", "input_image")


def joined_text(
    content: object, where: str, kinds: Sequence[str] = ("text",), *, result: bool = False
) -> str:
    """Text of a message's content: a text, null, or a list of text parts. result: of a tool, where
    images may stand."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise wrong(where, "it must be a text or a list of parts")
    texts = []
    for part in content:
        kind = part.get("type") if isinstance(part, Mapping) else None
        text = part.get("text") if isinstance(part, Mapping) else None
        if result and kind in _IMAGES:
            kind, text = kinds[0], UNSEEN
        if kind not in kinds or not isinstance(text, str):
            raise wrong(where, f"a part of type {kind!r} is not supported: send text")
        texts.append(text)
    return "".join(texts)
