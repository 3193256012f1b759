"""Seeded runs: a crowd and one to four harms, all drawn from a number, judged by the validator.

`CHAOS_SEED=17 pytest tests/chaos/seeds` plays one seed. Without it `make test-all` plays all seeds,
and `make test` those of its slice (`seeds_of`).
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import grpc

from bench.history.events import FaultsOver
from tests.chaos.conftest import kill
from tests.chaos.crowd import RPC_S, Crowd
from tests.chaos.harm.inflict import Harmed
from tests.chaos.harm.plan import Plan, draw
from tests.chaos.judge import is_as_planned, records_of, validated
from tests.chaos.workload import Workload
from tests.support.redis import RedisServer, redis_server
from tests.support.tiers import SLICES
from toolwright.rollout.v1 import rollout_pb2, rollout_pb2_grpc
from toolwright.rpc import options

SEEDS = 100
FILES = 5
"""Files of tests/chaos/seeds, so that they run side by side."""
EACH_SLICE = 6
BOUND_S = 60.0
"""Longest time from the last fault to the end of the run, in seconds."""
SUITE = "held-out"


def seeds_of(file: int, *, part: int | None) -> list[int]:
    """Seeds that one of the `FILES` files plays. part: slice of the tests; None = all of them."""
    one = os.environ.get("CHAOS_SEED")
    if one:
        chosen = [int(one)]
    elif part is None:
        chosen = list(range(SEEDS))
    else:
        chosen = list(range(part, SEEDS, SLICES))[:EACH_SLICE]
    return chosen[file::FILES]


def play(seed: int, folder: Path) -> None:
    """One run to its end. AssertionError with the seed, the harms and the broken promise."""
    plan = draw(seed)
    with ExitStack() as stack:
        redis = stack.enter_context(redis_server()) if plan.redis else None
        crowd = stack.enter_context(_crowd(folder, plan, redis))
        try:
            _play(crowd, plan, redis)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{plan}\nin {folder}") from error


@contextmanager
def _crowd(folder: Path, plan: Plan, redis: RedisServer | None) -> Iterator[Crowd]:
    evaluation = {
        "every": 1,
        "suites": [{"name": SUITE, "source": "tests.chaos.workload:questions", "n": plan.rows}],
    }
    crowd = Crowd(
        folder,
        Workload(
            calls=(1, 3),
            tokens=(32, 44),
            call_s=(0.02, 0.3),
            stateful=plan.stateful,
            cache=redis.url if redis is not None else "",
        ),
        groups=plan.steps * plan.groups_per_step,
        size=plan.size,
        places=16,
        rate=120.0,
        steps=plan.steps,
        eta=plan.eta,
        samplers=plan.samplers,
        linked=True,
        lease_s=6.0,
        checkpoint_every=plan.checkpoint_every,
        changes={
            "sampler": {"timeout_s": 4.0, "pause": plan.pause},
            "engine": {"evaluation": evaluation if plan.rows else {}},
        },
        tool_options=("--workers", str(plan.workers)) if plan.workers > 1 else (),
    )
    crowd.run.patience = BOUND_S
    try:
        crowd.start()
        yield crowd
    finally:
        crowd.close()


def _play(crowd: Crowd, plan: Plan, redis: RedisServer | None) -> None:
    harmed = Harmed(crowd, redis)
    harmed.play(plan.harms)
    crowd.note(FaultsOver(at=time.monotonic(), bound=BOUND_S))
    deadline = time.monotonic() + BOUND_S
    while time.monotonic() < deadline and not (crowd.complete and _is_evaluated(crowd)):
        harmed.look()
        time.sleep(0.05)
    harmed.settle()
    assert crowd.engine is not None
    if crowd.complete:
        crowd.engine.send_signal(signal.SIGTERM)
        crowd.run.ended(crowd.engine)
    else:
        kill(crowd.engine)
    crowd.life_ended(killed=not crowd.complete)
    validated(crowd)
    assert crowd.complete, f"not complete {BOUND_S:g} s after the last harm\n{crowd.run.logs()}"
    for _, record in records_of(crowd).values():
        is_as_planned(crowd, record)


def _is_evaluated(crowd: Crowd) -> bool:
    """The engine has no evaluation left to run."""
    address = f"127.0.0.1:{crowd.engine_port}"
    with grpc.insecure_channel(address, options=options.CHANNEL) as channel:
        stub = rollout_pb2_grpc.RolloutServiceStub(channel)
        try:
            status = stub.GetStatus(rollout_pb2.GetStatusRequest(), timeout=RPC_S)
        except grpc.RpcError:
            return False
    return bool(status.final_evaluation_done)
