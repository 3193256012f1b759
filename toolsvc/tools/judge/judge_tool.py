"""`judge`: the policy hands in its final answer, and a model says what it is worth.

Invariants
- The policy reads the same words whatever the verdict: no reference, no reason, no reply of the
  judge is in an observation.
- A reply that says neither 0 nor 1 is worth 0 and is counted. A judge that cannot be had is a call
  refused: nothing is recorded, and the policy reads nothing. An answer that is longer than the
  judge can read is an invalid action.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path

import structlog
from pydantic import Field

from toolsvc.backends.cache import Cache
from toolsvc.backends.chat_model import ChatModel, ChatModelOptions, PromptTooLong
from toolsvc.errors import StartError
from toolsvc.plugin.actions import InvalidAction
from toolsvc.tools.finish import AnswerOptions, FinishTool
from toolsvc.tools.judge.prompt import DEFAULT, PLACES, judge_prompt
from toolsvc.tools.judge.references import Reference, References
from toolsvc.types import Call, Result, SessionInfo
from toolwright.reading.verdicts import verdict

HANDED_IN = "The answer was handed in."

log = structlog.get_logger(__name__)


class JudgeOptions(AnswerOptions, ChatModelOptions):
    """What an operator may set about `judge`."""

    references: Path = Field(description="JSON lines: id, question, answer")
    key: str = Field(default="question_id", description="of the metadata: names the question")
    prompt: Path | None = Field(
        default=None, description=f"a prompt of yours, with {', '.join(PLACES)}"
    )
    reply_tokens: int = Field(default=4096, ge=1, description="of the judge's reply, at most")


class JudgeTool(FinishTool):
    Config = JudgeOptions
    name = "judge"
    description = "Ends the task with your final answer, which is then graded."
    parallel_calls = False

    def __init__(self, config: JudgeOptions) -> None:
        super().__init__(config)
        self._references = References(config.references, key=config.key)
        self._template = DEFAULT if config.prompt is None else _template(config.prompt)
        self._stack = AsyncExitStack()
        self._cache: Cache | None = None
        self._model: ChatModel | None = None
        self._unparsable = 0

    async def start(self) -> None:
        self._cache = await self._stack.enter_async_context(self.config.opened_cache())
        self._model = ChatModel(self.config, self._cache)
        await self._stack.enter_async_context(self._model)

    async def stop(self) -> None:
        await self._stack.aclose()

    async def open(self, session: SessionInfo) -> Reference:
        return self._references.find(session.metadata)

    def figures(self) -> Mapping[str, float]:
        found: dict[str, float] = {"judge_unparsable_total": self._unparsable}
        for part in (self._cache, self._model):
            if part is not None:
                found.update(part.figures())
        return found

    async def call(self, reference: Reference, call: Call) -> Result:
        if self._model is None:
            raise RuntimeError("judge was called before it was started")
        prompt = judge_prompt(self._template, reference, call.arguments["answer"])
        try:
            reply = await self._model.complete(
                [{"role": "user", "content": prompt}],
                temperature=0.0,
                max_tokens=self.config.reply_tokens,
            )
        except PromptTooLong as error:
            log.warning("an answer is too long for the judge", why=error.message)
            raise InvalidAction("the answer is too long: write a shorter one") from error
        score = verdict(reply.text, cut=reply.cut)
        if score is None:
            self._unparsable += 1
            log.warning("the judge's reply has no verdict", cut=reply.cut, reply=reply.text[-200:])
        return Result.of(
            HANDED_IN,
            done=True,
            reward=float(score or 0),
            metrics={"judge_unparsable": float(score is None), "judge_cached": float(reply.cached)},
        )


def _template(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise StartError(f"judge.prompt={path}: {error}") from error
    missing = [place for place in PLACES if place not in text]
    if missing:
        raise StartError(f"judge.prompt={path} has no {', '.join(missing)}")
    return text
