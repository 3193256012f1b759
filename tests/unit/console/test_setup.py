"""What was typed becomes one recipe for all processes, with its paths, seed and ports."""

from __future__ import annotations

import itertools
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from console.asked import needs
from console.asked.plan import plan
from console.asked.ports import settle
from console.asked.setup import Options, Setup, set_up, with_overrides
from console.course.commands import Commands
from console.errors import NothingStarted
from tests.support.recipes import merged, to_toml
from toolwright.recipe import RecipeError

TABLES: dict[str, Any] = {
    "run": {
        "name": "own", "folder": "run", "steps": 3, "groups_per_step": 1, "group_size": 2,
        "engine": "127.0.0.1:0",
    },
    "policy": {"model": "run/warm"},
    "task": {"source": "task.py:questions", "reward": "./task.py:score"},
    "sampler": {"endpoints": ["http://127.0.0.1:0"]},
    "tools": {"python": {"service": "127.0.0.1:0"}},
    "render": {"model": "base", "conversations": "run/rows.jsonl", "output": "run/rows.tr"},
    "sft": {"model": "base", "data": "run/rows.tr", "output": "run/warm", "steps": 2},
    "console": {
        "prepare": [
            {"name": "rows", "run": ["python", "rows.py", "--to", "{makes}", "--seed", "{seed}"],
             "makes": "run/rows.jsonl"},
            {"name": "index", "run": ["make", "run/rows.jsonl", "{run}"], "makes": "run/index"},
        ],
        "services": [
            {"name": "python", "run": ["toolsvc", "serve", "python", "--listen", "{address}"],
             "ready": "grpc:127.0.0.1:0"},
        ],
    },
}  # fmt: skip


def written(folder: Path, **changes: Any) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "task.py").touch()
    (folder / "base").mkdir(exist_ok=True)
    file = folder / "recipe.toml"
    file.write_text(to_toml(merged(TABLES, changes)), encoding="utf-8")
    return file


def asked(file: Path, *overrides: str, **options: Any) -> Setup:
    return set_up(Options(recipe=file, overrides=overrides, **options))


def makes(setup: Setup) -> list[Path]:
    made = needs.makers(setup.recipe, setup.table)
    goals = (*needs.goals(setup.recipe), *needs_of_run(setup))
    return [one.makes for one in plan(goals, made, lambda path: path.exists())]


def needs_of_run(setup: Setup) -> Any:
    from console.asked.plan import unread

    return unread(needs.makers(setup.recipe, setup.table), needs.goals(setup.recipe))


def settled(setup: Setup) -> Setup:
    ports = itertools.count(20_001)
    addresses = settle(setup.recipe, setup.table, lambda: next(ports))
    return with_overrides(setup, addresses.overrides)


def test_every_task_s_questions_and_conversations_are_needed(tmp_path: Path) -> None:
    """A file of conversations of each task is made, moved with the run, and rendered."""
    prepare = [
        {"name": name, "run": ["python", "rows.py", "{makes}"], "makes": f"run/{name}.jsonl"}
        for name in ("sums", "shop", "questions")
    ]
    file = written(
        tmp_path,
        run={"groups_per_step": 2},
        task={"source": None},
        tasks={"sums": {"source": "task.py:sums"}, "shop": {"source": "run/questions.jsonl"}},
        render={"conversations": {"sums": "run/sums.jsonl", "shop": "run/shop.jsonl"}},
        console={"prepare": prepare},
    )
    setup = asked(file, folder=tmp_path / "other")
    made = {path.relative_to(tmp_path).as_posix() for path in makes(setup)}
    assert made >= {f"other/{name}.jsonl" for name in ("sums", "shop", "questions")}
    assert setup.recipe.raw["render"]["conversations"] == {
        name: str(tmp_path / "other" / f"{name}.jsonl") for name in ("sums", "shop")
    }
    assert setup.recipe.shared.tasks["shop"].source == str(tmp_path / "other/questions.jsonl")


def test_the_teachers_of_a_distillation_are_needed(tmp_path: Path) -> None:
    learner = {
        "loss": {"kind": "distill"},
        "distill": {"teacher": "large", "teachers": {"sums": "run/tutor"}},
    }
    prepare = [{"name": "tutor", "run": ["python", "tutor.py"], "makes": "run/tutor"}]
    changes = {"learner": learner, "policy": {"model": "base"}, "console": {"prepare": prepare}}
    with pytest.raises(NothingStarted, match=r"learner\.distill\.teacher = .*large is missing"):
        makes(asked(written(tmp_path, **changes)))
    (tmp_path / "large").mkdir()
    assert makes(asked(written(tmp_path, **changes))) == [tmp_path / "run" / "tutor"]
    learner["loss"] = {"kind": "ppo"}
    keys = [need.key for need in needs.goals(asked(written(tmp_path, **changes)).recipe)]
    assert not any(key.startswith("learner.distill.") for key in keys)


def test_a_run_makes_the_rows_that_its_epochs_count(tmp_path: Path) -> None:
    file = written(tmp_path, run={"steps": None, "epochs": 2}, task={"source": "run/rows.jsonl"})
    setup = asked(file, folder=tmp_path / "other")
    rows = tmp_path / "other" / "rows.jsonl"
    assert rows in makes(setup)
    with pytest.raises(RecipeError, match="make the file first"):
        _ = setup.steps
    rows.parent.mkdir()
    rows.write_text("{}\n{}\n", encoding="utf-8")
    assert setup.steps == 4


def test_steps_and_seed_reach_warm_up_and_run(tmp_path: Path) -> None:
    setup = asked(written(tmp_path), "run.steps=9", seed=7, steps=5)
    assert setup.steps == 5
    assert setup.seed == 7
    assert setup.recipe.raw["sft"]["seed"] == 7
    assert setup.overrides.count("run.steps=5") == 1 and "run.steps=9" not in setup.overrides
    rows = Commands(setup).maker(needs.makers(setup.recipe, setup.table)[0])
    assert rows.argv[-2:] == ("--seed", "7")


def test_another_folder_takes_along_what_is_made_in_the_old_one(tmp_path: Path) -> None:
    new = tmp_path / "other/run"
    setup = asked(written(tmp_path), folder=new)
    assert setup.run == new
    assert makes(setup) == [new / name for name in ("rows.jsonl", "index", "rows.tr", "warm")]
    assert setup.recipe.resolve(setup.recipe.shared.policy.model) == new / "warm"
    index = Commands(setup).maker(needs.makers(setup.recipe, setup.table)[1])
    assert index.argv == ("make", str(new / "rows.jsonl"), str(new))
    # What the user has beside the recipe stays where it is.
    assert setup.recipe.raw["sft"]["model"] == "base"


def test_links_in_a_circle_are_one_sentence(tmp_path: Path) -> None:
    setup = asked(written(tmp_path, policy={"model": "loop"}))
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(RecipeError, match="circle"):
        needs.goals(setup.recipe)


def test_every_open_port_becomes_one_that_all_are_told(tmp_path: Path) -> None:
    setup = settled(asked(written(tmp_path)))
    assert setup.recipe.shared.run.engine == "127.0.0.1:20002"
    assert setup.recipe.shared.sampler.endpoints == ("http://127.0.0.1:20003",)
    assert setup.recipe.shared.tools["python"].service == "127.0.0.1:20001"
    learner = Commands(setup).learner()
    for override in setup.overrides:
        assert ("--set", override) in itertools.pairwise(learner.argv)
    assert shlex.split(learner.shown)[:2] == ["learner", "run"]


def test_a_service_named_as_a_served_tool_is_what_plays_it(tmp_path: Path) -> None:
    words = [
        "simulated:",
        "--set",
        "simulated.endpoint=http://127.0.0.1:0/v1",
        "memory:127.0.0.1:0",
    ]
    changes = {"tools": {"python": {"serve": words, "service": ""}}}
    tools = settled(asked(written(tmp_path, **changes))).recipe.shared.tools
    played = "simulated.endpoint=http://127.0.0.1:20001/v1"
    assert tools["python"].serve == ("simulated:", "--set", played, "memory:127.0.0.1:0")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"console": {"services": []}}, r"tools\.python\.service.*tools\.python\.serve"),
        ({"run": {"engine": "10.0.0.5:0"}}, r"run\.engine = '10\.0\.0\.5:0'.*127\.0\.0\.1"),
        ({"engine": {"listen": "0.0.0.0:5"}}, r"engine\.listen.*name the port in run\.engine"),
        ({"console": {"sampler": {"way": "none"}}}, r"way = 'none' starts no sampler"),
        ({"sampler": {"endpoints": ["http://far:0"]}}, r"sampler\.endpoints.*name the port"),
        (
            {"tools": {"played": {"serve": ["simulated:", "a.endpoint=http://127.0.0.1:0/v1"]}}},
            r"tools\.played\.serve has 'a\.endpoint=http://127\.0\.0\.1:0/v1', port 0, .*"
            r"\[\[console\.services\]\] entry with name = 'played', or name the port",
        ),
    ],
)
def test_an_open_port_that_cannot_be_chosen_is_one_sentence(
    tmp_path: Path, changes: dict[str, Any], says: str
) -> None:
    with pytest.raises(NothingStarted, match=says):
        settled(asked(written(tmp_path, **changes)))


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({"service": [{"name": "x"}]}, "console.service"),
        ({"services": [{"name": "x", "run": ["y"], "ready": "grpc:a:99999"}]}, "grpc:HOST:PORT"),
        ({"services": [{"name": "../x", "run": ["y"], "ready": "grpc:a:1"}]}, "name"),
        ({"prepare": [{"name": "engine", "run": ["y"], "makes": "z"}]}, "logs would be one"),
        ({"prepare": [{"name": "x", "run": [], "makes": "z"}]}, "run"),
        ({"track": ["tensorbord"]}, "console.track"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(tmp_path: Path, table: Any, says: str) -> None:
    with pytest.raises(NothingStarted, match=says):
        asked(written(tmp_path, console={"prepare": [], "services": [], **table}))


def test_words_of_a_command_are_those_of_this_installation(tmp_path: Path) -> None:
    setup = settled(asked(written(tmp_path)))
    service = setup.table.services[0].model_copy(update={"ready": "grpc:127.0.0.1:20001"})
    command = Commands(setup).service(service)
    assert command.argv[:4] == (sys.executable, "-P", "-m", "toolsvc.cli")
    assert command.argv[-1] == "127.0.0.1:20001"
    assert command.folder == tmp_path
    assert command.shown == "toolsvc serve python --listen 127.0.0.1:20001"


def test_several_ranks_start_by_the_launcher(tmp_path: Path) -> None:
    setup = settled(asked(written(tmp_path, console={"ranks": 2})))
    words = Commands(setup).learner().argv
    assert words[3:6] == ("learner.launch", "--nnodes=1", "--nproc-per-node=2")
    assert words[words.index("learner.cli") + 1] == "run"


def test_samplers_of_a_run_that_publishes_adapters_take_them(tmp_path: Path) -> None:
    run = {"publish_adapters": True}
    setup = asked(written(tmp_path, run=run, learner={"lora": {"rank": 8}}))
    words = Commands(setup).sampler("sampler", tmp_path, "http://127.0.0.1:9").argv
    at = words.index("--enable-lora")
    assert words[at + 1 :][:4] == ("--max-lora-rank", "8", "--lora-target-modules", "all")
    plain = Commands(asked(written(tmp_path))).sampler("sampler", tmp_path, "http://127.0.0.1:9")
    assert "--enable-lora" not in plain.argv


def test_the_users_modules_are_neither_sglang_nor_a_rank(tmp_path: Path) -> None:
    """With ranks it is torchrun that says `python -u -m learner.cli`."""
    import os
    import subprocess

    for package in ("learner", "sglang"):
        (tmp_path / package).mkdir()
        for name in ("__init__", "cli", "launch_server"):
            (tmp_path / package / f"{name}.py").write_text(
                "raise SystemExit('mine')", encoding="utf-8"
            )
    gpu = {"way": "gpu", "python": sys.executable}
    setup = settled(asked(written(tmp_path, console={"ranks": 2, "sampler": gpu})))
    learner, sampler = (
        Commands(setup).learner(),
        Commands(setup).sampler("sampler", tmp_path, "http://127.0.0.1:9"),
    )
    rank = (sys.executable, "-u", "-m", "learner.cli", "--help")
    for argv, command in ((rank, learner), (sampler.argv, sampler)):
        done = subprocess.run(
            argv,
            cwd=tmp_path,
            env={**os.environ, **command.environment},
            capture_output=True,
            text=True,
            check=False,
        )
        assert "mine" not in done.stderr
    assert "No module named 'sglang'" in done.stderr, "the tests' environment has none"


def test_no_port_is_given_twice_nor_one_that_the_recipe_names(tmp_path: Path) -> None:
    """Also in a word of `serve`."""
    words = ["simulated:", "a.endpoint=http://127.0.0.1:20004/v1", "memory:127.0.0.1:20005"]
    named = {"endpoints": ["http://127.0.0.1:20003"]}
    setup = asked(written(tmp_path, sampler=named, tools={"played": {"serve": words}}))
    ports = iter((20_001, 20_001, 20_003, 20_004, 20_005, 20_002))
    addresses = settle(setup.recipe, setup.table, lambda: next(ports))
    assert addresses.services[0].ready == "grpc:127.0.0.1:20001"
    assert "run.engine=127.0.0.1:20002" in addresses.overrides


def test_an_ingress_and_a_memory_start_without_an_entry(tmp_path: Path) -> None:
    tables = {"memory": {"address": "127.0.0.1:0"}, "ingress": {"address": "127.0.0.1:0"}}
    setup = asked(written(tmp_path, **tables))
    ports = iter(range(20_001, 20_009))
    addresses = settle(setup.recipe, setup.table, lambda: next(ports))
    memory, ingress, *_ = addresses.services
    assert (memory.name, memory.ready) == ("memory", "grpc:127.0.0.1:20001")
    assert (ingress.name, ingress.ready) == ("ingress", "http://127.0.0.1:20002/v1/models")
    assert {"memory.address=127.0.0.1:20001", "ingress.address=127.0.0.1:20002"} <= set(
        addresses.overrides
    )
    command = Commands(with_overrides(setup, addresses.overrides)).service(ingress)
    assert "ingress.cli" in " ".join(map(str, command.argv))
    assert "ingress.address=127.0.0.1:20002" in command.argv


def test_agents_that_the_recipe_starts_need_no_table(tmp_path: Path) -> None:
    agent = {"kind": "command", "command": ["python", "-c", "pass"], "sandbox": "none"}
    setup = asked(written(tmp_path, task={"agent": agent}))
    ports = iter(range(20_001, 20_009))
    addresses = settle(setup.recipe, setup.table, lambda: next(ports))
    names = [one.name for one in addresses.services]
    assert names[:2] == ["ingress", "agents"]
    assert {"ingress.address=127.0.0.1:20001", "agents.address=127.0.0.1:20002"} <= set(
        addresses.overrides
    )
    command = Commands(setup).service(addresses.services[1])
    assert command.argv[command.argv.index("-m") + 1 :][:2] == ("agents.cli", "serve")


def test_whatever_names_what_is_made_moves_with_the_folder(tmp_path: Path) -> None:
    made = [
        {"name": "own", "run": ["python", "own.py"], "makes": "run/own.py"},
        {"name": "held", "run": ["python", "held.py"], "makes": "run/held out.jsonl"},
    ]
    suites = [
        {"name": "a", "source": "run/held out.jsonl", "n": 4, "temperature": 0.5},
        {"name": "b", "source": "run/own.py:questions", "n": 2},
    ]
    serve = [
        {"name": "python", "run": ["python", "run/own.py"], "ready": "grpc:127.0.0.1:0"},
    ]
    file = written(
        tmp_path,
        task={"source": "run/own.py:questions"},
        engine={"evaluation": {"suites": suites}},
        console={"prepare": made, "services": serve},
        sft={"data": "run/held out.jsonl"},
    )
    new = tmp_path / "again"
    setup = asked(file, folder=new)
    raw = setup.recipe.raw
    assert setup.recipe.shared.task.source == f"{new}/own.py:questions"
    assert raw["engine"]["evaluation"]["suites"] == [
        {**suites[0], "source": f"{new}/held out.jsonl"},
        {**suites[1], "source": f"{new}/own.py:questions"},
    ]
    assert raw["sft"]["data"] == f"{new}/held out.jsonl"
    assert setup.table.services[0].run == ("python", f"{new}/own.py")
    assert setup.recipe.shared.task.reward == "./task.py:score"
    assert not any(str(tmp_path / "run") in text for text in setup.overrides)


def test_a_folder_stands_for_its_recipe(tmp_path: Path) -> None:
    file = written(tmp_path)
    assert asked(tmp_path).recipe.path == asked(file).recipe.path
    with pytest.raises(NothingStarted, match=r"recipe\.toml"):
        asked(tmp_path / "base")


def test_a_service_named_sampler_is_the_sampler(tmp_path: Path) -> None:
    services = [*TABLES["console"]["services"], {"name": "sampler", "run": ["bench"],
                                                "ready": "http://127.0.0.1:0/health"}]  # fmt: skip
    setup = settled(asked(written(tmp_path, console={"services": services})))
    assert setup.recipe.shared.sampler.endpoints == ("http://127.0.0.1:20002",)
