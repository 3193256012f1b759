"""A tool that sleeps as long as its call says and stamps its begin and its end."""

import asyncio
import time

from bench.engine.plan import STOP, answer_to, read_call
from toolsvc import Call, RawFormat, Result, Tool


class Sleep(Tool):
    """Answers with a checksum of the call."""

    name = "sleep"
    description = "Sleeps."
    format = RawFormat()
    stop_strings = (STOP,)
    parallel_calls = True
    run_limit = 60.0

    async def call(self, state: object, call: Call) -> Result:
        entered = time.monotonic_ns()
        _, _, milliseconds, _ = read_call(call.action)
        await asyncio.sleep(milliseconds / 1000)
        text = answer_to(call.action)
        stamps = {"entered_s": entered / 1e9, "left_s": time.monotonic_ns() / 1e9}
        return Result.of(text, metrics=stamps)
