"""The request for one action to one endpoint: its path, its body and the stops in it.

Pure: it knows the received part and the endpoint, and sends nothing.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.core.sampler.openai.api_endpoint import ApiEndpoint
from engine.core.sampler.openai.body import request_body
from engine.core.sampler.openai.messages import ChatConversation, chat_conversation, plain_text
from engine.core.sampler.openai.text_action import TextAction
from engine.core.sampler.policy_sampler import GenerateRequest
from engine.core.text.conversation_codec import ConversationCodec
from engine.errors import SamplerFailed
from engine.types import Codec
from toolwright.model_api.refused_keys import Body
from toolwright.recipe import Sampler as SamplerTable
from toolwright.types import Sequence


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

    def of(self, endpoint: ApiEndpoint, action: TextAction, request: GenerateRequest) -> ApiRequest:
        """Raises SamplerFailed if the ids cannot be expressed as messages."""
        ends = self._codec.turn_ends
        known = tuple(text for text in request.stops.texts if text not in ends)
        sent = known if endpoint.kind.keeps_stops or self._table.send_stops else ()
        way = self._table.observations
        as_user = way == "user" or (way == "auto" and not endpoint.kind.continues)
        continues = not self._chat or not (as_user or action.has_calls)
        prompt = (
            self._conversation(action.text if continues else "", request, as_user=as_user)
            if self._chat
            else self._prompt(request.token_ids) + action.text
        )
        body = request_body(
            prompt,
            model=endpoint.model,
            sampling=request.sampling,
            max_tokens=max(action.room if continues else action.most, 1),
            stop=sent,
            kind=endpoint.kind,
            template=self._template,
        )
        path = "/chat/completions" if self._chat else "/completions"
        return ApiRequest(path=path, body=body, continues=continues, stops=sent)

    def _prompt(self, token_ids: array[int]) -> str:
        if self._turns is not None:
            return plain_text(token_ids, self._turns)
        return self._codec.decode(token_ids).removeprefix(self._leading)

    def _conversation(
        self, received: str, request: GenerateRequest, *, as_user: bool
    ) -> ChatConversation:
        assert self._turns is not None  # the constructor refuses a chat API without it
        try:
            return chat_conversation(
                request.token_ids,
                self._turns,
                written=[
                    (start, end)
                    for _, start, end in Sequence(id="", segments=request.segments).action_spans
                ],
                as_user=as_user,
                call_tags=self._call_tags,
                received=received,
            )
        except ValueError as error:
            raise SamplerFailed(
                f"{error}: task.protocol writes what cannot be expressed as messages; set "
                'sampler.api = "openai-completions"',
                permanent=True,
            ) from error
