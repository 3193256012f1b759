"""Client of a teacher's server: what it sends, which answers count, and what it repeats."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from learner.errors import ModelError, TeacherError
from learner.loop import teacher_server
from learner.loop.teacher_server import TeacherServer
from learner.training.batch import Row

pytestmark = pytest.mark.quick

Reply = Callable[[dict[str, Any]], tuple[int, Any]]


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(teacher_server, "REMIND_S", 0.05)


@contextmanager
def answering(reply: Reply, info: dict[str, Any] | None = None) -> Iterator[str]:
    """A server whose answers to /generate are those of `reply`; its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.give(200, info or {})

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.give(*reply(json.loads(body)))

        def give(self, status: int, said: Any) -> None:
            content = said if isinstance(said, bytes) else json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None: ...

    class Server(ThreadingHTTPServer):
        request_queue_size = 128

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def scored(body: dict[str, Any]) -> dict[str, Any]:
    """As SGLang 0.5.23 answers: -id/10 for each id, null for the first."""
    own = body["input_ids"][body["logprob_start_len"] :]
    pairs = [[-token / 10 if place else None, token, None] for place, token in enumerate(own)]
    return {"output_ids": [], "meta_info": {"input_token_logprobs": pairs}}


def row(*tokens: int, targets: tuple[int, ...], temperature: float = 1.0) -> Row:
    size = len(tokens)
    zeros = np.zeros(size, dtype=np.float32)
    return Row(
        trajectory="g/0",
        tokens=np.array(tokens),
        target=np.isin(np.arange(size), targets),
        behaviour=zeros,
        temperature=np.full(size, temperature, dtype=np.float32),
        fresh=np.zeros(size, dtype=bool),
        advantage=zeros,
    )


def teacher(url: str, patience: float = 0.2, **options: Any) -> TeacherServer:
    return TeacherServer(url, patience=patience, **{"say": lambda _: None, **options})


def test_targets_get_the_servers_log_probs() -> None:
    bodies = []

    def reply(body: dict[str, Any]) -> tuple[int, Any]:
        bodies.append(body)
        return 200, scored(body)

    rows = [row(4, 5, 6, 7, 8, targets=(2, 4)), *[row(1, 2, targets=(1,))] * 50]
    with answering(reply) as url:
        found = teacher(f"{url}/").logprobs(rows)
    assert found[0] == pytest.approx(np.array([0, 0, -0.6, 0, -0.8]))
    assert all(one.dtype == np.float32 and one[1] == np.float32(-0.2) for one in found[1:])
    [long] = [body for body in bodies if len(body["input_ids"]) == 5]
    assert (long["logprob_start_len"], long["sampling_params"]["max_new_tokens"]) == (1, 0)


def test_the_last_id_of_a_vocabulary_may_be_named_0() -> None:
    def reply(body: dict[str, Any]) -> tuple[int, Any]:
        said = scored(body)
        said["meta_info"]["input_token_logprobs"][1][1] = 0
        return 200, said

    with answering(reply) as url:
        [found] = teacher(url).logprobs([row(1, 319, targets=(1,))])
    assert found[1] == np.float32(-31.9)


def test_a_busy_server_gets_the_request_again() -> None:
    statuses = iter([503, 429, 500, 200])
    beats = threading.Event()

    def reply(body: dict[str, Any]) -> tuple[int, Any]:
        beats.wait(5)
        return next(statuses), scored(body)

    with answering(reply) as url:
        server = teacher(url, patience=30)
        [found] = server.logprobs([row(1, 2, targets=(1,))], heartbeat=beats.set)
    assert found[1] == np.float32(-0.2)


def wrong_ids(body: dict[str, Any]) -> dict[str, Any]:
    return scored({**body, "input_ids": [9] * len(body["input_ids"])})


def without_a_value(body: dict[str, Any]) -> dict[str, Any]:
    return {"meta_info": {"input_token_logprobs": [[None, 1, None], [None, 2, None]]}}


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        (lambda _: (400, {"error": "too long"}), "refused /generate with HTTP 400: .*too long"),
        (lambda _: (200, b"<html>"), "is no JSON object: <html>"),
        (lambda _: (200, {"meta_info": None}), "gave 0 log-probs for 2 ids of g/0"),
        (lambda body: (200, wrong_ids(body)), "some for other ids"),
        (lambda body: (200, without_a_value(body)), "gave log-probs of another form"),
        (
            lambda _: (200, b'{"meta_info": {"input_token_logprobs": [[null, 1], [NaN, 2]]}}'),
            "not finite",
        ),
        (lambda _: (500, {}), r"answered HTTP 500.*learner\.engine_patience_s"),
    ],
)
def test_an_answer_that_cannot_be_used(reply: Reply, says: str) -> None:
    with answering(reply) as url, pytest.raises(TeacherError, match=says):
        teacher(url).logprobs([row(1, 2, targets=(1,))])


def test_an_answer_without_end_is_refused() -> None:
    with (
        answering(lambda _: (200, b" " * (2 << 20))) as url,
        pytest.raises(TeacherError, match=r"more than 1,049,600 bytes"),
    ):
        teacher(url).logprobs([row(1, 2, targets=(1,))])


@pytest.mark.timeout(60)
@pytest.mark.parametrize("other", ["busy", "silent"])
def test_a_refusal_does_not_wait_for_the_other_rows(other: str) -> None:
    begun, over = threading.Event(), threading.Event()

    def reply(body: dict[str, Any]) -> tuple[int, Any]:
        if body["input_ids"][0] == 1:
            begun.set()
            if other == "silent":
                over.wait(120)
            return 503, {}
        assert begun.wait(5)
        return 400, {}

    with answering(reply) as url:
        try:
            with pytest.raises(TeacherError, match="HTTP 400"):
                teacher(url, patience=3600).logprobs([row(n, 2, targets=(1,)) for n in (1, 3)])
            assert not over.is_set()
        finally:
            over.set()


def test_a_dead_server_is_waited_for_and_named() -> None:
    said: list[str] = []
    with answering(lambda _: (200, {})) as url:
        pass
    with pytest.raises(TeacherError, match=r"does not answer: .*refused.* Repeated for"):
        teacher(url, say=said.append).check(Path("model"))
    assert said and "waiting since" in said[0]


def test_another_temperature_is_refused() -> None:
    with pytest.raises(TeacherError, match=r"sampled at 0\.7: set sampler\.temperature = 1\.0"):
        teacher("http://127.0.0.1:1").logprobs([row(1, 2, targets=(1,), temperature=0.7)])
    greedy_prompt = row(1, 2, targets=(1,))
    greedy_prompt.temperature[0] = 0.3
    with answering(lambda body: (200, scored(body))) as url:
        assert len(teacher(url).logprobs([greedy_prompt])) == 1


def tokenizer(folder: Path, **vocabulary: int) -> Path:
    folder.mkdir()
    content = json.dumps({"model": {"vocab": vocabulary}})
    (folder / "tokenizer.json").write_text(content, encoding="utf-8")
    return folder


def test_token_ids_are_compared_where_they_can_be(tmp_path: Path) -> None:
    own, other = tokenizer(tmp_path / "a", x=1), tokenizer(tmp_path / "b", x=2)
    said: list[str] = []

    def check(folder: str) -> None:
        with answering(lambda _: (200, {}), {"tokenizer_path": folder}) as url:
            teacher(url, say=said.append).check(own)

    check(str(own))
    assert not said
    check("org/not-here")
    assert "were not compared" in said[0]
    with pytest.raises(ModelError, match="has other token ids"):
        check(str(other))
