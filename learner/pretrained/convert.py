"""A GGUF file to a Hugging Face folder: GGUF, FOLDER and QUESTION on the command line.

A program of its own, so that its end frees torch and the copies of the weights. The last line of
its output is the model's greedy answer to the question, as JSON.

transformers reads the file and dequantises it; the folder has float32 weights. The folder gets its
name when it is complete.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

ANSWER_TOKENS = 24


def convert(gguf: Path, folder: Path) -> None:
    """Writes config.json, weights, tokenizer and chat template."""
    part = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, dtype=torch.float32, trust_remote_code=False
    )
    # The weights are float32 now. transformers still treats the model as quantised, and cannot
    # write a quantised model of GGUF.
    model.hf_quantizer, model.is_quantized = None, False
    del model.config.quantization_config
    model.save_pretrained(part)
    tokenizer = AutoTokenizer.from_pretrained(
        gguf.parent, gguf_file=gguf.name, trust_remote_code=False
    )
    tokenizer.save_pretrained(part)
    part.rename(folder)


def answer(folder: Path, question: str) -> str:
    """The model's greedy answer to one user message, by transformers."""
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, trust_remote_code=False, use_safetensors=True
    ).eval()
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": question}],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    )
    with torch.no_grad():
        ids = model.generate(**prompt, max_new_tokens=ANSWER_TOKENS, do_sample=False)
    return str(tokenizer.decode(ids[0, prompt["input_ids"].shape[1] :], skip_special_tokens=True))


def main(arguments: list[str]) -> None:
    gguf, folder, question = Path(arguments[0]), Path(arguments[1]), arguments[2]
    if not folder.is_dir():
        convert(gguf, folder)
    print(json.dumps(answer(folder, question)))


if __name__ == "__main__":
    main(sys.argv[1:])
