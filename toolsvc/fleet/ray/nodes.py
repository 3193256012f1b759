"""Whether a cluster's nodes have room for the hosts and sessions; pure."""

from __future__ import annotations

from collections.abc import Sequence

from toolsvc.errors import StartError
from toolsvc.fleet.resources import Resources, counted, declared
from toolsvc.plugin.tool import Tool


def check_room(hosts: int, host: Resources, nodes: Sequence[Resources]) -> None:
    """Raises StartError if the living nodes, without other work, could not take all hosts."""
    if sum(host.times_in(node) for node in nodes) >= hosts:
        return
    raise StartError(
        f"the cluster has no room for {counted(hosts, 'host')} of {host} ({_in_words(nodes)}): "
        "lower --hosts, --host-cpus, --host-gpus or --host-memory-mib, or add nodes"
    )


def check_reach(tool: Tool, nodes: Sequence[Resources]) -> None:
    """Raises StartError if no living node could ever take a session of the tool."""
    needs = declared(tool)
    if any(needs.fits(node) for node in nodes):
        return
    raise StartError(
        f"tool {tool.name!r} asks for {needs} a session, and no node of the cluster has that much "
        f"({_in_words(nodes)}): add a node that has, or serve other tools"
    )


def _in_words(nodes: Sequence[Resources]) -> str:
    return f"its nodes have {'; '.join(map(str, nodes))}" if nodes else "it has no nodes"
