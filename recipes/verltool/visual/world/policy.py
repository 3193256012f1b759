"""Makes the demonstration's untrained policy: a tiny random Qwen2.5-VL for the world's words.

    python -m toolwright.script world/policy.py --output untrained --seed 1

An ordinary Hugging Face folder, which transformers, SGLang, the learner and the engine read like
any other Qwen2.5-VL. Its image processor makes 56 x 56 pixels of every picture, four tokens: that
is what makes a number too small to be read before a zoom.
"""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

from tasks.worlds.demonstrations import asks
from toolwright.model.tiny_policy import (
    make_tokenizer,
    policy_program,
    write_tiny_tokenizer,
)

from .lessons import lessons

VISION = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
TAGS = ("<tool_call>", "</tool_call>", *VISION)
WORDS = json.loads(Path(__file__).with_name("tokens.json").read_text("utf-8"))
"""One token each: where to look and what is read is learnt, and not how JSON is spelt."""
TOKENIZER_SAMPLE = 500  # conversations

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n"
    "{% if m['content'] is string %}{{ m['content'] }}{% else %}"
    "{% for part in m['content'] %}"
    "{% if part['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""Qwen2.5-VL's way of writing images, without its system message."""

FILES = ("config.json", "preprocessor_config.json")
"""Beside this file. First weights deviate by 0.05: with 0.02 what the tower sees hardly tells at
first."""


def write(folder: Path, *, seed: int) -> None:
    """Writes the Hugging Face folder. Raises ImportError without the learner's packages."""
    import torch
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

    write_words(folder)
    torch.manual_seed(seed)
    config = Qwen2_5_VLConfig.from_pretrained(folder)
    Qwen2_5_VLForConditionalGeneration(config).save_pretrained(folder)


def write_words(folder: Path) -> None:
    """All but the weights: tokenizer, chat template, configuration, image processor."""
    folder.mkdir(parents=True, exist_ok=True)
    shown = islice(lessons(seed=0, seeing=0), TOKENIZER_SAMPLE)
    known = ([asks(one.question), *one.turns] for one in shown)
    tokenizer = make_tokenizer(known, TAGS, WORDS)
    write_tiny_tokenizer(folder, tokenizer, TAGS, TEMPLATE)
    keys = ("vision_start_token_id", "vision_end_token_id", "image_token_id", "video_token_id")
    tokens = dict(zip(keys, map(tokenizer.token_to_id, VISION), strict=True))
    for name in FILES:
        found = json.loads(Path(__file__).with_name(name).read_text(encoding="utf-8"))
        if name == "config.json":
            found |= tokens
        (folder / name).write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


main = policy_program(write)
