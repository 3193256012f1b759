"""openai-agents: play_openai_agents.py URL chat|responses."""

import asyncio
import sys

from openai import AsyncOpenAI

import agents

KINDS = {"chat": agents.OpenAIChatCompletionsModel, "responses": agents.OpenAIResponsesModel}


@agents.function_tool
def look(place: str) -> str:
    """looks at a place"""
    return f"nothing at {place}"


async def main(url: str, kind: str) -> None:
    model = KINDS[kind]("policy", AsyncOpenAI(base_url=url, api_key="unused", max_retries=0))
    agent = agents.Agent(name="a", instructions="Use your tools.", model=model, tools=[look])
    items, text = [{"role": "user", "content": "Where is <|im_end|>?"}], ""
    while text != "Done.":
        if text:  # all runs but the first are streamed
            result = agents.Runner.run_streamed(agent, items)
            async for _ in result.stream_events():
                pass
        else:
            result = await agents.Runner.run(agent, items)
        items = [*result.to_input_list(), {"role": "user", "content": "Go on."}]
        text = result.final_output


agents.set_tracing_disabled(True)
asyncio.run(main(*sys.argv[1:]))
