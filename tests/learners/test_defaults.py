from __future__ import annotations

import math
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import docstring_parser
import pytest

from leap_rl.cli import main
from leap_rl.core.choices import Domain
from leap_rl.core.parsing import names, parse_options
from leap_rl.core.parsing import spelled as spell
from leap_rl.learners.config import AgentConfig
from leap_rl.learners.defaults import DEFAULTS, PAPER, Settings, resolved, settings_of
from leap_rl.learners.registry import make_learner
from leap_rl.meta.config import MetaConfig
from leap_rl.runs.config import LearnConfig, TrainConfig
from leap_rl.runs.creation import resolve
from leap_rl.runs.kinds import make_tasks
from leap_rl.studies.config import StudyConfig, configure
from leap_rl.tasks.config import TaskConfig
from leap_rl.tasks.options import SIZES, Sizes
from tests.envs.own_games import WALK

GAMES: list[tuple[Domain, dict[str, Any]]] = [
    ("atari", {"kind": "atari", "games": ["breakout"]}),
    ("atari", {"kind": "catch", "games": "all"}),
    ("images", {"kind": "gymnasium", "games": ["MinAtar/Breakout-v1"]}),
    ("images", {"kind": "gymnasium", "games": [f"{WALK}@sees=pixels"]}),
    ("vectors", {"kind": "gymnasium", "games": ["CartPole-v1", "leap_rl/CartPole-v1@length=1.0"]}),
    ("continuous", {"kind": "gymnasium", "games": ["Pendulum-v1"]}),
]
NAMES = [one.name for one in fields(Settings)]


def agent_of(task: dict[str, Any], **agent: Any) -> AgentConfig:
    config = TaskConfig(num_envs=4, agent_steps=400, **task)
    return make_learner(task=config, agent=AgentConfig(**agent)).resolved_agent()


@pytest.mark.parametrize(("domain", "task"), GAMES)
def test_a2c_takes_what_learns_games_of_the_kind(domain: Domain, task: dict[str, Any]) -> None:
    assert settings_of(agent_of(task)) == DEFAULTS[domain]


@pytest.mark.parametrize(("domain", "task"), GAMES)
def test_a_run_and_a_study_without_sizes_take_those_of_the_kind(
    domain: Domain, task: dict[str, Any]
) -> None:
    options = {f"task.{name}": value for name, value in task.items()}
    config = resolve(parse_options(LearnConfig, options, trusts_imports=True))
    assert (config.task.num_envs, config.task.agent_steps) == SIZES[domain]
    if domain != "atari":  # of which a study takes configs/atari.yaml
        words = [f"--games={spell(task['games'])}", "--also_seen=true"]
        study = configure(words, trusts_imports=True)
        assert (study.task.num_envs, study.task.agent_steps) == SIZES[domain]


def test_a_size_that_is_given_stays_and_the_other_fits_it() -> None:
    poles: dict[str, Any] = {"kind": "gymnasium", "games": ["CartPole-v1"]}
    meta = MetaConfig(method="pretraining", batch_size=1, updates_per_round=7)
    for sizes, given in [
        ((7, 99_995), {"num_envs": 7}),  # in whole updates of 35 agent steps
        ((16, 800), {"agent_steps": 800}),
        ((4, 400), {"num_envs": 4, "agent_steps": 400}),
    ]:
        task = TaskConfig(**poles, **given)
        found = resolve(LearnConfig(task=task)).task
        assert (found.num_envs, found.agent_steps) == sizes
        rounds = resolve(TrainConfig(task=task, meta=meta)).task
        assert rounds.agent_steps == 7 * 5 * sizes[0]
    with pytest.raises(ValueError, match=r"^task\.num_envs = auto, task\.agent_steps = auto: "):
        StudyConfig(games=["CartPole-v1"], also_seen=True, task=TaskConfig(**poles))


def test_a_plan_is_of_the_sizes_that_a_run_takes(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--task.kind", "gymnasium", "--task.games", "CartPole-v1", "--meta.batch_size", "1"]
    assert main(["plan", *words, "--agent_steps_per_s", "1000"]) == 0
    assert "1 tasks, 100,000 agent steps each" in capsys.readouterr().out


def test_what_is_given_stays() -> None:
    given = {"lr": 0.5, "value_gain": None, "max_grad_norm": math.inf, "initial_weights": "torch"}
    agent = agent_of({"kind": "gymnasium", "games": ["CartPole-v1"]}, **given)
    assert {name: getattr(agent, name) for name in given} == given
    assert agent.gamma == DEFAULTS["vectors"].gamma


def test_rllibs_ppo_takes_the_same_for_every_game() -> None:
    agent = agent_of({"kind": "gymnasium", "games": ["CartPole-v1"]}, algorithm="rllib:PPO")
    assert settings_of(resolved(agent, PAPER)) == PAPER
    assert agent.lr == PAPER.lr
    assert agent.rmsprop_eps == "auto"  # which it leaves out
    assert agent.reward_clip == math.inf


def test_what_descends_bowls_takes_a_rate_and_no_more() -> None:
    agent = agent_of({"kind": "quadratic", "games": "all"})
    assert (agent.lr, agent.gamma) == (PAPER.lr, "auto")


@pytest.mark.parametrize("name", names())
def test_a_config_in_the_repository_names_what_is_not_the_papers(name: str) -> None:
    """So that a change of the table changes no bit of it."""
    config = TrainConfig.from_yaml(name)
    if config.task.kind == "omniglot":  # learned by what has none of these options
        return
    agent = make_tasks(config).resolved_agent()
    for one in NAMES:
        given = getattr(config.agent, one)
        if getattr(agent, one) != "auto":  # which another learner leaves out
            assert getattr(agent, one) == (getattr(PAPER, one) if given == "auto" else given), one


@pytest.mark.parametrize("name", NAMES)
def test_help_says_what_auto_is(name: str) -> None:
    texts = {
        one.arg_name: " ".join((one.description or "").split())
        for one in docstring_parser.parse_from_object(AgentConfig).params
    }
    said = texts[name].partition("auto: ")[2]
    places = {"atari": "Atari", "continuous": "continuous actions"}
    for domain, settings in DEFAULTS.items():
        value = spelled(getattr(settings, name))
        named = f"{value} for {places.get(domain, domain)}"
        assert named in said or f"{value} for other games" in said, domain


@pytest.mark.parametrize("name", NAMES)
def test_the_page_of_environments_has_the_table(name: str) -> None:
    page = (Path(__file__).parents[2] / "docs" / "environments.md").read_text()
    values = " | ".join(spelled(getattr(settings, name)) for settings in DEFAULTS.values())
    assert f"| `agent.{name}` | {values} |" in page


@pytest.mark.parametrize("name", Sizes._fields)
def test_the_page_of_environments_has_the_sizes(name: str) -> None:
    page = (Path(__file__).parents[2] / "docs" / "environments.md").read_text()
    values = " | ".join(f"{getattr(sizes, name):,}" for sizes in SIZES.values())
    assert f"| `task.{name}` | {values} |" in page


def spelled(value: object) -> str:
    if value == math.inf:
        return "infinity"
    return f"{value:g}" if isinstance(value, float) else str(value)


def test_settings_are_options_of_the_same_default() -> None:
    assert {name: getattr(AgentConfig(), name) for name in NAMES} == dict.fromkeys(NAMES, "auto")
    assert asdict(resolved(AgentConfig(), PAPER)).items() >= asdict(PAPER).items()
