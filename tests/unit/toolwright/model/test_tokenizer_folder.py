"""A tokenizer's files are those that transformers writes, byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from toolwright.model.tokenizer_folder import write_tokenizer

pytestmark = pytest.mark.quick

TEMPLATE = "{% for m in messages %}{{ m['content'] }}<end>\n{% endfor %}"


def bytes_tokenizer() -> Tokenizer:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


@pytest.mark.parametrize("begin", [None, "<begin>"])
@pytest.mark.parametrize("special", [(), ("<tag>", "</täg>")])
@pytest.mark.parametrize("template", [None, TEMPLATE])
def test_the_files_are_those_of_transformers(
    tmp_path: Path, begin: str | None, special: tuple[str, ...], template: str | None
) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ours.mkdir()
    write_tokenizer(
        ours,
        bytes_tokenizer(),
        end_of_turn="<end>",
        pad="<pad>",
        begin=begin,
        special=special,
        template=template,
        model_max_length=99,
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=bytes_tokenizer(),
        eos_token="<end>",
        pad_token="<pad>",
        **({"bos_token": begin} if begin else {}),
        **({"additional_special_tokens": list(special)} if special else {}),
        **({"chat_template": template} if template else {}),
        model_max_length=99,
    )
    fast.save_pretrained(str(theirs))
    assert {file.name for file in ours.iterdir()} == {file.name for file in theirs.iterdir()}
    for file in theirs.iterdir():
        assert (ours / file.name).read_bytes() == file.read_bytes(), file.name
    read = AutoTokenizer.from_pretrained(str(ours), local_files_only=True)
    assert (read.eos_token, read.pad_token, read.bos_token) == ("<end>", "<pad>", begin)
    assert read.model_max_length == 99
