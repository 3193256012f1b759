"""Policy folders without weights whose tokenizers and chat templates follow published families.

Templates lie in chat_templates/, each written for these tests in the style of the published one
that its first line names. The tokenizer knows bytes and the family's control tokens.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TEMPLATES = Path(__file__).parent / "chat_templates"
_QWEN = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_QWEN_TAGS = ("<tool_call>", "</tool_call>")
_DEEPSEEK = tuple(
    f"<\uff5c{name.replace(' ', chr(0x2581))}\uff5c>"
    for name in (
        *("begin of sentence", "end of sentence", "User", "Assistant"),
        *("tool calls begin", "tool calls end", "tool call begin", "tool call end", "tool sep"),
        *("tool outputs begin", "tool outputs end", "tool output begin", "tool output end"),
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """special: control tokens. tags: tokens in brackets that are not special. ends: end tokens of
    generation_config.json. kind: the class that `engine check` must print. variables: what turns
    thinking off."""

    special: tuple[str, ...]
    tags: tuple[str, ...] = ()
    eos: str
    bos: str | None = None
    ends: tuple[str, ...]
    turn_end: str
    kind: str
    reads: frozenset[str] = frozenset()
    no_thinking: Mapping[str, Any] | None = None
    model_type: str = "llama"


FAMILIES: Mapping[str, Family] = {
    "qwen2_5": Family(
        special=_QWEN,
        tags=_QWEN_TAGS,
        eos="<|im_end|>",
        ends=("<|im_end|>", "<|endoftext|>"),
        turn_end="<|im_end|>",
        kind="append-only",
        model_type="qwen2",
    ),
    "qwen3": Family(
        special=_QWEN,
        tags=(*_QWEN_TAGS, "<tool_response>", "</tool_response>", "<think>", "</think>"),
        eos="<|im_end|>",
        ends=("<|im_end|>", "<|endoftext|>"),
        turn_end="<|im_end|>",
        kind="append-only",
        reads=frozenset({"enable_thinking"}),
        no_thinking={"enable_thinking": False},
        model_type="qwen3",
    ),
    "llama_3": Family(
        special=(
            *("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>"),
            *("<|eom_id|>", "<|eot_id|>", "<|python_tag|>"),
        ),
        eos="<|eot_id|>",
        bos="<|begin_of_text|>",
        ends=("<|end_of_text|>", "<|eom_id|>", "<|eot_id|>"),
        turn_end="<|eot_id|>",
        kind="append-only",
        reads=frozenset({"date_string", "tools_in_user_message"}),
    ),
    "mistral": Family(
        special=(
            *("<s>", "</s>", "[INST]", "[/INST]", "[TOOL_CALLS]", "[AVAILABLE_TOOLS]"),
            *("[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]"),
        ),
        eos="</s>",
        bos="<s>",
        ends=("</s>",),
        turn_end="</s>",
        kind="not splittable",
    ),
    "deepseek_v3": Family(
        special=_DEEPSEEK,
        eos=_DEEPSEEK[1],
        bos=_DEEPSEEK[0],
        ends=(_DEEPSEEK[1],),
        turn_end=_DEEPSEEK[1],
        kind="append-only",
    ),
    "deepseek_r1": Family(
        special=_DEEPSEEK,
        tags=("<think>", "</think>"),
        eos=_DEEPSEEK[1],
        bos=_DEEPSEEK[0],
        ends=(_DEEPSEEK[1],),
        turn_end=_DEEPSEEK[1],
        kind="strips thinking",
    ),
    "glm_4_5": Family(
        special=(
            *("<|endoftext|>", "[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>"),
            "<|observation|>",
        ),
        tags=(
            *_QWEN_TAGS,
            *("<think>", "</think>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
        ),
        eos="<|endoftext|>",
        ends=("<|endoftext|>", "<|user|>", "<|observation|>"),
        turn_end="<|user|>",
        kind="append-only",
        reads=frozenset({"enable_thinking"}),
        no_thinking={"enable_thinking": False},
    ),
}


def write_family(folder: Path, name: str, *, eos: str = "", template: str = "") -> Path:
    """Writes the folder and returns it. eos, template: in place of the family's own."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    family = FAMILIES[name]
    letters = {c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab=letters, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(family.special))
    tokenizer.add_tokens([AddedToken(tag, normalized=False) for tag in family.tags])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=eos or family.eos, bos_token=family.bos
    )
    fast.chat_template = template or (TEMPLATES / f"{name}.jinja").read_text(encoding="utf-8")
    fast.save_pretrained(str(folder))
    (folder / "config.json").write_text(
        json.dumps({"model_type": family.model_type, "vocab_size": 320}), encoding="utf-8"
    )
    ends = [tokenizer.token_to_id(end) for end in family.ends]
    (folder / "generation_config.json").write_text(
        json.dumps({"eos_token_id": ends}), encoding="utf-8"
    )
    return folder
