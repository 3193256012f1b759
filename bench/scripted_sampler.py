"""`bench scripted-sampler`: its options, and the server until a signal ends it.

The packages of the server are imported when it runs: `bench --help` does not need them.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bench.errors import BenchError, UsageError
from toolwright.process import loop
from toolwright.process.stop_signals import stop_event

if TYPE_CHECKING:
    from bench.scripted import Script, ScriptedSampler


def scripted_sampler(
    script: Annotated[
        str | None,
        typer.Option(
            help="FILE.py:function, or cycle:STOP_ID:EVERY[:VOCABULARY] (random ids, the stop id "
            "as every EVERY-th token)."
        ),
    ] = None,
    replies: Annotated[
        Path | None,
        typer.Option(
            help="JSON file: a list with one list of token ids (or [id, logprob]) per turn.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 takes a free one and prints it.")] = 30000,
    incremental: Annotated[
        bool,
        typer.Option(
            "--incremental-streaming-output/--cumulative",
            help="Chunks are deltas, or repeat all tokens so far.",
        ),
    ] = True,
    first_token_delay: Annotated[float, typer.Option(help="Seconds before the first chunk.")] = 0.0,
    tokens_per_second: Annotated[
        float, typer.Option(help="Pace of one stream; inf for as fast as possible.")
    ] = math.inf,
    cache_tokens: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Model a GPU with a prefix cache of so many tokens, which all streams share.",
        ),
    ] = None,
    prefill_rate: Annotated[
        float, typer.Option(help="With --cache-tokens: prompt tokens a second of that GPU.")
    ] = math.inf,
    decode_rate: Annotated[
        float, typer.Option(help="With --cache-tokens: tokens a second of all streams together.")
    ] = math.inf,
    tokens_per_chunk: Annotated[int, typer.Option(help="Tokens in one chunk.")] = 1,
    jitter: Annotated[
        float, typer.Option(help="Stretch every delay by a random factor in 1 +- this.")
    ] = 0.0,
    seed: Annotated[int, typer.Option(help="Seed of the jitter and of cycle scripts.")] = 0,
    eos_id: Annotated[
        list[int] | None, typer.Option(help="End-of-sequence id; repeatable.")
    ] = None,
    vocab_size: Annotated[
        int | None, typer.Option(help="Refuse input ids outside this vocabulary.")
    ] = None,
    image_token: Annotated[
        int | None, typer.Option(help="Id that stands for an image; with it, image_data is read.")
    ] = None,
    context_length: Annotated[int, typer.Option(help="Longest prompt plus reply.")] = 32768,
    weight_version: Annotated[str, typer.Option(help="Version before any update.")] = "default",
    break_stream: Annotated[
        list[str] | None,
        typer.Option(
            metavar="REQUEST:CHUNKS[:HOW]",
            help="End the stream of request number REQUEST (from 0) after CHUNKS chunks; HOW is "
            "cut (default), done, error or stall. Repeatable.",
        ),
    ] = None,
    refuse: Annotated[
        list[str] | None,
        typer.Option(
            metavar="K|FROM-TO", help="Reset the connection of these requests. Repeatable."
        ),
    ] = None,
    stale_weights: Annotated[
        bool, typer.Option(help="Answer success to weight updates and keep the old version.")
    ] = False,
    fail_updates: Annotated[
        int, typer.Option(help="Answer 400 to this many weight updates first.")
    ] = 0,
    log: Annotated[
        Path | None,
        typer.Option(help="Append the ids of every streamed reply to this file.", dir_okay=False),
    ] = None,
) -> None:
    """Serve SGLang's native /generate wire without a model.

    Token ids in; token ids with log-probs out, streamed at a chosen pace, with aborts, pauses,
    weight versions and the real server's strictness and error shapes. What is said comes from
    --script or --replies.

    A script is a Python function of one argument with the fields input_ids, images (their bytes),
    params, rid, conversation and turn (0 for the first reply of a conversation). It returns or
    yields token ids, or pairs (id, logprob):

    \b
        def reply(request):
            return [17, 18, 2] if request.turn == 0 else [19, 2]

    A reply ends at one of the request's stop_token_ids, at an --eos-id, at max_new_tokens, or
    where the script ends. A conversation is named by the body's session_id, else routing_key, else
    the rid up to its first dot.

    With --cache-tokens, a prefill stops all other streams, requests wait for room in the cache, and
    a batch without room sends its newest request back.

    \b
    Examples:
        bench scripted-sampler --replies replies.json --port 30000
        bench scripted-sampler --script my_script.py:reply --tokens-per-second 50
        bench scripted-sampler --script cycle:260:20 --tokens-per-second 50
    """
    from bench.history.sampler_log import SamplerLog
    from bench.scripted import Faults, Gpu, ScriptedSampler, ScriptError, StartError, Timing
    from bench.scripted.faults import parse_break, parse_numbers

    try:
        spoken = _script(script, replies, seed)
        timing = Timing(
            first_token_delay=first_token_delay,
            tokens_per_second=tokens_per_second,
            tokens_per_chunk=tokens_per_chunk,
            jitter=jitter,
            seed=seed,
        )
        faults = Faults(
            breaks=dict(map(parse_break, break_stream or ())),
            refuse=frozenset().union(*map(parse_numbers, refuse or ())),
            stale_weights=stale_weights,
            fail_updates=fail_updates,
        )
        if cache_tokens is None and not math.isinf(min(prefill_rate, decode_rate)):
            raise UsageError("--prefill-rate and --decode-rate go with --cache-tokens")
        gpu = None
        if cache_tokens is not None:
            gpu = Gpu(cache_tokens=cache_tokens, prefill_rate=prefill_rate, decode_rate=decode_rate)
        written = SamplerLog(log) if log is not None else None
    except (ScriptError, ValueError) as error:
        raise UsageError(str(error)) from error
    except OSError as error:
        raise UsageError(f"--log {log} cannot be written: {error.strerror}") from error
    sampler = ScriptedSampler(
        script=spoken,
        timing=timing,
        incremental=incremental,
        faults=faults,
        eos=eos_id or (),
        vocab_size=vocab_size,
        image_token=image_token,
        context_length=context_length,
        weight_version=weight_version,
        host=host,
        port=port,
        record=0,
        gpu=gpu,
        log=written,
    )
    try:
        loop.run(_serve(sampler))
    except StartError as error:
        raise BenchError(str(error)) from error


async def _serve(sampler: ScriptedSampler) -> None:
    stop = stop_event()
    async with sampler:
        typer.echo(f"scripted sampler on {sampler.url}")
        await stop.wait()


def _script(script: str | None, replies: Path | None, seed: int) -> Script:
    from bench.scripted.script import load_replies, parse_script

    if script is not None and replies is None:
        return parse_script(script, seed=seed)
    if replies is not None and script is None:
        return load_replies(str(replies))
    raise UsageError("give exactly one of --script and --replies")
