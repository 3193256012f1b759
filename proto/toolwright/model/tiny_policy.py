"""Makes a tiny policy from nothing: random Qwen3 weights and a tokenizer for the texts of one task.

The folder is an ordinary Hugging Face folder: transformers, SGLang, the learner and the engine read
it like any other Qwen3. Only its size is special: 0.85 million parameters with 512 tokens, so that
two CPU cores can sample and train it.

Invariants
- The same seed and texts give the same bytes; the tokenizer does not depend on the seed at all.
- Every tag and every word that is named is one token, wherever it stands; digits are tokens of
  their own: copying a number is copying tokens.

Needs tokenizers and safetensors (the learner's extra), neither torch nor a download.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from toolwright.model.tokenizer_folder import write_tokenizer
from toolwright.script import Output, run

Conversation = Sequence[Mapping[str, str]]
"""Messages {"role", "content"}, the question first."""

PAD, TURN, END_OF_TURN = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
PAD_ID, END_OF_TURN_ID = 0, 2
"""The tokenizer's first ids are those of PAD, TURN and END_OF_TURN."""
VOCABULARY = 512
CONTEXT = 1024

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

HIDDEN, INTERMEDIATE, LAYERS = 128, 384, 4
HEADS, KEY_VALUE_HEADS, HEAD_DIM = 4, 2, 32
INITIAL_STD = 0.02

CONFIG: Mapping[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "dtype": "float32",
    "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN,
    "intermediate_size": INTERMEDIATE,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KEY_VALUE_HEADS,
    "head_dim": HEAD_DIM,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "attention_bias": False,
    "attention_dropout": 0.0,
    "tie_word_embeddings": True,
    "max_position_embeddings": CONTEXT,
    # A short period: positions here are a few dozen tokens apart, not thousands.
    "rope_parameters": {"rope_type": "default", "rope_theta": 1000.0},
    "layer_types": ["full_attention"] * LAYERS,
    "sliding_window": None,
    "use_sliding_window": False,
    "initializer_range": INITIAL_STD,
    "use_cache": True,
    "bos_token_id": None,
}


class PolicyWriter(Protocol):
    """Writes the Hugging Face folder of a policy."""

    def __call__(self, folder: Path, *, seed: int) -> None: ...


def tags_of(*names: str) -> tuple[str, ...]:
    """Opening and closing tag of each name."""
    return tuple(tag for name in names for tag in (f"<{name}>", f"</{name}>"))


def single_tokens(texts: Iterable[str]) -> list[str]:
    """Texts that are one token each only if they are named: those of two characters or more."""
    return list(dict.fromkeys(text for text in texts if len(text) > 1))


def tiny_policy(
    conversations: Callable[[int], Iterator[Conversation]],
    *,
    tags: Sequence[str],
    words: Callable[[], Sequence[str]] = tuple,
    sample: int,
    template: str = CHAT_TEMPLATE,
) -> tuple[PolicyWriter, Callable[..., None]]:
    """The functions `write` and `main` of a recipe's file that makes its untrained policy.

    The tokenizer knows `tags` and `words`, and learns the rest from the first `sample`
    conversations of seed 0. template: the chat template.
    """

    def write(folder: Path, *, seed: int) -> None:
        known = islice(conversations(0), sample)
        write_policy(
            folder,
            conversations=known,
            tags=tags,
            words=words(),
            seed=seed,
            template=template,
        )

    return write, policy_program(write)


def policy_program(write: PolicyWriter) -> Callable[..., None]:
    """The `main` of a file that makes a policy: `--output FOLDER --seed N`."""

    def main(*, output: Output, seed: int = 0) -> None:
        """Make an untrained policy."""
        write(output, seed=seed)
        print(f"an untrained policy: {output}")

    return main


def write_policy(
    folder: Path,
    *,
    conversations: Iterable[Conversation],
    tags: Sequence[str],
    words: Sequence[str] = (),
    seed: int,
    template: str = CHAT_TEMPLATE,
) -> None:
    """Writes weights, configuration, tokenizer and chat template.

    conversations: their words are the tokenizer's. tags: texts such as "<answer>" that are to be
    one token each, and that no foreign text can spell; words: texts that are to be one token
    each and nothing else. ImportError without the learner's packages.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = make_tokenizer(conversations, tags, words)
    write_tiny_tokenizer(folder, tokenizer, tags, template)
    ends = {"eos_token_id": END_OF_TURN_ID, "pad_token_id": PAD_ID}
    _write_json(folder / "config.json", {**CONFIG, **ends})
    _write_json(folder / "generation_config.json", {"do_sample": True, "temperature": 1.0, **ends})
    from safetensors.numpy import save_file

    save_file(random_weights(seed), folder / "model.safetensors", metadata={"format": "pt"})


def make_tokenizer(
    conversations: Iterable[Conversation], tags: Sequence[str], words: Sequence[str] = ()
) -> Any:
    """A byte-level BPE tokenizer (`tokenizers.Tokenizer`)."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(words),
        special_tokens=[PAD, TURN, END_OF_TURN, *tags],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = map(_as_the_policy_sees_it, conversations)
    tokenizer.train_from_iterator(
        (piece for one in texts for piece in _between(one, words)), trainer
    )
    tokenizer.add_tokens([AddedToken(word, normalized=False) for word in words])
    return tokenizer


def write_tiny_tokenizer(
    folder: Path, tokenizer: Any, tags: Sequence[str], template: str = CHAT_TEMPLATE
) -> None:
    """Writes the files of a tokenizer that `make_tokenizer` made with the same tags."""
    write_tokenizer(
        folder,
        tokenizer,
        end_of_turn=END_OF_TURN,
        pad=PAD,
        special=(TURN, *tags),
        template=template,
        clean_up_tokenization_spaces=False,
        model_max_length=CONTEXT,
    )


def policy_command(write: PolicyWriter, what: str, arguments: Sequence[str] | None = None) -> None:
    """Runs the program of `policy_program`; recipe folders of earlier versions call it."""
    run(policy_program(write), arguments)


def random_weights(seed: int) -> dict[str, np.ndarray[Any, np.dtype[np.float32]]]:
    """Qwen3's tensors by their Hugging Face names: N(0, 0.02), and ones for the norms."""
    draw = np.random.default_rng(seed)
    return {
        name: np.ones(shape, np.float32)
        if len(shape) == 1
        else (draw.standard_normal(shape, np.float32) * np.float32(INITIAL_STD))
        for name, shape in _shapes()
    }


def _shapes() -> Iterator[tuple[str, tuple[int, ...]]]:
    queries, keys = HEADS * HEAD_DIM, KEY_VALUE_HEADS * HEAD_DIM
    yield "model.embed_tokens.weight", (VOCABULARY, HIDDEN)
    for layer in range(LAYERS):
        inside = {
            "input_layernorm": (HIDDEN,),
            "self_attn.q_proj": (queries, HIDDEN),
            "self_attn.k_proj": (keys, HIDDEN),
            "self_attn.v_proj": (keys, HIDDEN),
            "self_attn.o_proj": (HIDDEN, queries),
            "self_attn.q_norm": (HEAD_DIM,),
            "self_attn.k_norm": (HEAD_DIM,),
            "post_attention_layernorm": (HIDDEN,),
            "mlp.gate_proj": (INTERMEDIATE, HIDDEN),
            "mlp.up_proj": (INTERMEDIATE, HIDDEN),
            "mlp.down_proj": (HIDDEN, INTERMEDIATE),
        }
        for name, shape in inside.items():
            yield f"model.layers.{layer}.{name}.weight", shape
    yield "model.norm.weight", (HIDDEN,)


def _as_the_policy_sees_it(messages: Conversation) -> str:
    """A conversation as the chat template writes it."""
    question, *rest = (message["content"] for message in messages)
    return f"{TURN}user\n{question}{END_OF_TURN}\n{TURN}assistant\n{''.join(rest)}{END_OF_TURN}"


def _between(text: str, words: Sequence[str]) -> list[str]:
    """The pieces of the text between the words, which the tokenizer learns."""
    if not words:
        return [text]
    longest_first = sorted(words, key=len, reverse=True)
    return re.split("|".join(map(re.escape, longest_first)), text)


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
