"""A recorded trajectory with every kind of sequence that the ingress records."""

from __future__ import annotations

from tests.support.recorded_runs import Recorded
from toolwright import types as t

AGENT, HELPER = "planner", "searcher"


def forked(run: Recorded, name: str = "g0-0") -> t.Trajectory:
    """Sequence 0 has turns 0, 1 and 4. Sequence 1 is another sample of turn 1 (superseded), 2 a
    helper's context, 3 an edited message after turn 0, 4 the context after a compaction."""
    user, model, tool = t.Author.PROMPT, t.Author.MODEL, t.Author.TOOL
    first = (
        run.segment(user, "<|im_start|>user\nWhere does the river begin?<|im_end|>\n"),
        run.segment(model, "I look it up."),
    )
    shared = sum(len(one.token_ids) for one in first)
    copied = tuple(
        t.Segment(author=one.author, token_ids=one.token_ids, logprobs=one.logprobs)
        for one in first
    )
    own = {
        0: (
            *first,
            run.segment(tool, "<result>three maps</result>"),
            run.segment(model, "The second map shows a spring.", turn=1),
            run.segment(tool, "<result>a spring in the hills</result>", turn=1),
            run.segment(model, "<answer>in the hills</answer>", turn=4),
        ),
        1: (
            *copied,
            run.segment(tool, "<result>three maps</result>"),
            run.segment(model, "No map helps.", turn=2, trainable=False),
        ),
        2: (
            run.segment(user, "Search the maps."),
            run.segment(model, "map one, map two, map three", turn=3),
        ),
        3: (
            *copied,
            run.segment(user, "Use the newest map."),
            run.segment(model, "The newest map is map three.", turn=5),
        ),
        4: (
            run.segment(user, "Summary: a spring in the hills."),
            run.segment(model, "<answer>the hills</answer>", turn=6),
        ),
    }
    forks = {1: shared, 3: shared}
    causes = {2: "sample", 3: "root", 5: "branch", 6: "root"}
    return run.trajectory(
        name,
        sequences=tuple(
            t.Sequence(
                id=f"{name}.{number}",
                segments=segments,
                parent=f"{name}.0" if number in forks else None,
                fork_offset=forks.get(number),
                agent=HELPER if number == 2 else AGENT,
            )
            for number, segments in own.items()
        ),
        events=tuple(
            t.Event(kind="sequence_forked", turn=turn, data={"cause": cause})
            for turn, cause in causes.items()
        ),
        calls=(),
    )
