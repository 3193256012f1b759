"""The web application by HTTP: what it answers, whom it answers, and what it never does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from console.web.app import application, page_files
from console.web.door import HEADERS
from console.web.index.queries import MOST_ROWS
from console.web.runs import Run, find_runs, open_runs
from tests.support.recorded_runs import Recorded
from tests.support.waiting import PATIENCE, blocks
from toolwright.rpc.auth import Tokens

HERE = "http://127.0.0.1:8400"


@pytest.fixture
def recorded(tmp_path: Path) -> Recorded:
    return Recorded(tmp_path / "runs" / "a")


@pytest.fixture
def runs(recorded: Recorded, tmp_path: Path) -> list[Run]:
    return open_runs(find_runs([tmp_path / "runs"]), tmp_path)


@pytest.fixture
def client(recorded: Recorded, runs: list[Run]) -> Iterator[TestClient]:
    recorded.journal([recorded.trajectory("g0-0"), recorded.trajectory("g0-1")])
    with TestClient(application(runs, Tokens()), base_url=HERE) as client:
        wait(lambda: whole(client))
        yield client


def whole(client: TestClient) -> bool:
    return all(run["whole"] for run in client.get("/api/runs").json()["runs"])


def wait(condition: Callable[[], bool]) -> None:
    for _ in range(int(PATIENCE / 0.02)):
        if condition():
            return
        blocks(0.02, "the index is brought up to date by a thread")
    raise AssertionError("the index did not come")


def test_every_question_has_its_answer(client: TestClient) -> None:
    (run,) = client.get("/api/runs").json()["runs"]
    assert (run["name"], run["rows"], run["remarks"]) == ("a", 2, [])
    assert client.get("/api/choices?run=a").json()["rows"] == 2
    found = client.get("/api/rows?run=a&limit=1&sort=step&descending=false").json()
    assert [row["name"] for row in found["rows"]] == ["g0-0"]
    after = client.get(f"/api/rows?run=a&limit=1&sort=step&descending=false&after={found['next']}")
    assert [row["name"] for row in after.json()["rows"]] == ["g0-1"]
    assert len(client.get("/api/group?run=a&name=g0").json()["members"]) == 2
    assert client.get("/api/curves?run=a").json()["steps"] == 0
    split = client.get("/api/split?run=a&by=nothing").json()
    assert (split["keys"], split["by"], split["state"]) == ([], "", run["generation"])
    for what in ("flips", "timeline"):
        assert client.get(f"/api/{what}?run=a").json()["state"] == run["generation"]
    for what in ("about", "summary"):
        assert client.get(f"/api/{what}?run=a").json()["state"] == run["measured"]
    told = client.get("/api/trajectory?run=a&name=g0-1").json()
    assert told["record"]["calls"][0]["tool"] == "python"


@pytest.mark.parametrize(
    ("question", "status", "words"),
    [
        ("rows", 404, "no run"),
        ("about?run=b", 404, "no run 'b'"),
        ("trajectory?run=a&name=../../etc/passwd", 404, "no trajectory"),
        ("rows?run=a&sort=rowid", 400, "sort is one of"),
        ("rows?run=a&step_from=1.5", 400, "step_from is a whole number"),
        ("rows?run=a&reward_to=nan", 400, "reward_to is a number"),
        ("rows?run=a&step_to=1e999", 400, "step_to is a whole number"),
        ("rows?run=a&after=zzz", 400, "end of a page"),
        ("rows?run=a&within=x&text=y", 400, "within is one of"),
        ("rows?run=a&label=x", 400, "come together"),
    ],
)
def test_a_question_without_sense_is_told_so(
    client: TestClient, question: str, status: int, words: str
) -> None:
    answer = client.get(f"/api/{question}")
    assert answer.status_code == status
    assert words in answer.json()["error"]


def test_a_page_is_never_longer_than_its_bound(client: TestClient) -> None:
    for limit in ("-5", "0", "1000000"):
        assert 1 <= len(client.get(f"/api/rows?run=a&limit={limit}").json()["rows"]) <= MOST_ROWS


@pytest.mark.parametrize(
    "path",
    ["/../app.py", "/%2e%2e/app.py", "/..%2fapp.py", "/pages/main.js", "/app.py", "//etc/passwd",
     "/main.js/", "/main.js%00", "/.git/config", "/trajectories", "/table.js"],
)  # fmt: skip
def test_no_other_file_is_served(client: TestClient, path: str) -> None:
    assert client.get(path, follow_redirects=False).status_code in (307, 404)


def test_the_files_of_the_pages_are_served(client: TestClient) -> None:
    for address, file in page_files().items():
        answer = client.get("/" if address == "/index.html" else address)
        assert answer.content == file.read_bytes()
    assert client.get("/main.js").headers["content-type"].startswith("text/javascript")
    assert "--paper" in client.get("/colours.css").text


@pytest.mark.parametrize("path", ["/", "/main.js", "/api/runs", "/nothing", "/api/rows?run=x"])
def test_every_answer_forbids_what_is_not_ours(client: TestClient, path: str) -> None:
    headers = client.get(path).headers
    assert HEADERS.items() <= headers.items()
    policy = headers["content-security-policy"]
    assert "unsafe" not in policy
    assert "script-src 'self';" in policy
    assert "require-trusted-types-for 'script'" in policy


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_can_be_changed(client: TestClient, method: str) -> None:
    assert client.request(method, "/api/runs").status_code == 405


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8400", "localhost", "LOCALHOST:1", "[::1]:8400", "10.1.2.3", "mine:80"]
)
def test_this_machine_is_known_by_its_own_names(runs: list[Run], host: str) -> None:
    with TestClient(application(runs, Tokens(), ["mine"]), base_url=HERE) as client:
        assert client.get("/api/runs", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8400", "127.0.0.1.evil.example", "localhost.evil.example", "",
     "127.0.0.1:80@evil.example", "evil.example:127.0.0.1", "xn--mine", "mine.", "a b"],
)  # fmt: skip
def test_a_strangers_name_that_leads_here_is_refused(runs: list[Run], host: str) -> None:
    with TestClient(application(runs, Tokens(), ["mine"]), base_url=HERE) as client:
        for path in ("/", "/api/runs"):
            assert client.get(path, headers={"host": host}).status_code == 421


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_another_sites_page_gets_no_data(client: TestClient, site: str) -> None:
    asked = {"sec-fetch-site": site}
    assert client.get("/api/runs", headers=asked).status_code == 403
    assert client.get("/", headers=asked).status_code == 200, "a link leads to the page"


def test_no_data_leave_without_the_token(runs: list[Run]) -> None:
    with TestClient(application(runs, Tokens("secret")), base_url=HERE) as client:
        for path in ("runs", "rows?run=a", "growth", "nothing"):
            assert client.get(f"/api/{path}").status_code == 401
        for given in ("Bearer wrong", "secret", "Bearer secret ", "Basic secret", "Bearer sécret"):
            headers = {"authorization": given.encode()}
            assert client.get("/api/runs", headers=headers).status_code == 401
        assert client.get("/api/runs?token=secret").status_code == 401, "addresses are logged"
        assert client.get("/main.js").status_code == 200
        good = {"authorization": "Bearer secret"}
        assert client.get("/api/runs", headers=good).status_code == 200
