"""`POST /get_observation`, as VerlTool's tool server speaks it, in front of a host's tools.

    {"trajectory_ids": ["a"], "actions": ["<python>1+1</python>"], "extra_fields": [{}],
     "finish": [false], "is_last_step": [false]}
    {"observations": ["2"], "dones": [false], "valids": [true],
     "processing_time_ms": 3.1, "queue_time_ms": 0.1}

One key is added: `turn_ids`, from 0, which distinguish a retry from a repetition. `GET /health`
says "healthy", for VerlTool's router and scripts.

If an action cannot run now but may later, the whole request is refused with 503. The caller sends
it again, and actions that had run are answered from their record. An action that can never run ends
its trajectory: an empty observation with the reason at `error`, done, not valid, as VerlTool's
server answers.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple, Self

from aiohttp import web
from pydantic import BaseModel, Field, ValidationError, model_validator

from toolsvc.errors import Refused
from toolsvc.host.host import Host
from toolsvc.plugin.actions import InvalidAction
from toolsvc.plugin.results import invalid
from toolsvc.sources.verltool.forms import FORMS, no_tool
from toolsvc.sources.verltool.observations import as_observation
from toolsvc.sources.verltool.trajectories import Action, ToolCall, Trajectories, Turn
from toolsvc.types import Recorded
from toolwright.rpc.http_server import HttpServer, body_of, refused

OPTION = "--verltool-http"
MOST_ACTIONS = 4096
"""Most actions of one request."""
LONGEST_ID = 1024
"""Maximum characters of an id."""
_BODY_BYTES = 64 << 20


class ObservationRequest(BaseModel):
    """What a trainer sends; keys that are not known here are left alone, as there."""

    trajectory_ids: list[Annotated[str, Field(max_length=LONGEST_ID)]] = Field(
        min_length=1, max_length=MOST_ACTIONS
    )
    actions: list[str]
    extra_fields: list[dict[str, Any]] = []
    finish: list[bool] = []
    is_last_step: list[bool] = []
    turn_ids: list[Annotated[int, Field(ge=0)]] = []

    @model_validator(mode="before")
    @classmethod
    def _null_is_left_out(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        return {name: value for name, value in given.items() if value is not None}

    @model_validator(mode="after")
    def _of_one_length(self) -> Self:
        wanted = len(self.trajectory_ids)
        for name in ("actions", "extra_fields", "finish", "is_last_step", "turn_ids"):
            found = len(getattr(self, name))
            if found != wanted and (found or name == "actions"):
                raise ValueError(f"{wanted} trajectory_ids and {found} {name}")
        return self

    def items(self) -> list[_Item]:
        """One for each trajectory id, in their order. What stands in `extra_fields` goes before
        what stands in the lists, as there."""
        found = []
        for at, trajectory_id in enumerate(self.trajectory_ids):
            extra = dict(self.extra_fields[at]) if self.extra_fields else {}
            finish = extra.pop("finish", self.finish[at] if self.finish else False)
            last = extra.pop("is_last_step", self.is_last_step[at] if self.is_last_step else False)
            action = Action(
                text=self.actions[at],
                extra=extra,
                last_step=bool(last),
                turn=self.turn_ids[at] if self.turn_ids else None,
            )
            found.append(_Item(trajectory_id, bool(finish), action))
        return found


class _Item(NamedTuple):
    trajectory_id: str
    finish: bool
    action: Action


class _Answer(NamedTuple):
    """`turn` is None where no call was made."""

    observation: str | dict[str, Any]
    done: bool
    valid: bool
    queued: float = 0.0
    turn: Turn | None = None


class ObservationServer(HttpServer):
    """Async context manager."""

    def __init__(self, host: Host, listen: str, *, insecure: bool, as_there: bool = False) -> None:
        """`as_there`: actions are read and observations framed as VerlTool's tools do (`forms`).
        Raises ListenError for an address that needs a token."""
        self._host = host
        self._forms = {
            tool.name: FORMS[tool.name] for tool in host.tools if as_there and tool.name in FORMS
        }
        self._trajectories = Trajectories(host)
        app = web.Application(client_max_size=_BODY_BYTES)
        app.router.add_post("/get_observation", self._get_observation)
        app.router.add_get("/health", self._health)
        super().__init__(
            app, listen, option=OPTION, insecure=insecure, insecure_option="--insecure"
        )

    async def _health(self, request: web.Request) -> web.Response:
        tools = [tool.name for tool in self._host.list_tools()]
        return web.json_response(
            {"status": "healthy", "tools": tools, "trajectories": len(self._trajectories)}
        )

    async def _get_observation(self, request: web.Request) -> web.StreamResponse:
        began = time.perf_counter()
        try:
            wanted = _read(await body_of(request))
        except ValidationError as error:
            return refused(422, str(error))
        try:
            answers = await self._answers(wanted.items())
        except Refused as refusal:
            return refused(503, refusal.message, retry_after=refusal.retry_after)
        took = time.perf_counter() - began
        response = web.json_response(
            {
                "observations": [answer.observation for answer in answers],
                "dones": [answer.done for answer in answers],
                "valids": [answer.valid for answer in answers],
                "processing_time_ms": took * 1000,
                "queue_time_ms": max(answer.queued for answer in answers) * 1000,
            },
            headers={"X-Process-Time": f"{took:.6f}"},
        )
        return await _deliver(request, response, [one.turn for one in answers if one.turn])

    async def _answers(self, items: Sequence[_Item]) -> list[_Answer]:
        """Answers in the order of the items; actions of one trajectory run one after the other.
        Raises Refused, after the others have ended, if an action may run later."""
        of: dict[str, list[int]] = defaultdict(list)
        for at, item in enumerate(items):
            of[item.trajectory_id].append(at)
        answers: dict[int, _Answer] = {}
        refusals: list[Refused] = []

        async def answer_in_turn(places: Sequence[int]) -> None:
            try:
                for at in places:
                    answers[at] = await self._answer(items[at])
            except Refused as refusal:
                refusals.append(refusal)

        async with asyncio.TaskGroup() as group:
            for places in of.values():
                group.create_task(answer_in_turn(places))
        if refusals:
            raise refusals[0]
        return [answers[at] for at in range(len(items))]

    async def _answer(self, item: _Item) -> _Answer:
        if item.finish:
            await self._trajectories.finish(item.trajectory_id)
            return _Answer("", done=True, valid=True)
        action = item.action
        call: ToolCall | None = None
        for name, form in self._forms.items():
            arguments = form.read(action.text)
            if arguments is not None:
                call = ToolCall(name, arguments)
                break
            told = form.without_call(action.text, action.extra, len(self._host.tools) == 1)
            if told is not None:
                return _Answer(*told)
        try:
            turn, recorded = await self._trajectories.act(item.trajectory_id, action, call)
        except InvalidAction as error:
            return self._no_call(str(error))
        except Refused as refusal:
            if refusal.retry_after is not None:
                raise
            return _Answer({"obs": "", "error": refusal.message}, done=True, valid=False)
        return self._told(turn, recorded)

    def _no_call(self, reason: str) -> _Answer:
        if self._forms:
            return _Answer(*no_tool({one.name: one.description for one in self._host.tools}))
        told = as_observation(invalid(reason), self._host.blob)
        return _Answer(told, done=False, valid=False)

    def _told(self, turn: Turn, recorded: Recorded) -> _Answer:
        result = recorded.result
        lost = result.error is not None and result.error.session_lost
        form = self._forms.get(recorded.tool)
        if form is not None:
            told = form.framed(turn.action.text, turn.action.extra, result)
            return _Answer(
                told.observation, told.done or lost, told.valid, queued=recorded.queued, turn=turn
            )
        return _Answer(
            as_observation(result, self._host.blob),
            done=result.done or lost,
            valid=result.valid,
            queued=recorded.queued,
            turn=turn,
        )


async def _deliver(
    request: web.Request, response: web.Response, turns: Sequence[Turn]
) -> web.StreamResponse:
    """Sends the answer, and notes whether it was sent whole: a caller that went away before will
    ask for it again."""
    for turn in turns:
        # Before it is sent: the caller's next request may be here before this one is over.
        turn.delivered = True
    try:
        await response.prepare(request)
        await response.write_eof()
    except BaseException:
        for turn in turns:
            turn.delivered = False
        raise
    return response


def _read(body: bytes) -> ObservationRequest:
    """The parsed request. Raises ValidationError."""
    try:
        return ObservationRequest.model_validate_json(body)
    except ValidationError:
        whole = _whole(body)
        if whole is None:
            raise
        return ObservationRequest.model_validate_json(whole)


def _whole(body: bytes) -> bytes | None:
    """JSON with a question mark for each half of a surrogate pair, which Python writes and no text
    can hold: one action must not keep the others of its request from being read. None for JSON
    without such halves, and for text that is not JSON."""
    try:
        text = json.dumps(json.loads(body), ensure_ascii=False)
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="replace")
    except (ValueError, RecursionError):
        return None
    return None
