"""The web application: questions about the runs in, JSON out, and the files of the pages.

Every address is in `_routes`. The files are read once and known by name, so no path of a request
ever reaches the file system. Questions to SQLite run in threads.
"""

from __future__ import annotations

import asyncio
import json
import math
import mimetypes
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from console.errors import RecordBroken
from console.web.door import Door
from console.web.files import PAGES
from console.web.index import queries
from console.web.index.flips import flips
from console.web.index.queries import BadQuestion, Question
from console.web.keeping import Keeper
from console.web.measures.log import NoLog, log_of
from console.web.runs import NewRuns, Run
from console.web.telling.images import Image, NoImage, image_of
from console.web.telling.telling import tell
from console.web.timeline.timeline import timeline
from toolwright.page.still import WEB
from toolwright.rpc.auth import Tokens

FIRST = "index.html"
HEARTBEAT_S = 15.0
"""Interval of a silent stream's heartbeats, in seconds. Proxies cut a silent stream, and a closed
page would not be noticed."""
_TEXTS = (
    *("suite", "stop", "tool", "family", "label", "word"),
    *("text", "within", "sort", "after"),
)
_WHOLE = ("step_from", "step_to", "limit")
_REAL = ("reward_from", "reward_to")
_YES = ("true", "1")

Answering = Callable[[Request], Awaitable[Response]]


def application(
    runs: Sequence[Run],
    tokens: Tokens,
    names: Iterable[str] = (),
    new_runs: NewRuns | None = None,
) -> Door:
    """names: of this machine, see `door`. new_runs: finds runs that begin later."""
    keeper = Keeper(runs, new_runs)

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        async with keeper.keeping():
            yield

    app = Starlette(routes=_routes(Answers(keeper)), lifespan=lifespan)
    return Door(app, tokens, names)


def page_files() -> dict[str, Path]:
    """The files of the pages by their address: the viewer's own, and those of all pages."""
    return {
        f"/{file.relative_to(root)}": file
        for root in (WEB, PAGES)
        for file in sorted(root.rglob("*"))
        if file.is_file()
    }


def _routes(answers: Answers) -> list[Route]:
    files = {address: _file(file) for address, file in page_files().items()}
    return [
        Route("/", files.pop(f"/{FIRST}")),
        *(Route(path, answer) for path, answer in sorted(files.items())),
        Route("/api/runs", _asked(answers.runs)),
        Route("/api/choices", _asked(answers.choices)),
        Route("/api/rows", _asked(answers.rows)),
        Route("/api/group", _asked(answers.group)),
        Route("/api/trajectory", _asked(answers.trajectory)),
        Route("/api/curves", _asked(answers.curves)),
        Route("/api/split", _asked(answers.split)),
        Route("/api/about", _asked(answers.about)),
        Route("/api/summary", _asked(answers.summary)),
        Route("/api/flips", _asked(answers.flips)),
        Route("/api/log", _asked(answers.log)),
        Route("/api/image", _asked(answers.image, _image)),
        Route("/api/timeline", _asked(answers.timeline)),
        Route("/api/growth", answers.growth),
    ]


class Answers:
    """The answers. They raise BadQuestion for what makes no sense, Unknown for what is missing."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper

    def runs(self, _asked: QueryParams) -> Any:
        return {"runs": [self._state(run) for run in list(self._keeper.runs.values())]}

    def choices(self, asked: QueryParams) -> Any:
        return queries.choices(self._run(asked).index.file)

    def rows(self, asked: QueryParams) -> Any:
        found = queries.page(self._run(asked).index.file, question_of(asked))
        return {"rows": found.rows, "next": found.next, "total": found.total}

    def group(self, asked: QueryParams) -> Any:
        return {"members": queries.group(self._run(asked).index.file, asked.get("name", ""))}

    def trajectory(self, asked: QueryParams) -> Any:
        run, name = self._run(asked), asked.get("name", "")
        row = queries.find(run.index.file, name)
        if row is None:
            raise Unknown(f"no trajectory {name[:200]!r} in {run.name}")
        whole = asked.get("whole") in _YES
        return tell(run.folder, row, run.spellings, whole=whole)

    def curves(self, asked: QueryParams) -> Any:
        return self._run(asked).figures.curves()

    def split(self, asked: QueryParams) -> Any:
        return self._run(asked).split.by(asked.get("by", ""))

    def about(self, asked: QueryParams) -> Any:
        return self._run(asked).figures.about()

    def summary(self, asked: QueryParams) -> Any:
        return self._run(asked).figures.summary()

    def flips(self, asked: QueryParams) -> Any:
        steps = [_step(asked, name) for name in ("before", "after")]
        return self._of_index(asked, lambda file: flips(file, asked.get("suite", ""), *steps))

    def log(self, asked: QueryParams) -> Any:
        return log_of(self._run(asked).folder, asked.get("process", ""))

    def image(self, asked: QueryParams) -> Image:
        return image_of(self._run(asked).folder, asked.get("sha256", ""))

    def timeline(self, asked: QueryParams) -> Any:
        step = _step(asked, "step")
        return self._of_index(asked, lambda file: timeline(file, step))

    async def growth(self, _request: Request) -> Response:
        """Server-sent events: the state of all runs, now and after every change."""

        async def events() -> AsyncIterator[bytes]:
            with self._keeper.listening() as changed:
                while True:
                    changed.clear()
                    state = await asyncio.to_thread(self.runs, QueryParams())
                    yield b"data: " + as_json(state) + b"\n\n"
                    try:
                        async with asyncio.timeout(HEARTBEAT_S):
                            await changed.wait()
                    except TimeoutError:
                        yield b": still here\n\n"

        return StreamingResponse(events(), media_type="text/event-stream")

    def _run(self, asked: QueryParams) -> Run:
        name = asked.get("run", "")
        if name not in self._keeper.runs:
            raise Unknown(f"no run {name[:200]!r} is shown here")
        return self._keeper.runs[name]

    def _of_index(
        self, asked: QueryParams, answer: Callable[[Path], dict[str, Any]]
    ) -> dict[str, Any]:
        """An answer with the "state" of the index, its generation."""
        index = self._run(asked).index
        state = index.generation  # before the reading: rows that come meanwhile are another state
        return answer(index.file) | {"state": state}

    def _state(self, run: Run) -> dict[str, Any]:
        return {
            "name": run.name,
            "folder": str(run.folder),
            "rows": queries.count(run.index.file),
            "generation": run.index.generation,
            "whole": run.whole,
            "measured": run.measured,
            "remarks": [*filter(None, [run.fault]), *run.remarks],
        }


class Unknown(LookupError):
    """There is no such thing; the message names it."""


def question_of(asked: QueryParams) -> Question:
    """Raises BadQuestion for a value that makes no sense."""
    known: dict[str, Any] = {}
    for name in _TEXTS:
        if name in asked:
            known[name] = asked[name]
    for name in (*_WHOLE, *_REAL):
        if asked.get(name):
            known[name] = _number(name, asked[name], whole=name in _WHOLE)
    known["failed"] = asked.get("failed") in _YES
    known["descending"] = asked.get("descending", "true") in _YES
    known["limit"] = min(max(known.get("limit", queries.ROWS), 1), queries.MOST_ROWS)
    return Question(**known)


def as_json(value: Any) -> bytes:
    """JSON that every browser reads: infinities and NaN as their names, all else escaped."""
    return json.dumps(_sound(value), ensure_ascii=True, allow_nan=False, default=str).encode()


def _sound(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {str(key): _sound(inner) for key, inner in value.items()}
    return [_sound(inner) for inner in value] if isinstance(value, list | tuple) else value


def _step(asked: QueryParams, name: str) -> int | None:
    return int(_number(name, asked[name], whole=True)) if asked.get(name) else None


def _number(name: str, text: str, *, whole: bool) -> int | float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    # Beyond 2^53 a float is no longer one whole number.
    if abs(found) <= 2**53 and not (whole and found != int(found)):
        return int(found) if whole else found
    raise BadQuestion(f"{name} is {'a whole number' if whole else 'a number'}, not {text[:40]!r}")


def _asked(
    answer: Callable[[QueryParams], Any],
    respond: Callable[[Any], Response] = lambda found: _json(as_json(found)),
) -> Answering:
    """An answer, made in a thread; a fault as a sentence."""

    async def answering(request: Request) -> Response:
        try:
            return await asyncio.to_thread(lambda: respond(answer(request.query_params)))
        except BadQuestion as error:
            return _json(as_json({"error": str(error)}), 400)
        except (Unknown, NoImage, NoLog) as error:
            return _json(as_json({"error": str(error)}), 404)
        except RecordBroken as error:
            return _json(as_json({"error": str(error)}), 503)
        except sqlite3.Error as error:
            return _json(as_json({"error": f"the index cannot be read now: {error}"}), 503)

    return answering


def _json(content: bytes, status: int = 200) -> Response:
    return Response(content, status, media_type="application/json")


def _image(image: Image) -> Response:
    return Response(image.data, media_type=image.kind)


def _file(file: Path) -> Answering:
    content = file.read_bytes()
    kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"

    async def answering(_request: Request) -> Response:
        return Response(content, media_type=kind)

    return answering
