"""Chat templates of six families: prompts, stops, frames and the prefix property.

`renderers` is the judge where it knows the family, transformers' own rendering where it does not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from engine.core.protocols.chat import Chat
from engine.core.text.codec import HuggingFaceCodec
from engine.core.text.framing import find_frame, template_class
from engine.offline.check.template_report import agents_report
from tests.support.families import FAMILIES, write_family

pytestmark = pytest.mark.quick

TOOL = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Looks \u00e9 up.",
        "parameters": {"type": "object", "properties": {"what": {"type": "string"}}},
    },
}
USER = {"role": "user", "content": "What is 1 < 2?"}
SAID = {"role": "assistant", "content": "It is true."}
OBSERVED = {"role": "tool", "content": 'line1\nsays "hi" \\ \u00e9'}
CONVERSATIONS: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "user": [USER],
    "system": [{"role": "system", "content": "Be brief."}, USER],
    "two turns": [USER, SAID, {"role": "user", "content": "And 3?"}],
    "observation": [USER, SAID, OBSERVED],
    "two observations": [USER, SAID, OBSERVED, {"role": "tool", "content": "2"}],
    "after an observation": [USER, SAID, OBSERVED, {"role": "assistant", "content": "Yes."}],
    "thoughts": [
        USER,
        {"role": "assistant", "content": "<think>\nhm\n</think>\n\nIt is."},
        {"role": "user", "content": "Sure?"},
    ],
}
REFUSED_BY_MISTRAL = ("observation", "two observations", "after an observation")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    root = tmp_path_factory.mktemp("families")
    return {name: write_family(root / name, name) for name in FAMILIES}


def renderer_of(name: str, folder: Path, thinking: bool) -> Any:
    """A renderer of the PyPI package; None for a family that it does not have."""
    from renderers import configs
    from renderers.deepseek_r1 import DeepSeekR1Renderer
    from renderers.deepseek_v3 import DeepSeekV3Renderer
    from renderers.glm45 import GLM45Renderer
    from renderers.llama_3 import Llama3Renderer
    from renderers.qwen3 import Qwen3Renderer
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    match name:
        case "qwen3":
            return Qwen3Renderer(tokenizer, configs.Qwen3RendererConfig(enable_thinking=thinking))
        case "llama_3":
            return Llama3Renderer(tokenizer)
        case "deepseek_v3":
            return DeepSeekV3Renderer(tokenizer)
        case "deepseek_r1":
            return DeepSeekR1Renderer(tokenizer)
        case "glm_4_5":
            return GLM45Renderer(tokenizer, configs.GLM45RendererConfig(enable_thinking=thinking))
    return None


def variables(name: str, thinking: bool) -> Mapping[str, Any]:
    return {} if thinking else FAMILIES[name].no_thinking or {}


def judged(
    name: str,
    folder: Path,
    messages: Sequence[Mapping[str, Any]],
    *,
    tools: Sequence[Mapping[str, Any]] | None,
    prompt: bool,
    thinking: bool,
) -> list[int]:
    """Ids that the judge makes of messages."""
    given: list[Any] = [dict(one) for one in messages]
    shown: Any = [dict(one) for one in tools] if tools else None
    renderer = renderer_of(name, folder, thinking)
    if renderer is not None:
        return list(renderer.render_ids(given, tools=shown, add_generation_prompt=prompt))
    from transformers import AutoTokenizer

    found: list[int] = AutoTokenizer.from_pretrained(folder).apply_chat_template(
        given,
        tools=shown,
        add_generation_prompt=prompt,
        return_dict=False,
        **variables(name, thinking),
    )
    return found


@pytest.mark.parametrize("tools", [None, [TOOL]], ids=["no tools", "tools"])
@pytest.mark.parametrize("case", CONVERSATIONS)
@pytest.mark.parametrize("thinking", [True, False], ids=["thinking", "not thinking"])
@pytest.mark.parametrize("name", FAMILIES)
def test_prompts_are_those_of_the_judge(
    folders: Mapping[str, Path],
    name: str,
    thinking: bool,
    case: str,
    tools: list[dict[str, Any]] | None,
) -> None:
    messages = CONVERSATIONS[case]
    codec = HuggingFaceCodec(folders[name], template=variables(name, thinking))
    if name == "mistral" and case in REFUSED_BY_MISTRAL:
        with pytest.raises(ValueError, match=r"length 9|must alternate"):
            codec.chat_ids(messages, tools=tools)
        return
    for prompt in (True, False):
        if (name, prompt) == ("qwen3", False) and not thinking:
            continue  # the package keeps empty thoughts there; the published template does not
        if name == "qwen3" and not thinking and any(one["role"] == "assistant" for one in messages):
            continue
        right = judged(name, folders[name], messages, tools=tools, prompt=prompt, thinking=thinking)
        ours = codec.chat(messages, tools=tools, generation_prompt=prompt)
        assert ours == codec.decode(right)
        assert codec.encode(ours) == right


@pytest.mark.parametrize("name", FAMILIES)
def test_turns_end_as_the_judge_ends_them(folders: Mapping[str, Path], name: str) -> None:
    codec = HuggingFaceCodec(folders[name])
    assert codec.end_of_turn == FAMILIES[name].turn_end
    assert set(codec.turn_ends) == {*FAMILIES[name].ends, FAMILIES[name].eos}
    renderer = renderer_of(name, folders[name], True)
    if renderer is not None:
        ids = {codec.token_id(end) for end in codec.turn_ends}
        assert ids >= set(renderer.get_stop_token_ids())


@pytest.mark.parametrize("texts", [["142"], ["\u00e9</tool_response>\t\n"], ['"', "b\nb", "c"]])
@pytest.mark.parametrize("name", [name for name in FAMILIES if name != "mistral"])
def test_frames_around_observations_are_the_judge_s(
    folders: Mapping[str, Path], name: str, texts: list[str]
) -> None:
    """What a rollout appends after an action is what the whole conversation has there."""
    codec = HuggingFaceCodec(folders[name])
    chat = Chat(role="tool", parallel=len(texts) > 1)
    messages = [USER, SAID, *({"role": "tool", "content": text} for text in texts)]
    whole = judged(name, folders[name], messages, tools=None, prompt=True, thinking=True)
    head, tail = chat.frame("</tool_call>", codec)
    appended = codec.decode([*head, *chat.observation(texts, codec), *tail])
    assert codec.decode(whole).endswith(SAID["content"] + appended)
    ended, _ = chat.frame(codec.end_of_turn, codec)
    if name != "glm_4_5":  # GLM's turn ends with the next role's token, and that is not a user's
        assert codec.decode(head) == codec.end_of_turn + codec.decode(ended)


@pytest.mark.parametrize("name", FAMILIES)
def test_each_template_has_its_class(folders: Mapping[str, Path], name: str) -> None:
    codec = HuggingFaceCodec(folders[name])
    kind, why = template_class(codec, "tool")
    assert (kind, bool(why)) == (FAMILIES[name].kind, FAMILIES[name].kind != "append-only"), why
    assert codec.template_names() == FAMILIES[name].reads


@pytest.mark.parametrize("name", [n for n, family in FAMILIES.items() if family.no_thinking])
def test_without_thinking_the_empty_thought_follows_prompts_and_observations(
    folders: Mapping[str, Path], name: str
) -> None:
    thinks = HuggingFaceCodec(folders[name])
    silent = HuggingFaceCodec(folders[name], template=FAMILIES[name].no_thinking)
    for codec, closed in ((thinks, False), (silent, True)):
        prompt = codec.decode(codec.chat_ids([USER]))
        after = find_frame(codec, "tool").after
        demonstration = Chat().demonstration([USER, SAID, OBSERVED, SAID], codec)
        for text in (prompt, after, codec.decode(demonstration[0][1])):
            assert text.rstrip().endswith("</think>") == closed
        assert codec.decode(demonstration[2][1]).rstrip().endswith("</think>") == closed
    assert thinks.hash != silent.hash


def test_a_base_model_s_turn_ends_by_the_template(tmp_path: Path) -> None:
    """Qwen2.5's base folders: eos_token is the end of a document, and both end a turn."""
    codec = HuggingFaceCodec(write_family(tmp_path / "p", "qwen2_5", eos="<|endoftext|>"))
    assert codec.turn_ends == ("<|im_end|>", "<|endoftext|>")
    assert Chat().stops((), codec)[-1] == "<|im_end|>"
    for end in codec.turn_ends:
        head, _ = Chat().frame(end, codec)
        assert codec.decode(head).startswith("\n<|im_start|>user\n<tool_response>")


@pytest.mark.parametrize(
    "write",
    [
        "{{ m.content | upper }}",
        "{{ m.content | replace('\\n', ' ') }}",
        "{{ m.content[:10] }}",
    ],
)
def test_a_template_that_changes_tool_text_is_refused(tmp_path: Path, write: str) -> None:
    template = (
        "{% for m in messages %}<|im_start|>{% if m.role == 'tool' %}"
        f"{write}{{% else %}}{{{{ m.content }}}}{{% endif %}}<|im_end|>{{% endfor %}}"
    )
    codec = HuggingFaceCodec(write_family(tmp_path / "p", "qwen2_5", template=template))
    with pytest.raises(ValueError, match=r"changes a tool's text|writes no message of role"):
        Chat().frame(None, codec)
    assert template_class(codec, "tool")[0] == "not splittable"


def test_check_prints_the_class_for_what_outside_agents_append(
    folders: Mapping[str, Path],
) -> None:
    said = {
        name: [*agents_report(HuggingFaceCodec(folders[name]))]
        for name in ("qwen2_5", "qwen3", "mistral")
    }
    begin = "chat template, outside agents, role"
    assert said["qwen2_5"] == [
        (False, f"{begin} {role!r}: append-only") for role in ("tool", "user")
    ]
    assert said["qwen3"][1][1].startswith(f"{begin} 'user': strips thinking")
    is_warning, line = said["mistral"][0]
    assert is_warning
    assert line.endswith("each request may be rendered as a whole")


@pytest.mark.parametrize(
    "template", ["{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}", ""]
)
def test_check_warns_of_a_template_that_shows_agents_no_tools(
    tmp_path: Path, template: str
) -> None:
    codec = HuggingFaceCodec(write_family(tmp_path / "p", "qwen2_5", template=template))
    warned = [line for is_warning, line in agents_report(codec) if is_warning]
    assert ["does not show `tools`" in line for line in warned[:1]] == ([True] if template else [])
