"""Folders in the form of SmolLM2 and of Llama 3: ids and prompts are those of transformers.

What they have and Qwen has not: digits that stand alone, a post-processor that puts a token before
every text, a template that begins with that token, several ids that end a text.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from engine.core.text.codec import HuggingFaceCodec

MERGES = (("t", "h"), ("th", "e"), ("\u0120", "the"), ("1", "2"), ("<", "|"))
SMOL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<repo_name>", "<jupyter_output>")
SMOL_TEMPLATE = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou help.<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
LLAMA3 = (
    "<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>",
    "<|eom_id|>", "<|eot_id|>", "<|python_tag|>",
)  # fmt: skip
LLAMA3_TEMPLATE = (
    "{{- bos_token }}{%- for message in messages %}"
    "{%- set role = 'ipython' if message.role == 'tool' else message.role %}"
    "{{- '<|start_header_id|>' + role + '<|end_header_id|>\n\n' }}"
    "{%- if message.role == 'tool' %}{{- message.content | tojson }}"
    "{%- else %}{{- message.content | trim }}{%- endif %}{{- '<|eot_id|>' }}{%- endfor %}"
    "{%- if add_generation_prompt %}"
    "{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{%- endif %}"
)
LLAMA3_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
MESSAGES = (
    {"role": "user", "content": "what is 12 + 129 on the 3rd?\n\n"},
    {"role": "assistant", "content": "the <|eot_id|> <|im_end|> end"},
    {"role": "tool", "content": "141"},
)


def write_folder(folder: Path, form: str) -> Path:
    vocabulary = {c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    for left, right in MERGES:
        vocabulary[left + right] = len(vocabulary)
    smol = form == "smol"
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=list(MERGES), ignore_merges=not smol))
    first = (
        pre_tokenizers.Digits(individual_digits=True)
        if smol
        else pre_tokenizers.Split(Regex(LLAMA3_WORDS), "isolated")
    )
    letters = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=smol)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([first, letters])
    tokenizer.decoder = decoders.ByteLevel()
    special = SMOL if smol else LLAMA3
    tokenizer.add_special_tokens(list(special))
    if not smol:
        begin = tokenizer.token_to_id("<|begin_of_text|>")
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<|begin_of_text|> $A", special_tokens=[("<|begin_of_text|>", begin)]
        )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<|im_start|>" if smol else "<|begin_of_text|>",
        eos_token="<|im_end|>" if smol else "<|eot_id|>",
    )
    fast.chat_template = SMOL_TEMPLATE if smol else LLAMA3_TEMPLATE
    fast.save_pretrained(str(folder))
    ends = [tokenizer.token_to_id(t) for t in special if t.startswith(("<|e", "<|im_e"))]
    config = {"model_type": "llama", "vocab_size": 384, "eos_token_id": ends}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


@pytest.mark.parametrize("form", ["smol", "llama3"])
def test_prompts_and_ids_are_those_of_transformers(tmp_path: Path, form: str) -> None:
    folder = write_folder(tmp_path / form, form)
    theirs = AutoTokenizer.from_pretrained(folder)
    ours = HuggingFaceCodec(folder, foreign_text="as_is")
    assert ours.end_of_turn == theirs.eos_token
    for prompt in (True, False):
        ids = ours.chat_ids(MESSAGES, generation_prompt=prompt)
        assert ids == theirs.apply_chat_template(
            list(MESSAGES), add_generation_prompt=prompt, return_dict=False
        )
        assert ours.decode(ids) == ours.chat(MESSAGES, generation_prompt=prompt)


@pytest.mark.parametrize("form", ["smol", "llama3"])
def test_only_the_template_s_own_control_tokens_are_such(tmp_path: Path, form: str) -> None:
    """The text begins with one token of the model's, though the tokenizer would add another; and
    a message that spells the end of a turn does not end one."""
    codec = HuggingFaceCodec(write_folder(tmp_path / form, form))
    ids = codec.chat_ids(MESSAGES, generation_prompt=False)
    end = codec.token_id(codec.end_of_turn)
    turns = len(MESSAGES) + (form == "smol")  # SmolLM2's template adds a system message
    assert ids.count(end) == turns
    if form == "llama3":
        assert ids.count(codec.token_id("<|begin_of_text|>")) == 1
        assert codec.encode("12") == [codec.token_id("12")]
    else:
        assert len(codec.encode("12")) == 2
    assert codec.decode(codec.encode_plain(codec.end_of_turn)) == codec.end_of_turn
    assert end not in codec.encode_plain(codec.end_of_turn)
