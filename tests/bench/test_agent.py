from __future__ import annotations

import time
from typing import Any

import pytest

from leap_rl.bench.agent import BenchAgent, Stopwatch, make_limit
from leap_rl.bench.config import ThroughputConfig
from leap_rl.envs.atari.settings import AtariConfig
from leap_rl.learners.config import AgentConfig
from leap_rl.meta.leap import Leap

ASLEEP_S = 0.05


def test_waiting_for_environment_processes_is_emulation() -> None:
    config = ThroughputConfig(game="pong", envs=2, env_processes=2)
    agent = BenchAgent(config.task, config.agent, method=Leap(), env_processes=2)
    try:
        agent.run(updates=2)
        assert len(agent.env_processes) == 2
        assert agent.cpu_s() > time.process_time()
        ask = agent._envs._ask

        def slowly(*arguments: Any) -> Any:
            time.sleep(ASLEEP_S)
            return ask(*arguments)

        agent._envs._ask = slowly
        split = agent.split(0.5)
        assert agent._envs._ask is slowly
    finally:
        agent.task.close()
    asleep_us = 1e6 * ASLEEP_S / config.envs
    assert split["emulation"] > asleep_us
    assert split["preprocessing"] == 0.0
    assert sum(split.values()) - split["emulation"] < asleep_us
    # The sleep does not count twice: `waiting` would fall to its negative. It falls a little below
    # zero by itself, as CPU time is that of all threads of this process, those of Ray included.
    assert all(taken_us > -0.5 * asleep_us for taken_us in split.values()), split


def test_a_game_of_atari_has_its_preset_however_it_is_spelled() -> None:
    for game in ("UpNDown", "ALE/UpNDown-v5", "up_n_down@difficulty=1"):
        config = ThroughputConfig(game=game, atari=AtariConfig(preset="noframeskip"))
        assert config.task.kind == "atari"
        assert config.task.resolved_games[0].startswith("up_n_down")
        assert config.atari_resolved == AtariConfig(preset="noframeskip").resolved()
    assert ThroughputConfig(game="MinAtar/Breakout-v1").task.kind == "gymnasium"


@pytest.mark.parametrize("game", ["MinAtar/Breakout-v1", "CartPole-v1"])
def test_gymnasium_environments_have_a_limit_and_a_split(game: str) -> None:
    config = ThroughputConfig(game=game, envs=4)
    agent = BenchAgent(config.task, config.agent, method=Leap())
    split = agent.split(0.1)
    assert split["emulation"] > 0
    assert split["preprocessing"] == 0.0
    window = make_limit(config, 0).run(0.1)
    assert window.agent_steps % 4 == 0
    assert window.agent_steps_per_s > agent.run(0.1).agent_steps_per_s


def test_observations_that_are_standardised_have_a_split() -> None:
    config = ThroughputConfig(
        game="CartPole-v1", envs=4, agent=AgentConfig(normalize_observations=True)
    )
    agent = BenchAgent(config.task, config.agent, method=Leap())
    assert agent.split(0.1)["emulation"] > 0


def test_ignored_actions_are_no_agent_steps() -> None:
    game = "CartPole-v1@vectorization_mode=vector_entry_point"
    config = ThroughputConfig(game=game, envs=4)
    agent = BenchAgent(config.task, config.agent, method=Leap())
    assert 0.8 * 800 < agent.run(updates=40).agent_steps < 800


def test_environments_that_processes_do_not_divide_have_a_limit() -> None:
    config = ThroughputConfig(game="CartPole-v1", envs=32, env_processes=3)
    shares = [make_limit(config, index) for index in range(3)]
    assert sum(share.run(0.01).agent_steps > 0 for share in shares) == 3


def test_the_limits_emulators_are_shared_out_as_the_agents_are() -> None:
    config = ThroughputConfig(
        game="pong", envs=5, env_processes=2, atari=AtariConfig(preset="machado", frameskip=3)
    )
    shares = [make_limit(config, index) for index in range(2)]
    assert [len(share._emulators) for share in shares] == [2, 3]
    assert all(share._frames == 3 for share in shares)


class Work:
    """`outer` takes 10 ns of its own around `inner`'s 3."""

    now_ns = 0

    def clock(self) -> int:
        return self.now_ns

    def outer(self) -> str:
        self.now_ns += 4
        self.inner()
        self.inner()
        self.now_ns += 6
        return "done"

    def inner(self) -> None:
        self.now_ns += 3

    def fails(self) -> None:
        self.inner()
        self.now_ns += 2
        raise OSError


def test_nested_times_count_once() -> None:
    work = Work()
    watch = Stopwatch(work.clock)
    watch.wrap(work, "outer", "outside")
    watch.wrap(work, "inner", "inside")
    assert work.outer() == "done"
    work.inner()
    assert watch.totals_ns == {"outside": 10, "inside": 9}
    assert sum(watch.totals_ns.values()) == work.now_ns


def test_a_call_that_fails_is_timed_too() -> None:
    work = Work()
    watch = Stopwatch(work.clock)
    watch.wrap(work, "inner", "inside")
    watch.wrap(work, "fails", "failing")
    with pytest.raises(OSError):  # noqa: PT011
        work.fails()
    work.outer()
    assert watch.totals_ns == {"failing": 2, "inside": 9}


def test_two_stopwatches_can_time_one_method() -> None:
    work = Work()
    inner, outer = Stopwatch(work.clock), Stopwatch(work.clock)
    inner.wrap(work, "inner", "inside")
    outer.wrap(work, "inner", "inside")
    work.inner()
    assert inner.totals_ns == outer.totals_ns == {"inside": 3}
    outer.unwrap()
    work.inner()
    assert (inner.totals_ns["inside"], outer.totals_ns["inside"]) == (6, 3)
    inner.unwrap()
    assert vars(work).keys() == {"now_ns"}
