"""A recipe is read whole or refused with the key and the mend."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.config import EngineTable
from tests.support.recipes import merged, to_toml
from toolwright import recipe
from toolwright.recipe import RecipeError, load_recipe, reading

TABLES: dict[str, Any] = {
    "run": {"name": "r", "folder": "out", "steps": 2, "groups_per_step": 3, "group_size": 4},
    "policy": {"model": "weights"},
    "task": {"source": "data.jsonl", "reward": "./my_reward.py:score"},
    "sampler": {"endpoints": ["http://127.0.0.1:1"]},
    "tools": {"python": {"service": "127.0.0.1:2"}},
    "engine": {"evaluation": {"suites": [{"name": "s", "source": "d.jsonl", "n": 1}]}},
}


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def write(**changes: Any) -> Path:
        file = tmp_path / "recipe.toml"
        file.write_text(to_toml(merged(TABLES, changes)), encoding="utf-8")
        return file

    return write


def test_a_recipe_is_read(write: Any) -> None:
    read = load_recipe(write())
    assert read.shared.run.batch == 12
    assert read.shared.tools["python"].service == "127.0.0.1:2"
    table = read.table("engine", EngineTable)
    assert table.evaluation.suites[0].name == "s"
    assert recipe.check_all(read) == []


def test_paths_are_relative_to_the_recipe(
    write: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    read = load_recipe(Path("..") / file.name)
    assert read.run_folder == tmp_path / "out"
    assert read.resolve(read.shared.policy.model) == tmp_path / "weights"
    assert read.resolve("/absolute") == Path("/absolute")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"run": {"grup_size": 4}}, "run.grup_size: unknown key (did you mean 'group_size'?)"),
        ({"tools": {"python": {"run_limit": 4}}}, "(did you mean 'run_limit_s'?)"),
        ({"run": {"zzz": 4}}, "run.zzz: unknown key;"),
        ({"sampelr": {}}, "unknown table [sampelr]; known are"),
        ({"run": {"steps": None}}, "run.steps: missing"),
        ({"policy": None}, "policy: missing"),
        ({"sampler": {"endpoints": []}}, "sampler.endpoints: "),
        (
            {"task": {"tools": ["sql"]}},
            "task.tools names ['sql'], which have no",
        ),
        (
            {"sampler": {"endpoints": "http://a:1"}},
            'sampler.endpoints: write a list, ["http://a:1"]',
        ),
        ({"task": {"tools": {"a": 1}}}, "task.tools: write a list, [...]"),
        ({"task": {"stops": {"timeout": "mask"}}}, "task.stops: 'timeout' takes no rule; these"),
        ({"task": {"stops": {"max_turns": "drop"}}}, "task.stops: max_turns = 'drop': write"),
        ({"tools": {"python": {"service": None}}}, "tools.python: set either `service`, "),
        ({"tools": {"python": {"serve": ["python"]}}}, "one of the two"),
        ({"tools": {"sql": {"serve": ["sql"], "tls_ca": "a"}}}, "tls_ca is for a `service`"),
        (
            {"tools": {"sql": {"service": "x:1", "tls_ca": "a", "tls_cert": "b"}}},
            "tls_cert and tls_key belong together",
        ),
        ({"tools": {"sql": {"serve": ["sql", "--listen=a:3"]}}}, "tools.sql: leave --listen out"),
    ],
)
def test_what_does_not_fit_is_named(write: Any, changes: dict[str, Any], words: str) -> None:
    file = write(**changes)
    with pytest.raises(RecipeError) as caught:
        load_recipe(file)
    assert words in f"{caught.value};"
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_tool_is_at_an_address_or_is_started(write: Any) -> None:
    twice = {"a": {"serve": ["my tool.py"]}, "b": {"serve": ["my tool.py"]}}
    tools = load_recipe(write(tools=twice)).shared.tools
    assert tools["python"].where == "127.0.0.1:2"
    assert tools["a"].where == tools["b"].where == "`toolsvc serve 'my tool.py'`"


def test_a_process_refuses_unknown_keys_in_its_own_table(write: Any) -> None:
    read = load_recipe(write(engine={"max_concurent": 3}))
    with pytest.raises(RecipeError, match=r"engine\.max_concurent.*'max_concurrent'"):
        read.table("engine", EngineTable)
    suite = [{"name": "s", "source": "d.jsonl", "n": 1, "temprature": 0}]
    read = load_recipe(write(engine={"evaluation": {"suites": suite}}))
    with pytest.raises(RecipeError, match=r"suites\.0\.temprature.*'temperature'"):
        read.table("engine", EngineTable)
    with pytest.raises(RecipeError, match=r"temprature"):
        recipe.check_all(read)


@pytest.mark.parametrize(
    ("staleness", "correction", "fits"),
    [
        (0, "bypass", True),
        (0, "geo_mask", True),
        (0, "decoupled", False),
        (1, "decoupled", True),
        (1, "bypass", False),
        (3, "token_truncate", False),
    ],
)
def test_exactly_one_correction(write: Any, staleness: int, correction: str, fits: bool) -> None:
    file = write(run={"max_staleness": staleness, "correction": correction})
    if fits:
        assert load_recipe(file).shared.run.max_staleness == staleness
    else:
        with pytest.raises(RecipeError, match=r"run: max_staleness.*takes 'decoupled'"):
            load_recipe(file)


def test_overrides(write: Any) -> None:
    overrides = [
        "run.steps=10",
        'run.name="n"',
        "policy.model=../w",  # a bare word is a string
        "sampler.temperature=0.5",
        "task.limits.turns=9",  # opens a table that the file does not have
        "tools.sql.service=127.0.0.1:9",
    ]
    read = load_recipe(write(), overrides)
    assert read.shared.run.steps == 10
    assert read.shared.run.name == "n"
    assert read.shared.policy.model == Path("../w")
    assert read.shared.sampler.temperature == 0.5
    assert read.shared.task.limits.turns == 9
    assert set(read.shared.tools) == {"python", "sql"}


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("run.steps", "write it as table.key=value"),
        ("=3", "write it as table.key=value"),
        ("run.steps.x=3", "steps is a value, not a table"),
        ("run.stpes=3", "did you mean 'steps'"),
        ("run.steps=-3", "run.steps"),
    ],
)
def test_an_override_that_does_not_fit_is_named(write: Any, override: str, words: str) -> None:
    with pytest.raises(RecipeError, match=words):
        load_recipe(write(), [override])


def test_files_that_are_no_recipes(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"no recipe at .*absent"):
        load_recipe(tmp_path / "absent.toml")
    with pytest.raises(RecipeError, match="cannot be read"):
        load_recipe(tmp_path)
    broken = tmp_path / "broken.toml"
    broken.write_text("[run\n", encoding="utf-8")
    with pytest.raises(RecipeError, match="is not valid TOML"):
        load_recipe(broken)
    broken.write_bytes(b"\xff\xfe")
    with pytest.raises(RecipeError, match="cannot be read"):
        load_recipe(broken)


def test_a_table_whose_package_is_absent_is_told(
    write: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Absent:
        def load(self) -> None:
            raise ImportError

    found = {**recipe.registered_tables(), "memory": Absent()}
    monkeypatch.setattr(reading, "registered_tables", lambda: found)
    assert recipe.check_all(load_recipe(write(memory={"any": "thing"}))) == ["memory"]


def test_the_resolved_recipe_is_left_in_the_run_folder(write: Any, tmp_path: Path) -> None:
    read = load_recipe(write(), ["run.steps=7"])
    read.write_resolved("engine", read.table("engine", EngineTable))
    left = json.loads((tmp_path / "out" / "engine.resolved.json").read_text(encoding="utf-8"))
    assert left["shared"]["run"]["steps"] == 7
    assert left["shared"]["task"]["limits"]["turns"] == 4
    assert left["engine"]["max_bad_rows"] == 100
    again = recipe.read_resolved(tmp_path / "out" / "engine.resolved.json")
    assert (again.path, again.shared) == (read.path, read.shared)
    assert again.table("engine", EngineTable) == read.table("engine", EngineTable)


@pytest.mark.parametrize("text", [None, "", "{}", "[]", '{"recipe": 1, "shared": {}}', "\x00"])
def test_what_is_no_resolved_recipe_is_refused(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "engine.resolved.json").write_text(text, encoding="utf-8")
    with pytest.raises(RecipeError, match=r"engine\.resolved\.json"):
        recipe.read_resolved(tmp_path / "engine.resolved.json")
