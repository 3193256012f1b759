"""The request for one action to one endpoint: its path, its body and the stops in it.

Pure: it knows the received part and the endpoint, and sends nothing.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.core.sampler.openai.api_endpoint import ApiEndpoint
from engine.core.sampler.openai.body import chat_body, completions_body
from engine.core.sampler.openai.messages import Span, chat_conversation, plain_text
from engine.core.sampler.openai.text_action import TextAction
from engine.core.sampler.stops import StopTable
from engine.core.text.conversation_codec import ConversationCodec
from engine.errors import SamplerFailed
from engine.types import Codec
from toolwright.model_api.refused_keys import Body
from toolwright.recipe import Sampler as SamplerTable
from toolwright.types import SamplingParams


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRequest:
    """One request to an endpoint."""

    path: str
    body: Body
    continues: bool
    """Whether it goes on from the received text."""
    stops: tuple[str, ...]
    """Stops in the body."""


class ApiRequests:
    """Builds the requests of one recipe's [sampler] table."""

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
        chat template, sent to a chat API. Raises TypeError for a chat API without a codec of
        conversations."""
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
        endpoint: ApiEndpoint,
        action: TextAction,
        token_ids: array[int],
        *,
        written: Sequence[Span],
        sampling: SamplingParams,
        stops: StopTable,
    ) -> ApiRequest:
        """written: spans of `token_ids` that the policy wrote. Raises SamplerFailed if the ids
        cannot be expressed as messages."""
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
        return ApiRequest(path="/completions", body=body, continues=True, stops=sent)

    def _prompt(self, token_ids: array[int]) -> str:
        if self._turns is not None:
            return plain_text(token_ids, self._turns)
        return self._codec.decode(token_ids).removeprefix(self._leading)

    def _chat_request(
        self,
        endpoint: ApiEndpoint,
        action: TextAction,
        token_ids: array[int],
        written: Sequence[Span],
        sampling: SamplingParams,
        sent: tuple[str, ...],
    ) -> ApiRequest:
        assert self._turns is not None  # the constructor refuses a chat API without it
        way = self._table.observations
        as_user = way == "user" or (way == "auto" and not endpoint.kind.continues)
        continues = not as_user and not action.has_calls
        try:
            messages = chat_conversation(
                token_ids,
                self._turns,
                written=written,
                as_user=as_user,
                call_tags=self._call_tags,
                received=action.text if continues else "",
            )
        except ValueError as error:
            raise SamplerFailed(
                f"{error}: task.protocol writes what cannot be expressed as messages; set "
                'sampler.api = "openai-completions"',
                permanent=True,
            ) from error
        room = action.room if continues else action.most
        body = chat_body(
            messages,
            model=endpoint.model,
            sampling=sampling,
            max_tokens=max(room, 1),
            stop=sent,
            kind=endpoint.kind,
            template=self._template,
        )
        return ApiRequest(path="/chat/completions", body=body, continues=continues, stops=sent)
