"""Environments that misbehave, with gymnasium's `reset` and `step` and nothing of gymnasium."""

import os
import time


class Odd:
    def __init__(self, greeting="hello"):
        self._greeting = greeting

    def reset(self, seed, options):
        self._seed = seed
        return f"{self._greeting} {seed} {(options or {}).get('level', 1)}", {}

    def step(self, action):
        if action == "raise":
            raise ValueError("no such door \ud83d")
        if action == "sleep":
            time.sleep(60)
        if action == "die":
            os._exit(3)
        if action == "flood":
            return "x" * 300_000, 0.5, False, False, {}
        if action == "emoji":
            return "\N{SNAKE}" * 100_000, 0.5, False, False, {}
        if action == "half":
            return "a \ud83d half", 0.5, False, False, {}
        if action == "print":
            print("this is no observation")
        worth = float("nan") if action == "nan" else 0.25
        return f"{action} done", worth, False, action == "stop", {}


class Drawn(Odd):
    """Begins otherwise every time."""

    def reset(self, seed, options):
        return os.urandom(8).hex(), {}
