"""Makes the market's untrained policy: a tiny random Qwen3 for the demonstrations' words.

    python -m toolwright.script market/policy.py --output untrained --seed 1

The fixed parts of plans, steps and calls are one token each. To write JSON around a Python function
letter by letter is beyond 0.85 million parameters; which tool to take or to make, and with which
rate, is what is learnt.
"""

from __future__ import annotations

from toolwright.model.tiny_policy import tags_of, tiny_policy

from .demonstrations import conversations
from .task import GOODS

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

TAGS = tags_of("tool_call", "answer")
write, main = tiny_policy(conversations, tags=TAGS, words=lambda: WORDS, sample=2000)
