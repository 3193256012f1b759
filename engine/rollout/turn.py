"""One turn's action: decided and dispatched while the sampler still streams."""

from __future__ import annotations

from engine.images.places import forges
from engine.rollout.assignment import Assignment, Setting
from engine.text.cut import stop_cut
from engine.tools.calls import CallPlace, PendingCall, refused
from engine.tools.environment import Session
from engine.types import Call, CallOutcome, Decision, Generated, NoAction


class Turn:
    """One action: decides and dispatches inside the sampler's callback."""

    def __init__(
        self, setting: Setting, assignment: Assignment, session: Session, turn: int
    ) -> None:
        self._setting = setting
        self._assignment = assignment
        self._session = session
        self.turn = turn
        self.text = ""
        self.stop: str | None = None
        self.decision: Decision | None = None
        self.pending: list[PendingCall | CallOutcome] = []
        self.stop_read_ns = 0

    def on_action(self, generated: Generated) -> None:
        setting = self._setting
        self.stop_read_ns = generated.read_ns
        self.stop = generated.stop
        # The token that holds the stop's end may hold more: the ids keep it, the action does not.
        whole = setting.codec.decode(generated.token_ids)
        self.text, _, _ = stop_cut(whole, [self.stop] if self.stop else [])
        self.decision = setting.protocol.decide(
            self.text, self.stop, self._session.tools, setting.codec
        )
        mark = setting.codec.image_mark
        if mark and forges(whole, mark) and isinstance(self.decision, tuple):
            # No request could go on from here: the sampler would look for an image.
            self.decision = NoAction()
        if isinstance(self.decision, tuple) and self.turn < setting.limits.turns:
            self.pending = [self._dispatch(i, call) for i, call in enumerate(self.decision)]

    def _dispatch(self, index: int, request: Call) -> PendingCall | CallOutcome:
        if request.invalid_reason:  # its own parser could not read it
            return refused(request.invalid_reason)
        place = CallPlace(
            call_id=self.call_id(index),
            turn=self.turn,
            turns_left=self._setting.limits.turns - self.turn - 1,
        )
        return self._session.dispatch(request, place)

    def call_id(self, index: int) -> str:
        assignment = self._assignment
        return f"{assignment.trajectory_id}/{assignment.attempt}/{self.turn}/{index}"
