"""A language model behind an OpenAI-compatible endpoint (SGLang's included), as tools ask it.

Invariants
- Every request is bounded: a time for each try, a number of tries, a place among `parallel`
  requests, and a budget. Time in line for a place is no part of a try.
- A call that asks is waiting (`plugin.waiting`): in line, for the cache, for the answer. Whatever
  keeps the answer from coming is a refusal: the policy reads nothing of it.
- An answer in the cache costs nothing. Its key is the request, not the endpoint, so a recording
  stays good when the model moves. Equal requests in flight are sent once.

Its users are `judge`, the summariser of `web_search`, and tools that a model plays. They interpret
the answers.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from http import HTTPStatus
from typing import Any, Self

import httpx2
import openai
import structlog
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from toolsvc.backends.budget import Budget, BudgetSpent
from toolsvc.backends.cache import Cache, CacheOptions, cache_key
from toolsvc.backends.single_flight import SingleFlight
from toolsvc.errors import BackendDown, BackendRefuses, StartError
from toolsvc.plugin.tool import STRICT
from toolsvc.plugin.waiting import waiting
from toolwright.model_api.address import ApiAddress
from toolwright.model_api.deltas import read_answer, said
from toolwright.model_api.errors import WireError
from toolwright.model_api.refused_keys import RefusedKeys
from toolwright.rpc.proxies import proxy_for, shown

_METHOD = "/chat/completions"
_TRY_AGAIN = (408, 409, 429)
"""And all from 500 on; the client has tried these as often as it may."""
_TOO_LONG = re.compile(r"context[ _]length|too long|longer than|max_new_tokens. must be <=")
_LONGEST_PAUSE = 60.0
"""The client's, before it tries again; an endpoint may ask for as much."""

log = structlog.get_logger(__name__)


class EndpointOptions(BaseModel):
    """What an operator may say about a model: a fragment of a tool's options."""

    model_config = STRICT

    endpoint: str = Field(description="base URL, such as http://127.0.0.1:30000/v1")
    model: str = Field(description="name of the model there")
    key_variable: str = Field(
        default="", description="environment variable that holds the API key; none: no key"
    )
    timeout: float = Field(default=60.0, gt=0, description="seconds for one try")
    retries: int = Field(
        default=3, ge=0, le=10, description="after 429, 5xx and lost connections, with back-off"
    )
    parallel: int = Field(default=64, ge=1, description="requests at once; more wait")
    budget_requests: int | None = Field(
        default=None, ge=0, description="requests of this service's life"
    )
    budget_tokens: int | None = Field(
        default=None, ge=0, description="tokens of this service's life, prompts and answers"
    )


class ChatModelOptions(EndpointOptions, CacheOptions):
    """A model with a cache of its own."""


class ChatModelDown(BackendDown):
    """The endpoint cannot be reached, or has no room."""


class ChatModelRefused(BackendRefuses):
    """The endpoint answered that it will not: a wrong key, model or request."""


class PromptTooLong(ChatModelRefused):
    """The endpoint says that the model cannot read so much. A tool that let a policy write a part
    of the prompt says so to it: a second request would be refused again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens, as the endpoint counted them."""

    prompt: int
    completion: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    text: str
    usage: Usage
    """Tokens of the request that made it, also if it comes from the cache and cost nothing."""
    cut: bool = False
    """It ended at `max_tokens`."""
    cached: bool = False


_STORED = TypeAdapter(Completion)


class ChatModel:
    """Async context manager. The caller owns the cache."""

    def __init__(self, options: EndpointOptions, cache: Cache | None = None) -> None:
        """Raises StartError if the API key is not there."""
        key = "none"  # The client wants one; a server that wants none looks at none.
        if options.key_variable:
            key = os.environ.get(options.key_variable, "")
            if not key:
                raise StartError(
                    f"the API key of {options.endpoint} is not there: set the environment variable "
                    f"{options.key_variable}"
                )
        self._options = options
        self._where = f"model {options.model} at {options.endpoint}"
        self._cache = cache
        self._address = ApiAddress(options.endpoint)
        self._refused_keys = RefusedKeys()
        self._proxy = proxy_for(options.endpoint)
        self._client = openai.AsyncOpenAI(
            api_key=key,
            base_url=self._address.base,
            timeout=options.timeout,
            max_retries=options.retries,
            # The client's own reading of the environment would send loopback to a proxy.
            http_client=openai.DefaultAsyncHttpxClient(
                proxy=self._proxy, trust_env=self._proxy is not None
            ),
        )
        self._budget = Budget(requests=options.budget_requests, tokens=options.budget_tokens)
        self._places = asyncio.Semaphore(options.parallel)
        self._flights: SingleFlight[Completion] = SingleFlight()
        self._cached = 0
        self._failed = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        log.info("model_used", model=self._where, **self.figures())
        await self._client.close()

    async def complete(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        temperature: float,
        max_tokens: int,
        seed: int | None = None,
        json_schema: Mapping[str, Any] | None = None,
    ) -> Completion:
        """The model's answer. `messages`: role and content each, as the API has them.
        `json_schema`: what the answer's JSON has to fit; the endpoint sees to it.

        Raises ChatModelDown, ChatModelRefused (PromptTooLong among them), BudgetSpent.
        """
        request: dict[str, Any] = {
            "model": self._options.model,
            "messages": [dict(message) for message in messages],
            "temperature": temperature,
            "max_tokens": max_tokens,
        }
        if seed is not None:
            request["seed"] = seed
        if json_schema is not None:
            request["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": "answer", "schema": dict(json_schema), "strict": True},
            }
        key = cache_key("chat", request)
        # Here, and not where the request is sent: that may be the work of another call.
        with waiting(self._where):
            return await self._flights.do(key, lambda: self._find(key, request))

    def figures(self) -> dict[str, float]:
        """For the metrics page."""
        return {
            "model_requests_total": self._budget.requests,
            "model_tokens_total": self._budget.tokens,
            "model_cached_total": self._cached,
            "model_failed_total": self._failed,
        }

    async def _find(self, key: str, request: Mapping[str, Any]) -> Completion:
        if self._cache is None:
            return await self._ask(request)
        stored = await self._cache.get(key)
        if stored is not None:
            try:
                found = _STORED.validate_json(stored)
            except ValidationError:
                log.warning("the cache holds what is no completion", key=key)
            else:
                self._cached += 1
                return replace(found, cached=True)
        made = await self._ask(request)
        await self._cache.put(key, _STORED.dump_json(made))
        return made

    async def _ask(self, request: Mapping[str, Any]) -> Completion:
        reserved, used = int(request["max_tokens"]), 0
        async with self._places:
            self._reserve(reserved)
            try:
                made = self._completion(await self._send(request))
                used = sum(asdict(made.usage).values())
            except (ChatModelDown, ChatModelRefused):
                self._failed += 1
                raise
            finally:
                self._budget.settle(reserved, used)
        return made

    def _reserve(self, tokens: int) -> None:
        """Raises BudgetSpent, which names the model and what it used: a tool may have several."""
        try:
            self._budget.reserve(tokens)
        except BudgetSpent as spent:
            used = f"{self._budget.requests} requests, {self._budget.tokens} tokens"
            raise BudgetSpent(f"{self._where}: {spent.message}; used: {used}") from None

    async def _send(self, request: Mapping[str, Any]) -> bytes:
        """The body of an answer of status 200. A key that the endpoint refuses is left out."""
        where, options = self._where, self._options
        # The client bounds the time between two bytes alone, which an endpoint could stretch.
        longest = (options.retries + 1) * options.timeout + options.retries * _LONGEST_PAUSE
        try:
            async with asyncio.timeout(longest):
                return await self._post(request)
        except TimeoutError:
            raise ChatModelDown(
                f"{where} did not end an answer in {longest:g} s: raise its `timeout`"
            ) from None
        except openai.APITimeoutError as error:
            raise ChatModelDown(
                f"{where} gave no answer in {options.timeout:g} s: raise its `timeout`"
            ) from error
        except openai.APIConnectionError as error:
            through = f", through the proxy {shown(self._proxy)}" if self._proxy else ""
            raise ChatModelDown(f"{where}: {error.__cause__ or error}{through}") from error
        except openai.APIStatusError as error:
            why = f"{where} answered {error.status_code}: {said(error.response.content)}"
            if error.status_code in _TRY_AGAIN or error.status_code >= 500:
                raise ChatModelDown(why) from error
            if too_long(error.status_code, said(error.response.content)):
                raise PromptTooLong(why) from error
            raise ChatModelRefused(why) from error
        except (openai.OpenAIError, ValueError) as error:
            raise ChatModelRefused(f"{where} gave no chat completion: {error}") from error

    async def _post(self, request: Mapping[str, Any]) -> bytes:
        """Raises openai.OpenAIError. Each key is refused once at most, so the loop ends."""
        while True:
            sent = self._refused_keys.adapted(request)
            try:
                return await self._post_somewhere(sent)
            except openai.APIStatusError as error:
                known = set(self._refused_keys.keys)
                key = self._refused_keys.learn(said(error.response.content), sent)
                if error.status_code >= 500 or key is None:
                    raise
                if key not in known:  # requests in flight are refused for the same key
                    fix = self._refused_keys.fix(key)
                    log.warning("server_refuses_a_key", model=self._where, key=key, fix=fix)

    async def _post_somewhere(self, sent: Mapping[str, Any]) -> bytes:
        """From the first URL that is not missing."""
        missing: openai.APIStatusError | None = None
        for url in self._address.urls(_METHOD):
            try:
                got = await self._client.post(url, body=sent, cast_to=httpx2.Response)
            except openai.APIStatusError as error:
                if error.status_code not in (404, 405):
                    self._address.found(url, _METHOD)
                    raise
                missing = missing or error
            else:
                self._address.found(url, _METHOD)
                return got.content
        assert missing is not None  # an address has a URL at least
        raise missing

    def _completion(self, body: bytes) -> Completion:
        try:
            found = read_answer(body)
        except WireError as error:
            raise ChatModelRefused(
                f"{self._where} gave no chat completion ({error}): is its base URL right?"
            ) from error
        usage = found.usage
        return Completion(
            text=found.text,
            cut=found.cut,
            usage=Usage(prompt=usage.prompt_tokens or 0, completion=usage.completion_tokens or 0),
        )


def too_long(status: int, message: str) -> bool:
    """As SGLang, vLLM, TGI and OpenAI's API say it."""
    return status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE or (
        status in (HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY)
        and _TOO_LONG.search(message) is not None
    )
