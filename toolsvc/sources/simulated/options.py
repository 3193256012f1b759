"""Options of tools that a model plays."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from toolsvc.backends.chat_model import ChatModelOptions, EndpointOptions


class SimulatedOptions(ChatModelOptions):
    """`endpoint` and `model` are ToolActor's."""

    maker: EndpointOptions | None = Field(
        default=None, description="another model that makes tools: simulated.maker.endpoint=..."
    )
    maker_prompt: Path | None = Field(
        default=None, description="a file with ToolMaker's system prompt"
    )
    actor_prompt: Path | None = Field(
        default=None, description="a file with ToolActor's system prompt"
    )
    question: str = Field(
        default="question", description="key of the task's metadata that tools are made from"
    )
    seed: int = Field(default=0, description="of the world: another seed, other answers")
    temperature: float = Field(default=0.7, ge=0, description="of all answers")
    max_tokens: int = Field(default=1024, ge=1, description="of one answer")
    regenerations: int = Field(
        default=2, ge=0, le=10, description="after an answer that does not fit its schema"
    )
    history: int = Field(
        default=8, ge=0, description="earlier calls of the session that the model is shown"
    )
    consistent: bool = Field(
        default=True, description="equal calls have equal answers, in all sessions"
    )
    pre_check: bool = Field(default=True, description="refuse arguments that do not fit")
    post_check: bool = Field(default=True, description="refuse observations that do not fit")
    constrained: bool = Field(
        default=False, description="have the endpoint keep to the output schema (json_schema)"
    )
    constrained_tools: bool = Field(
        default=False, description="have ToolMaker's endpoint keep to the form of a tool set"
    )
    run_limit: float = Field(
        default=120.0,
        gt=0,
        description="seconds of one call, without what it waits for the model",
    )
