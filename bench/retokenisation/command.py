"""`bench retokenisation`: the command line, the lines that a person reads, and the file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bench.errors import BenchError
from bench.retokenisation.types import Gradients, Side

if TYPE_CHECKING:
    # Tokenizers, which the other commands of `bench` have no need of.
    from bench.retokenisation.joint import Retokened

PAPER = {"changed": 0.986, "norm": 2.329}
"""Share that changes, and gradient norm beside that of ids as recorded (arXiv:2509.01055, appendix
E). The paper says ids; what its code counts is turns."""


def retokenisation(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="TRAJECTORIES",
            help="A run's folder (engine.history = 'all' keeps all), or a trajectories file.",
            show_default=False,
        ),
    ],
    policy: Annotated[
        Path, typer.Option(help="Folder of the policy that wrote them: its tokenizer.")
    ],
    gradients: Annotated[
        bool, typer.Option("--gradients", help="Also the learner's gradient: loads the weights.")
    ] = False,
    most: Annotated[int, typer.Option(min=1, help="Trajectories, the newest groups of them.")] = 64,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Also write the report there.")
    ] = None,
) -> None:
    """Tell what encoding whole conversations again would do to recorded trajectories.

    Engine and learner keep the ids that the sampler returned and append those of each observation.
    This takes the text of each recorded sequence, encodes it at once, and compares: how many ids
    are others, and in how many turns the next request would not begin with what the policy saw.
    --gradients lays the learner's gradient norm of both beside each other, with the loss of a
    recipe that says nothing. Nothing is trained (arXiv:2509.01055, appendix E).

    \b
    Examples:
        bench retokenisation my-run/run --policy my-run/run/warm
        bench retokenisation kept.trajectories --policy models/smollm2 --gradients
    """
    from bench.retokenisation.encoder import FolderEncoder
    from bench.retokenisation.joint import retokened
    from bench.retokenisation.recordings import groups_of

    try:
        encoder = FolderEncoder(policy)
        groups = groups_of(source, most, policy)
        found = [
            retokened(trajectory.id, place, sequence, encoder)
            for group in groups
            for trajectory in group.trajectories
            for place, sequence in enumerate(trajectory.sequences)
        ]
        norms = None
        if gradients:
            from learner.ranks import device

            device.install()  # before Megatron is imported
            from bench.retokenisation.gradients import gradients as of_both

            norms = of_both(policy, groups, found)
    except BenchError as error:
        typer.echo(f"bench: {error}", err=True)
        raise typer.Exit(1) from error
    for line in lines(found, norms):
        typer.echo(line)
    if json_file is not None:
        json_file.write_text(json.dumps(report(found, norms), indent=1) + "\n", encoding="utf-8")


def report(found: Sequence[Retokened], norms: Gradients | None) -> dict[str, Any]:
    """Every figure; shares are of our ids."""
    ours = sum(len(one.ours) for one in found)
    written = sum(sum(one.written) for one in found)
    changed = [one for one in found if not one.same]
    turns, lost = sum(one.turns for one in found), sum(one.lost for one in found)
    answered = sum(one.answered for one in found)
    return {
        "sequences": len(found),
        "ids": ours,
        "sequences_changed": _share(len(changed), len(found)),
        "first_change": _median([one.first for one in changed if one.first is not None]),
        "changed_by_place": _share(sum(one.changed_by_place for one in found), ours),
        "changed_by_alignment": _share(sum(one.changed_by_alignment for one in found), ours),
        "changed_of_policy": _share(sum(one.changed_of_policy for one in found), written),
        "changed_by_turn": _share(sum(one.cut for one in found), answered),
        "turns": turns,
        "turns_without_prefix": lost,
        "gradients": None if norms is None else {**asdict(norms), "ratio": _ratios(norms)},
        "paper": PAPER,
    }


def lines(found: Sequence[Retokened], norms: Gradients | None) -> Iterator[str]:
    """What a person wants to read."""
    told = report(found, norms)
    first = told["first_change"]
    yield (
        f"{told['sequences']} sequences of {told['ids']:,} ids, {told['sequences_changed']:.1%} of "
        "them with another id when the whole text is encoded"
        + ("" if first is None else f"; the first one at {first:.0f}, median")
    )
    yield f"turns changed              {told['changed_by_turn']:7.1%}   (paper 98.6%)"
    yield f"ids changed, by place      {told['changed_by_place']:7.1%}"
    yield f"ids changed, by alignment  {told['changed_by_alignment']:7.1%}"
    yield f"  of what the policy wrote {told['changed_of_policy']:7.1%}"
    yield (
        f"turns without their prefix: {told['turns_without_prefix']} of {told['turns']} encoded "
        "anew, none as recorded: there ids are only appended"
    )
    if norms is None:
        return
    yield f"mean reward {norms.reward:.3f}, of the same text on both sides"
    yield f"{'gradient norm':<34}{'recorded':>10}{'anew':>10}{'ratio':>8}   (paper 2.33)"
    ratios = _ratios(norms)
    for name, what in (("by_index", "left at their index"), ("anew", "computed anew")):
        recorded, anew = getattr(norms, name)
        yield f"  log-probs {what:<22}{recorded.norm:>10.4f}{anew.norm:>10.4f}{_said(ratios[name])}"
    recorded, anew = norms.by_index
    yield (
        f"distance to the sampler's log-probs: {_distance(recorded)} as recorded, "
        f"{_distance(anew)} anew"
    )


def _ratios(norms: Gradients) -> dict[str, float | None]:
    """Anew to recorded; None where the recorded gradient is 0."""
    return {
        name: anew.norm / recorded.norm if recorded.norm else None
        for name, (recorded, anew) in (("by_index", norms.by_index), ("anew", norms.anew))
    }


def _said(ratio: float | None) -> str:
    return f"{'-' if ratio is None else f'{ratio:.2f}':>8}"


def _distance(side: Side) -> str:
    return f"{side.gap:.3f} on average and {side.clipped:.1%} of tokens clipped"


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _median(values: Sequence[int]) -> float | None:
    return sorted(values)[len(values) // 2] if values else None
