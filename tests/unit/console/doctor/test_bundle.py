"""A bundle holds what a report needs, bounded, and nothing that must not leave the machine."""

from __future__ import annotations

import json
import os
import stat
import zipfile
from pathlib import Path
from typing import Any

import pytest

from console.asked.setup import Options, set_up
from console.doctor import bundle
from console.doctor.bundle import tail, write_bundle
from console.doctor.types import Patient, problem

SECRETS = {
    "token in a log": "tok-1-Qx7Lm2",
    "url": "pw-2-Qx7Lm2",
    "header": "bear-3-Qx7Lm2",
    "aws": "AKIAIOSFODNN7EXAMPLE",
    "aws key": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "argv": "arg-4-Qx7Lm2",
    "environment": "env-5-Qx7Lm2 with blanks",
    "recipe": "rec-6-Qx7Lm2",
    "option": "opt-7-Qx7Lm2",
    "pem": "MIIEpem8Qx7Lm2",
    "override": "ovr-9-Qx7Lm2",
    "comment": "com-10-Qx7Lm2",
}
TASK = "the answer is forty-two kroner"
RECIPE = f"""
# the old one was api_key = "{SECRETS["comment"]}"
[run]
name = "r"
folder = "run"
steps = 1
groups_per_step = 1
group_size = 2
[policy]
model = "policy"
[task]
source = "q.jsonl"
reward = "./r.py:score"
[task.protocol_options]
api_key = "{SECRETS["recipe"]}"
[sampler]
endpoints = ["http://127.0.0.1:0"]
[tools.judge]
serve = ["judge", "--set", "judge.api_key={SECRETS["option"]}"]
"""
LOG = f"""{{"event": "opened", "token": "{SECRETS["token in a log"]}"}}
Traceback: http://user:{SECRETS["url"]}@host:80/v1 refused
headers {{'Authorization': 'Bearer {SECRETS["header"]}'}} {SECRETS["aws"]} {SECRETS["aws key"]}
-----BEGIN PRIVATE KEY-----
{SECRETS["pem"]}
{SECRETS["pem"]}==
-----END PRIVATE KEY-----
it said {SECRETS["environment"]}
"""


@pytest.fixture
def patient(tmp_path: Path) -> Patient:
    """A run folder in which secrets stand wherever a careless program would put them."""
    (tmp_path / "recipe.toml").write_text(RECIPE, encoding="utf-8")
    run = tmp_path / "run"
    for folder in ("console/logs", "sft", "checkpoints", "policy/a-1", "final"):
        (run / folder).mkdir(parents=True)
    for name in ("engine.jsonl", "tools.judge.log", "console/logs/sampler.log"):
        (run / name).write_text(LOG, encoding="utf-8")
    began = {"event": "began", "argv": ["toolwright", "run", "--token", SECRETS["argv"]], "at": 1.0}
    (run / "console/course.jsonl").write_text(json.dumps(began) + "\n", encoding="utf-8")
    resolved = {"shared": {"tools": {"judge": {"api_key": SECRETS["recipe"]}}}}
    for name in ("engine", "console"):
        (run / f"{name}.resolved.json").write_text(json.dumps(resolved), encoding="utf-8")
    (run / "learner.jsonl").write_text(
        '{"step": 1, "reward": 0.5, "trained_tokens": 12}\n', encoding="utf-8"
    )
    (run / "samples.jsonl").write_text(json.dumps({"segments": [TASK]}) + "\n", encoding="utf-8")
    for name in ("journal.sqlite", "final/model.safetensors", "policy/a-1/model.safetensors"):
        (run / name).write_bytes(b"\0" * 1000)
    overrides = [f'task.protocol_options.token="{SECRETS["override"]}"']
    return Patient(
        environment={
            "JUDGE_API_KEY": SECRETS["environment"],
            "OMP_NUM_THREADS": "1",
            "EDITOR": "vi",
        },
        setup=set_up(Options(recipe=tmp_path / "recipe.toml", overrides=tuple(overrides))),
    )


def test_no_secret_is_in_it_and_what_a_report_needs_is(patient: Patient, tmp_path: Path) -> None:
    found = [problem("sampler", f"http://u:{SECRETS['url']}@host: nobody answers", "start it")]
    inside = write_bundle(tmp_path / "b.zip", patient, found, with_texts=False)
    texts = read(tmp_path / "b.zip")
    assert [name for name, _ in inside] == list(texts)
    everything = "\n".join(texts.values())
    assert {what for what, secret in SECRETS.items() if secret in everything} == set()
    for piece in ("pem8Qx", "Qx7Lm2"):
        assert piece not in everything
    assert TASK not in everything

    assert "nobody answers" in texts["doctor.json"]
    assert {"run/engine.resolved.json", "run/console.resolved.json"} <= set(texts)
    assert json.loads(texts["run/learner.jsonl"]) == {
        "step": 1,
        "reward": 0.5,
        "trained_tokens": 12,
    }
    assert '"event": "opened"' in texts["run/console/logs/sampler.log"]
    assert "host:80/v1 refused" in texts["run/engine.jsonl"]
    assert json.loads(texts["files.json"])["final/model.safetensors"] == 1000
    assert json.loads(texts["recipe.json"])["tables"]["run"]["group_size"] == 2
    assert json.loads(texts["environment.json"]) == {
        "EDITOR": "(not shown)",
        "JUDGE_API_KEY": "<redacted>",
        "OMP_NUM_THREADS": "1",
    }
    assert json.loads(texts["versions.json"])["python"]


def test_weights_and_the_journal_are_never_in_it_and_texts_only_where_asked(
    patient: Patient, tmp_path: Path
) -> None:
    write_bundle(tmp_path / "b.zip", patient, [], with_texts=True)
    texts = read(tmp_path / "b.zip")
    assert TASK in texts["run/samples.jsonl"]
    assert not [name for name in texts if "safetensors" in name or "journal" in name]


def test_links_and_what_is_no_file_are_left_alone(patient: Patient, tmp_path: Path) -> None:
    run = tmp_path / "run"
    secret = tmp_path / "shadow"
    secret.write_text("not for you\n", encoding="utf-8")
    (run / "stolen.log").symlink_to(secret)
    (run / "learner.resolved.json").symlink_to(secret)
    outside = tmp_path / "elsewhere"
    outside.mkdir()
    (outside / "other.log").write_text("not for you\n", encoding="utf-8")
    for path in (run / "console/logs").iterdir():
        path.unlink()
    (run / "console/logs").rmdir()
    (run / "console/logs").symlink_to(outside)
    os.mkfifo(run / "pipe.log")
    write_bundle(tmp_path / "b.zip", patient, [], with_texts=True)
    assert "not for you" not in "\n".join(read(tmp_path / "b.zip").values())


def test_it_is_bounded(patient: Patient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    (run / "loud.log").write_text("\n".join(f"line {n}" for n in range(5000)), encoding="utf-8")
    (run / "wide.log").write_text("x" * 5_000_000, encoding="utf-8")
    for number in range(200):
        (run / f"n{number}.log").write_text("one\n", encoding="utf-8")
    monkeypatch.setattr(bundle, "MOST_BYTES", 100_000)
    write_bundle(tmp_path / "b.zip", patient, [], with_texts=False)
    texts = read(tmp_path / "b.zip")
    loud = texts["run/loud.log"].splitlines()
    assert (len(loud), loud[-1]) == (bundle.MOST_LINES, "line 4999")
    assert len(texts) < 2 * bundle.MOST_FILES
    assert max(map(len, texts.values())) < 200_000


def test_a_line_that_the_bound_cuts_in_two_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of `token=...` would be no secret to any pattern."""
    file = tmp_path / "a.log"
    file.write_text("token=abcdefgh\nsecond\n", encoding="utf-8")
    monkeypatch.setattr(bundle, "MOST_BYTES", 12)
    assert tail(file, 10) == ["second"]


def test_it_appears_whole_or_not_at_all_and_for_its_owner_alone(
    patient: Patient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_bundle(tmp_path / "b.zip", patient, [], with_texts=False)
    assert stat.S_IMODE((tmp_path / "b.zip").stat().st_mode) == 0o600
    (tmp_path / "mine.zip").write_text("mine", encoding="utf-8")
    with pytest.raises(FileExistsError):
        write_bundle(tmp_path / "mine.zip", patient, [], with_texts=False)
    assert (tmp_path / "mine.zip").read_text(encoding="utf-8") == "mine"

    def breaks(*_words: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(zipfile.ZipFile, "writestr", breaks)
    with pytest.raises(OSError, match="No space"):
        write_bundle(tmp_path / "c.zip", patient, [], with_texts=False)
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        *("b.zip", "mine.zip", "recipe.toml", "run")
    ]


def read(file: Path) -> dict[str, str]:
    with zipfile.ZipFile(file) as archive:
        return {name: archive.read(name).decode() for name in archive.namelist()}


def test_a_full_bundle_says_what_it_lacks(
    patient: Patient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle, "MOST_TOGETHER", 1)
    inside = write_bundle(tmp_path / "b.zip", patient, [], with_texts=False)
    assert inside[1:] == [("...", "the rest is left out, the bundle is full")]
    assert list(read(tmp_path / "b.zip")) == ["doctor.json"]
