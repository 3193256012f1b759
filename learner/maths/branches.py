"""Credit of tokens that branches share. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Sequence


def shared_mean(
    paths: Sequence[Sequence[Hashable]], values: Sequence[Sequence[float]]
) -> list[list[float]]:
    """Each token's value, averaged over the rollouts that share it (ARPO's hard attribution).

    paths: tokens of each rollout. Two rollouts share the tokens before the first difference of
    their paths. values: value of each token in its rollout.
    """
    follow: dict[tuple[int, Hashable], int] = {}
    nodes: list[list[int]] = []
    sums: list[float] = [0.0]
    counts: list[int] = [0]
    for path, own in zip(paths, values, strict=True):
        node, passed = 0, []
        for token, value in zip(path, own, strict=True):
            node = follow.setdefault((node, token), len(sums))
            if node == len(sums):
                sums.append(0.0)
                counts.append(0)
            sums[node] += value
            counts[node] += 1
            passed.append(node)
        nodes.append(passed)
    return [[sums[node] / counts[node] for node in passed] for passed in nodes]
