"""The config: its refusals, what it builds."""

from __future__ import annotations

from typing import get_args, get_type_hints

import pytest

from leap_rl.meta import FOMAML, MAML, Leap, Pretraining, Reptile
from leap_rl.meta.config import OPTIONS_OF, MetaConfig


def test_build_hands_every_field_on():
    config = MetaConfig(
        p=1, loss_in_path=False, loss_scale=0.5, stabilizer=False, metric="euclidean"
    ).resolved(plain_descent=False)
    assert config.build() == Leap(p=1, loss_in_path=False, stabilizer=False, loss_scale=0.5)
    default = Leap(metric="optimizer", task_unit=True)
    assert MetaConfig().resolved(plain_descent=False).build() == default
    assert MetaConfig().resolved(plain_descent=True).build() == Leap()
    assert MetaConfig(method="fomaml", end_batches=3).build() == FOMAML(end_batches=3)


@pytest.mark.parametrize("method", [Reptile(), FOMAML(), MAML(), Pretraining()])
def test_a_method_is_one_word(method):
    config = MetaConfig(method=method.name)
    assert config.build() == method
    assert config.carries_agents == method.carries_agents == (method == Pretraining())
    assert config.differentiates_updates == (method == MAML())


@pytest.mark.parametrize(
    ("fields", "outer"),
    [
        ({}, ("sgd", 0.5)),  # the whole way to the mean of the agents is 1/p
        ({"p": 1}, ("sgd", 1.0)),
        ({"method": "reptile"}, ("sgd", 1.0)),
        ({"method": "pretraining"}, ("sgd", 1.0)),
        ({"method": "fomaml"}, ("adam", 1e-3)),
        ({"metric": "euclidean"}, ("adam", 1e-3)),
        ({"task_unit": "none"}, ("adam", 1e-3)),
        ({"optimizer": "adam"}, ("adam", 1e-3)),
        ({"optimizer": "sgd", "meta_lr": 0.25}, ("sgd", 0.25)),
    ],
)
def test_the_outer_step_is_as_configured_or_the_methods(fields, outer):
    assert MetaConfig(**fields).resolved(plain_descent=False).outer == outer


def test_auto_is_the_metric_of_the_tasks_optimizer():
    agents, descent = (MetaConfig().resolved(plain_descent=plain) for plain in (False, True))
    assert (agents.metric, agents.task_unit) == ("optimizer", "path")
    assert (descent.metric, descent.task_unit) == ("euclidean", "none")
    assert agents.resolved(plain_descent=True) == agents, "what is resolved stays"


SPECIAL = {
    "leap": [
        {"p": 1},
        {"loss_in_path": False},
        {"loss_scale": 2.0},
        {"stabilizer": False},
        {"loss_difference": "same_batch"},
        {"metric": "euclidean"},
        {"task_unit": "none"},
    ],
    "fomaml": [{"end_batches": 3}],
    "pretraining": [{"updates_per_round": 3}],
}


@pytest.mark.parametrize("method", get_args(get_type_hints(MetaConfig)["method"]))
def test_a_method_ignores_what_is_anothers(method):
    own = {name for option in SPECIAL.get(method, []) for name in option}
    assert own == set(OPTIONS_OF.get(method, ()))
    for owner, options in SPECIAL.items():
        for option in options:
            given = MetaConfig(method=method, **option)
            assert (given != MetaConfig(method=method)) == (owner == method)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"method": "mamml"}, r"meta\.method = 'mamml': must be one of \['leap', "),
        (
            {"method": "pretraining", "updates_per_round": 0},
            r"meta\.updates_per_round = 0: must be",
        ),
        ({"p": 3}, r"meta\.p = 3: must be one of \[1, 2\]"),
        ({"loss_difference": "none"}, r"meta\.loss_difference = 'none'"),
        ({"optimizer": "lion"}, r"meta\.optimizer = 'lion'"),
        ({"loss_scale": 0.0}, r"meta\.loss_scale = 0\.0: must be greater than 0"),
        ({"meta_lr": -1.0}, r"meta\.meta_lr = -1\.0: must be greater than 0"),
        ({"meta_lr": float("nan")}, r"meta\.meta_lr = nan: must be greater than 0"),
        ({"meta_lr": float("inf")}, r"meta\.meta_lr = inf: must be finite"),
        ({"metric": "riemann"}, r"meta\.metric = 'riemann'"),
        ({"task_unit": "mean"}, r"meta\.task_unit = 'mean'"),
        ({"end_batches": 0}, r"meta\.end_batches = 0: must be at least 1"),
        ({"meta_steps": 0}, r"meta\.meta_steps = 0: must be at least 1"),
        ({"batch_size": 0}, r"meta\.batch_size = 0: must be at least 1"),
        ({"init": ""}, r"meta\.init"),
    ],
)
def test_values_out_of_range_are_refused(bad, message):
    with pytest.raises(ValueError, match=message):
        MetaConfig(**bad)
