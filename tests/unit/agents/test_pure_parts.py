"""The agent host's pure parts: endings, results, environment, output."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents.call import result_of
from agents.client import ClientSettings
from agents.environment import environment, task_data
from agents.outcomes import MOST_RESULT, Result, ResultFault, ending_of, read_result
from agents.process.output import BoundedOutput
from toolwright.ingress.v1 import ingress_pb2 as pb
from toolwright.types import Task

pytestmark = pytest.mark.quick

CLIENT = ClientSettings.of("http://127.0.0.1:1", "tw-key")


@pytest.mark.parametrize(
    ("code", "outcome", "error"),
    [
        (0, pb.OUTCOME_DONE, ""),
        (3, pb.OUTCOME_FAILED, "exit code 3: last"),
        (137, pb.OUTCOME_FAILED, "signal 9: last"),
        (75, pb.OUTCOME_INFRASTRUCTURE, "exit code 75, which task.agent.retry_exits has: last"),
    ],
)
def test_an_exit_code_decides_the_outcome(code: int, outcome: int, error: str) -> None:
    ending = ending_of(code, (75,), "last")
    assert (ending.outcome, ending.error, ending.needs_calls) == (outcome, error, True)


def test_a_result_has_answer_reward_and_parts() -> None:
    found = read_result(b'{"answer": "4", "reward": 1, "parts": {"form": 0.5}}')
    assert found == Result(answer="4", reward=1.0, parts={"form": 0.5})
    assert read_result(b"{}") == Result()


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"[1]", "not a JSON object"),
        (b"{", "not JSON"),
        (b"[" * 200_000, "not JSON"),
        (b" " * (MOST_RESULT + 1), "more than"),
        (b'{"reward": NaN}', "nan is no JSON"),
        (b'{"reward": 1%s}' % (b"0" * 400), "a number is larger than"),
        (b'{"parts": {"a": -1e999}}', "-inf is no JSON"),
        (rb'{"answer": "\ud800"}', "half a surrogate pair"),
        (b'{"answer": "\xed\xa0\x80"}', "half a surrogate pair"),
        (rb'{"parts": {"\ud800": 1}}', "half a surrogate pair"),
        (b'{"reward": true}', "reward: not a number"),
        (b'{"parts": {"a": "1"}}', "parts.a: not a number"),
        (b'{"answer": 4}', "answer: not a text"),
        (b'{"score": 4}', "'score': a result has"),
    ],
)
def test_another_result_is_refused(data: bytes, says: str) -> None:
    with pytest.raises(ResultFault, match=says):
        read_result(data)


def test_a_jailed_agent_gets_no_names_of_certificates() -> None:
    host = {"SSL_CERT_FILE": "/etc/ssl/a.crt", "SSL_CERT_DIR": "/etc/ssl", "LANG": "C"}
    free = environment(CLIENT, Path("/w"), {}, host)
    jailed = environment(CLIENT, Path("/w"), {}, host, jailed=True)
    assert free.keys() - jailed.keys() == {"SSL_CERT_FILE", "SSL_CERT_DIR"}
    assert jailed["LANG"] == "C"


def test_an_agent_gets_its_client_and_nothing_of_the_host() -> None:
    host = {"PATH": "/bin", "TOOLWRIGHT_TOKEN": "t", "AWS_SECRET": "s", "HOME": "/root"}
    found = environment(CLIENT, Path("/w"), {"MODE": "fast", "HOME": "/x"}, host)
    assert found["OPENAI_BASE_URL"] == "http://127.0.0.1:1/v1"
    assert found["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:1"
    assert found["OPENAI_API_KEY"] == found["ANTHROPIC_API_KEY"] == "tw-key"
    assert (found["HOME"], found["MODE"], found["PATH"]) == ("/w", "fast", "/bin")
    assert found["TOOLWRIGHT_TASK"] == "/w/task.json"
    assert not {"TOOLWRIGHT_TOKEN", "AWS_SECRET"} & found.keys()


def test_a_task_comes_without_its_answers() -> None:
    task = Task(id="t", messages=({"role": "user", "content": "2+2?"},), answers=("4",))
    found = task_data(task)
    assert found["messages"] == [{"role": "user", "content": "2+2?"}]
    assert "4" not in str(found)


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ([b"abc"], "abc"),
        ([b"abcd", b"efghij"], "abcdefghij"),
        ([b"abcdefghijk", b"lmn"], "abcd\n[4 bytes left out]\nijklmn"),
        ([bytes([one]) for one in b"abcdefghijklmn"], "abcd\n[4 bytes left out]\nijklmn"),
    ],
)
def test_an_output_keeps_its_beginning_and_its_end(parts: list[bytes], text: str) -> None:
    output = BoundedOutput(head=4, tail=6)
    for part in parts:
        output.add(part)
    assert output.text() == text


def test_the_last_line_is_not_blank() -> None:
    output = BoundedOutput()
    output.add(b"one\n  two \n\n")
    assert output.last_line() == "two"
    assert BoundedOutput().last_line() == ""


def test_a_function_returns_an_answer_a_mapping_or_none() -> None:
    assert result_of("4") == {"answer": "4"}
    assert result_of(None) == {}
    assert result_of({"reward": 1.0}) == {"reward": 1.0}
    with pytest.raises(TypeError, match="returned int"):
        result_of(4)
