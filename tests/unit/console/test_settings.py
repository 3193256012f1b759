"""Settings that changed: since something was made, and since the run's last start."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from console.asked import needs
from console.asked.settings import made_from
from console.asked.setup import Options, Setup, set_up
from console.course import session
from console.course.course import Ending
from console.course.look import Missing
from console.course.made import making, outdated, remake
from console.errors import NothingStarted
from console.record.changes import changes
from console.record.run import read_run
from console.report.figures import figures
from console.report.sections import sections
from console.watch.screen import Screen
from tests.support.recipes import to_toml
from tests.support.run_folders import lines, step

pytestmark = pytest.mark.quick

TABLES: dict[str, Any] = {
    "run": {
        "name": "own", "folder": "run", "steps": 9, "groups_per_step": 1, "group_size": 2,
        "engine": "127.0.0.1:9",
    },
    "policy": {"model": "run/warm"},
    "task": {"source": "task.py:questions", "reward": "./task.py:score"},
    "sampler": {"endpoints": ["http://127.0.0.1:9"]},
    "tools": {"shop": {"serve": ["tool.py"]}},
    "render": {"model": "base", "conversations": "run/rows.jsonl", "output": "run/rows.tr"},
    "sft": {"model": "base", "data": "run/rows.tr", "output": "run/warm", "steps": 2},
    "learner": {"optimizer": {"lr": 1e-3}},
    "console": {
        "prepare": [
            {"name": "rows", "run": ["python", "rows.py", "--seed", "{seed}", "{makes}"],
             "makes": "run/rows.jsonl"},
        ],
    },
}  # fmt: skip


@pytest.fixture
def file(tmp_path: Path) -> Path:
    for name in ("task.py", "tool.py", "rows.py"):
        (tmp_path / name).touch()
    (tmp_path / "base").mkdir()
    made = tmp_path / "recipe.toml"
    made.write_text(to_toml(TABLES), encoding="utf-8")
    return made


def asked(file: Path, **options: Any) -> Setup:
    return set_up(Options(recipe=file, **options))


def make_all(setup: Setup) -> None:
    """As a run leaves what its makers made."""
    for maker in needs.makers(setup.recipe, setup.table):
        with making(setup.run, maker, made_from(setup, maker)):
            maker.makes.write_text(maker.name, encoding="utf-8")


def old(setup: Setup) -> dict[str, list[str]]:
    makers = needs.makers(setup.recipe, setup.table)
    return {one.maker.name: list(one.differs) for one in outdated(setup, makers)}


@pytest.mark.parametrize(
    ("overrides", "found"),
    [
        (("sft.steps=3",), {"sft": ["sft.steps 2 -> 3"]}),
        (("sft.batch_size=4",), {"sft": ["sft.batch_size unset -> 4"]}),
        (
            ("task.protocol=engine.api:Chat",),
            {"render": ['task.protocol unset -> "engine.protocols.chat:Chat"']},
        ),
        (("policy.template.a=1",), {"render": ["policy.template.a unset -> 1"]}),
        (("run.steps=3", "run.groups_per_step=2", "learner.optimizer.lr=1"), {}),
    ],
)  # fmt: skip
def test_what_was_made_from_other_settings_is_named(
    file: Path, overrides: tuple[str, ...], found: dict[str, list[str]]
) -> None:
    make_all(asked(file))
    assert old(asked(file)) == {}
    assert old(asked(file, overrides=overrides)) == found


def test_a_file_or_a_seed_that_changed_is_named(file: Path) -> None:
    make_all(asked(file))
    (file.parent / "rows.py").write_text("print()", encoding="utf-8")
    assert old(asked(file)) == {"rows": ["rows.py has changed"]}
    (file.parent / "rows.py").write_text("", encoding="utf-8")
    (found,) = old(asked(file, seed=7))["rows"]
    assert "--seed 0" in found
    assert "--seed 7" in found
    (file.parent / "run/rows.jsonl").write_text("other", encoding="utf-8")
    assert old(asked(file)) == {"render": ["rows.jsonl has changed"]}


def test_remake_moves_aside_what_is_old_and_what_was_made_of_it(file: Path) -> None:
    make_all(asked(file))
    setup = asked(file, overrides=("task.protocol=engine.api:Chat",))
    (setup.run / "sft").mkdir()
    said = remake(setup, needs.makers(setup.recipe, setup.table), steps=0)
    assert said == [
        f"{setup.run / name} is made again: the old one is {setup.run / name}.old"
        for name in ("rows.tr", "warm", "sft")
    ]
    assert (setup.run / "rows.jsonl").exists()
    assert (setup.run / "warm.old").read_text(encoding="utf-8") == "sft"
    assert [maker.name for maker in session.planned(setup)] == ["render", "sft"]


def test_remake_after_the_first_step_is_refused(file: Path) -> None:
    make_all(asked(file))
    setup = asked(file, overrides=("sft.steps=3",))
    with pytest.raises(NothingStarted, match=r"has made 4 steps .* --folder FOLDER begins a new"):
        remake(setup, needs.makers(setup.recipe, setup.table), steps=4)
    assert (setup.run / "warm").exists()
    assert remake(asked(file), needs.makers(setup.recipe, setup.table), steps=4) == []


def start(options: Options, monkeypatch: pytest.MonkeyPatch) -> str:
    """What a start says; its processes come to a good end without having been."""

    async def looked(*_: Any) -> Missing:
        return Missing()

    async def trained(*_: Any) -> Ending:
        return Ending(status=0, sentence="")

    monkeypatch.setattr(session, "look", looked)
    monkeypatch.setattr(session, "_course", trained)
    out = io.StringIO()
    session._run(options, ["toolwright"], Screen(Console(file=out, soft_wrap=True)))
    return out.getvalue()


@pytest.mark.parametrize(
    ("overrides", "code", "said"),
    [
        ((), "", ""),
        (("learner.optimizer.lr=0.01",), "", "learner.optimizer.lr 0.001 -> 0.01"),
        ((), "x = 1\n", "task.py has changed"),
        (("render.ask_tools=true",), "", "render.ask_tools unset -> true"),
    ],
)
def test_a_resume_says_what_differs_and_the_curves_mark_it(
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
    overrides: tuple[str, ...],
    code: str,
    said: str,
) -> None:
    make_all(asked(file))
    start(Options(recipe=file), monkeypatch)
    run = asked(file).run
    lines(run / "learner.jsonl", [step(1), step(2)])
    (file.parent / "task.py").write_text(code, encoding="utf-8")
    out = start(Options(recipe=file, overrides=overrides), monkeypatch)
    warned = f"warning: the run goes on from step 2 with other settings than before: {said};" in out
    read = read_run(run, "run")
    marks = [{"x": 2, "text": f"from here on: {said}"}] if said else None
    drawn = [one for section in sections([read]) for one in section["plots"]]
    assert all(one.get("marks") == marks for one in drawn if one["kind"] == "lines")
    data = figures([read], output=run)
    doubted = f"went on from step 2 with other settings: {said}" in data["doubts"]
    assert warned == doubted == bool(said)
    assert changes(read.course) == ([(2, said)] if said else [])


def test_a_start_says_what_it_uses_though_it_is_old(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_all(asked(file))
    options = Options(recipe=file, overrides=("sft.steps=3",))
    warm = asked(file).run / "warm"
    assert (
        f"warning: {warm} was made by [sft] with other settings (sft.steps 2 -> 3) and is used as "
        "it is: `toolwright run --remake` makes it again"
    ) in start(options, monkeypatch)
    assert warm.exists()
    out = start(Options(recipe=file, overrides=("sft.steps=3",), remake=True), monkeypatch)
    assert f"{warm} is made again: the old one is {warm}.old" in out
    assert json.loads((warm.parent / "console/made/render-render.json").read_text(encoding="utf-8"))


def test_an_empty_table_is_no_setting(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text(f"{file.read_text(encoding='utf-8')}\n[ingress]\n", encoding="utf-8")
    make_all(asked(file))
    assert "warning" not in start(Options(recipe=file), monkeypatch)


def test_what_was_put_there_by_hand_stays(file: Path) -> None:
    setup = asked(file)
    make_all(setup)
    for noted in (setup.run / "console/made").iterdir():
        noted.write_text("{", encoding="utf-8")
    assert old(asked(file, overrides=("sft.steps=3",))) == {}
