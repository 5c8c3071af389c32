"""The config: its contract with the command line, its refusals, what it builds."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields
from typing import get_args, get_type_hints

import pytest

import leap_rl.meta
from leap_rl.meta import FOMAML, Finetune, Leap, Reptile
from leap_rl.meta.config import MetaConfig
from leap_rl.meta.methods import METHODS, SPECIAL


def test_fields_and_defaults():
    config = MetaConfig()
    assert {field.name: getattr(config, field.name) for field in fields(config)} == {
        "method": "leap",
        "p": 2,
        "metric": "auto",
        "task_unit": "path",
        "loss_in_path": True,
        "loss_scale": 1.0,
        "stabilizer": True,
        "loss_difference": "next_batch",
        "meta_steps": 100,
        "batch_size": 16,
        "optimizer": "auto",
        "meta_lr": None,
        "close_after_s": None,
        "end_batches": 1,
        "updates_per_round": None,
        "init": "random",
    }


def test_build_hands_every_field_on():
    config = MetaConfig(
        p=1, loss_in_path=False, loss_scale=0.5, stabilizer=False, metric="euclidean"
    ).resolved(plain_descent=False)
    assert config.build() == Leap(p=1, loss_in_path=False, stabilizer=False, loss_scale=0.5)
    default = Leap(metric="optimizer", task_unit=True)
    assert MetaConfig().resolved(plain_descent=False).build() == default
    assert MetaConfig().resolved(plain_descent=True).build() == Leap()
    assert MetaConfig(method="fomaml", end_batches=3).build() == FOMAML(end_batches=3)


@pytest.mark.parametrize(
    ("name", "method"), [("reptile", Reptile()), ("fomaml", FOMAML()), ("finetune", Finetune())]
)
def test_a_method_is_one_word(name, method):
    assert MetaConfig(method=name).build() == method
    assert method.name == name


def test_the_outer_step_is_as_configured():
    for method in ("leap", "reptile", "fomaml", "finetune"):
        for optimizer in ("sgd", "adam"):
            config = MetaConfig(method=method, optimizer=optimizer, meta_lr=0.25)
            assert config.resolved(plain_descent=False).outer == (optimizer, 0.25)


@pytest.mark.parametrize(
    ("fields", "outer"),
    [
        ({}, ("sgd", 0.5)),  # the whole way to the mean of the agents is 1/p
        ({"p": 1}, ("sgd", 1.0)),
        ({"method": "reptile"}, ("sgd", 1.0)),
        ({"method": "finetune"}, ("sgd", 1.0)),
        ({"method": "fomaml"}, ("adam", 1e-3)),
        ({"metric": "euclidean"}, ("adam", 1e-3)),
        ({"task_unit": "none"}, ("adam", 1e-3)),
        ({"optimizer": "adam"}, ("adam", 1e-3)),
    ],
)
def test_the_outer_step_of_each_method_where_nothing_is_said(fields, outer):
    assert MetaConfig(**fields).resolved(plain_descent=False).outer == outer


def test_auto_is_the_metric_of_the_tasks_optimizer():
    agents, descent = (MetaConfig().resolved(plain_descent=plain) for plain in (False, True))
    assert (agents.metric, agents.task_unit) == ("optimizer", "path")
    assert (descent.metric, descent.task_unit) == ("euclidean", "none")
    assert agents.resolved(plain_descent=True) == agents, "what is resolved stays"


@pytest.mark.parametrize("method", ["reptile", "fomaml", "maml", "finetune"])
@pytest.mark.parametrize(
    "of_leap",
    [
        {"p": 1},
        {"loss_in_path": False},
        {"loss_scale": 2.0},
        {"stabilizer": False},
        {"loss_difference": "same_batch"},
        {"metric": "euclidean"},
        {"task_unit": "none"},
    ],
)
def test_another_method_leaves_out_what_is_leaps(method, of_leap):
    assert MetaConfig(method=method, **of_leap) == MetaConfig(method=method)
    assert MetaConfig(**of_leap) != MetaConfig()


@pytest.mark.parametrize("method", ["leap", "reptile", "maml", "finetune"])
def test_batches_at_the_end_are_fomamls_alone(method):
    assert MetaConfig(method=method, end_batches=3) == MetaConfig(method=method)
    assert MetaConfig(method="fomaml", end_batches=3).end_batches == 3


@pytest.mark.parametrize("method", ["leap", "reptile", "fomaml", "maml"])
def test_rounds_are_finetunings_alone(method):
    assert MetaConfig(method=method, updates_per_round=3) == MetaConfig(method=method)
    assert MetaConfig(method="finetune", updates_per_round=3).updates_per_round == 3


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"method": "mamml"}, r"meta\.method = 'mamml': must be one of \['leap', "),
        ({"method": "finetune", "updates_per_round": 0}, r"meta\.updates_per_round = 0: must be"),
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


def test_reading_the_config_imports_no_torch():
    code = (
        "import sys; from leap_rl.meta.config import MetaConfig; MetaConfig(); "
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_exported_name_is_there():
    for name in leap_rl.meta.__all__:
        assert getattr(leap_rl.meta, name).__name__ == name
    with pytest.raises(AttributeError, match="nothing"):
        _ = leap_rl.meta.nothing


def test_each_method_that_can_be_asked_for_has_an_entry() -> None:
    assert set(METHODS) == set(get_args(get_type_hints(MetaConfig)["method"]))
    assert {field.name for field in fields(MetaConfig)} >= SPECIAL
    for name, entry in METHODS.items():
        config = MetaConfig(method=name).resolved(plain_descent=True)  # type: ignore[arg-type]
        method = entry.make(config)
        assert (method.name, method.keeps_tasks) == (name, entry.keeps_tasks)
