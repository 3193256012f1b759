"""Makes the demonstration's untrained policy: a tiny random Qwen2.5-VL for the world's words.

    python -m toolwright.script world/policy.py --output untrained --seed 1

An ordinary Hugging Face folder, which transformers, SGLang, the learner and the engine read like
any other Qwen2.5-VL. Its image processor makes 56 x 56 pixels of every picture, four tokens: that
is what makes a number too small to be read before a zoom.
"""

from __future__ import annotations

import json
from itertools import islice, product
from pathlib import Path
from typing import Any

from tasks.worlds.demonstrations import asks
from toolwright.model.tiny_policy import (
    END_OF_TURN_ID,
    VOCABULARY,
    make_tokenizer,
    policy_program,
    write_tiny_tokenizer,
)

from .lessons import lessons
from .pictures import COLOURS, PLACES

VISION = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
TAGS = ("<tool_call>", "</tool_call>", *VISION)
WORDS = (
    '{"name": "crop_image_normalized", "arguments": {"bbox_2d": ',
    ', "target_image": 1}}',
    "[0.20, 0.20, 0.28, 0.28]",
    "[0.70, 0.20, 0.78, 0.28]",
    "[0.20, 0.70, 0.28, 0.78]",
    "[0.70, 0.70, 0.78, 0.78]",
    *(f" {colour}" for colour in COLOURS),
    *(f" {colour} {place}" for colour, place in product(COLOURS, PLACES)),
    "There is",
    " I look for",
    "\\boxed{",
    "Which number is on the",
    "Look at the",
    " box",
    " bar",
    " page",
    "What stands where?",
    "Which number is this?",
    "Image ",
    ": 112 x 112 pixels",
)
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

INITIAL = 0.05
"""Standard deviation of first weights: with 0.02 what the tower sees hardly tells at first."""
TEXT: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 128,
    "intermediate_size": 384,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
    "initializer_range": INITIAL,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 1000.0,
        "mrope_section": [4, 6, 6],
    },
    "bos_token_id": None,
}
TOWER: dict[str, Any] = {
    "depth": 2,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_heads": 2,
    "out_hidden_size": 128,
    "fullatt_block_indexes": [1],
    "window_size": 56,
    "initializer_range": INITIAL,
}
PROCESSOR = {
    "min_pixels": 56 * 56,
    "max_pixels": 56 * 56,
    "patch_size": 14,
    "temporal_patch_size": 2,
    "merge_size": 2,
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
    "image_processor_type": "Qwen2VLImageProcessor",
    "processor_class": "Qwen2_5_VLProcessor",
}


def write(folder: Path, *, seed: int) -> None:
    """Writes the Hugging Face folder. ImportError without the learner's packages."""
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
    start, end, image, video = map(tokenizer.token_to_id, VISION)
    config = {
        "architectures": ["Qwen2_5_VLForConditionalGeneration"],
        "model_type": "qwen2_5_vl",
        "text_config": {
            **TEXT,
            "tie_word_embeddings": True,
            "eos_token_id": END_OF_TURN_ID,
        },
        "vision_config": TOWER,
        "tie_word_embeddings": True,
        "vision_start_token_id": start,
        "vision_end_token_id": end,
        "image_token_id": image,
        "video_token_id": video,
    }
    for name, content in (("config", config), ("preprocessor_config", PROCESSOR)):
        (folder / f"{name}.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


main = policy_program(write)
