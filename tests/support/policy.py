"""A policy folder without weights: byte-level tokenizer, chat template, configuration.

Nobody loads weights where the sampler is scripted; the engine reads the rest.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from toolwright.model.tokenizer_folder import write_tokenizer

SPECIAL = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>",
    "<python>", "</python>", "<result>", "</result>", "<answer>", "</answer>",
)  # fmt: skip
MERGES = (("/", "r"), ("/r", "u"), ("/ru", "n"), (">", "x"))
"""`</run>` is several tokens, and its last character may share a token with what follows: `>x`."""
VISION = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
PLAIN_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
QWEN_TEMPLATE = (
    "{%- if tools %}<|im_start|>system\n# Tools\n{% for t in tools %}{{ t | tojson }}\n"
    "{% endfor %}<|im_end|>\n{%- endif %}"
    "{%- set ns = namespace(last=0) %}"
    "{%- for m in messages %}{%- if m.role == 'user' %}{%- set ns.last = loop.index0 %}{%- endif %}"
    "{%- endfor %}"
    "{%- for m in messages %}"
    "{%- if m.role == 'assistant' %}{{ '<|im_start|>assistant\n' }}"
    "{%- if loop.last and loop.index0 > ns.last %}{{ '<think>\n\n</think>\n\n' }}{%- endif %}"
    "{{ m.content + '<|im_end|>\n' }}"
    "{%- elif m.role == 'tool' %}"
    "{%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}"
    "{{ '<|im_start|>user' }}{%- endif %}"
    "{{ '\n<tool_response>\n' + m.content + '\n</tool_response>' }}"
    "{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}"
    "{{ '<|im_end|>\n' }}{%- endif %}"
    "{%- else %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{%- endif %}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{%- endif %}"
)
"""Qwen's habits: tools in a system message, tool results inside a user turn, and an empty
thinking block before an assistant message only while it is the last one."""
VISION_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n"
    "{% if m['content'] is string %}{{ m['content'] }}{% else %}"
    "{% for part in m['content'] %}"
    "{% if part['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""As Qwen2-VL's: content may be a list of parts."""


def write_policy(
    folder: Path,
    *,
    template: str | None = PLAIN_TEMPLATE,
    vocab_size: int | None = None,
    bos_token: str | None = None,
    special: Sequence[str] = (),
    **config: Any,
) -> Path:
    """Writes the folder and returns it. `vocab_size` None = what the tokenizer needs, rounded."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    vocabulary = {c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    for left, right in MERGES:
        vocabulary[left + right] = len(vocabulary)
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=list(MERGES)))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    folder.mkdir(parents=True, exist_ok=True)
    write_tokenizer(
        folder,
        tokenizer,
        end_of_turn="<|im_end|>",
        pad="<|endoftext|>",
        begin=bos_token,
        special=(*SPECIAL, *special),
        template=template,
    )
    values = {"model_type": "qwen3", "vocab_size": vocab_size or 320, **config}
    (folder / "config.json").write_text(json.dumps(values), encoding="utf-8")
    return folder


def write_vision_policy(folder: Path, **config: Any) -> Path:
    """A policy that reads images, as Qwen2-VL does."""
    from tokenizers import Tokenizer

    write_policy(folder, template=VISION_TEMPLATE, special=VISION)
    ids = Tokenizer.from_file(str(folder / "tokenizer.json")).token_to_id
    values = {
        "model_type": "qwen2_vl",
        "vocab_size": 320,
        "vision_start_token_id": ids("<|vision_start|>"),
        "vision_end_token_id": ids("<|vision_end|>"),
        "image_token_id": ids("<|image_pad|>"),
        "video_token_id": ids("<|video_pad|>"),
        **config,
    }
    (folder / "config.json").write_text(json.dumps(values), encoding="utf-8")
    return folder
