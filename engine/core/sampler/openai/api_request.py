"""What an endpoint is asked for one action: its path, its body, and the stops that it is told.

Pure: it knows what came so far and who is asked, and sends nothing.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.core.sampler.openai.api_endpoint import Endpoint
from engine.core.sampler.openai.body import chat_body, completions_body
from engine.core.sampler.openai.messages import Span, conversation, plain_text
from engine.core.sampler.openai.text_action import TextAction
from engine.core.sampler.stops import StopTable
from engine.core.text.conversation_codec import ConversationCodec
from engine.errors import SamplerFailed
from engine.types import Codec
from toolwright.model_api.refused_keys import Body
from toolwright.recipe import Sampler as SamplerTable
from toolwright.types import SamplingParams


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """continues: it goes on from the text that came. stops: those in the body."""

    path: str
    body: Body
    continues: bool
    stops: tuple[str, ...]


class Requests:
    """For one recipe's [sampler] table."""

    def __init__(
        self,
        table: SamplerTable,
        codec: Codec,
        *,
        leading: str,
        call_tags: tuple[str, str],
        template: Mapping[str, Any],
    ) -> None:
        """leading: text that a server puts before a prompt by itself. template: variables of the
        chat template, which a chat API is sent. TypeError for a chat API
        without a codec of conversations."""
        self._table = table
        self._codec = codec
        self._turns = codec if isinstance(codec, ConversationCodec) else None
        self._chat = table.api == "openai-chat"
        if self._chat and self._turns is None:
            raise TypeError("a chat API needs a ConversationCodec: it is sent messages")
        self._leading = leading
        self._template = template
        self._call_tags = call_tags

    def of(
        self,
        endpoint: Endpoint,
        action: TextAction,
        token_ids: array[int],
        *,
        written: Sequence[Span],
        sampling: SamplingParams,
        stops: StopTable,
    ) -> Request:
        """written: of `token_ids`, by the policy. SamplerFailed where they cannot be told as
        messages."""
        ends = self._codec.turn_ends
        known = tuple(text for text in stops.texts if text not in ends)
        sent = known if endpoint.kind.keeps_stops or self._table.send_stops else ()
        if self._chat:
            return self._chat_request(endpoint, action, token_ids, written, sampling, sent)
        prompt = self._prompt(token_ids) + action.text
        body = completions_body(
            prompt,
            model=endpoint.model,
            sampling=sampling,
            max_tokens=max(action.room, 1),
            stop=sent,
            kind=endpoint.kind,
        )
        return Request(path="/completions", body=body, continues=True, stops=sent)

    def _prompt(self, token_ids: array[int]) -> str:
        if self._turns is not None:
            return plain_text(token_ids, self._turns)
        return self._codec.decode(token_ids).removeprefix(self._leading)

    def _chat_request(
        self,
        endpoint: Endpoint,
        action: TextAction,
        token_ids: array[int],
        written: Sequence[Span],
        sampling: SamplingParams,
        sent: tuple[str, ...],
    ) -> Request:
        assert self._turns is not None  # the constructor has refused a chat without
        way = self._table.observations
        as_user = way == "user" or (way == "auto" and not endpoint.kind.continues)
        continues = not as_user and not action.has_calls
        try:
            told = conversation(
                token_ids,
                self._turns,
                written=written,
                as_user=as_user,
                call_tags=self._call_tags,
                received=action.text if continues else "",
            )
        except ValueError as error:
            raise SamplerFailed(
                f"{error}: task.protocol writes what cannot be told as messages; set "
                'sampler.api = "openai-completions"',
                permanent=True,
            ) from error
        room = action.room if continues else action.most
        body = chat_body(
            told,
            model=endpoint.model,
            sampling=sampling,
            max_tokens=max(room, 1),
            stop=sent,
            kind=endpoint.kind,
            template=self._template,
        )
        return Request(path="/chat/completions", body=body, continues=continues, stops=sent)
