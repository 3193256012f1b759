"""An agent of openai-agents that answers a word problem with a calculator.

Nothing here is made for Toolwright but the two files: TOOLWRIGHT_TASK names the task, and
TOOLWRIGHT_RESULT the file for the answer. Model and base URL come from OpenAI's usual variables.
"""

import json
import os
from pathlib import Path

from calculator import calculate

from agents import Agent, Runner, function_tool, set_default_openai_api, set_tracing_disabled

AGENT = Agent(name="calculator", model="policy", tools=[function_tool(calculate)])
MOST_TURNS = 4

set_default_openai_api("chat_completions")
set_tracing_disabled(True)

if __name__ == "__main__":
    task = json.loads(Path(os.environ["TOOLWRIGHT_TASK"]).read_text(encoding="utf-8"))
    found = Runner.run_sync(AGENT, task["messages"], max_turns=MOST_TURNS)
    result = json.dumps({"answer": str(found.final_output)})
    Path(os.environ["TOOLWRIGHT_RESULT"]).write_text(result, encoding="utf-8")
