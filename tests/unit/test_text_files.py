"""Text files are UTF-8 whatever the locale: no file is opened as text without an encoding."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.text_files import named, unnamed

pytestmark = pytest.mark.quick
ROOT = Path(__file__).parents[2]
FOLDERS = (
    "agents", "bench", "console", "deploy", "docs", "engine", "examples", "ingress", "learner",
    "memory", "proto", "recipes", "tasks", "tests", "toolsvc",
)  # fmt: skip


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("file.read_text()", 1),
        ("file.read_text(errors='replace')", 1),
        ("(folder / 'a').write_text(text)", 1),
        ("open(path)", 1),
        ("open(path, 'w')", 1),
        ("open(path, mode='a+')", 1),
        ("path.open('r')", 1),
        ("with path.open() as file: pass", 1),
        ("for line in path.open(): pass", 1),
        ("[line for line in path.open()]", 1),
        ("gzip.open(path, 'rt')", 1),
        ("os.fdopen(handle, 'w')", 1),
        ("tempfile.NamedTemporaryFile('w')", 1),
        ("file.read_text('utf-8')", 0),
        ("file.read_text(encoding='ascii')", 0),
        ("file.write_text(text, 'utf-8')", 0),
        ("distribution.read_text('RECORD')", 0),
        ("open(path, 'rb')", 0),
        ("open(path, mode)", 0),
        ("path.open('ab', buffering=0)", 0),
        ("tarfile.open(path, 'w')", 0),
        ("tarfile.open(fileobj=out, mode='w')", 0),
        ("os.open(path, os.O_RDONLY)", 0),
        ("async def f(): await pool.open()", 0),
        ("tempfile.NamedTemporaryFile()", 0),
        ("os.fdopen(handle, 'wb')", 0),
    ],
)
def test_what_the_lint_sees(code: str, found: int) -> None:
    assert len(unnamed(code)) == found
    assert unnamed(named(code)) == []
    assert named(code).count("utf-8") == found + code.count("utf-8")


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_text_file_has_an_encoding(folder: str) -> None:
    found = [
        f"{file.relative_to(ROOT)}:{call.lineno}"
        for file in sorted((ROOT / folder).rglob("*.py"))
        if not {"node_modules", "__pycache__"} & set(file.parts)
        and not any(part.startswith(".") for part in file.relative_to(ROOT).parts)
        for call in unnamed(file.read_text(encoding="utf-8"))
    ]
    assert found == [], "`python -m tests.support.text_files` adds what is missing"


TEMPLATE = "你是助手{{ '▁é' }}"
READS = {
    "template": 'ascii(model_folder.chat_templates(folder)["default"])',
    "tokenizer": "model_folder.tokenizer_hash(folder)",
    "shape": "model_folder.shape_hash(folder)",
}


@pytest.mark.parametrize("what", READS)
def test_a_policy_folder_is_read_alike_under_every_locale(tmp_path: Path, what: str) -> None:
    """Without UTF-8 mode the C locale is ASCII: a read by the locale raises an error."""
    config = {"name": TEMPLATE, "model_type": "qwen2", "added_tokens_decoder": {}}
    for name in ("config.json", "tokenizer_config.json", "tokenizer.json"):
        file = tmp_path / name
        file.write_text(json.dumps(config, ensure_ascii=False), encoding="utf-8")
    (tmp_path / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")
    program = (
        "import sys\nfrom pathlib import Path\nfrom toolwright.model import model_folder\n"
        f"folder = Path(sys.argv[1])\nprint({READS[what]})\n"
    )
    said = set()
    for mode in ("0", "1"):
        plain = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": mode}
        done = subprocess.run(
            [sys.executable, "-c", program, tmp_path],
            env={**os.environ, **plain},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.stderr == ""
        said.add(done.stdout)
    assert len(said) == 1
