"""What a VerlTool tool imports from `verl_tool.servers.tools.base`, where verl_tool itself is not
installed: the names and behaviour that its tools lean on, and nothing else.

Follows verl_tool/servers/tools/base.py of VerlTool. An *environment* is a dictionary that a tool
keeps for each trajectory in `env_cache`. Unlike there, `get_observations` takes a batch one by one:
here it is called for one action at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

Observation = str | dict[str, Any]
_Class = TypeVar("_Class", bound=type)

registered_tools: dict[str, type] = {}


def register_tool(cls: _Class) -> _Class:
    """Decorates a tool class. Here a class need not be registered to be served."""
    registered_tools[getattr(cls, "tool_type", cls.__name__)] = cls
    return cls


class BaseTool:
    """A subclass sets `tool_type` and overrides `parse_action` and `conduct_action`; the others
    where its environment is more than a dictionary."""

    tool_type = "base"

    def __init__(self, num_workers: int = 1) -> None:
        self.num_workers = num_workers
        self.env_cache: dict[str, Any] = {}

    def get_usage_inst(self) -> str:
        """How to use it, for the prompt."""
        return ""

    def has_env(self, trajectory_id: str) -> bool:
        return trajectory_id in self.env_cache

    def load_env(self, trajectory_id: str) -> Any:
        """The trajectory's environment; a new one, not yet saved, where it has none."""
        found = self.env_cache.get(trajectory_id)
        if found is not None:
            return found
        return {"trajectory_id": trajectory_id, "metadata": {"turns": 0}, "previous_obs": []}

    def save_env(self, trajectory_id: str, env: Any) -> None:
        self.env_cache[trajectory_id] = env

    def update_env(
        self,
        trajectory_id: str,
        env: Any,
        action: Any,
        is_valid: bool,
        extra_field: Mapping[str, Any],
        observation: Observation,
        **kwargs: Any,
    ) -> None:
        """Notes in `env` what was done and seen."""
        seen = {"action": action, "is_valid": is_valid, "observation": observation}
        env["previous_obs"].append({**seen, "extra_field": extra_field, **kwargs})
        env["metadata"]["turns"] += 1

    def delete_env(self, trajectory_id: str) -> None:
        self.env_cache.pop(trajectory_id, None)

    def get_env_cache_keys(self) -> list[str]:
        return list(self.env_cache)

    def parse_action(self, action: str) -> tuple[Any, bool]:
        """What the action says to this tool, and whether it says anything."""
        return action, True

    def get_action_priority(self, action: str, extra_field: Mapping[str, Any]) -> int:
        """-1 if the action does not call this tool."""
        return 0 if self.parse_action(action)[1] else -1

    def conduct_action(
        self, trajectory_id: str, action: str, extra_field: dict[str, Any]
    ) -> tuple[Observation, bool, bool]:
        """Observation, whether the trajectory is done, whether the action was valid."""
        raise NotImplementedError(f"{type(self).__name__} has no conduct_action")

    def maybe_cleanup_env(
        self,
        trajectory_ids: Sequence[str],
        actions: Sequence[str],
        extra_fields: Sequence[Mapping[str, Any]],
    ) -> None:
        """Deletes the environments of trajectories that made their last step."""
        for trajectory_id, extra_field in zip(trajectory_ids, extra_fields, strict=True):
            if extra_field.get("is_last_step") and self.has_env(trajectory_id):
                self.delete_env(trajectory_id)

    def get_observations(
        self,
        trajectory_ids: Sequence[str],
        actions: Sequence[str],
        extra_fields: Sequence[dict[str, Any]],
    ) -> tuple[Sequence[Observation], Sequence[bool], Sequence[bool]]:
        """`conduct_action` of each; observations, dones and valids in their order."""
        each = zip(trajectory_ids, actions, extra_fields, strict=True)
        observations, dones, valids = zip(*(self.conduct_action(*one) for one in each), strict=True)
        self.maybe_cleanup_env(trajectory_ids, actions, extra_fields)
        return observations, dones, valids
