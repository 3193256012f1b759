"""Log-probs of given token ids from a teacher that an SGLang server holds.

Invariants
- At most AT_ONCE requests are in flight, one a row.
- An answer counts only if it has the ids that were sent and finite log-probs.
- A server that does not answer, or has no room, gets the request again for `patience` seconds.
- A refusal ends the repetition of all requests. It raises after the requests in flight.

SGLang scores a prompt at temperature 1, whatever the request says (measured with 0.5.23). So a row
that was sampled at another temperature is refused.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import OpenerDirector, ProxyHandler, Request, build_opener

import numpy as np

from learner.errors import ModelError, TeacherError
from learner.training.batch import Row
from toolwright.model.model_folder import ModelFolderError, ids_hash
from toolwright.process.backoff import Backoff
from toolwright.rpc.proxies import proxy_for

AT_ONCE = 32
REQUEST_S = 600.0
"""Longest silence of the server in one request, which may wait in its queue."""
REMIND_S = 10.0
"""Time between two heartbeats, and between two reports of a wait."""
BACKOFF = Backoff(0.1, 5.0)
BUSY = (408, 425, 429)
QUOTED = 300
"""Longest quotation of a refusal, in characters."""


class TeacherServer:
    """The teacher that the server at `url` holds.

    patience: longest time to repeat a request, in seconds. say: reports a long wait.
    """

    def __init__(self, url: str, *, patience: float, say: Callable[[str], None]) -> None:
        self.url = url.rstrip("/")
        self._patience = patience
        self._say = say
        self._said = 0.0
        self._given_up = threading.Event()
        self._opener = _opener(self.url)

    def check(self, policy: Path) -> None:
        """Compares the server's token ids with those of the folder `policy`.

        They can be compared if the server's tokenizer lies in a folder that this machine can read;
        else a line reports that they were not.

        Raises ModelError if they differ, and TeacherError if the server does not answer.
        """
        info = self._ask("/model_info", None)
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
        self._given_up.clear()
        with ThreadPoolExecutor(AT_ONCE, "teacher") as pool:
            requests = [pool.submit(self._row, row) for row in rows]
            pending = set(requests)
            try:
                while pending:
                    done, pending = wait(pending, REMIND_S, return_when=FIRST_EXCEPTION)
                    for one in done:
                        one.result()
                    if pending:
                        heartbeat()
                return [one.result() for one in requests]
            finally:
                self._given_up.set()
                pool.shutdown(wait=False, cancel_futures=True)

    def _row(self, row: Row) -> np.ndarray:
        tokens = row.tokens.tolist()
        start = int(np.flatnonzero(row.target)[0]) - 1
        said = self._ask(
            "/generate",
            {
                "input_ids": tokens,
                "stream": False,
                "return_logprob": True,
                "logprob_start_len": start,  # the first log-prob that is sent is null
                "sampling_params": {"max_new_tokens": 0, "temperature": 1.0},
            },
        )
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

    def _ask(self, path: str, body: dict[str, Any] | None) -> dict[str, Any]:
        """Answer of the server; repeats the request until `patience` is over."""
        data = None if body is None else json.dumps(body).encode()
        request = Request(self.url + path, data, {"Content-Type": "application/json"})
        began, tries = time.monotonic(), 0
        while True:
            try:
                with self._opener.open(request, timeout=REQUEST_S) as answer:
                    return self._read(path, answer.status, answer.read())
            except HTTPError as error:
                text = _quoted(error)
                if error.code < 500 and error.code not in BUSY:
                    raise self._fault(f"refused {path} with HTTP {error.code}: {text}") from None
                why = f"answered HTTP {error.code}: {text}"
            except (OSError, HTTPException) as error:
                why = f"does not answer: {getattr(error, 'reason', error) or error!r}"
            pause = BACKOFF.pause(tries)
            tries += 1
            waited = time.monotonic() - began
            if waited + pause > self._patience:
                raise self._fault(
                    f"{why}. Repeated for {waited:.0f} s (learner.engine_patience_s). Start it, "
                    "and give the same command again"
                )
            if waited > REMIND_S and time.monotonic() - self._said > REMIND_S:
                self._said = time.monotonic()
                self._say(f"the teacher {self.url} {why}; waiting since {waited:.0f} s")
            if self._given_up.wait(pause):
                raise self._fault(why)

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
