"""An OpenEnv server of the published package, with an environment of our own: runs in .venv-gyms.

python openenv_world.py PORT MOST
"""

import os
import random
import sys
import time

import uvicorn
from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State


class Guess(Action):
    number: int


class Told(Observation):
    text: str


class Numbers(Environment):
    """Tells whether a guess is too low or too high."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed=None, most=9, **more):
        if most < 1:
            raise ValueError("most must be at least 1")
        self._secret = random.Random(seed).randint(1, most)
        self._state = State(episode_id=str(seed), step_count=0)
        return Told(text=f"guess a number from 1 to {most}; the last digit of pi is {seed}")

    def step(self, action, **more):
        self._state.step_count += 1
        if action.number == 666:
            raise RuntimeError("the environment is cursed")
        if action.number == 777:
            time.sleep(60)
        if action.number == 888:
            os._exit(1)
        if action.number == 999:
            return Told(text="x" * (5 << 20))
        if action.number == self._secret:
            return Told(text="right", done=True, reward=1.0)
        return Told(text="too low" if action.number < self._secret else "too high", reward=0.0)

    @property
    def state(self):
        return self._state


if __name__ == "__main__":
    app = create_app(Numbers, Guess, Told, env_name="numbers", max_concurrent_envs=int(sys.argv[2]))
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=int(sys.argv[1]),
        log_level="warning",
        ws_ping_interval=1,
        ws_ping_timeout=10,
    )
