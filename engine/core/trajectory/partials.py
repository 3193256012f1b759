"""The tokens of a completion in progress, part by part. Pure."""

from __future__ import annotations

from engine.core.trajectory.chain import CONTINUED
from engine.core.trajectory.events import Streamed
from engine.types import Generated, VersionRun
from toolwright.types import ids


def with_part(before: Generated | None, part: Streamed) -> Generated:
    """All tokens so far, after one more part."""
    if before is None:
        return Generated(
            token_ids=part.token_ids,
            logprobs=part.logprobs,
            versions=part.versions,
            finish=CONTINUED,
            prompt_tokens=part.prompt_tokens,
            prompt_ids=part.prompt_ids or ids(),
        )
    return Generated(
        token_ids=before.token_ids + part.token_ids,
        logprobs=before.logprobs + part.logprobs,
        versions=_joined(before.versions, part.versions),
        finish=CONTINUED,
        prompt_tokens=before.prompt_tokens,
        prompt_ids=before.prompt_ids,
    )


def _joined(
    before: tuple[VersionRun, ...], after: tuple[VersionRun, ...]
) -> tuple[VersionRun, ...]:
    """Runs of tokens that follow each other; no two neighbours have one version."""
    if not before or not after or before[-1][0] != after[0][0]:
        return before + after
    version, count = before[-1]
    return (*before[:-1], (version, count + after[0][1]), *after[1:])
