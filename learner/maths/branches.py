"""Credit of tokens that several rollouts share, since these are branches of one another. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Sequence


def shared_mean(
    paths: Sequence[Sequence[Hashable]], values: Sequence[Sequence[float]]
) -> list[list[float]]:
    """Every token's value, averaged over the rollouts that share the token (ARPO's hard
    attribution).

    paths: the tokens of each rollout. Two rollouts share what stands before the first difference
    of their paths. values: what each token has in its rollout.
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
