"""Coding agents as they are published, unchanged and without a network, count with their shells.

Each runs twice, and the second run goes on with the first one's session.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.integration.ingress.test_agents import THOUGHT, parents, play
from tests.support.agents import END, Served, served_agents, written_call
from tests.support.families import write_family

pytestmark = pytest.mark.slow

QUESTION, MORE, TITLE = "Count with your tools.", "Count on.", "A title."
Command = tuple[tuple[str, ...], tuple[str, ...], Mapping[str, str]]
"""Words of the first run, words of the second, environment variables."""


def claude_code(url: str, home: Path) -> Command:
    words = ("claude", "-p", "--allowedTools", "Agent,Bash,CronList,Edit,ToolSearch,Write")
    return (*words, "--", QUESTION), (*words, "--continue", "--", MORE), {
        "ANTHROPIC_BASE_URL": url.removesuffix("/v1"),
        "ANTHROPIC_API_KEY": "unused",
        "ANTHROPIC_MODEL": "policy",
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": "aside",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }  # fmt: skip


def opencode(url: str, home: Path) -> Command:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": url, "apiKey": "unused"},
        "models": {"policy": {}, "aside": {}},
    }
    config = {
        "model": "toolwright/policy",
        "small_model": "toolwright/aside",
        "permission": {"*": "allow"},
        "provider": {"toolwright": provider},
    }
    variables = {
        "OPENCODE_CONFIG_CONTENT": json.dumps(config),
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
    }
    return ("opencode", "run", QUESTION), ("opencode", "run", "--continue", MORE), variables


def codex(url: str, home: Path) -> Command:
    config = home / ".codex/config.toml"
    config.parent.mkdir()
    config.write_text(
        'model = "policy"\nmodel_provider = "toolwright"\n'
        f'[model_providers.toolwright]\nname = "toolwright"\nbase_url = "{url}"\n'
        'wire_api = "responses"\n',
        encoding="utf-8",
    )
    free = ("--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox")
    first = ("codex", "exec", *free, QUESTION)
    return first, ("codex", "exec", "resume", "--last", *free, MORE), {}


def says(served: Served, texts: list[str]) -> Callable[[int, int], list[int]]:
    """The texts, one a call of the policy; the model "aside" says a title."""
    encode, left = served.tokenizer.encode, iter(texts)

    def say(number: int, choice: int) -> list[int]:
        return encode(TITLE + END if served.engine.calls[number].ask.aside else next(left))

    return say


DESCRIBED = {"description": "counts"}
CLAUDE = [
    written_call("ToolSearch", query="select:CronList"),
    written_call("CronList"),
    written_call("Write", file_path="x", content="a"),
    written_call("Edit", file_path="x", old_string="a", new_string="b"),
]
"""It loads a tool in the middle, and adds an argument with its default to the edit."""
OPENCODE = [
    written_call("write", filePath="x", content="a"),
    written_call("edit", filePath="x", oldString="a", newString="b"),
]
CODEX = [written_call("multi_agent_v1.close_agent", target="nobody")]


@pytest.mark.parametrize(
    ("client", "tool", "argument", "more", "others"),
    [
        (claude_code, "Bash", "command", DESCRIBED, CLAUDE),
        (opencode, "bash", "command", DESCRIBED, OPENCODE),
        (codex, "exec_command", "cmd", {}, CODEX),
    ],
)
async def test_two_runs_of_a_session_are_one_sequence(
    agents: Path,
    qwen: Path,
    tmp_path: Path,
    client: Callable[[str, Path], Command],
    tool: str,
    argument: str,
    more: dict[str, str],
    others: list[str],
) -> None:
    calls = [written_call(tool, **{argument: f"echo {n}"}, **more) for n in range(10)]
    texts = [f"{THOUGHT}I count.\n{calls[0]}", *calls[1:4], f"{THOUGHT}{calls[4]}\n{calls[5]}"]
    texts += ["Five, <\u00e4>.", f"{THOUGHT}Six.\n{calls[6]}", *calls[7:], *others, "Done."]
    async with served_agents(qwen, []) as served:
        served.engine.script = says(served, [text + END for text in texts])
        first, second, variables = client(served.url, tmp_path)
        programs = agents / "node_modules/.bin"
        for words, last in ((first, "Five, <\u00e4>."), (second, "Done.")):
            printed = await play(programs / words[0], *words[1:], cwd=tmp_path, **variables)
            assert printed.strip().splitlines()[-1] == last
        said = [served.tokenizer.decode(one.completion) for one in served.engine.nodes]
        numbers = [number for number, text in enumerate(said) if text != TITLE + END]
        assert [said[number] for number in numbers] == [text + END for text in texts]
        follows = parents(served)
        assert [follows[number] for number in numbers] == [None, *numbers[:-1]]
        results = [one.text for call in served.engine.calls for one in call.prompt.results]
        assert [text.split()[-1] for text in results[:10]] == [str(n) for n in range(10)]
        assert len(results) == 10 + len(others)


async def test_claude_code_compacts_a_full_context(agents: Path, tmp_path: Path) -> None:
    """Its call after the refusal begins elsewhere, with a summary that the policy wrote."""
    command = written_call("Bash", command="seq 400", description="counts")
    summary, left = "Counted to 400.", 4700
    async with served_agents(write_family(tmp_path / "p", "qwen3"), []) as served:
        engine, encode = served.engine, served.tokenizer.encode
        texts = iter([command, command, command, summary])

        def say(number: int, choice: int) -> list[int]:
            engine.context = engine.calls[0].prompt.fresh.token_count + left
            return encode(next(texts, "Done.") + END)

        engine.script = say
        words, _, variables = claude_code(served.url, tmp_path)
        program = agents / "node_modules/.bin" / words[0]
        printed = await play(program, *words[1:], cwd=tmp_path, **variables)
        assert printed.strip().splitlines()[-1] == "Done."
        assert any(call.reply is None for call in engine.calls)
        assert parents(served)[:4] == [None, 0, 1, None]
        assert summary in served.tokenizer.decode(engine.nodes[-1].prompt)


async def test_a_sub_agent_of_claude_code_is_another_agent(
    agents: Path, qwen: Path, tmp_path: Path
) -> None:
    sub = {"description": "counts", "prompt": "Count.", "subagent_type": "general-purpose"}
    texts = [written_call("Agent", **sub), written_call("Bash", command="echo 1", **DESCRIBED)]
    async with served_agents(qwen, []) as served:
        served.engine.script = says(served, [one + END for one in (*texts, "One.", "Done.")])
        words, _, variables = claude_code(served.url, tmp_path)
        program = agents / "node_modules/.bin" / words[0]
        waits = {"CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1"}
        printed = await play(program, *words[1:], cwd=tmp_path, **variables, **waits)
        assert printed.strip().splitlines()[-1] == "Done."
        assert parents(served) == [None, None, 1, 0]
        main, one, other, last = (call.ask.agent for call in served.engine.calls)
        assert main == last != one == other
