"""Makes the market's untrained policy: a tiny random Qwen3 for the demonstrations' words.

    python market/policy.py --output untrained --seed 1

The fixed parts of plans, steps and calls are one token each. To write JSON around a Python function
letter by letter is beyond 0.85 million parameters; which tool to take or to make, and with which
rate, is what is learnt.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from demonstrations import conversations
from task import GOODS

from toolwright.model.tiny_policy import policy_command, write_policy

TAGS = ("<tool_call>", "</tool_call>", "<answer>", "</answer>")
WORDS = (
    "##DAG_LIST\n[(ST1,)]",
    "##DAG_LIST\n[(ST1, ST2)]",
    "\n##ST1: ",
    "\n##ST2: ",
    "\n1. ",
    "<subtask> ST1: ",
    "<subtask> ST2: ",
    " </subtask><thinking> ",
    " </thinking>",
    '{"name": "',
    "create_and_execute",
    '", "arguments": {"name": "',
    '", "description": "',
    '", "arguments": {"n": {"type": "integer"}}, "returns": "", "code": "def ',
    "(n):\\n    return n * ",
    ' + 1", "inputs": {"n": ',
    '", "arguments": {"n": ',
    "}}",
    "}}}",
    '{"creation_success": true, "execution_result": ',
    '{"execution_result": ',
    ', "stdout": "", "stderr": ""}',
    " \\boxed{",
    "} ",
    "_to_",
    "_from_",
    " to ",
    " for ",
    *GOODS,
)
TOKENIZER_SAMPLE = 2000  # conversations


def write(folder: Path, *, seed: int) -> None:
    """Writes the Hugging Face folder."""
    known = islice(conversations(seed=0), TOKENIZER_SAMPLE)
    write_policy(folder, conversations=known, tags=TAGS, words=WORDS, seed=seed)


def main(arguments: Sequence[str] | None = None) -> None:
    policy_command(write, "the market's", arguments)


if __name__ == "__main__":
    main()
