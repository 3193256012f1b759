"""`bench retokenisation`: its options, its lines and its file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bench.measuring.command import JsonFile, write_json
from bench.retokenisation.types import Gradients, GradientSide

if TYPE_CHECKING:
    # Tokenizers, which the other commands of `bench` do not need.
    from bench.retokenisation.joint import Retokened

PAPER = {"changed": 0.986, "norm": 2.329}
"""Share of changes, and gradient norm of recorded ids (arXiv:2509.01055, appendix E). The paper
says ids; its code counts turns."""


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
    json_file: JsonFile = None,
) -> None:
    """Measure how encoding whole conversations again would change recorded trajectories.

    Engine and learner keep the ids that the sampler returned and append those of each observation.
    This command encodes the text of each recorded sequence at once and compares: the ids that
    change, and the turns after which the next request would not begin with what the policy saw.
    --gradients also compares the learner's gradient norms, with the default loss of a recipe.
    Nothing is trained (arXiv:2509.01055, appendix E).

    \b
    Examples:
        bench retokenisation my-run/run --policy my-run/run/warm
        bench retokenisation kept.trajectories --policy models/smollm2 --gradients
    """
    from bench.retokenisation.encoder import FolderEncoder
    from bench.retokenisation.joint import retokened
    from bench.retokenisation.recordings import groups_of

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
    for line in lines(found, norms):
        typer.echo(line)
    write_json(json_file, report(found, norms))


def report(found: Sequence[Retokened], norms: Gradients | None) -> dict[str, Any]:
    """All figures. Shares are of the recorded ids."""
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


def lines(sequences: Sequence[Retokened], norms: Gradients | None) -> Iterator[str]:
    """The figures as lines."""
    found = report(sequences, norms)
    first = found["first_change"]
    yield (
        f"{found['sequences']} sequences of {found['ids']:,} ids, "
        f"{found['sequences_changed']:.1%} of them with another id when the whole text is encoded"
        + ("" if first is None else f"; the first one at {first:.0f}, median")
    )
    yield f"turns changed              {found['changed_by_turn']:7.1%}   (paper 98.6%)"
    yield f"ids changed, by place      {found['changed_by_place']:7.1%}"
    yield f"ids changed, by alignment  {found['changed_by_alignment']:7.1%}"
    yield f"  of what the policy wrote {found['changed_of_policy']:7.1%}"
    yield (
        f"turns without their prefix: {found['turns_without_prefix']} of {found['turns']} encoded "
        "anew, none as recorded: there ids are only appended"
    )
    if norms is None:
        return
    yield f"mean reward {norms.reward:.3f}, of the same text on both sides"
    yield f"{'gradient norm':<34}{'recorded':>10}{'anew':>10}{'ratio':>8}   (paper 2.33)"
    ratios = _ratios(norms)
    for name, what in (("by_index", "left at their index"), ("anew", "computed anew")):
        recorded, anew = getattr(norms, name)
        yield f"  log-probs {what:<22}{recorded.norm:>10.4f}{anew.norm:>10.4f}{_cell(ratios[name])}"
    recorded, anew = norms.by_index
    yield (
        f"distance to the sampler's log-probs: {_distance(recorded)} as recorded, "
        f"{_distance(anew)} anew"
    )


def _ratios(norms: Gradients) -> dict[str, float | None]:
    """Ratio of the gradient encoded again to the recorded one; None if the recorded one is 0."""
    return {
        name: anew.norm / recorded.norm if recorded.norm else None
        for name, (recorded, anew) in (("by_index", norms.by_index), ("anew", norms.anew))
    }


def _cell(ratio: float | None) -> str:
    return f"{'-' if ratio is None else f'{ratio:.2f}':>8}"


def _distance(side: GradientSide) -> str:
    return f"{side.gap:.3f} on average and {side.clipped:.1%} of tokens clipped"


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _median(values: Sequence[int]) -> float | None:
    return sorted(values)[len(values) // 2] if values else None
