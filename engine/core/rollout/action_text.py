"""The text of an action, from the tokens that a sampler wrote. Pure."""

from __future__ import annotations

from engine.core.text.turn_end import canonical_end
from engine.types import Codec, Generated
from toolwright.types import FinishKind


def action_text(generated: Generated, codec: Codec) -> tuple[str, str | None]:
    """An action's text up to and including its stop, and the stop; None without one."""
    # The token that holds the stop's end may hold more: the ids keep it, the action does not.
    text = _up_to_stop(generated, codec)
    stop = generated.stop if generated.finish.kind is FinishKind.STOP else None
    return canonical_end(text, stop, codec)


def _up_to_stop(generated: Generated, codec: Codec) -> str:
    """Text up to and including the stop, which ends in the last token. Earlier occurrences of the
    stop's text did not count."""
    text, stop = codec.decode(generated.token_ids), generated.stop
    if not stop or text.endswith(stop):
        return text
    last = len(codec.decode(generated.token_ids[-1:]))
    at = text.find(stop, max(0, len(text) - last - len(stop) + 1))
    return text if at < 0 else text[: at + len(stop)]
