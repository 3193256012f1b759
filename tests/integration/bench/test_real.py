"""`make real` for two steps: every process but the sampler is real, and a tiny Llama is the model.

The sampler is scripted: it calls Python with an operator that depends on the attempt, and copies
the result. So some attempts of a group are right, and the learner has something to learn from.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from bench.demo.commands import Commands
from bench.demo.session import demonstrate
from bench.processes import Command
from bench.real.subject import arithmetic
from tests.support.policy import write_policy

LAYERS, WIDTH, HEADS, KEY_VALUE_HEADS, INNER, VOCABULARY = 2, 48, 3, 1, 64, 320
SCRIPT = """
import re, zlib
from tokenizers import Tokenizer
tokenizer = Tokenizer.from_file({tokenizer!r})
def reply(request):
    text = tokenizer.decode(list(request.input_ids), skip_special_tokens=False)
    question = text.rpartition("<|im_start|>user")[2]
    if "<result>" in question:
        said = question.rpartition("<result>")[2].partition("<")[0].strip()
        action = f"<answer> {{said}}</answer><|im_end|>"
    else:
        a, b = sorted(map(int, re.findall(r"[0-9]+", question)), reverse=True)[:2]
        sign = ("*", "+", "-", "//")[zlib.crc32(request.rid.encode()) % 4]
        action = f"<python> print({{a}}{{sign}}{{b}})</python>"
    return tokenizer.encode(action, add_special_tokens=False).ids
"""


class Scripted(Commands):
    """The same commands, but for the sampler's."""

    def sampler(self, model: Path, port: int) -> Command:
        script = model / "script.py"
        script.write_text(SCRIPT.format(tokenizer=str(model / "tokenizer.json")))
        bench = (sys.executable, "-m", "bench.cli", "scripted-sampler")
        said = ("--script", f"{script}:reply", "--port", str(port))
        limits = ("--vocab-size", str(VOCABULARY), "--context-length", "1024")
        return Command(name="sampler", argv=(*bench, *said, *limits))


def write_llama(folder: Path) -> Path:
    """Two layers in SmolLM2's form: three heads to a key-value head, tied embeddings."""
    head = WIDTH // HEADS
    write_policy(
        folder,
        vocab_size=VOCABULARY,
        model_type="llama",
        architectures=["LlamaForCausalLM"],
        hidden_size=WIDTH,
        intermediate_size=INNER,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KEY_VALUE_HEADS,
        head_dim=head,
        hidden_act="silu",
        rms_norm_eps=1e-5,
        max_position_embeddings=1024,
        rope_parameters={"rope_type": "default", "rope_theta": 100000.0},
        tie_word_embeddings=True,
        attention_bias=False,
        mlp_bias=False,
    )
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (VOCABULARY, WIDTH),
        "model.norm.weight": (WIDTH,),
    }
    for number in range(LAYERS):
        layer = f"model.layers.{number}."
        shapes |= {
            f"{layer}input_layernorm.weight": (WIDTH,),
            f"{layer}post_attention_layernorm.weight": (WIDTH,),
            f"{layer}self_attn.q_proj.weight": (WIDTH, WIDTH),
            f"{layer}self_attn.k_proj.weight": (KEY_VALUE_HEADS * head, WIDTH),
            f"{layer}self_attn.v_proj.weight": (KEY_VALUE_HEADS * head, WIDTH),
            f"{layer}self_attn.o_proj.weight": (WIDTH, WIDTH),
            f"{layer}mlp.gate_proj.weight": (INNER, WIDTH),
            f"{layer}mlp.up_proj.weight": (INNER, WIDTH),
            f"{layer}mlp.down_proj.weight": (WIDTH, INNER),
        }
    draw = np.random.default_rng(0)
    weights = {
        name: np.ones(shape, np.float32)
        if len(shape) == 1
        else draw.standard_normal(shape, np.float32) * np.float32(0.05)
        for name, shape in shapes.items()
    }
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def suite(name: str, source: str, temperature: float, **more: str) -> dict[str, Any]:
    task = arithmetic(Path()).example / "task.py"
    return {
        "name": name, "source": f"{task}:{source}", "n": 4, "temperature": temperature, **more,
    }  # fmt: skip


SUITES = [
    suite("curve-sampled", "unseen_wordings", 1.0),
    *(
        suite(f"{name}-{how}", source, temperature, when="ends")
        for name, source in (("unseen-wordings", "unseen_wordings"), ("heldout", "heldout"))
        for how, temperature in (("sampled", 1.0), ("greedy", 0.0))
    ),
]


def inline(tables: list[dict[str, Any]]) -> str:
    """TOML's spelling of a list of flat tables."""
    rows = [", ".join(f"{key} = {json.dumps(value)}" for key, value in t.items()) for t in tables]
    return "[" + ", ".join(f"{{{row}}}" for row in rows) + "]"


def test_two_steps_from_a_folder_to_the_report(tmp_path: Path) -> None:
    model = write_llama(tmp_path / "llama")
    home = tmp_path / "home"
    demonstrate(
        "real",
        Scripted(subject=arithmetic(model)),
        folder=home,
        seeds=1,
        control=False,
        overrides={
            "run.steps": 2,
            "run.group_size": 4,
            "engine.evaluation.suites": inline(SUITES),
            # A letter is a token here.
            "task.limits.action": 64,
            "task.limits.observation": 64,
            "task.limits.response": 256,
            "task.limits.model": 768,
            "sft.steps": 2,
            "sft.batch_size": 4,
            "learner.checkpoint_every": 2,
        },
    )
    summary = json.loads((home / "summary.json").read_text())
    assert summary["unseen_wordings"]["n"] == summary["heldout"]["n"] == 4
    run = home / "seed-1/run"
    steps = [json.loads(line) for line in (run / "learner.jsonl").read_text().splitlines()]
    assert [step["step"] for step in steps] == [1, 2]
    assert sum(step["groups_with_signal"] for step in steps) > 0
    assert all(step["calls"] == 1 for step in steps)
    page = (home / "report.html").read_text()
    assert "Success on wordings never trained on rose from" in page
    assert "recipes/arithmetic.toml" in page
    before = load_file(model / "model.safetensors")
    after = load_file(run / "final/model.safetensors")
    assert before.keys() == after.keys()
    assert any(not np.array_equal(before[name], after[name]) for name in before)
