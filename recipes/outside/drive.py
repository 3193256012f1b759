"""A driver: plays the agent of agent.py in one process, in many trajectories at a time.

    TOOLWRIGHT_TOKEN=... .venv/bin/python -E drive.py http://127.0.0.1:50081

It takes trajectories from the ingress until the run ends. Each has a base URL of its own.
"""

import argparse
import asyncio
import os

import httpx2
from agent import AGENT, MOST_TURNS
from openai import APIError, AsyncOpenAI

from agents import AgentsException, OpenAIChatCompletionsModel, RunConfig, Runner

WAIT_S = 30


async def play(url: str, http: httpx2.AsyncClient, taken: dict) -> dict:
    """One trajectory; the body that reports its end."""
    client = AsyncOpenAI(base_url=url + taken["base_path"], api_key="unused", http_client=http)
    model = OpenAIChatCompletionsModel("policy", client)
    try:
        found = await Runner.run(
            AGENT,
            taken["task"]["messages"],
            max_turns=MOST_TURNS,
            run_config=RunConfig(model=model),
        )
    except (AgentsException, APIError) as error:
        return {"key": taken["key"], "outcome": "failed", "error": str(error)[:200]}
    return {"key": taken["key"], "outcome": "done", "answer": str(found.final_output)}


async def work(url: str, http: httpx2.AsyncClient, driver: dict, name: str) -> None:
    """Takes one trajectory after the other. Returns when the run is over or the ingress gone."""
    number = 0
    while True:
        body = {"worker": name, "number": number, "wait": WAIT_S}
        try:
            answer = await http.post(f"{url}/v1/trajectories/take", json=body, headers=driver)
            if answer.status_code == httpx2.codes.TOO_MANY_REQUESTS:
                continue
            if answer.status_code == httpx2.codes.GONE:  # the run is over
                return
            answer.raise_for_status()
            end = await play(url, http, answer.json())
            ended = await http.post(f"{url}/v1/trajectories/end", json=end, headers=driver)
            if ended.status_code != httpx2.codes.GONE:  # the engine may have ended it before
                ended.raise_for_status()
        except httpx2.TransportError:
            return
        number += 1


async def main() -> None:
    words = argparse.ArgumentParser(description="Plays the calculator's agent.")
    words.add_argument("url", help="of the ingress, such as http://127.0.0.1:50081")
    words.add_argument("--at-once", type=int, default=32, help="trajectories (default: 32)")
    given = words.parse_args()
    driver = {"Authorization": f"Bearer {os.environ['TOOLWRIGHT_TOKEN']}"}
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx2.AsyncClient(timeout=600, limits=limits) as http, asyncio.TaskGroup() as group:
        for place in range(given.at_once):
            name = f"drive-{os.getpid()}-{place}"
            group.create_task(work(given.url, http, driver, name))


asyncio.run(main())
