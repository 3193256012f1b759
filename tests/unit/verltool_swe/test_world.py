"""The ten repositories, and who works on them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tarfile
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.recipes import Part
from tests.unit.verltool_swe.conftest import FOLDER
from toolsvc.tools.swe.action import find_call
from toolsvc.tools.swe.arguments import SweArguments
from toolsvc.tools.swe.verifying.report import PASSED, read_report
from toolsvc.tools.swe.verifying.verification import read_verification
from toolwright.model.tiny_policy import END_OF_TURN
from toolwright.recipe import load_recipe


@pytest.fixture(scope="session")
def world(part: Part, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("world")
    part("world/build.main")(output=folder)
    return folder


def test_ten_kinds_of_bugs(part: Part) -> None:
    every = part("world/problems.problems")()
    assert len(every) == len({one.kind for one in every}) == 10


def test_the_same_bytes_every_time(part: Part, world: Path, tmp_path: Path) -> None:
    part("world/build.main")(output=tmp_path)
    files = [path.relative_to(world) for path in world.rglob("*") if path.is_file()]
    assert len(files) >= 30
    for file in files:
        assert (tmp_path / file).read_bytes() == (world / file).read_bytes(), file


def test_hidden_tests_fail_before_the_fix(part: Part, world: Path, tmp_path: Path) -> None:
    """Exactly those that it has to make pass; that they pass after it is seen in real boxes."""
    running = {}
    for problem in part("world/problems.problems")():
        tree = tmp_path / problem.name
        with tarfile.open(world / "repositories" / f"{problem.name}.tar") as archive:
            archive.extractall(tree)  # made by this test: before Python 3.11.4 there is no `filter`
        found = read_verification(world / "verifications" / problem.name, problem.name, 1 << 20)
        for entry in found.overlay:
            (tree / entry.path).write_bytes(entry.content)
        command = [sys.executable, *found.file.command.split()[1:]]
        running[problem.name] = found.file, subprocess.Popen(
            command, cwd=tree, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )  # fmt: skip
    for name, (file, process) in running.items():
        statuses = read_report("unittest", process.communicate(timeout=120)[0])
        passed = {test for test, status in statuses.items() if status == PASSED}
        assert passed == set(file.pass_to_pass), name
        assert statuses.keys() - passed == set(file.fail_to_pass), name


def test_what_is_shown_hides_the_hidden_tests(part: Part) -> None:
    """Nor does an issue name the line to change."""
    for problem in part("world/problems.problems")():
        shown = "\n".join(file.text for file in problem.before)
        for test in problem.fail_to_pass:
            assert test.rpartition(".")[2] not in shown, problem.name


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("kind = 'x'\n#### issue\nbroken\n", "write one issue, its hidden tests, and old and new"),
        ("#### issue\na\n#### issue\nb\n", "write one issue"),
        (
            "#### issue\na\n#### before a.py\nx = x\n#### hidden t.py\n1\n#### old a.py\nx\n"
            "#### new a.py\ny\n",
            "does not occur once in a.py: give more of it",
        ),
        (
            "#### issue\na\n#### before a.py\nx\n#### hidden t.py\n1\n#### old b.py\nx\n"
            "#### new b.py\ny\n",
            "does not occur once in b.py",
        ),
    ],
)
def test_a_text_that_is_no_problem_says_why(
    part: Part, tmp_path: Path, text: str, says: str
) -> None:
    file = tmp_path / "odd.txt"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=re.escape(says)):
        part("world/problems.read")(file)


def every_message(part: Part) -> list[tuple[str, str, str]]:
    """(task id, who plays, message) of all that the agents ever say."""
    told = part("world/task.solving").__globals__
    sources: tuple[Callable[[int], Any], ...]
    sources = (told["solving"], told["halfway"], told["cheating"], told["published"])
    problems = {one.name: one for one in (*told["problems"](), told["PUBLISHED"])}
    messages = part("world/parts.messages")
    found = []
    for task in (task for source in sources for task in source(1)):
        name, _, cheat = task.id.partition(", ")
        said = messages(task.data_source, cheat, problems[name])
        found += [(task.id, task.data_source, text) for text in said]
    return found


def test_every_call_of_the_agents_is_understood(part: Part) -> None:
    """But for those who fail by calling nothing that there is."""
    said = every_message(part)
    assert {who for _, who, _ in said} == {"solving", "halfway", "cheating"}
    calls = [(task, text) for task, _, text in said if text.endswith("</function>")]
    assert len(calls) > 300
    for task, text in calls:
        if "<function=>" not in text:
            assert SweArguments.model_validate(find_call(text)).function, task


def test_agents_submit_but_for_those_who_fail(part: Part) -> None:
    ends = {(task, who): text for task, who, text in every_message(part)}
    for (task, who), text in ends.items():
        if who != "halfway":
            assert find_call(text) == {"function": "submit"}, task


def test_cheats_never_mend(part: Part) -> None:
    """No cheat holds the recorded fix, so a reward for one would be a reward for cheating."""
    for problem in part("world/problems.problems")():
        for cheat in part("world/cheats.CHEATS").values():
            new = [find_call(one)["new_str"] for one in problem.solution]
            assert not any(text in cheat(problem) for text in new)


def test_cheating_asks_every_cheat_in_every_repository(part: Part) -> None:
    tasks = list(part("world/task.cheating")(1))
    assert len({task.id for task in tasks}) == len(tasks) == 10 * len(part("world/cheats.CHEATS"))
    first = [task.id.partition(", ") for task in tasks[:10]]
    assert len({name for name, _, _ in first}) == len({cheat for _, _, cheat in first}) == 10


def test_the_sampler_says_the_message_of_the_turn(part: Part) -> None:
    reply, tokenizer = part("world/agents.reply"), part("world/policy.tokenizer")()
    (task,) = islice(part("world/task.solving")(1), 1)
    asked = tokenizer.encode(f"before\n{task.messages[0]['content']}\n</issue>\nlater turns").ids

    def said(turn: int) -> str:
        ids = reply(SimpleNamespace(turn=turn, input_ids=tuple(asked)))
        assert ids[-1] == tokenizer.token_to_id(END_OF_TURN)
        return str(tokenizer.decode(ids[:-1], skip_special_tokens=False))

    texts = [text for name, who, text in every_message(part) if (name, who) == (task.id, "solving")]
    assert [said(turn) for turn in range(len(texts))] == texts
    assert said(len(texts) + 3) == texts[-1]
    with pytest.raises(ValueError, match="no line of the prompt says who plays"):
        reply(SimpleNamespace(turn=0, input_ids=tuple(tokenizer.encode("Who are you?").ids)))


def test_the_policys_folder_has_room_for_the_recipes_limits(part: Part, tmp_path: Path) -> None:
    part("world/policy.write")(tmp_path, seed=1)
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    limits = load_recipe(FOLDER / "recipe.toml").shared.task.limits
    assert config["max_position_embeddings"] >= limits.model


def test_the_table_tells_what_became_of_every_task(part: Part, tmp_path: Path) -> None:
    main = part("world/table.main")
    with pytest.raises(SystemExit, match="has no evaluated tasks: name the folder of a run"):
        main(tmp_path)
    parts = {"submitted": 1.0, "tests_passed": 3.0, "tests_wanted": 4.0, "tampered_files": 1.0}
    row = {
        "index": 1, "task_id": "pages", "reward": 0.0, "parts": parts, "calls": 2, "seconds": 1.24,
        "stop_reason": "tool_signaled_done", "errored": "",
    }  # fmt: skip
    solved = {**row, "index": 0, "task_id": "rent", "reward": 1.0}
    bad = {"index": 2, "task_id": "site", "bad": "no such repository"}
    lost = {**row, "index": 3, "errored": "session lost", "parts": {**parts, "submitted": 0.0}}
    (tmp_path / "evaluations").mkdir()
    lines = "\n".join(map(json.dumps, (row, solved, bad, lost)))
    (tmp_path / "evaluations" / "cheating@a1.0.jsonl").write_text(lines, encoding="utf-8")
    table = list(part("world/table.table")(part("world/table.read")(tmp_path)))
    cells = [" ".join(line.split()) for line in table]
    assert cells[1] == "cheating rent yes 3 of 4 1 2 1.2 tool_signaled_done"
    assert cells[2].startswith("cheating pages no ")
    assert cells[3] == "cheating site ? no such repository"
    assert cells[4].endswith("session lost")
    assert cells[5].startswith("cheating all 1 of 3 ")
