"""What must not leave a machine is taken out of texts and data, whoever wrote them and however."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.redact import GONE, Redactor, is_secret, redactor
from tests.support import linear

SECRET = "hunter2-Zq"
PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEow+/==\nhunter2Zq\n-----END RSA PRIVATE KEY-----"
clean = Redactor()


@pytest.mark.parametrize(
    "text",
    [
        f"TOOLWRIGHT_TOKEN={SECRET}", f"export HF_TOKEN='{SECRET}'", f"SECRETS={SECRET}",
        f'{{"api_key": "{SECRET}"}}', f"{{'password': '{SECRET}'}}", f"token = '{SECRET}",
        f'{{\\"token\\": \\"{SECRET}\\"}}', f'password: "a\\"b {SECRET}"',
        f"password: a,b)c]d}}e;f&g{SECRET}", f"Authorization: Bearer {SECRET}",
        f"authorization=bearer  {SECRET}", f'headers={{"Authorization": "Basic {SECRET}"}}',
        f"curl -u user:{SECRET} http://host/", f"serve --api-key {SECRET} --port 1",
        f"serve --api-key={SECRET}", f'["toolsvc", "--token", "{SECRET}"]',
        f"http://user:{SECRET}@host/path", f"http://user:a/b@c{SECRET}@host/path",
        f"redis://:{SECRET}@host:6379/0", f"postgresql://{SECRET}@host/db",
        f"GET /v1?x=1&access_token={SECRET}&y=2", f"aws_secret_access_key = {SECRET}",
        f"DB_PASSWORD => {SECRET}", f"tools.search.api_key={SECRET}", f"ACCESS_KEYS: {SECRET}",
        f"Cookie: session={SECRET}", f"x-api-key: {SECRET}", f"SECRET_KEY={SECRET}",
        f"OPENAI_KEY: {SECRET}", f"GITHUB_PAT='{SECRET}'", f"user=x pass={SECRET}",
        f"https://x.blob.example.org/a?sv=1&sig={SECRET}%3D", f"SLACK_WEBHOOK_URL={SECRET}",
        f"POST https://hooks.slack.com/services/T0/B0/{SECRET}", f"?code={SECRET}#x",
        f"api_tokens = ['one', '{SECRET}']", f'tokens = [\n  "one",\n  "{SECRET}",\n]',
        f'{{"passwords": ["one", "{SECRET}"], "n": 1}}',
        f"service_keys = {{ a = 'one', b = '{SECRET}' }}", f"GET /v1/search?q=a&key={SECRET}&n=2",
        f"https://maps.example.org/api?key={SECRET}", f"Cookie: a=1; b={SECRET}; c=2",
        f"< Set-Cookie: id=1; Path=/; data={SECRET}", f"password:\n  {SECRET}\n",
        f'Authorization: Digest username="u", response={SECRET}',
        f"curl -H 'X-Custom: {SECRET} and more' http://host/",
        f"curl --header=X-Custom:{SECRET} http://host/",
        f"OTEL_EXPORTER_OTLP_HEADERS=a=1,b={SECRET}",
        f"db:\n  password: >-\n    two words\n    {SECRET}\n  host: x\n",
        f"tokens:\n- one\n- {SECRET}\nhost: x", f"  - 'api_key':\n      {SECRET}\r\n",
        f"machine api.example.org login u password {SECRET}",
        f"machine h\n  login u\n  password {SECRET}\n", f"default login u password {SECRET}",
        f"machine h login u account a password {SECRET}",
    ],
)  # fmt: skip
def test_a_secret_is_found_by_its_name(text: str) -> None:
    assert SECRET not in clean.text(text)
    assert GONE in clean.text(text)


@pytest.mark.parametrize(
    "secret",
    [
        "AKIAIOSFODNN7EXAMPLE",
        "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        "sk-proj-abcdefGHIJKL0123456789",
        "hf_abcdefghijklmnopqrst",
        "ghp_abcdefghijklmnopqrst0123456789abcdef",
        "github_pat_11ABCDEFG0abcdefghij",
        "glpat-abcdefghij0123456789",
        "xoxb-123456789012-abcdefghij",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJlLXZhbHVl",
        "0123456789abcdef0123456789abcdef01234567",
        "AIzaSyA-abcdefghijklmnopqrstuvwxyz01234",
    ],
)
def test_a_key_is_found_by_its_form(secret: str) -> None:
    for text in (f"error: {secret}", f'"{secret}"', f"({secret})", f"a\n{secret}\nb", secret):
        assert secret not in clean.text(text)


@pytest.mark.parametrize(
    "text",
    [
        f"log: {PEM} end",
        PEM.replace("\n", "\\n"),
        PEM.replace("\n", "\n2026-11-23 INFO ").partition("-----END")[0],
        PEM.partition("-----END")[0],
        PEM.partition("\n")[2],
        f"{PEM}\n{PEM}",
        PEM.replace("RSA PRIVATE", "OPENSSH PRIVATE"),
        PEM.replace("RSA PRIVATE", "ENCRYPTED PRIVATE").replace("\n", "\r\n"),
    ],
)
def test_a_private_key_goes_whole_also_where_it_is_cut_off(text: str) -> None:
    for line in ("MIIEow+/==", "hunter2Zq"):
        assert line not in clean.text(text)


def test_what_stands_around_a_private_key_stays() -> None:
    assert clean.text(f"before\n{PEM}\nafter") == f"before\n{GONE}\nafter"


@pytest.mark.parametrize(
    "text",
    [
        "step 3: reward 0.250  gap 1.2e-06  stale 0.0  lease 3.1 s",
        "trained_tokens=512 tokens_per_s: 345.6 max_new_tokens 64",
        "pad_token: <|endoftext|> stop_token=5",
        "http://127.0.0.1:30000/generate answered 500",
        "tokenizer=/models/qwen3 token",
        "evaluation/curve-sampled/reward 0.5 of heldout@8e7ab990-4",
        "learner.optimizer.lr=0.0009 run.engine=127.0.0.1:50051",
        "File /usr/lib/python3.11/site-packages/sglang/srt/managers/Scheduler.py, line 10",
        "the bearer of this",
        "answer_key=gold prompt_key: question tokens_per_microbatch=4096 sort_key=step",
        "forward pass: 0.31 s, first_pass=2 bypass: no pass@1: 0.5 assignment=a",
        "/models/hub/snapshots/0123456789abcdef0123456789abcdef01234567/config.json",
        "tokens: 512, max_tokens=1024 cached_tokens => 3, prompt tokens 7 (tokens=12)",
        "tokens per second:\n  345.6\nGET /v1?q=key&monkey=1 sort_keys=True",
        "the password of the machine: ask\nhost:\n  name: x\n",
    ],
)
def test_what_a_report_needs_stays(text: str) -> None:
    assert clean.text(text) == text


def test_the_shells_folders_are_no_secrets_of_the_environment() -> None:
    found = redactor({"PWD": "/srv/here", "OLDPWD": "/srv/there", "DB_PWD": "/srv/key"})
    assert found.text("cd /srv/here && cat /srv/there") == "cd /srv/here && cat /srv/there"
    assert found.text("/srv/key") == GONE


def test_values_of_the_environments_secrets_go_wherever_they_stand() -> None:
    found = redactor({"WANDB_API_KEY": "plain word here", "MODE": "innocent", "PIN_TOKEN": "12"})
    assert found.text("it said: plain word here, innocent, 12") == f"it said: {GONE}, innocent, 12"


def test_user_host_and_home_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/srv/people/ingrid")
    monkeypatch.setenv("USER", "ingrid")
    monkeypatch.setenv("LOGNAME", "ingrid")
    monkeypatch.setattr("socket.gethostname", lambda: "fjord-17")
    found = redactor({})
    text = "ingrid@fjord-17 wrote /srv/people/ingrid/run; ingrid.bergen@example.org; astringridge"
    assert "ingrid" not in found.text(text).replace("astringridge", "")
    assert "fjord" not in found.text(text)
    assert "~/run" in found.text(text)
    assert found.text("/home/oda/x /Users/oda/y") == "/home/[user]/x /Users/[user]/y"


def test_data_loses_texts_under_a_secret_name_and_keeps_numbers() -> None:
    data = {
        "tools": {"search": {"api_key": SECRET, "headers": {"X-Auth-Token": [SECRET]}}},
        "argv": ["toolsvc", "--token", SECRET, "--set", f"judge.api_key={SECRET}"],
        "max_token": 64,
        "pad_token": "<pad>",
        f"http://u:{SECRET}@host": 1,
        "note": f"it used {PEM}",
        "steps": [1, 2.5, None, True],
    }
    found = clean.data(data)
    assert SECRET not in json.dumps(found)
    assert "MIIE" not in json.dumps(found)
    assert found["steps"] == [1, 2.5, None, True]
    assert (found["max_token"], found["pad_token"]) == (64, "<pad>")
    assert found["argv"][:2] == ["toolsvc", "--token"]


def test_headers_go_whatever_their_names() -> None:
    found = clean.data({"headers": {"X-Custom": SECRET}, "extra_headers": [["X-Other", SECRET]]})
    assert SECRET not in json.dumps(found)
    assert "host: x" in clean.text(f"db:\n  password:\n    {SECRET}\n  host: x\n")


def test_a_limit_of_tokens_is_no_secret_of_the_environment() -> None:
    found = redactor({"MAX_TOKENS": "1048576", "API_TOKENS": f"{SECRET},x"})
    assert found.text(f"1048576 {SECRET},x") == f"1048576 {GONE}"


def test_a_value_of_a_command_line_ends_with_its_word() -> None:
    words = [
        "toolwright",
        "run",
        "r.toml",
        "--set",
        f"judge.api_key=two {SECRET}",
        "--pass",
        SECRET,
    ]
    assert clean.words(words) == [*words[:4], f"judge.api_key={GONE}", "--pass", GONE]
    assert clean.data(words) == clean.words(words)


def test_who_it_was_stays_where_a_command_has_to_work() -> None:
    found = redactor({"MY_PASS": SECRET}, names=False)
    text = f"cd /home/oda/x && scp a@example.org:{SECRET}"
    assert found.text(text) == text.replace(SECRET, GONE)


def test_data_that_is_nested_without_end_ends() -> None:
    data: dict[str, object] = {}
    data["self"] = data
    assert GONE in json.dumps(clean.data(data))


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("TOOLWRIGHT_TOKEN", True),
        ("TOOLWRIGHT_TOKENS_FILE", False),
        ("AWS_SECRET_ACCESS_KEY", True),
        ("PGPASSWORD", True),
        ("--api-key", True),
        *((name, True) for name in ("extra_token", "data_token", "meta-token", "API_TOKENS")),
        ("tokens_per_s", False),
        ("eos_token", False),
        ("PATH", False),
        *((name, True) for name in ("SECRET_KEY", "OPENAI_KEY", "SERPER_KEY", "AZURE_KEY")),
        *((name, True) for name in ("GITHUB_PAT", "DB_PASS", "MY_PASS", "SLACK_WEBHOOK", "sig")),
        *((name, False) for name in ("answer_key", "task.prompt_key", "tokens_per_microbatch")),
        *((name, False) for name in ("COMPASS", "forward_pass", "KEYMAP", "JPEG_PATH", "key")),
    ],
)
def test_names_of_secrets(name: str, secret: bool) -> None:
    assert is_secret(name) is secret


@given(st.text(alphabet="ab:/@=\"'\\ \n-token.<>", max_size=60))
def test_a_second_time_changes_nothing(text: str) -> None:
    once = clean.text(text)
    assert clean.text(once) == once


PARTS = (
    *("a", "a_", "a.", "--", "://", "x://a:", "token=", 'token "', '"token":"\\', "ey.", "@a."),
    *("-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----\nAb1=\n", "bearer ", "/home/"),
    *("tokens=[", "tokens={", "tokens:\n ", "machine a password ", "?key=", "Cookie: ", "-H a:"),
    *("Ab1", " ", "\n", "-u a:", "-----BEGIN ", "=\t", "'token': '"),
)


def test_its_time_grows_with_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "SMALL", 1 << 13)
    monkeypatch.setattr(linear, "LARGE", 1 << 17)
    linear.assert_linear(clean.text, texts=PARTS)
