"""Log-probs of given token ids from a teacher that an SGLang server holds.

Invariants
- At most AT_ONCE requests are in flight, one a row.
- An answer counts only if it has the ids that were sent and finite log-probs.
- A server that does not answer, or has no room, gets the request again for `patience` seconds.
- A refusal raises at once: requests in flight are left to daemon threads, whose results nothing
  reads.

SGLang scores a prompt at temperature 1, whatever the request says (measured with 0.5.23). So a row
that was sampled at another temperature is refused.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import OpenerDirector, ProxyHandler, Request, build_opener

import numpy as np

from learner.errors import ModelError, TeacherError
from learner.training.batch import Row
from toolwright.model.model_folder import ModelFolderError, ids_hash
from toolwright.process.daemon import in_daemon
from toolwright.rpc.proxies import proxy_for
from toolwright.rpc.retrying import Retry, Unanswered

AT_ONCE = 32
REQUEST_S = 600.0
"""Longest silence of the server in one request, which may wait in its queue."""
ANSWER_BYTES, ANSWER_BYTES_AN_ID = 1 << 20, 512
"""Largest size of an answer: of all of it but the ids that were sent, and for each of these."""
REMIND_S = 10.0
"""Time between two heartbeats, and before the first report of a wait."""
BUSY = (408, 425, 429)
QUOTED = 300
"""Longest quotation of a refusal, in characters."""


class TeacherServer:
    """The teacher that the server at `url` holds.

    patience: longest time to repeat a request, in seconds. say: reports a long wait.
    """

    def __init__(self, url: str, *, patience: float, say: Callable[[str], None]) -> None:
        self.url = url.rstrip("/")
        self._say = say
        self._retries = Retry(
            lambda: patience,
            lambda why, waited: say(f"the teacher {self.url} {why}; waiting since {waited:.0f} s"),
            quiet_s=REMIND_S,
        )
        self._opener = _opener(self.url)

    def check(self, policy: Path) -> None:
        """Compares the server's token ids with those of the folder `policy`.

        They can be compared if the server's tokenizer lies in a folder that this machine can read;
        else a line reports that they were not.

        Raises ModelError if they differ, and TeacherError if the server does not answer.
        """
        info = asyncio.run(self._ask("/model_info", None))
        folder = Path(str(info.get("tokenizer_path") or info.get("model_path") or ""))
        try:
            same = ids_hash(folder) == ids_hash(policy)
        except ModelFolderError:
            self._say(
                f"token ids of the teacher {self.url} were not compared with the policy's: its "
                f"tokenizer {str(folder)!r} is not on this machine"
            )
            return
        if not same:
            raise ModelError(
                f"the teacher {self.url} has other token ids than {policy}: name a server of a "
                "model with the policy's tokenizer in [learner.distill]"
            )

    def logprobs(
        self, rows: Sequence[Row], heartbeat: Callable[[], None] = lambda: None
    ) -> list[np.ndarray]:
        """For each row [T] float32: log-probs of its targets, 0 elsewhere.

        heartbeat: called every REMIND_S seconds while requests are in flight.

        Raises TeacherError if the server refuses a row, answers in another form, or stays out of
        reach.
        """
        for row in rows:
            warm = row.temperature[row.target] != 1.0
            if warm.any():
                raise TeacherError(
                    f"the teacher {self.url} scores at temperature 1, and {row.trajectory} was "
                    f"sampled at {float(row.temperature[row.target][warm][0]):g}: set "
                    "sampler.temperature = 1.0, or name the teacher's folder"
                )
        return asyncio.run(self._all(rows, heartbeat))

    async def _all(self, rows: Sequence[Row], heartbeat: Callable[[], None]) -> list[np.ndarray]:
        room = asyncio.Semaphore(AT_ONCE)
        scored = asyncio.gather(*(self._row(row, room) for row in rows))
        while not (await asyncio.wait([scored], timeout=REMIND_S))[0]:
            heartbeat()
        return scored.result()

    async def _row(self, row: Row, room: asyncio.Semaphore) -> np.ndarray:
        tokens = row.tokens.tolist()
        start = int(np.flatnonzero(row.target)[0]) - 1
        body = {
            "input_ids": tokens,
            "stream": False,
            "return_logprob": True,
            "logprob_start_len": start,  # the first log-prob that is sent is null
            "sampling_params": {"max_new_tokens": 0, "temperature": 1.0},
        }
        async with room:
            said = await self._ask("/generate", body)
        meta = said.get("meta_info")
        scored = meta.get("input_token_logprobs") if isinstance(meta, dict) else None
        try:
            pairs = [(value, int(token)) for value, token, *_ in scored or ()]
            values = np.array([float(value) for value, _ in pairs[1:]], dtype=np.float32)
        except (TypeError, ValueError, OverflowError):
            raise self._fault(f"gave log-probs of another form: {str(scored)[:QUOTED]}") from None
        same = (
            len(pairs) == len(tokens) - start
            and all(
                token in (sent, 0)  # SGLang 0.5.23 names the last id of its vocabulary 0
                for (_, token), sent in zip(pairs, tokens[start:], strict=True)
            )
        )
        if not same or not np.isfinite(values).all():
            raise self._fault(
                f"gave {len(pairs)} log-probs for {len(tokens) - start} ids of {row.trajectory}, "
                "or some for other ids, or some that are not finite"
            )
        found = np.zeros(len(tokens), dtype=np.float32)
        found[start + 1 :] = values
        found[~row.target] = 0.0
        return found

    async def _ask(self, path: str, body: dict[str, Any] | None) -> dict[str, Any]:
        """Answer of the server; repeats the request until `patience` is over."""
        ids = len(body["input_ids"]) if body is not None else 0
        most = ANSWER_BYTES + ids * ANSWER_BYTES_AN_ID
        data = None if body is None else json.dumps(body).encode()
        request = Request(self.url + path, data, {"Content-Type": "application/json"})
        try:
            return await self._retries.until_answered(
                lambda: in_daemon(lambda: self._answer(request, path, most), "teacher")
            )
        except Unanswered as last:
            raise self._fault(
                f"{last}. Repeated for {last.waited:.0f} s (learner.engine_patience_s). Start it, "
                "and give the same command again"
            ) from None

    def _answer(self, request: Request, path: str, most: int) -> dict[str, Any]:
        """Answer to one request. Raises Unanswered if the server does not answer, or is busy."""
        try:
            with self._opener.open(request, timeout=REQUEST_S) as answer:
                content = answer.read(most + 1)
                status = answer.status
        except HTTPError as error:
            text = _quoted(error)
            if error.code < 500 and error.code not in BUSY:
                raise self._fault(f"refused {path} with HTTP {error.code}: {text}") from None
            raise Unanswered(f"answered HTTP {error.code}: {text}") from None
        except (OSError, HTTPException) as error:
            why = getattr(error, "reason", error) or repr(error)
            raise Unanswered(f"does not answer: {why}") from None
        if len(content) > most:
            raise self._fault(f"answered {path} with more than {most:,} bytes")
        return self._read(path, status, content)

    def _read(self, path: str, status: int, content: bytes) -> dict[str, Any]:
        try:
            said = json.loads(content, parse_constant=lambda _: math.nan)
        except ValueError:
            said = None
        if not isinstance(said, dict):
            text = content[:QUOTED].decode(errors="replace")
            raise self._fault(
                f"answered {path} with HTTP {status}, which is no JSON object: {text}"
            )
        return said

    def _fault(self, what: str) -> TeacherError:
        return TeacherError(f"the teacher {self.url} {what}")


def _quoted(error: HTTPError) -> str:
    """The beginning of a refusal's text; "" if the connection breaks off before it."""
    with error:
        try:
            return error.read(QUOTED).decode(errors="replace")
        except (OSError, HTTPException):
            return ""


def _opener(url: str) -> OpenerDirector:
    proxy = proxy_for(url)
    return build_opener(ProxyHandler({"http": proxy, "https": proxy} if proxy else {}))
