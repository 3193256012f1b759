"""Corrections: what a mode weighs, what it leaves out, and the bounds that make no sense."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from learner.config.objective import Correction, Loss, Reject
from learner.maths import correction

ONE_ROW = torch.zeros(3, dtype=torch.int64)
EXTREME = torch.tensor([-500.0, 0.0, 500.0])


def logs(*ratios: float) -> torch.Tensor:
    return torch.tensor(ratios, dtype=torch.float64).log()


def weigh(mode: Any, old: torch.Tensor, **bounds: Any) -> list[float]:
    behaviour = torch.zeros_like(old)
    found, _ = correction.weights(mode, old, behaviour, ONE_ROW[: len(old)], Correction(**bounds))
    return found.tolist()


def test_each_mode_has_its_weight() -> None:
    old = logs(0.5, 3.0, 1.2)
    assert weigh("token_truncate", old) == pytest.approx([0.5, 2.0, 1.2])
    assert weigh("seq_truncate", old, upper=1.5) == pytest.approx([1.5] * 3)
    assert weigh("seq_truncate", old, upper=4.0) == pytest.approx([1.8] * 3)
    assert weigh("geo_mask", old) == [1.0, 1.0, 1.0]
    assert weigh("decoupled", old, decoupled_cap=2.5) == pytest.approx([0.5, 2.5, 1.2])
    masked = weigh("decoupled", old, decoupled_cap=2.5, decoupled_cap_mode="mask")
    assert masked == pytest.approx([0.5, 0.0, 1.2])


def test_a_weight_has_no_gradient() -> None:
    old = logs(0.5, 3.0, 1.2).requires_grad_()
    for mode in correction.WEIGHTS:
        found, _ = correction.weights(mode, old, torch.zeros(3), ONE_ROW, Correction())
        assert not found.requires_grad


def test_no_ratio_is_so_far_off_that_a_weight_is_no_number() -> None:
    for mode in correction.WEIGHTS:
        assert all(math.isfinite(w) for w in weigh(mode, EXTREME))
        assert not correction.judge(EXTREME, mode, Correction(veto=1e-4)).kept.any()


def test_mask_modes_leave_out_what_is_beyond_their_bounds() -> None:
    log_ratio = logs(0.4, 1.0, 2.1)
    tokens = correction.judge(log_ratio, "token_mask", Correction())
    assert tokens.kept.tolist() == [False, True, False]
    lower = correction.judge(log_ratio, "token_mask", Correction(lower=0.3))
    assert lower.kept.tolist() == [True, True, False]
    # Its geometric mean is .94: single tokens may be far off.
    assert correction.judge(log_ratio, "geo_mask", Correction(upper=1.1)).kept.all()
    far = correction.judge(log_ratio, "geo_mask", Correction(upper=1.01))
    assert far.rejected
    assert not far.kept.any()
    for mode in ("bypass", "token_truncate", "seq_truncate", "decoupled"):
        assert correction.judge(log_ratio, mode, Correction()).kept.all()


def test_one_impossible_token_vetoes_its_sequence_where_the_recipe_asks() -> None:
    log_ratio = logs(1.0, 0.9e-4, 1.0)
    assert correction.judge(log_ratio, "token_truncate", Correction(veto=1e-4)).vetoed
    assert not correction.judge(log_ratio, "token_truncate", Correction(veto=0.5e-4)).vetoed
    assert not correction.judge(log_ratio, "token_truncate", Correction()).vetoed
    assert not correction.judge(-log_ratio, "token_truncate", Correction(veto=1e-4)).vetoed
    least = Correction(veto=1e-30)
    assert correction.judge(logs(1.0, 1e-31), "token_truncate", least).vetoed
    assert not correction.judge(logs(1.0, 1e-29), "token_truncate", least).vetoed


@pytest.mark.parametrize(
    ("rule", "ratios", "stays"),
    [
        # k1 bounds rho itself: the product, the geometric mean, or each token's.
        ({"statistic": "k1", "over": "sum", "upper": 4, "lower": 0.9}, (2.0, 1.9), True),
        ({"statistic": "k1", "over": "sum", "upper": 4, "lower": 0.9}, (2.0, 2.1), False),
        ({"statistic": "k1", "over": "sum", "upper": 4, "lower": 0.9}, (0.5, 1.0), False),
        ({"statistic": "k1", "over": "mean", "upper": 2}, (4.0, 0.9), True),
        ({"statistic": "k1", "over": "mean", "upper": 2}, (0.2, 1.0), False),
        ({"statistic": "k1", "over": "max", "upper": 2}, (1.9, 0.6), True),
        ({"statistic": "k1", "over": "max", "upper": 2}, (1.0, 0.4), False),
        ({"statistic": "k1", "over": "max", "upper": 2}, (1.0, 2.1), False),
        ({"statistic": "k2", "over": "mean", "upper": 0.1}, (math.e, 1.0), False),
        ({"statistic": "k2", "over": "mean", "upper": 0.26}, (math.e, 1.0), True),
        ({"statistic": "k3", "over": "sum", "upper": 0.7}, (math.e, 1.0), False),
        ({"statistic": "k3", "over": "sum", "upper": 0.72}, (math.e, 1.0), True),
        ({"statistic": "k3", "over": "max", "upper": 0.3}, (1 / math.e, 1.0), False),
    ],
)
def test_divergence_rejects(rule: dict[str, Any], ratios: tuple[float, ...], stays: bool) -> None:
    log_ratio = logs(*ratios)
    assert correction.passes(log_ratio, Reject(**rule)) == stays
    verdict = correction.judge(log_ratio, "bypass", Correction(reject=(Reject(**rule),)))
    assert verdict.rejected != stays


def test_a_sequence_has_to_pass_every_rule() -> None:
    mean = Reject(statistic="k3", over="mean", upper=1.0)
    most = Reject(statistic="k1", over="max", upper=1.5)
    rules = Correction(reject=(mean, most))
    assert correction.judge(logs(1.4, 1.0), "bypass", rules).kept.all()
    assert correction.judge(logs(1.6, 1.0), "bypass", rules).rejected


@pytest.mark.parametrize(
    ("table", "given", "mend"),
    [
        (Loss, {"kind": "gspo", "clip_low": 0.2}, "leave both out"),
        (Loss, {"kind": "sapo", "clip_high": 0.2}, "tau_positive"),
        (Loss, {"kind": "reinforce", "clip_low": 0.2}, "leave clip_low out"),
        (Loss, {"kind": "cispo", "dual_clip": 3.0}, "leave dual_clip out"),
        (Loss, {"dual_clip": 0.5}, "above 1, or 0"),
        (Loss, {"clip_low": 1.5}, "lower bound"),
        (Loss, {"kind": "ppo2"}, "'gmpo'"),
        (Correction, {"upper": 0.5}, "greater than or equal to 1"),
        (Reject, {"statistic": "k3", "over": "sum", "upper": 1, "lower": 0.1}, "for 'k1'"),
        (Reject, {"statistic": "k1", "over": "sum", "upper": 0.5}, "lower <= 1 <= upper"),
        (Reject, {"statistic": "k1", "over": "sum", "upper": 2, "lower": 1.5}, "lower <= 1"),
    ],
)
def test_bounds_that_make_no_sense_are_refused(table: Any, given: Any, mend: str) -> None:
    with pytest.raises(ValidationError, match=mend):
        table(**given)


def test_a_loss_has_the_bounds_of_its_paper() -> None:
    assert (Loss().clip_low, Loss().clip_high, Loss().dual_clip) == (0.2, 0.28, 3.0)
    gspo = Loss(kind="gspo")
    assert (gspo.clip_low, gspo.clip_high, gspo.dual_clip) == (3e-4, 4e-4, 0.0)
    assert gspo.aggregation == "seq-mean-token-mean"
    assert Loss(kind="gspo", aggregation="token-mean").aggregation == "token-mean"
    assert (Loss(kind="gmpo").clip_low, Loss(kind="cispo").clip_low) == (0.4, 1.0)
    assert Loss.model_validate_json(gspo.model_dump_json()) == gspo
