"""How often the intervals of agent steps saved hold the truth, on made-up agents.

The table of docs/results/interval_coverage.md. Agents are drawn whose truth is known: what
endlessly many runs of endlessly many agents each save against as many agents from random starts.
Each setting is one that broke a simpler rule. All goes through the functions that judge real
evaluations: episodes, curves, first and final returns, levels, jackknife.

    .venv/bin/python -m benchmarks.interval_coverage --evaluations 1000

Shown are the coverage of the 95 % interval, how far the mean estimate lies from the truth in agent
steps of a budget of 100,000, half the interval's mean width, and how often the reference was called
uncertain. R runs of A agents each, and 3 A agents from random starts.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from scipy import stats

from benchmarks.harness.tables import markdown
from leap_rl.evaluation.measures import means_of, measure
from leap_rl.evaluation.results import LearningCurve
from leap_rl.evaluation.savings import (
    Reference,
    agent_steps_saved,
    make_reference,
    sample,
)
from leap_rl.evaluation.statistics import Sampled, sampled_interval

BUDGET = 100_000
STEEPNESS = 12.0
TRUTH_RUNS, TRUTH_AGENTS, TRUTH_RANDOM = 400, 50, 20_000
"""What stands for endlessly many."""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """How agents learn; times are shares of the budget, returns in units of random's gain."""

    half: float = 0.5
    """When half of the rise is over."""
    between_runs: float = 0.0
    """The standard deviation of that time between runs."""
    between_agents: float = 0.08
    """The same between agents of a run."""
    never: float = 0.0
    """The share of agents that never learn."""
    height: float = 1.0
    """The rise."""
    height_deviation: float = 0.1
    falls: float = 0.0
    """The part of its height that an agent loses in a collapse after its peak."""
    start: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Setting:
    """An arm, agents from random starts, and their episodes."""

    name: str
    arm: Kind = Kind(half=0.3, between_runs=0.03)
    random: Kind = Kind()
    noise: float = 0.5
    """The standard deviation of an episode's return."""
    reference_noise: float | None = None
    """If given, the noise is such that this is the reference's, see `Reference.noise`."""
    length: float = 1 / 500
    """Of an episode, as a share of the budget."""
    unequal: bool = False
    """Draw lengths from an exponential distribution, and double them once an agent has learned."""
    scale: float = 1.0
    offset: float = 0.0
    """Added to returns."""
    other: Kind | None = None
    """Another arm that the first one is set against."""
    members: tuple[Setting, ...] = ()
    """Whose mean it is, instead; runs deviate alike in all of them."""


SETTINGS = (
    Setting(name="sigmoids, little variance between runs"),
    Setting(name="sigmoids, much variance", arm=Kind(half=0.3, between_runs=0.12)),
    Setting(
        name="some agents never learn",
        arm=Kind(half=0.3, between_runs=0.05, never=0.15),
        random=Kind(never=0.3),
    ),
    *(
        Setting(name=f"noise {noise} of random's gain", reference_noise=noise)
        for noise in (0.10, 0.16, 0.25)
    ),
    Setting(
        name="early peak, then collapse",
        arm=Kind(half=0.15, between_runs=0.05, height=1.1, falls=0.7),
        random=Kind(half=0.35, falls=0.3),
    ),
    Setting(name="a falling arm", arm=Kind(half=0.7, between_runs=0.1, start=0.8, height=-0.8)),
    Setting(name="few long episodes", length=1 / 150, noise=0.3),
    Setting(name="unequal lengths", unequal=True),
    Setting(name="negative returns", scale=150.0, offset=-200.0),
    Setting(name="an arm against itself", arm=Kind()),
    Setting(
        name="two arms against each other",
        arm=Kind(half=0.3, between_runs=0.06),
        other=Kind(half=0.36, between_runs=0.06),
    ),
)
MEMBERS = (SETTINGS[0], SETTINGS[1], SETTINGS[2], SETTINGS[10])
ALL = (*SETTINGS, Setting(name="mean over four members", members=MEMBERS))


def agents(
    rng: np.random.Generator,
    kind: Kind,
    setting: Setting,
    count: int,
    *,
    shift: float,
    noise: float,
) -> list[LearningCurve]:
    """Draw the agents of a run whose half is shifted, in deviations between runs."""
    return [_agent(rng, kind, setting, shift=shift, noise=noise) for _ in range(count)]


def _agent(
    rng: np.random.Generator, kind: Kind, setting: Setting, *, shift: float, noise: float
) -> LearningCurve:
    half = kind.half + kind.between_runs * shift + kind.between_agents * rng.standard_normal()
    height = kind.height * (1 + kind.height_deviation * rng.standard_normal())
    height *= rng.random() >= kind.never
    ends = _ends(rng, setting, half)
    times = ends / BUDGET
    rise = 1 / (1 + np.exp(-STEEPNESS * (times - half)))
    late = 1 / (1 + np.exp(-STEEPNESS * (times - half - 0.35)))
    values = kind.start + height * (rise - kind.falls * late)
    values = values + noise * rng.standard_normal(len(ends))
    returns = setting.offset + setting.scale * values
    return LearningCurve(
        initialization="",
        game="",
        seed=0,
        interval_ends=np.array([BUDGET]),
        rewards=np.array([returns.sum()]),
        agent_steps=ends,
        returns=returns,
    )


def _ends(rng: np.random.Generator, setting: Setting, half: float) -> Any:
    length = setting.length * BUDGET
    if not setting.unequal:
        first = rng.uniform(0, length)
        return np.arange(first, BUDGET, length).astype(np.int64) + 1
    # Twice as long once an agent has learned.
    lengths = rng.exponential(length, int(2 / setting.length))
    ends = np.cumsum(lengths)
    ends += np.maximum(0, ends - half * BUDGET)
    return ends[ends <= BUDGET].astype(np.int64)


def noise_of(setting: Setting, random_agents: int) -> float:
    """Return the standard deviation of an episode's return."""
    if setting.reference_noise is None:
        return setting.noise
    # Random's gain is about 1 - 2 / (1 + exp(STEEPNESS * 0.45)) of its height.
    episodes = 0.1 / setting.length
    return setting.reference_noise * float(np.sqrt(episodes * random_agents))


def truth_of(setting: Setting, kind: Kind, rng: np.random.Generator) -> float:
    """Return what endlessly many runs of endlessly many agents save in the mean."""
    quiet = replace(setting, length=1 / 400, unequal=False)
    draw = partial(agents, rng, setting=quiet, noise=0.0)
    random = make_reference(draw(setting.random, count=TRUTH_RANDOM, shift=0.0), BUDGET)
    # Runs at the middles of equally likely parts, whose mean is exact.
    shifts = stats.norm.ppf((np.arange(TRUTH_RUNS) + 0.5) / TRUTH_RUNS)
    runs = [
        measure(draw(kind, count=TRUTH_AGENTS, shift=shift), BUDGET, random.windows)
        for shift in shifts
    ]
    return agent_steps_saved(means_of(runs), random.means, BUDGET)


def evaluate(
    setting: Setting, rng: np.random.Generator, runs: int, count: int
) -> Iterator[tuple[Sampled, Sampled | None, Reference]]:
    """Draw an evaluation; yield each member's samples and its reference."""
    shifts = rng.standard_normal((2, runs))
    for member in setting.members or (setting,):
        noise = noise_of(member, 3 * count)
        draw = partial(agents, rng, setting=member, noise=noise)
        reference = make_reference(draw(member.random, count=3 * count, shift=0.0), BUDGET)
        saved = partial(agent_steps_saved, budget=BUDGET)
        sides: list[Sampled | None] = []
        for kind, own in zip((member.arm, member.other), shifts, strict=True):
            if kind is None:
                sides.append(None)
                continue
            measured = [
                measure(draw(kind, count=count, shift=shift), BUDGET, reference.windows)
                for shift in own
            ]
            sides.append(sample(saved, measured, reference))
        assert sides[0] is not None
        yield sides[0], sides[1], reference


def coverage(
    setting: Setting, truth: float, *, runs: int, agents: int, evaluations: int
) -> dict[str, str]:
    """Return a row of the table."""
    rng = np.random.default_rng([runs, agents, evaluations])
    held, estimates, widths, uncertain = 0, [], [], 0
    for _ in range(evaluations):
        drawn = list(evaluate(setting, rng, runs, agents))
        others = [other for _, other, _ in drawn if other is not None]
        found = sampled_interval([one for one, _, _ in drawn], others)
        held += found.low <= truth <= found.high
        estimates.append(found.value)
        widths.append((found.high - found.low) / 2)
        uncertain += any(reference.verdict != "sound" for _, _, reference in drawn)
    return {
        "setting": setting.name,
        "runs": str(runs),
        "agents": str(agents),
        "holds the truth": f"{held / evaluations:.1%}",
        "truth": f"{truth:,.0f}",
        "bias": f"{float(np.mean(estimates)) - truth:+,.0f}",
        "half-width": f"{float(np.mean(widths)):,.0f}",
        "not sound": f"{uncertain / evaluations:.0%}",
    }


def truth(setting: Setting) -> float:
    """Return the truth of a setting, its difference from the other arm, or the members' mean."""
    if setting.members:
        return float(np.mean([truth(member) for member in setting.members]))
    rng = np.random.default_rng(1)
    ours = 0.0 if setting.arm == setting.random else truth_of(setting, setting.arm, rng)
    return ours - truth_of(setting, setting.other, rng) if setting.other else ours


def in_short(rows: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    """Return a row a setting: its range of coverage, and bias and half-width in the middle."""
    short = []
    for name in dict.fromkeys(row["setting"] for row in rows):
        own = [row for row in rows if row["setting"] == name]
        held = [float(row["holds the truth"].rstrip("%")) for row in own]
        several = [float(r["holds the truth"].rstrip("%")) for r in own if int(r["runs"]) > 2]
        middle = next((r for r in own if (r["runs"], r["agents"]) == ("3", "5")), own[0])
        short.append(
            {
                "setting": name,
                "holds the truth, %": f"{min(held):.0f} to {max(held):.0f}",
                "from 3 runs on": f"{min(several):.0f} to {max(several):.0f}" if several else "–",
                "truth": middle["truth"],
                "bias": middle["bias"],
                "half-width": middle["half-width"],
                "not sound": middle["not sound"],
            }
        )
    return short


def options() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", nargs="+", type=int, default=[2, 3, 6])
    parser.add_argument("--agents", nargs="+", type=int, default=[3, 5, 8])
    parser.add_argument("--evaluations", type=int, default=1000)
    parser.add_argument("--settings", nargs="+", type=int, help="their numbers; all unless given")
    return parser


def main() -> None:
    """Run the command."""
    given = options().parse_args()
    rows = []
    for number in given.settings or range(len(ALL)):
        known = truth(ALL[number])
        for runs, count in product(given.runs, given.agents):
            row = coverage(
                ALL[number], known, runs=runs, agents=count, evaluations=given.evaluations
            )
            print(row, file=sys.stderr, flush=True)
            rows.append(row)
    print(markdown(rows))
    print(markdown(in_short(rows)), end="")


if __name__ == "__main__":
    main()
