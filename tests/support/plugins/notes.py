"""A tool with state, for services of several processes."""

import asyncio
import os

from toolsvc import Call, SessionInfo, Tool


class Notes(Tool):
    """A list of what was said; `sleep` sleeps, `pid` tells the process."""

    name = "notes"
    stateful = True

    async def open(self, session: SessionInfo) -> list[str]:
        return []

    async def call(self, state: list[str], call: Call) -> str:
        text: str = call.arguments["text"]
        if text == "pid":
            return str(os.getpid())
        if text.startswith("sleep"):
            await asyncio.sleep(float(text.split()[1]))
        state.append(text)
        return ",".join(state)
