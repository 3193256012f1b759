"""Every command of docs/reproduce runs: on files of the published layout with three rows each.

A page's ```sh blocks run in order in one shell, as a reader runs them. Its first block names what
is the reader's own; here these are the files of `downloads`, a tiny policy with random weights, the
scripted sampler, and overrides that make a run one step of two groups. Commands that need a GPU or
a download stand in ```text blocks, which are not run.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from bench.scripted import ScriptedSampler, ScriptRequest
from engine.core.text.codec import HuggingFaceCodec
from tests.integration.learner.seeing import write_seeing_model
from tests.integration.reproduce.downloads import MAKERS, ROWS, fill
from tests.integration.verltool.test_whole_recipes import END, speaking
from tests.support.chat_endpoint import chat_endpoint
from tests.support.dialogue import said
from tests.support.docs import DOCS
from tests.support.policy import write_vision_policy
from toolwright.process.packaged import packaged

ROOT = Path(__file__).parents[3]
PAGES = sorted(page for page in (DOCS / "reproduce").glob("*.md") if page.stem != "index")
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXPORT = re.compile(r"^export (\w+)=.*$", re.MULTILINE)
BELOW_RAW = re.compile(r"\$RAW/([\w./$-]+)")
LONGEST_S = 900.0
GIVES_UP = (1, 2, 5)
PLAN = f"##DAG_LIST\n[(ST1,)]\n##ST1: ask\n1. name the author\n{END}"
STEP = r"<subtask> ST1: ask</subtask><thinking> known</thinking><answer> \boxed{Ada}</answer>"
AUTHOR = {
    "name": "author_of",
    "description": "the author of a program",
    "parameters": {
        "type": "object", "properties": {"program": {"type": "string"}}, "required": ["program"],
    },
}  # fmt: skip
"""The tool that the scripted model makes for every question of MTR."""
CALL = "<think>so</think><tool_call>{}</tool_call>"
PLAYED = tuple(
    CALL.format(json.dumps({"name": "author_of", "arguments": {"program": which}}))
    for which in ("the first", "the second")
)
MARKS = ("vision_start", "vision_end", "image", "video")

FEW = f"""
toolwright() {{
    command toolwright "$@"
    test "$1" != init || {{
        mkdir -p "$3/presets"
        cp -r '{packaged("recipes")}/presets/suites' "$3/presets/"
        sed -i 's/^n = [0-9]*/n = {ROWS}/' "$3"/*.toml "$3"/presets/suites/*.toml
    }}
}}
engine() {{
    if test "$1" = eval; then
        set -- "${{@/engine.evaluation.suites=\\[\\]/engine.evaluation.samples=0}}"
    fi
    command engine "$@"
}}
"""
"""Every suite has `ROWS` rows in a copied recipe. `engine eval` alone evaluates them."""

ids = [page.stem for page in PAGES]


def commands(page: Path) -> tuple[str, str]:
    """(the block of what is the reader's own, all commands after it)."""
    first, *others = BLOCK.findall(page.read_text(encoding="utf-8"))
    return first, "\n".join(others)


@pytest.mark.quick
@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_a_page_begins_with_what_is_the_readers_own(page: Path) -> None:
    first, _ = commands(page)
    assert all(line.startswith("export ") for line in first.splitlines())
    assert {"RAW", "MODEL", "EXTRA"} <= set(EXPORT.findall(first))
    whole = page.read_text(encoding="utf-8").replace("\\\n", "")
    for line in re.findall(r"^(?:toolwright run|engine eval) .*$", whole, re.MULTILINE):
        assert line.endswith("$EXTRA"), line


@pytest.mark.quick
@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_download_that_a_page_reads_is_made_here(page: Path) -> None:
    for name in BELOW_RAW.findall(commands(page)[1]):
        fits = re.compile(re.sub(r"\$\w+", r"[\\w-]+", name))
        assert any(fits.fullmatch(made) or made.startswith(f"{name}/") for made in MAKERS), name


def answering(codec: HuggingFaceCodec) -> Callable[[ScriptRequest], Sequence[int]]:
    """A policy that calls once and answers where it knows the set, else answers. Some trajectories
    give up, so that rewards differ within a group."""
    known = speaking(codec)
    places: dict[str, int] = {}

    def script(request: ScriptRequest) -> Sequence[int]:
        place = places.setdefault(request.conversation, len(places))
        if place % 8 in GIVES_UP:
            return codec.encode(f"No idea.{END}")
        if request.images:  # a cut one would have other tokens here than in the learner
            return codec.encode(rf"\boxed{{Ada}}{END}")
        text = codec.decode(request.input_ids)
        if "An example, for other tools" in text:
            asked = text[text.rindex("flashrag_") :]
            ways = (*PLAYED, f"<think>so the answer is Ada.</think><answer>Ada</answer>{END}")
            reply = next(one for one in ways if one not in asked)
            return codec.encode(reply)[said(codec, asked, reply) :]
        if "tool_star question" in text:
            reply = STEP if PLAN in text else PLAN
            return codec.encode(reply)[said(codec, text, reply) :]
        try:
            return list(known(request))
        except StopIteration:
            return codec.encode(f"<answer>Ada</answer>{END}")

    return script


@asynccontextmanager
async def retriever() -> AsyncIterator[str]:
    """Address of a server with Search-R1's POST /retrieve, which knows one passage."""

    async def retrieve(request: web.Request) -> web.Response:
        queries = (await request.json())["queries"]
        passage = {"id": "0", "contents": '"Ada"\nAda wrote the first program.'}
        found = [{"document": passage, "score": 1.0}]
        return web.json_response({"result": [found for _ in queries]})

    app = web.Application()
    app.router.add_post("/retrieve", retrieve)
    async with TestServer(app) as server:
        yield str(server.make_url("/retrieve"))


def maker_and_actor(request: dict[str, Any]) -> str:
    """The models behind MTR's tools: one makes AUTHOR for each question, one plays it."""
    asked = next(one["content"] for one in request["messages"] if one["role"] == "user")
    returns = {"type": "object", "properties": {"author": {"type": "string"}}}
    made = [{"type": "function", "function": AUTHOR, "returns": returns}]
    return json.dumps(made if asked.startswith("Question:") else {"author": "Ada"})


def tiny_policy(folder: Path) -> Path:
    """A Qwen2.5-VL with random weights, for tasks with and without images."""
    write_vision_policy(folder)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    marks = [config[f"{name}_token_id"] for name in MARKS]
    return write_seeing_model(folder, marks=marks, vocab_size=320, max_position_embeddings=65536)


def overrides(sampler: str) -> str:
    return " ".join(
        f"--set {one}"
        for one in (
            "run.steps=1",
            "run.groups_per_step=2",
            "run.group_size=4",
            "run.engine=127.0.0.1:0",
            f"sampler.endpoints=['{sampler}']",
            "engine.evaluation.suites=[]",
            "learner.precision='float32'",
            "learner.updates=1",
        )
    )


@pytest.mark.slow
@pytest.mark.timeout(LONGEST_S + 60)
@pytest.mark.parametrize("page", PAGES, ids=ids)
async def test_every_command_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    model = tiny_policy(tmp_path / "policy")
    codec = HuggingFaceCodec(model)
    mark = codec.image_mark
    assert mark is not None
    raw = fill(tmp_path / "raw")
    work = tmp_path / "work"
    work.mkdir()
    first, rest = commands(page)
    async with (
        retriever() as found,
        chat_endpoint(maker_and_actor) as tools,
        ScriptedSampler(
            script=answering(codec),
            vocab_size=codec.vocab_size,
            image_token=mark.placeholder,
            media_words=[codec.encode(word) for word in ("<image>", "<|video_pad|>")],
        ) as sampler,
    ):
        models = (name for name in EXPORT.findall(first) if name.endswith("_MODEL"))
        own: Mapping[str, str] = {
            **dict.fromkeys(models, str(model)),
            "RAW": str(raw),
            "MODEL": str(model),
            "EXTRA": overrides(sampler.url),
            "SERVED": sampler.url,
            "RETRIEVER": found,
            "SERPER_API_KEY": "none",
            "ACTOR": tools.url,
            "MAKER": tools.url,
            "JUDGE": "http://127.0.0.1:1/v1",
        }
        missing = set(EXPORT.findall(first)) - own.keys()
        assert not missing, f"say in this test what {page.name} shall have as {missing}"
        done = await asyncio.to_thread(shell, FEW + rest, work, own)
    assert done.returncode == 0, done.stdout[-6000:]


def shell(script: str, folder: Path, own: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    python = os.pathsep.join([str(ROOT), str(ROOT / "proto")])
    return subprocess.run(
        ["bash", "-euxo", "pipefail", "-c", script],
        cwd=folder,
        env={**os.environ, **own, "PATH": path, "PYTHONPATH": python, "OMP_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LONGEST_S,
        check=False,
    )
