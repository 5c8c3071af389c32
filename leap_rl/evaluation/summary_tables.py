"""A summary as the tables of a report."""

from __future__ import annotations

import math

import numpy as np

from leap_rl.evaluation.page import Table
from leap_rl.evaluation.statistics import IntervalEstimate, runs_by_agents_interval, shown
from leap_rl.evaluation.summary import Comparison, Measure, Summary, complete_pairs


def summary_tables(summary: Summary) -> list[Table]:
    """Return the tables, those with the differences first."""
    tables = [
        Table(
            title=f"{comparison.initialization} against {comparison.reference}, game by game",
            rows=[_difference(comparison, game) for game in comparison.games],
            says="Differences of pairs, with 95 % intervals over seeds, and over runs where there "
            "are several. The area is the reward per 1,000 agent steps over the whole budget, "
            "whether its episodes ended or not; the final return is the mean of the episodes that "
            "ended in the last tenth. A drawdown is by how much an agent lies below the best that "
            "it had been, as a share of what it had gained: less is steadier.",
        )
        for comparison in summary.comparisons
        if comparison.games
    ]
    rows = [_scores(summary, *key) for key, agents in summary.agents.items() if agents]
    if rows:
        says = (
            "Means over agents, with 95 % intervals: the area in raw reward per 1,000 agent steps, "
            "the final return raw."
        )
        tables.append(Table(title="Every initialization in every game", rows=rows, says=says))
    if summary.aggregates:
        measures = {"area": "area under the curve", "final": "final return"}
        yardsticks = {
            "baseline": f"{summary.reference}'s agents",
            "human": "random play and a human",
        }
        rows = [
            {
                "initialization": name,
                "measure": measures[measure],
                "normalised by": yardsticks[yardstick],
                "interquartile mean": shown(found.interquartile_mean, ".2f"),
                "games": ", ".join(found.games),
            }
            for (name, measure, yardstick), found in summary.aggregates.items()
        ]
        says = (
            "Interquartile means with stratified bootstrap intervals (Agarwal et al. 2021), over "
            "runs first and then over seeds."
        )
        tables.append(Table(title="Over all games", rows=rows, says=says))
    return tables


def _difference(comparison: Comparison, game: str) -> dict[str, str]:
    found = comparison.games[game]
    digits = _digits(found.area)
    share = "–" if found.gain is None else shown(found.gain, ",.0f", scale=100) + " %"
    return {
        "game": game,
        "seeds": str(comparison.pairs[game]),
        "area": _or_dash(found.area, digits),
        "area, as a share": share,
        "final return": _or_dash(found.final, _digits(found.final)),
        "drawdown": _or_dash(found.drawdown, 2),
        "probability of improvement": f"{found.improvement.value:.2f}",
    }


def _scores(summary: Summary, name: str, game: str) -> dict[str, str]:
    agents, human = summary.agents[name, game], summary.settings[game].human
    area, final = _mean(summary, name, game, "area"), _mean(summary, name, game, "final")
    human_final = None if human is None or final is None else human(np.array(final.value))
    return {
        "game": game,
        "initialization": name,
        "agents": str(len(agents)),
        "area": _or_dash(area, _digits(area)),
        "final return": _or_dash(final, _digits(final)),
        "human-normalised": "–" if human_final is None else f"{human_final:.1%}",
        "agent steps to the baseline's level": _level_reached(
            [agent.agent_steps_to_level for agent in agents]
        ),
    }


def _mean(summary: Summary, name: str, game: str, of: Measure) -> IntervalEstimate | None:
    """Return a measure's mean; without complete pairs, over all agents, without an interval."""
    (values,) = complete_pairs(summary.values(name, game, of))
    if values.size:
        return runs_by_agents_interval([values])
    every = [getattr(agent, of) for agent in summary.agents[name, game]]
    known = [value for value in every if math.isfinite(value)]
    return IntervalEstimate(float(np.mean(known)), -math.inf, math.inf) if known else None


def _level_reached(agent_steps: list[float]) -> str:
    """Return the median; of an even number the larger middle one, as infinities have no mean."""
    median = sorted(agent_steps)[len(agent_steps) // 2]
    if math.isnan(median):
        return "–"
    if math.isinf(median):
        reached = sum(map(math.isfinite, agent_steps))
        return f"not reached by most ({reached} of {len(agent_steps)})"
    return f"{median:,.0f}"


def _or_dash(found: IntervalEstimate | None, digits: int) -> str:
    return "–" if found is None else shown(found, f",.{digits}f")


def _digits(found: IntervalEstimate | None) -> int:
    """Return how many decimals tell values apart: two below 10, none from 1,000 on."""
    size = 0.0 if found is None else abs(found.value)
    return 2 if size < 10 else 1 if size < 1000 else 0
