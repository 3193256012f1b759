"""Warnings about a recipe beside its policy, chat template and data. Pure.

Each part alone is in order, but together they train something unintended. A warning is one sentence
with the keys, the consequence and the fix. `engine check` prints them, and so does `toolwright
run`; `engine render` prints those about the warm-up's prompts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from engine.config import EngineTable
from engine.core.protocols import Protocol
from engine.core.protocols.chat import Chat
from engine.core.text.codec import HuggingFaceCodec
from engine.core.text.messages import content_of, split_opening
from engine.offline.conversations.types import RecordedConversation
from engine.types import ToolSpec
from toolwright.recipe import Recipe, task_key
from toolwright.types import Task

SHOWN = 60
"""Longest quotation of a prompt, in characters."""
ASK_TOOLS = "set render.ask_tools = true, or give the rows their tools"
_PROBE = ToolSpec(
    name="toolwright_probe",
    description="toolwright_probe",
    usage="toolwright_probe",
    arguments_schema={"type": "object", "properties": {}},
)
"""A tool that no session has. A prompt that changes with it shows tools."""


def sampling_warnings(recipe: Recipe) -> Iterator[str]:
    """Settings that make all samples of a question equal."""
    shared = recipe.shared
    if shared.run.steps == 0 or shared.run.group_size == 1:
        return
    same = f"all {shared.run.group_size} attempts at a question are the same: nothing can be learnt"
    if shared.sampler.temperature == 0:
        yield f"sampler.temperature = 0 in training: {same}; set it to 1.0"
    elif shared.sampler.top_k == 1:
        yield f"sampler.top_k = 1 in training: {same}; set it to -1"


def context_warnings(
    recipe: Recipe, table: EngineTable, config: Mapping[str, Any]
) -> Iterator[str]:
    """Limits above the context of the policy. config: its config.json."""
    text = config.get("text_config")
    own = text if isinstance(text, Mapping) else config
    context = own.get("max_position_embeddings")
    stretched = own.get("rope_scaling") or own.get("rope_parameters", {})
    if not isinstance(context, int) or (
        isinstance(stretched, Mapping) and stretched.get("factor", 1) != 1
    ):
        return
    limits = {
        f"{task_key(name)}.limits": task.limits for name, task in recipe.shared.each_task.items()
    }
    limits |= {
        f"engine.evaluation.suites {suite.name!r} limits": suite.limits
        for suite in table.evaluation.suites
        if suite.limits is not None and "model" in suite.limits.model_fields_set
    }
    for key, found in limits.items():
        if found.model > context:
            yield (
                f"{key}.model = {found.model} is above the policy's context of {context} tokens "
                f"(max_position_embeddings of config.json): set {key}.model = {context}"
            )


def question_of(task: Task) -> str:
    """Text of the question: the task's prompt, or its last message without images."""
    if task.prompt or not task.messages:
        return task.prompt
    message = task.messages[-1]
    if isinstance(parts := message.get("content"), list):
        parts = [one for one in parts if isinstance(one, Mapping) and "text" in one]
        message = {**message, "content": parts}
    return content_of(message)


def prompt_warnings(suffix: str, task: Task, prompt: str) -> Iterator[str]:
    """A prompt without its question. prompt: the first prompt as text.

    A question with images is skipped: its text in the prompt differs.
    """
    question = question_of(task)
    if not task.media and _plain(question) not in _plain(prompt):
        yield (
            f"the first prompt{suffix} does not hold the question of task {task.id} "
            f"({_quoted(question)}): the policy never reads it; correct task.protocol, or the chat "
            "template of policy.model"
        )


def call_warnings(
    suffix: str, protocol: Protocol, codec: HuggingFaceCodec, task: Task, prompt: str
) -> Iterator[str]:
    """A closing tag of calls that neither the template nor the prompt shows to the policy.

    Skipped for a protocol that writes the tools into its prompt: it also writes the form of calls.
    Skipped too for one that reads actions in its own way.
    """
    if not isinstance(protocol, Chat) or type(protocol).decide is not Chat.decide:
        return
    if not protocol.shown(task, (_PROBE,)):
        return
    close = protocol.call_tags[1]
    if close in prompt:
        return
    try:
        written = _with_a_call(codec) + codec.chat(
            [{"role": "user", "content": "x"}], tools=protocol.functions([_PROBE])
        )
    except ValueError:
        return
    if close not in written:
        yield (
            f"calls{suffix} end with call_close = {close!r}, which the chat template of "
            "policy.model never writes: the policy knows another form of calls; set call_open and "
            "call_close in task.protocol_options, or show the form in the prompt"
        )


def _with_a_call(codec: HuggingFaceCodec) -> str:
    """A conversation with one structured call, as the template writes it."""
    call = {"name": "toolwright_probe", "arguments": {}}
    messages: list[Mapping[str, Any]] = [
        {"role": "user", "content": "x"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "a00000000", "type": "function", "function": call}],
        },
    ]
    return codec.chat(messages, generation_prompt=False)


def shows_tools(protocol: Protocol, codec: HuggingFaceCodec, task: Task) -> bool:
    """Whether the protocol's prompts change with the session's tools."""
    try:
        return protocol.prompt(task, (_PROBE,), codec) != protocol.prompt(task, (), codec)
    except ValueError:
        return False


def tools_warning(file: str, bare: int, rows: int) -> str:
    """Conversations without tools, followed by rollouts with tools."""
    return (
        f"{bare} of the first {rows} conversations of {file} show no tools, and the prompts of "
        f"rollouts do: the warm-up teaches another prompt; {ASK_TOOLS}"
    )


def opening_warning(
    file: str,
    conversations: Sequence[RecordedConversation],
    tasks: Sequence[Task],
    protocol: Protocol,
    codec: HuggingFaceCodec,
) -> str:
    """Warm-up prompts whose text around the question is in no rollout prompt; "" if it fits.

    Tools are left out on both sides. "" too if no prompt can be rendered.
    """
    warm = _frames([_opening_task(one) for one in conversations], protocol, codec)
    rollout = _frames(tasks, protocol, codec)
    if not warm or not rollout or set(warm) & set(rollout):
        return ""
    (before, after), (other_before, other_after) = warm[0], rollout[0]
    if before != other_before:
        where, one, other = "begin", before, other_before
    else:
        where, one, other = "end", after, other_after
    same = next(
        (at for at, pair in enumerate(zip(one, other, strict=False)) if len(set(pair)) == 2),
        min(len(one), len(other)),
    )
    start = max(0, same - SHOWN // 3)
    return (
        f"prompts of {file} {where} with {_quoted(one[start:])}, those of rollouts with "
        f"{_quoted(other[start:])}: the warm-up teaches another prompt; give both the same "
        "messages"
    )


def template_warning(key: str, other_key: str, hashes: tuple[str, str]) -> str:
    """Two folders whose prompts differ; "" if their hashes are equal."""
    if hashes[0] == hashes[1]:
        return ""
    return (
        f"{key} has another tokenizer or chat template than {other_key}: the warm-up teaches other "
        "prompts than rollouts have; name folders with the same tokenizer.json and chat template"
    )


def _opening_task(conversation: RecordedConversation) -> Task:
    before, _rest = split_opening(conversation.messages)
    return Task(id="demonstration", messages=tuple(before))


def _frames(
    tasks: Sequence[Task], protocol: Protocol, codec: HuggingFaceCodec
) -> list[tuple[str, str]]:
    """Text before and after the question, for each task whose prompt holds it once."""
    found = []
    for task in tasks:
        try:
            prompt = codec.decode(protocol.prompt(task, (), codec))
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
        question = question_of(task).strip()
        if question and prompt.count(question) == 1:
            before, _, after = prompt.partition(question)
            found.append((before, after))
    return found


def _plain(text: str) -> str:
    return re.sub(r"\s+", "", text)


def _quoted(text: str) -> str:
    return repr(text if len(text) <= SHOWN else f"{text[:SHOWN]}...")
