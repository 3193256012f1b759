"""Encoding and decoding long texts lets other threads run."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from toolwright.chat.tokenizer import ChatTokenizer

pytestmark = pytest.mark.quick


def turns_meanwhile(work: Callable[[], object]) -> int:
    """How often this thread gets its turn while another one works."""
    done = threading.Event()

    def run() -> None:
        work()
        done.set()

    thread = threading.Thread(target=run)
    thread.start()
    turns = 0
    while not done.wait(0.001):
        turns += 1
    thread.join()
    return turns


def test_other_threads_run_while_a_long_text_is_encoded_and_decoded(policy_folder: Path) -> None:
    tokenizer = ChatTokenizer(policy_folder)
    text = "a long text \N{GRINNING FACE} " * 40_000
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert turns_meanwhile(lambda: tokenizer.encode(text)) > 5
    assert turns_meanwhile(lambda: tokenizer.decode(ids)) > 5
