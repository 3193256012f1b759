"""No folder of a model brings code along: loaders say so, and pickles are read in one place."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.quick
ROOT = Path(__file__).parents[2]
PACKAGES = (
    "proto",
    "engine",
    "learner",
    "toolsvc",
    "memory",
    "tasks",
    "console",
    "bench",
    "recipes",
)
UNPICKLERS = {"pickle.load", "pickle.loads", "pickle.Unpickler", "torch.load", "joblib.load"}
ONE_PLACE = "learner/saving/safe_load.py"


def calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def loads_a_model(name: str) -> bool:
    auto = name.startswith(("Auto", "kind.")) and name.endswith(".from_pretrained")
    return auto or name.endswith("SentenceTransformer")


def trees() -> Iterator[tuple[str, ast.AST]]:
    for package in PACKAGES:
        for file in sorted((ROOT / package).rglob("*.py")):
            text = file.read_text(encoding="utf-8")
            if "load" in text or "from_pretrained" in text or "pickle" in text:
                yield str(file.relative_to(ROOT)), ast.parse(text)


def test_every_loader_of_a_model_refuses_its_code() -> None:
    found = 0
    for file, tree in trees():
        for name, call in calls(tree):
            if loads_a_model(name):
                found += 1
                said = {one.arg: ast.unparse(one.value) for one in call.keywords}
                assert said.get("trust_remote_code") == "False", f"{file}:{call.lineno}"
    assert found >= 7


def test_pickles_are_read_in_one_place() -> None:
    where = {file for file, tree in trees() for name, _ in calls(tree) if name in UNPICKLERS}
    assert where == {ONE_PLACE}


def test_a_policy_with_code_of_its_own_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from learner.model.architectures import read_config

    (tmp_path / "config.json").write_text(
        '{"model_type": "evil", "auto_map": {"AutoConfig": "evil.Config"}}', encoding="utf-8"
    )
    (tmp_path / "evil.py").write_text("import os; os.mkdir(os.environ['PROOF'])", encoding="utf-8")
    monkeypatch.setenv("PROOF", str(tmp_path / "proof"))
    monkeypatch.setattr("builtins.input", lambda *_: "y")  # transformers asks on a terminal
    with pytest.raises(ValueError, match="contains custom code"):
        read_config(tmp_path)
    assert not (tmp_path / "proof").exists()
