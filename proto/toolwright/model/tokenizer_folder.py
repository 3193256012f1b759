"""Writes a tokenizer as a policy's folder has it, in transformers' form and without transformers.

Importing transformers costs seconds and, where torch is installed, a quarter of a gigabyte; its
tokenizer classes add no more than two small files to what `tokenizers` writes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def write_tokenizer(
    folder: Path,
    tokenizer: Any,
    *,
    end_of_turn: str,
    pad: str,
    begin: str | None = None,
    special: Sequence[str] = (),
    template: str | None = None,
    **settings: Any,
) -> None:
    """Writes tokenizer.json, tokenizer_config.json and, with a template, chat_template.jinja.

    tokenizer: a `tokenizers.Tokenizer`. Special tokens that it lacks are added to it, in the order
    begin, end_of_turn, pad, special. settings: further keys of tokenizer_config.json.
    """
    from tokenizers import AddedToken
    from tokenizers.processors import TemplateProcessing

    named = [token for token in (begin, end_of_turn, pad, *special) if token is not None]
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in named])
    # It adds nothing; with it the file, and so the tokenizer's hash, is the one of transformers.
    tokenizer.post_processor = TemplateProcessing(
        single="$A:0", pair="$A:0 $B:1", special_tokens=[]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "backend": "tokenizers",
        "tokenizer_class": "TokenizersBackend",
        "eos_token": end_of_turn,
        "pad_token": pad,
        **({"bos_token": begin} if begin is not None else {}),
        **({"extra_special_tokens": list(special)} if special else {}),
        **settings,
    }
    (folder / "tokenizer_config.json").write_text(
        json.dumps(config, indent=2, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8"
    )
    if template is not None:
        (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
