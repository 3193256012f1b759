"""The real SGLang server as `deploy/sglang-cpu/serve.py` starts it.

Owns what the engine builds on (ids in, deltas of ids and log-probs out, stop token, abort, weight
updates under a stream) and what the launcher promises (nothing outlives the server). The full wire
contract, which the scripted sampler is held to as well, stands in tests/contract.

Each server here runs a random Qwen3 on a free loopback port, and leaving its context ends its whole
process group, whatever a test did to it.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest

from tests.support.net import free_port
from tests.support.other_weights import write_other_weights

ROOT = Path(__file__).resolve().parents[2]
LAUNCHER = ROOT / "deploy" / "sglang-cpu" / "serve.py"
PYTHON = ROOT / ".venv-sglang" / "bin" / "python"
READY_S = 240.0  # 14 s on two idle cores, 140 s seen at a load of 20
GONE_S = 20.0
PROMPT = [5, 6, 7, 8] * 8
VOCABULARY = 512

WRITE_MODEL = """
import sys, torch
from transformers import Qwen3Config, Qwen3ForCausalLM
torch.manual_seed(0)
config = Qwen3Config(
    vocab_size=512, hidden_size=128, intermediate_size=384, num_hidden_layers=4,
    num_attention_heads=4, num_key_value_heads=2, head_dim=32, max_position_embeddings=4096,
    rope_theta=1000.0, bos_token_id=510, eos_token_id=511, tie_word_embeddings=True)
Qwen3ForCausalLM(config).float().save_pretrained(sys.argv[1])
"""

# Reads {"prompt", "answer"} a line; writes the log-prob of each answer token, one list a line.
SCORE = """
import json, sys, torch
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32)
for line in sys.stdin:
    turn = json.loads(line)
    tokens = torch.tensor([turn["prompt"] + turn["answer"]])
    with torch.no_grad():
        logprobs = (model(tokens).logits[0, :-1] / turn["temperature"]).log_softmax(-1)
    chosen = logprobs.gather(1, tokens[0, 1:, None])[len(turn["prompt"]) - 1 :, 0]
    print(json.dumps(chosen.tolist()))
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(int(READY_S) + 90)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A started server: `pid` leads its process group."""

    pid: int
    url: str
    log: Path

    def members(self) -> list[int]:
        """The pids of the group that still run."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.NoSuchProcess, ProcessLookupError):
                alive = process.status() != psutil.STATUS_ZOMBIE
                if alive and os.getpgid(process.pid) == self.pid:
                    found.append(process.pid)
        return found

    def left_after(self, seconds: float) -> list[int]:
        """The members that are still there `seconds` later; returns early when none is."""
        deadline = time.monotonic() + seconds
        while (left := self.members()) and time.monotonic() < deadline:
            time.sleep(0.1)
        return left

    def ready(self) -> bool:
        with suppress(urllib.error.URLError, ConnectionError, TimeoutError):
            answer: int = urllib.request.urlopen(self.url + "/ready", timeout=5).status
            return answer == 200
        return False

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline:
            assert self.members(), (
                f"the server ended at its start:\n{self.log.read_text(encoding='utf-8')[-3000:]}"
            )
            if self.ready():
                return
            time.sleep(0.2)
        raise AssertionError(
            f"not ready after {READY_S} s:\n{self.log.read_text(encoding='utf-8')[-3000:]}"
        )


def running_after(seconds: float, processes: list[psutil.Process]) -> list[psutil.Process]:
    """Those that still run `seconds` later (then killed); returns early when none does."""

    def runs(process: psutil.Process) -> bool:
        with suppress(psutil.NoSuchProcess):
            return bool(process.status() != psutil.STATUS_ZOMBIE)
        return False

    deadline = time.monotonic() + seconds
    while (left := [p for p in processes if runs(p)]) and time.monotonic() < deadline:
        time.sleep(0.1)
    for process in left:
        process.kill()
    return left


@contextmanager
def served(model: Path, log: Path, *, wrapper: tuple[str, ...] = ()) -> Iterator[Server]:
    """A starting server; with `wrapper`, a Python one-liner stands between us and the launcher."""
    port = free_port()
    command = [*wrapper, sys.executable, str(LAUNCHER), str(model), str(port)]
    with log.open("wb") as out:
        started = subprocess.Popen(
            [*command, "--skip-tokenizer-init"], stdout=out, stderr=out, start_new_session=True
        )
    server = Server(pid=started.pid, url=f"http://127.0.0.1:{port}", log=log)
    try:
        yield server
    finally:
        with suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)
        started.wait(GONE_S)
        assert not server.left_after(GONE_S)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two random policies of one shape."""
    assert PYTHON.exists(), f"{PYTHON} is missing: run make setup"
    folder = tmp_path_factory.mktemp("policy")
    command = [str(PYTHON), "-c", WRITE_MODEL, str(folder / "one")]
    subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    return [folder / "one", write_other_weights(folder / "one", folder / "two")]


@pytest.fixture(scope="module")
def server(models: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with served(models[0], tmp_path_factory.mktemp("server") / "log") as running:
        running.wait_until_ready()
        yield running


@pytest.fixture
async def http(server: Server) -> AsyncIterator[aiohttp.ClientSession]:
    timeout = aiohttp.ClientTimeout(total=60)
    async with aiohttp.ClientSession(server.url, timeout=timeout) as session:
        yield session


def body(rid: str, **sampling: Any) -> dict[str, Any]:
    """A request as the engine sends it; `sampling` overrides."""
    common = {"max_new_tokens": 16, "temperature": 1.0, "ignore_eos": False, "stream_interval": 1}
    return {
        "rid": rid,
        "input_ids": PROMPT,
        "stream": True,
        "return_logprob": True,
        "logprob_start_len": -1,
        "sampling_params": {**common, "no_stop_trim": True, **sampling},
    }


async def chunks(
    http: aiohttp.ClientSession, request: dict[str, Any], begun: asyncio.Event | None = None
) -> list[dict[str, Any]]:
    """The stream's chunks, all of them; it must end with [DONE]. `begun` is set at the first."""
    received: list[dict[str, Any]] = []
    async with http.post("/generate", json=request) as answer:
        assert answer.status == 200
        async for line in answer.content:
            if line.startswith(b"data: {"):
                received.append(json.loads(line[6:]))
                assert "error" not in received[-1]
                if begun is not None:
                    begun.set()
            elif line.startswith(b"data: [DONE]"):
                return received
    raise AssertionError("the stream ended without [DONE]")


async def post(http: aiohttp.ClientSession, path: str, message: dict[str, Any]) -> Any:
    async with http.post(path, json=message) as answer:
        assert answer.status == 200, await answer.text()
        return await answer.json() if answer.content_type == "application/json" else None


async def model_info(http: aiohttp.ClientSession) -> dict[str, Any]:
    async with http.get("/model_info") as answer:
        info: dict[str, Any] = await answer.json()
        return info


def ids(stream: list[dict[str, Any]]) -> list[int]:
    return [token for chunk in stream for token in chunk["output_ids"]]


def finish(stream: list[dict[str, Any]]) -> dict[str, Any]:
    reason: dict[str, Any] = stream[-1]["meta_info"]["finish_reason"]
    return reason


def score(model: Path, turns: list[dict[str, Any]]) -> list[float]:
    """The log-probs of all answer tokens as transformers computes them."""
    done = subprocess.run(
        [str(PYTHON), "-c", SCORE, str(model)],
        input="\n".join(json.dumps(turn) for turn in turns),
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    return [value for line in done.stdout.splitlines() for value in json.loads(line)]


async def update(http: aiohttp.ClientSession, folder: Path, version: str) -> None:
    """Load the folder's weights; under a running stream only between pause and continue.

    In the instant after a stream's last token its request still counts as running: the weights are
    loaded then and the cache is not flushed, which is a 400. So it is asked again.
    """
    message = {"model_path": str(folder), "weight_version": version, "flush_cache": True}
    for _ in range(20):
        async with http.post("/update_weights_from_disk", json=message) as answer:
            said = await answer.json()
        if said["success"]:
            return
        assert "still running" in said["message"], said
        await asyncio.sleep(0.1)
    raise AssertionError(said)


def test_its_children_are_forks(server: Server) -> None:
    """What is spawned imports all again, and has a process that tracks its resources."""
    assert len(server.members()) == 3


async def test_streams_new_ids_with_their_logprobs(http: aiohttp.ClientSession) -> None:
    stream = await chunks(http, body("deltas", ignore_eos=True))
    triples = [t for chunk in stream for t in chunk["meta_info"]["output_token_logprobs"]]
    assert len(stream) > 1
    assert len(ids(stream)) == stream[-1]["meta_info"]["completion_tokens"] == 16
    assert [token for _, token, _ in triples] == ids(stream)
    assert all(logprob <= 0.0 for logprob, _, _ in triples)
    assert all(0 <= token < VOCABULARY for token in ids(stream))
    assert finish(stream) == {"type": "length", "length": 16}
    assert all(chunk["meta_info"]["finish_reason"] is None for chunk in stream[:-1])


async def test_stream_interval_gathers_tokens(http: aiohttp.ClientSession) -> None:
    stream = await chunks(http, body("interval", ignore_eos=True, stream_interval=32))
    assert len(ids(stream)) == 16
    assert len(stream) <= 3


async def test_the_stop_token_is_part_of_the_answer(http: aiohttp.ClientSession) -> None:
    greedy = ids(await chunks(http, body("greedy", temperature=0.0)))
    stop = greedy[5]
    expected = greedy[: greedy.index(stop) + 1]
    stream = await chunks(http, body("stop", temperature=0.0, stop_token_ids=[stop]))
    assert ids(stream) == expected
    assert finish(stream) == {"type": "stop", "matched": stop}


async def test_a_burst_is_served_whole(http: aiohttp.ClientSession) -> None:
    streams = await asyncio.gather(
        *(chunks(http, body(f"burst-{i:03d}.", ignore_eos=True)) for i in range(128))
    )
    assert [len(ids(stream)) for stream in streams] == [16] * 128


async def test_logprobs_are_those_of_transformers(
    http: aiohttp.ClientSession, models: list[Path]
) -> None:
    """Mixed lengths at once, and a second turn of each upon the cached first one."""
    temperature = 0.7
    await update(http, models[0], "scored")
    turns: list[dict[str, Any]] = []
    sampled: list[float] = []

    async def two_turns(i: int, length: int) -> None:
        prompt = [(7 * i + 3 * k) % VOCABULARY for k in range(length)]
        for turn in range(2):
            request = body(f"score-{i:02d}-{turn}.", ignore_eos=True, temperature=temperature)
            stream = await chunks(http, {**request, "input_ids": prompt})
            turns.append({"prompt": prompt, "answer": ids(stream), "temperature": temperature})
            for chunk in stream:
                sampled.extend(t[0] for t in chunk["meta_info"]["output_token_logprobs"])
            prompt = prompt + ids(stream) + [1, 2, 3]

    lengths = [1, 2, 17, 60, 61, 64, 65, 120, 200, 260, 400, 700]
    # One after the other within a trajectory, all trajectories at once; `turns` and `sampled`
    # grow together because a stream's chunks are added without a wait in between.
    await asyncio.gather(*(two_turns(i, length) for i, length in enumerate(lengths)))
    scored = await asyncio.to_thread(score, models[0], turns)
    assert len(scored) == len(sampled) == 2 * 16 * len(lengths)
    assert max(abs(a - b) for a, b in zip(scored, sampled, strict=True)) < 1e-4


async def test_abort_takes_every_rid_with_the_prefix(http: aiohttp.ClientSession) -> None:
    names = ("trajectory1", "trajectory1-more", "trajectory2")
    begun = [asyncio.Event() for _ in names]
    tasks = [
        asyncio.create_task(chunks(http, body(name, max_new_tokens=1000, ignore_eos=True), event))
        for name, event in zip(names, begun, strict=True)
    ]
    await asyncio.gather(*(event.wait() for event in begun))
    await post(http, "/abort_request", {"rid": "trajectory1"})
    named, longer = await asyncio.gather(*tasks[:2])
    assert finish(named)["type"] == finish(longer)["type"] == "abort"
    assert len(ids(named)) == named[-1]["meta_info"]["completion_tokens"] > 0
    assert not tasks[2].done()
    await post(http, "/abort_request", {"rid": "trajectory2"})
    assert finish(await tasks[2])["type"] == "abort"


async def test_an_update_under_a_retracted_stream_keeps_it(
    http: aiohttp.ClientSession, models: list[Path]
) -> None:
    before = (await model_info(http))["weight_version"]
    begun = asyncio.Event()
    request = body("update", max_new_tokens=300, ignore_eos=True)
    task = asyncio.create_task(chunks(http, request, begun))
    await begun.wait()
    await post(http, "/pause_generation", {"mode": "retract"})
    await update(http, models[1], "0a1b/7")
    assert (await model_info(http))["weight_version"] == "0a1b/7"
    assert not task.done()
    await post(http, "/continue_generation", {})

    stream = await task
    spans = stream[-1]["meta_info"]["weight_versions"]
    assert len(ids(stream)) == 300
    assert [span["version"] for span in spans] == [before, "0a1b/7"]
    assert (spans[0]["start"], spans[-1]["end"]) == (0, 300)
    assert 0 < spans[0]["end"] == spans[1]["start"] < 300


async def test_updated_weights_are_the_ones_that_answer(
    http: aiohttp.ClientSession, models: list[Path]
) -> None:
    async def greedy_under(folder: Path, version: str) -> list[int]:
        await update(http, folder, version)
        stream = await chunks(http, body(f"greedy-{version}", temperature=0.0, ignore_eos=True))
        assert stream[-1]["meta_info"]["weight_version"] == version
        return ids(stream)

    first = await greedy_under(models[0], "a")
    second = await greedy_under(models[1], "b")
    assert first != second
    assert await greedy_under(models[0], "c") == first


def test_nothing_outlives_the_process_that_started_it(models: list[Path], tmp_path: Path) -> None:
    # The starter ends while SGLang's children still begin: the moment that SGLang itself misses.
    starter = (
        "import subprocess, sys, time; "
        "subprocess.Popen(sys.argv[1:], process_group=0); time.sleep(600)"
    )
    with served(models[0], tmp_path / "log", wrapper=(sys.executable, "-c", starter)) as outer:
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline:
            children = psutil.Process(outer.pid).children(recursive=True)
            if len(children) >= 3:
                break
            time.sleep(0.1)
        launched = children[0]
        assert len(children) >= 3, "the server started no children"
        assert os.getpgid(launched.pid) == launched.pid
        os.kill(outer.pid, signal.SIGKILL)
        assert not running_after(GONE_S, children)


def test_the_launcher_refuses_what_is_no_model(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(LAUNCHER), str(tmp_path), "31000"],
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
    )
    assert done.returncode == 2
    assert done.stderr.strip().splitlines() == [
        f"serve.py: {tmp_path} is no model folder: it has no config.json"
    ]


def test_the_launcher_names_who_holds_its_port(models: list[Path]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = subprocess.run(
            [sys.executable, str(LAUNCHER), str(models[0]), str(port)],
            capture_output=True,
            text=True,
            check=False,
            timeout=20,
        )
    assert done.returncode == 2
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith(f"serve.py: port {port} is in use by process {os.getpid()} (python")
    assert line.endswith("choose another port and name it in sampler.endpoints")


def test_its_log_says_that_it_serves_and_warns_of_nothing(server: Server) -> None:
    said = [
        line
        for line in server.log.read_text(encoding="utf-8").splitlines()
        if line.startswith("serve.py: ")
    ]
    assert said[0].startswith("serve.py: SGLang loads ")
    assert re.fullmatch(rf"serve.py: serving \S+ at {server.url} \(after \d+ s\)", said[-1])
    others = server.log.read_text(encoding="utf-8").replace("\r", "\n").splitlines()
    noise = [
        line
        for line in others
        if line
        and not line.startswith(("serve.py: ", "Multi-thread"))
        and "flushed because" not in line  # an answer to `update`, which then asks again
    ]
    assert noise == []


def test_sigterm_ends_everything(server: Server) -> None:
    """The file's last test: it takes the server of the others, a start being expensive."""
    os.kill(server.pid, signal.SIGTERM)
    assert not server.left_after(GONE_S)
