"""Generation by OpenAI-compatible endpoints, for an evaluation: text in, text out.

It has the interface of `SamplerPool`, with three differences. The endpoints give no token ids and
no log-probs: ids are the engine's own encoding of the text, log-probs are NaN, and the record says
so. No publish updates the weights. One version, named after the model, wrote everything.

Invariants
- The engine finds every stop itself, in the text. Stops are sent only if the server leaves their
  text in place or names the stop, or if the recipe says so (`sampler.send_stops`).
- A generation that breaks goes on from the received text if the server can do that. Otherwise it
  begins anew, but never once a call of it is on its way.
- A fault that no request can overcome (address, key, model) ends the evaluation and names its fix.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import aiohttp
import structlog

from engine.core.sampler.openai.api_endpoint import MOST_ALIKE, ApiEndpoint
from engine.core.sampler.openai.api_request import ApiRequests
from engine.core.sampler.openai.body import TEMPLATE, TEMPLATE_FIX
from engine.core.sampler.openai.client import ApiClient
from engine.core.sampler.openai.refusals import (
    EndpointUnusable,
    NoCredit,
    NotFound,
    RetryLater,
    WrongAddress,
    WrongKey,
)
from engine.core.sampler.openai.text_action import TextAction
from engine.core.sampler.policy_sampler import GenerateRequest
from engine.core.sampler.retry import Fault, Over, Retry
from engine.core.sampler.routing import Router
from engine.core.sampler.waiting import WaitCause, Waiting
from engine.core.sampler.wire.client import ServerRefused, ServerUnreachable, fault_of
from engine.core.sampler.wire.events import WireError
from engine.core.text.conversation_codec import CALL_TAGS
from engine.errors import SamplerFailed, StartupError
from engine.types import Codec, Generated
from toolwright.model_api.deltas import Delta, Usage
from toolwright.model_api.refused_keys import Body
from toolwright.recipe import Sampler as SamplerTable
from toolwright.types import WeightVersion

START_SECONDS = 3.0
"""How long the start tolerates a silent endpoint."""
MOST_PAUSES_AT_START = 5
"""Most pauses in a row that an endpoint may request before it has listed its models."""
SPREAD = 0.25
"""Share of a pause by which waiting requests are spread: all at once would be refused again."""
NOTE = "ids re-encoded from text, log-probs absent"
log = structlog.get_logger("sampler")


@dataclass(slots=True, kw_only=True)
class _Pending:
    """One call of `generate` and its HTTP requests so far."""

    request: GenerateRequest
    waiting: Waiting
    retry: Retry
    sent: Body = field(default_factory=dict)
    """Body of the latest request, as it was sent."""
    refused: set[str] = field(default_factory=set)


class OpenAIPool:
    """Endpoints of one API, as the recipe's table says. `open` must come first."""

    def __init__(
        self,
        table: SamplerTable,
        codec: Codec,
        *,
        vocab_size: int,
        leading: str = "",
        call_tags: tuple[str, str] = CALL_TAGS,
        template: Mapping[str, Any] | None = None,
    ) -> None:
        """leading: text that a server's tokenizer puts before every prompt by itself. template:
        variables of the chat template (`policy.template`), sent to a chat API. call_tags: tags
        around a call in the text of an action. Raises StartupError without the key."""
        self.vocab_size = vocab_size
        self._table = table
        self._codec = codec
        self._requests = ApiRequests(
            table, codec, leading=leading, call_tags=call_tags, template=template or {}
        )
        self._call_tags = call_tags
        self._key = key_of(table)
        self._endpoints: dict[str, ApiEndpoint] = {}
        self._router = Router()
        """It counts requests and failures. Requests have no length, so it measures no speed."""
        self._session: aiohttp.ClientSession | None = None
        self._endpoint_of: dict[str, str] = {}
        """Endpoint of each trajectory, whose prefix cache may hold the trajectory."""
        self._version: WeightVersion | None = None

    @property
    def any_up(self) -> bool:
        """Whether an endpoint answers. While none does, actions wait with their clocks stopped."""
        return True

    @property
    def longest_prompt(self) -> int | None:
        """Tokens of the smallest context. None if no server reports it, or if the engine counts
        other tokens than the server."""
        if self._table.tokenizer == "bytes":
            return None
        lengths = [one.longest for one in self._endpoints.values() if one.longest]
        return min(lengths, default=None)

    @property
    def version(self) -> WeightVersion:
        """The version that wrote everything: step 0 of the model's name."""
        if self._version is None:
            raise AssertionError("the pool is not open")
        return self._version

    async def open(self) -> None:
        """Lists the models of every endpoint. Raises StartupError if an endpoint does not answer or
        serves another model."""
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0), auto_decompress=False
        )
        for url in self._table.endpoints:
            client = ApiClient(
                url,
                self._session,
                key=self._key,
                key_env=self._table.key_env,
                model=self._table.model,
                silence=self._table.timeout_s,
            )
            self._endpoints[client.url] = ApiEndpoint(client, model=self._table.model)
            self._router.add(client.url)
        await asyncio.gather(*(self._meet(one) for one in self._endpoints.values()))
        models = {one.model for one in self._endpoints.values()}
        if len(models) > 1:
            raise StartupError(
                f"the endpoints serve different models, {', '.join(sorted(models))}: name one in "
                "sampler.model"
            )
        self._version = WeightVersion(lineage=models.pop(), step=0)

    async def close(self) -> None:
        """Closes the connections."""
        if self._session is not None:
            await self._session.close()

    async def keep_alive(self) -> None:
        """Runs until cancelled, like the other pool's. Endpoints need no care between requests."""
        await asyncio.Event().wait()

    def statistics(self) -> Mapping[str, Mapping[str, Any]]:
        """Statistics by endpoint: `model`, `kind`, `in_flight`, `requests`, `failures` by kind.
        `usage` is in the server's own tokens, over `requests_told` requests."""
        loads = self._router.loads
        return {
            name: {**one.statistics(), "in_flight": loads[name].in_flight}
            for name, one in self._endpoints.items()
        }

    def follow(self, key: str, other: str) -> None:
        """A new trajectory begins as `other` does."""
        if (name := self._endpoint_of.get(other)) is not None:
            self._endpoint_of[key] = name

    def release(self, key: str) -> None:
        """The trajectory is over."""
        self._endpoint_of.pop(key, None)

    async def generate(self, request: GenerateRequest) -> Generated:
        """As `SamplerPool.generate`, but `on_action` is never called, and `on_progress` at
        cancellation alone: what is returned also has what the server says at the end.

        Raises SamplerFailed if requests failed for `sampler.patience_s` or this one is refused;
        Raises EndpointUnusable if no request at all can succeed.
        """
        if request.images is not None or request.top_logprobs:
            what = "images" if request.images is not None else "top log-probs (task.branching)"
            raise SamplerFailed(f"api = {self._table.api!r} has no {what} here", permanent=True)
        action = TextAction(request, self._codec, version=self.version, call_tags=self._call_tags)
        pending = _Pending(
            request=request,
            waiting=Waiting(request.clock),
            retry=Retry(patience=self._table.patience_s),
        )
        try:
            generated = await self._finish(action, pending)
        except asyncio.CancelledError:
            action.report_rest()  # a time limit: the record keeps what came until then
            raise
        finally:
            pending.waiting.end()
        remarks = {"model": self.version.lineage, "note": NOTE, **action.remarks}
        return replace(generated, remarks=remarks)

    async def _finish(self, action: TextAction, pending: _Pending) -> Generated:
        """Requests until the action is whole."""
        while action.generated is None:
            if action.has_any and action.room <= 0:
                action.fill(time.monotonic_ns())
                break
            endpoint = await self._pick(pending)
            before = len(action.text)
            try:
                await self._request(endpoint, action, pending)
            except (ServerUnreachable, ServerRefused, WireError) as error:
                brought = len(action.text) - before
                pause = self._after(error, endpoint, action, pending, max(brought, 0))
            else:
                endpoint.served = True
                self._router.fresh(endpoint.name)
                continue
            pending.waiting.begin(WaitCause.BROKEN, asyncio.get_running_loop().time())
            await asyncio.sleep(pause)
        assert action.generated is not None  # the loop's condition; `fill` has set it too
        return action.generated

    async def _request(self, endpoint: ApiEndpoint, action: TextAction, pending: _Pending) -> None:
        """One request, from the received part of the action. Sets `action.generated` at its end."""
        request = self._requests.of(endpoint, action, pending.request)
        if not request.continues:
            action.begin_anew()
        usage: Usage | None = None

        def on_delta(delta: Delta, read_ns: int) -> bool:
            nonlocal usage
            if pending.waiting and (delta.text or delta.calls):
                pending.waiting.end(WaitCause.BROKEN, WaitCause.QUIET)
            usage = delta.usage or usage
            if delta.calls:
                action.add_calls(delta.calls)
            wanted = action.feed(delta.text, read_ns, unseen=delta.thought)
            if delta.finish:
                action.end(delta.finish, delta.hint, read_ns, sent=request.stops)
            return wanted

        self._router.begin(endpoint.name, 0.0)
        pending.sent = endpoint.refused_keys.adapted(request.body)
        if left_out := endpoint.refused_keys.left_out(request.body):
            action.remarks["left_out"] = left_out
        try:
            await endpoint.client.stream(
                request.path,
                pending.sent,
                on_delta,
                lambda since: pending.waiting.begin(WaitCause.QUIET, since),
                linger=bool(request.stops),
            )
        except (ServerUnreachable, WireError):
            if action.generated is None:  # otherwise only the usage is lost
                raise
        finally:
            self._router.end(endpoint.name, 0.0, time.monotonic())
            pending.waiting.end(WaitCause.QUIET)
            counted = endpoint.count(usage)
            for name, value in counted.items():
                action.remarks[name] = action.remarks.get(name, 0) + value

    def _after(
        self,
        error: ServerUnreachable | ServerRefused | WireError,
        endpoint: ApiEndpoint,
        action: TextAction,
        pending: _Pending,
        brought: int,
    ) -> float:
        """Seconds until the next request. Raises SamplerFailed if no request should follow."""
        cause = str(error)
        # A pause that the server requests is no failure of its connection.
        fault = Fault.ABORTED if isinstance(error, RetryLater) else fault_of(error)
        endpoint.faults[fault] += 1
        misled = isinstance(error, WrongKey | NotFound | WrongAddress)
        if isinstance(error, NoCredit) or (misled and not endpoint.served):
            raise EndpointUnusable(cause) from error
        if misled:
            fault = Fault.MALFORMED  # it worked before: a passing fault of a gateway
        known = set(endpoint.refused_keys.keys)
        if fault is Fault.REFUSED and (key := endpoint.refused_keys.learn(cause, pending.sent)):
            if key not in known:  # requests in flight are refused for the same key
                log.warning(
                    "server_refuses_a_key",
                    endpoint=endpoint.name,
                    key=key,
                    fix=endpoint.refused_keys.fix(key),
                    error=cause,
                )
            return 0.0
        if fault is Fault.REFUSED and TEMPLATE in pending.sent and TEMPLATE in cause:
            cause += f"; {TEMPLATE} is the recipe's policy.template: {TEMPLATE_FIX}"
        news = fault is Fault.REFUSED or self._router.failed(endpoint.name, time.monotonic())
        if fault is Fault.REFUSED:
            pending.refused.add(endpoint.name)
            served = any(one.served for one in self._endpoints.values())
            if endpoint.refused(cause) and not served:
                raise EndpointUnusable(
                    f"{cause}; it has served nothing and said this {MOST_ALIKE} times: correct "
                    "[sampler] or the suites' sampling, then evaluate with --fresh, since the rows "
                    "until here count as bad rows"
                ) from error
        # People see the first of several failures at once; the log's file has them all.
        log_line = log.warning if news else log.info
        log_line("request_failed", endpoint=endpoint.name, fault=str(fault), error=cause)
        pause = error.seconds if isinstance(error, RetryLater) else 0.0
        endpoint.pause_for(pause)
        others = [n for n in self._endpoints if n not in pending.refused and n != endpoint.name]
        decision = pending.retry.failed(
            fault, now=time.monotonic(), brought=brought, others=bool(others)
        )
        if isinstance(decision, Over):
            raise SamplerFailed(cause, permanent=decision.permanent)
        # A requested pause does not use up the budget, the pause that Retry adds does. So a server
        # that requests pauses without end is given up.
        left = min((one.wait for one in self._able(pending)), default=0.0)
        pending.retry.waited(left)
        return left + decision.after

    def _able(self, pending: _Pending) -> list[ApiEndpoint]:
        """Endpoints that have not refused the request; all of them if every endpoint has."""
        able = [one for name, one in self._endpoints.items() if name not in pending.refused]
        return able or list(self._endpoints.values())

    async def _pick(self, pending: _Pending) -> ApiEndpoint:
        """The trajectory's endpoint, or the one with the fewest requests. Waits if all of them want
        a pause."""
        while True:
            able = self._able(pending)
            ready = [one.name for one in able if one.wait <= 0]
            if ready:
                key, now = pending.request.key, time.monotonic()
                chosen = self._router.choose(
                    ready, current=self._endpoint_of.get(key), tokens=1.0, prompt=0, now=now
                )
                self._endpoint_of[key] = chosen
                return self._endpoints[chosen]
            waits = [one.wait for one in able]
            pending.waiting.begin(WaitCause.BROKEN, asyncio.get_running_loop().time())
            began = time.monotonic()
            await asyncio.sleep(max(min(waits), 0.01) * (1 + SPREAD * random.random()))
            pending.retry.waited(
                time.monotonic() - began
            )  # a pause that was obeyed is not a failure

    async def _meet(self, endpoint: ApiEndpoint) -> None:
        deadline = time.monotonic() + START_SECONDS
        pauses = 0
        while True:
            try:
                models = await endpoint.client.models()
            except RetryLater as error:
                pauses += 1
                if pauses > MOST_PAUSES_AT_START:
                    raise StartupError(
                        f"{error}; it requested {MOST_PAUSES_AT_START} pauses in a row: try again "
                        "later"
                    ) from error
                log.warning("endpoint_busy", endpoint=endpoint.name, seconds=error.seconds)
                await asyncio.sleep(error.seconds * (1 + SPREAD * random.random()))
                deadline = time.monotonic() + START_SECONDS
            except (ServerUnreachable, ServerRefused, WireError) as error:
                refused = isinstance(error, ServerRefused | WrongAddress)
                if refused or time.monotonic() > deadline:
                    fix = "" if refused else "; start it or correct sampler.endpoints"
                    raise StartupError(f"{error}{fix}") from error
                await asyncio.sleep(0.2)
            else:
                return endpoint.check_models(models)


def key_of(table: SamplerTable) -> str:
    """The API's key from the environment; "" if the recipe names none. Raises StartupError if the
    variable is missing or holds characters that no header can carry."""
    if not table.key_env:
        return ""
    key = os.environ.get(table.key_env, "").strip()
    if not key:
        raise StartupError(
            f"sampler.key_env: the environment has no {table.key_env}; export it, or leave "
            "sampler.key_env out if the API takes no key"
        )
    if not key.isascii() or not key.isprintable():
        raise StartupError(
            f"sampler.key_env: the value of {table.key_env} is not a key: a header cannot carry it"
        )
    return key
