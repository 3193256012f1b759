"""Runs in the sandbox, in the process of one session: plays one episode of an environment.

The source of this module is sent there with the session's first call. It needs only the standard
library; the library of the environment is imported when the episode begins.

`begin` and `act` return JSON: {"text"}, or {"text", "reward", "done"}, or {"invalid": reason} for
an action that makes no sense, or {"error": message} if the environment failed.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import json
import math
import random
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

MOST_SHOWN = 100_000
"""Maximum characters of one observation."""
MOST_RULES = 4_000
"""Maximum characters of an environment's documentation."""
MOST_NUMBERS = 10_000
"""Maximum numbers in an observation that is shown as JSON."""


class UnfitAction(Exception):
    """The action makes no sense; the policy reads the message."""


class Unplayable(Exception):
    """The environment cannot be played; the message says why."""


class GymnasiumEpisode:
    """Episode of a `gymnasium.Env`, or of any class with its `reset` and `step`."""

    def __init__(self, where: str, arguments: Mapping[str, Any], names: Sequence[str]) -> None:
        """where: an id of the registry, or "module:Class". names: of the actions, in order."""
        self._env = _made(where, arguments)
        self._space: Any = getattr(self._env, "action_space", None)
        self._names = [name.casefold() for name in names]
        if names and len(names) != getattr(self._space, "n", None):
            raise Unplayable(f"{len(names)} names for the actions {self._space}")
        self._drawn = getattr(self._env, "render_mode", None) == "ansi"

    def begin(self, seed: int, options: Any) -> str:
        observation, _ = self._env.reset(seed=seed, options=options)
        kept = ["Description", "Action Space", "Rewards"]
        if not self._drawn:
            kept.append("Observation Space")
        rules = _rules(inspect.getdoc(type(getattr(self._env, "unwrapped", self._env))), kept)
        return "\n\n".join(part for part in (rules, self._how(), self._text(observation)) if part)

    def act(self, action: str) -> tuple[str, Any, bool]:
        observation, reward, terminated, truncated, _ = self._env.step(self._read(action))
        return self._text(observation), reward, bool(terminated or truncated)

    def _text(self, observation: Any) -> str:
        if isinstance(observation, str):
            return observation
        return uncoloured(self._env.render()) if self._drawn else shown(observation)

    def _how(self) -> str:
        space = self._space
        if self._names:
            return f"An action is one of: {', '.join(self._names)}."
        if type(space).__name__ == "Discrete":
            first = int(space.start)
            return f"An action is a number from {first} to {first + int(space.n) - 1}."
        if space is None or type(space).__name__ == "Text":
            return ""
        return f"An action is JSON that fits {space}."

    def _read(self, action: str) -> Any:
        """The action that the policy wrote. Raises UnfitAction."""
        space = self._space
        if space is None or type(space).__name__ == "Text":
            found: Any = action
        elif self._names:
            if action.casefold() not in self._names:
                raise UnfitAction(self._how())
            found = int(space.start) + self._names.index(action.casefold())
        else:
            try:
                found = fitted(space, json.loads(action))
            except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
                raise UnfitAction(self._how()) from error
        if space is not None and not space.contains(found):
            raise UnfitAction(self._how() or f"the action does not fit {space}")
        return found


class TextArenaEpisode:
    """Game of textarena for one player."""

    def __init__(self, where: str, arguments: Mapping[str, Any]) -> None:
        textarena = importlib.import_module("textarena")
        self._env = textarena.make(where, **arguments)
        self._core = self._env
        while isinstance(self._core, textarena.Wrapper):
            self._core = self._core.env
        self._own = textarena.ObservationType.PLAYER_ACTION

    def begin(self, seed: int, options: Any) -> str:
        self._env.reset(num_players=1, seed=seed)
        return self._text()

    def act(self, action: str) -> tuple[str, Any, bool]:
        done, _ = self._env.step(action)
        text = self._text()
        if not done:
            return text, 0.0, False
        rewards, _ = self._env.close()
        return text, (rewards or {}).get(0, 0.0), True

    def _text(self) -> str:
        """New messages since the last look, without the player's own."""
        _, messages = self._core.get_observation()
        return "\n".join(str(text) for _, text, kind in messages if kind is not self._own)


class ReasoningEpisode:
    """Question of a reasoning-gym data set; the only action is the answer."""

    def __init__(self, where: str, arguments: Mapping[str, Any]) -> None:
        self._make = functools.partial(
            importlib.import_module("reasoning_gym").create_dataset, where, size=1, **arguments
        )
        self._questions: Any = None

    def begin(self, seed: int, options: Any) -> str:
        self._questions = self._make(seed=seed)
        return str(self._questions[0]["question"])

    def act(self, action: str) -> tuple[str, Any, bool]:
        return "", self._questions.score_answer(action, self._questions[0]), True


EPISODE: Any = None


def begin(job: Mapping[str, Any]) -> str:
    """job: {"library", "where", "arguments", "actions", "seed", "reset"}."""

    def first() -> dict[str, Any]:
        global EPISODE
        kinds: dict[str, Callable[..., Any]] = {
            "gymnasium": functools.partial(GymnasiumEpisode, names=job["actions"]),
            "textarena": TextArenaEpisode,
            "reasoning_gym": ReasoningEpisode,
        }
        EPISODE = kinds[job["library"]](job["where"], job["arguments"])
        random.seed(job["seed"])
        if "numpy" in sys.modules:
            importlib.import_module("numpy.random").seed(job["seed"])
        return {"text": bounded(EPISODE.begin(job["seed"], job["reset"]))}

    return _told(first)


def act(action: str) -> str:
    """Plays the action."""

    def next_one() -> dict[str, Any]:
        text, reward, done = EPISODE.act(action)
        worth = float(reward)
        if not math.isfinite(worth):
            raise Unplayable(f"the environment gave the reward {worth}")
        return {"text": bounded(text), "reward": worth, "done": done}

    return _told(next_one)


def _told(do: Callable[[], dict[str, Any]]) -> str:
    try:
        found = do()
    except UnfitAction as error:
        found = {"invalid": bounded(str(error))}
    except Unplayable as error:
        found = {"error": bounded(str(error))}
    except (Exception, SystemExit) as error:  # noqa: BLE001 - environments raise anything
        found = {"error": bounded(f"{type(error).__name__}: {error}"[:MOST_RULES])}
    # Without escapes, so that the longest observation fits what the service reads.
    return json.dumps(found, ensure_ascii=False)


def _made(where: str, arguments: Mapping[str, Any]) -> Any:
    """An environment that draws itself as text, if it can."""
    module, colon, name = where.partition(":")
    if colon:
        found = getattr(importlib.import_module(module), name, None)
        if callable(found):
            return found(**arguments)
    gymnasium = importlib.import_module("gymnasium")
    spec = gymnasium.spec(where)
    load = importlib.import_module("gymnasium.envs.registration").load_env_creator
    entry = load(spec.entry_point) if isinstance(spec.entry_point, str) else spec.entry_point
    modes = (getattr(entry, "metadata", None) or {}).get("render_modes", ())
    drawn = {"render_mode": "ansi"} if "ansi" in modes else {}
    return gymnasium.make(where, disable_env_checker=True, **{**drawn, **arguments})


def fitted(space: Any, value: Any) -> Any:
    """A value of JSON in the types of the space."""
    kind = type(space).__name__
    if kind in ("Box", "MultiDiscrete", "MultiBinary"):
        return importlib.import_module("numpy").asarray(value, dtype=space.dtype)
    if kind == "Dict":
        return {name: fitted(one, value[name]) for name, one in space.spaces.items()}
    if kind == "Tuple":
        return tuple(fitted(one, part) for one, part in zip(space.spaces, value, strict=True))
    return value


def shown(observation: Any) -> str:
    """The observation as JSON. Raises Unplayable if it is too large to read."""
    count = 0

    def plain(value: Any) -> Any:
        nonlocal count
        if hasattr(value, "size"):
            count += int(value.size)
        if count > MOST_NUMBERS:
            raise Unplayable(
                f"an observation has more than {MOST_NUMBERS} numbers: name an environment that "
                "can be read as text"
            )
        if isinstance(value, Mapping):
            return {str(name): plain(part) for name, part in value.items()}
        if isinstance(value, list | tuple):
            return [plain(part) for part in value]
        return value.tolist() if hasattr(value, "tolist") else value

    return json.dumps(plain(observation), ensure_ascii=False, default=str)


def uncoloured(drawing: str) -> str:
    """The drawing without a terminal's colours: `[x]` has a background, `{blue:x}` a colour."""
    colours = ("grey", "red", "green", "yellow", "blue", "magenta", "cyan", "white")

    def marked(found: re.Match[str]) -> str:
        code, text = int(found[1]), found[2]
        if 40 <= code <= 47:
            return f"[{text}]"
        return f"{{{colours[code - 30]}:{text}}}" if 30 <= code <= 37 else text

    drawing = re.sub(r"\x1b\[(\d+)(?:;\d+)*m([^\x1b]*)\x1b\[0m", marked, drawing)
    return re.sub(r"\x1b\[[\d;]*m", "", drawing).strip("\n")


def _rules(documentation: str | None, kept: Sequence[str]) -> str:
    """The beginning of the documentation, and the sections that a player needs."""
    plain = re.sub(r"^ (?=\S)", "", documentation or "", flags=re.MULTILINE)
    first, *sections = re.split(r"^## +", plain, flags=re.MULTILINE)
    chosen = [part for part in sections if part.partition("\n")[0].strip() in kept]
    return "".join([first, *(f"## {part}" for part in chosen)]).strip()[:MOST_RULES]


def bounded(text: str) -> str:
    """The text, cut; no half of a surrogate pair."""
    return text[:MOST_SHOWN].encode("utf-8", "replace").decode()
