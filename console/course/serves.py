"""Which run the engine at an address serves: one that answers is used only where it is this run's.

The engine tells what it was started with; what must agree is for `toolwright.model.fingerprint` to
say, by which the learner compares again when it joins. An engine that cannot tell yet (it starts,
it is slow) is left to the learner.
"""

from __future__ import annotations

import json
import os
import shlex

import grpc
import grpc.aio

from console.asked.setup import Setup
from console.errors import NothingStarted
from toolwright.model.fingerprint import Fingerprint, difference, fingerprint
from toolwright.policy.v1 import policy_pb2 as policy
from toolwright.policy.v1 import policy_pb2_grpc
from toolwright.rpc.channel import open_channel
from toolwright.rpc.options import TOKEN_VARIABLE

ANSWER_S = 5.0
ANOTHER_PORT = "name another port in run.engine (127.0.0.1:0 is any free one)"


async def check_engine(setup: Setup) -> None:
    """NothingStarted where what answers at run.engine serves another run, or is no engine."""
    address = setup.recipe.shared.run.engine
    try:
        async with open_channel(address, os.environ.get(TOKEN_VARIABLE, "")) as channel:
            stub = policy_pb2_grpc.PolicyServiceStub(channel)
            answer = await stub.GetPolicy(policy.GetPolicyRequest(), timeout=ANSWER_S)
    except grpc.aio.AioRpcError as error:
        if sentence := _refused(address, error):
            raise NothingStarted(sentence) from error
        return
    if not answer.HasField("fingerprint"):
        return
    if sentence := another(address, _fingerprint(answer.fingerprint), setup):
        raise NothingStarted(sentence)


def another(address: str, engine: Fingerprint, setup: Setup) -> str:
    """Why the engine is not this run's, with the fix; "" if it may be."""
    ours = fingerprint(setup.recipe, tokenizer="", shape="")
    if engine.folder and engine.folder != ours.folder:
        stop = shlex.join(("toolwright", "stop", engine.folder))
        return (
            f"run.engine = {address} is the engine of another run, {engine.folder}: "
            f"{ANOTHER_PORT}, or end that run (`{stop}`)"
        )
    if found := difference(engine, ours):
        return (
            f"the engine at run.engine = {address} was started otherwise than this run: {found}, "
            "or end that engine and let toolwright run start it"
        )
    return ""


def _refused(address: str, error: grpc.aio.AioRpcError) -> str:
    """The sentence for a refusal that a retry does not change."""
    if error.code() is grpc.StatusCode.UNIMPLEMENTED:
        return f"run.engine = {address}: what serves there is no engine: {ANOTHER_PORT}"
    if error.code() in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED):
        return (
            f"run.engine = {address}: an engine serves there and wants another bearer token: set "
            f"{TOKEN_VARIABLE} to that run's, or {ANOTHER_PORT}"
        )
    return ""


def _fingerprint(told: policy.Fingerprint) -> Fingerprint:
    try:
        terms = dict(json.loads(told.recipe or "{}"))
    except (ValueError, TypeError, RecursionError):
        terms = {}  # of another version: the learner says so
    return Fingerprint(
        terms=terms, tokenizer=told.tokenizer_hash, shape=told.shape, folder=told.folder
    )
