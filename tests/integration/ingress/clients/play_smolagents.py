"""smolagents: play_smolagents.py URL ToolCallingAgent|CodeAgent."""

import sys

import smolagents


@smolagents.tool
def look(place: str) -> str:
    """looks at a place

    Args:
        place: where
    """
    return f"nothing at {place}"


url, kind = sys.argv[1:]
model = smolagents.OpenAIServerModel("policy", api_base=url, api_key="unused")
agent = getattr(smolagents, kind)([look], model)
print(agent.run("Where is it?", max_steps=20))
