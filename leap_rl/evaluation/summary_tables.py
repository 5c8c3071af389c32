"""What a summary says as tables: a row for each game and initialization."""

from __future__ import annotations

import math

from leap_rl.evaluation.page import Table
from leap_rl.evaluation.statistics import Mean
from leap_rl.evaluation.summary import Comparison, GameComparison, GameScores, Summary


def summary_tables(summary: Summary) -> list[Table]:
    """Return the tables of a report, those with the differences first."""
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
    if summary.scores:
        says = (
            "Means over agents, with 95 % intervals: the area in raw reward per 1,000 agent steps, "
            "the final return raw."
        )
        rows = [_score(score) for score in summary.scores]
        tables.append(Table(title="Every initialization in every game", rows=rows, says=says))
    if summary.aggregates:
        tables.append(
            Table(
                title="Over all games",
                rows=[
                    {
                        "initialization": one.initialization,
                        "measure": {"area": "area under the curve", "final": "final return"}[
                            one.measure
                        ],
                        "normalised by": {
                            "baseline": f"{summary.reference}'s agents",
                            "human": "random play and a human",
                        }[one.yardstick],
                        "interquartile mean": interval(one.interquartile_mean, 2),
                        "games": ", ".join(one.games),
                    }
                    for one in summary.aggregates
                ],
                says="Interquartile means with stratified bootstrap intervals (Agarwal et al. "
                "2021), over runs first and then over seeds.",
            )
        )
    return tables


def interval(mean: Mean | tuple[float, float, float], digits: int) -> str:
    """Return a mean with its interval, where it has one."""
    value, low, high = mean[:3]
    if math.isinf(low) or math.isnan(low):
        return f"{value:,.{digits}f}"
    return f"{value:,.{digits}f} ({low:,.{digits}f} to {high:,.{digits}f})"


def _difference(comparison: Comparison, game: GameComparison) -> dict[str, str]:
    gain = "–"
    if game.area_gain is not None:
        mean, low, high = (100 * each for each in game.area_gain[:3])
        gain = interval((mean, low, high), 0) + " %"
    digits = _digits(game.area_difference)
    return {
        "game": game.game,
        "seeds": str(game.seeds),
        "area": interval(game.area_difference, digits),
        "area, as a share": gain,
        "final return": _or_dash(game.final_difference),
        "drawdown": "–"
        if game.drawdown_difference is None
        else interval(game.drawdown_difference, digits),
        "probability of improvement": f"{game.improvement.value:.2f}",
    }


def _score(score: GameScores) -> dict[str, str]:
    digits = _digits(score.area)
    if math.isnan(score.agent_steps_to_level):
        reached = "–"
    elif math.isinf(score.agent_steps_to_level):
        reached = f"not reached by most ({score.reached_level} of {score.agents})"
    else:
        reached = f"{score.agent_steps_to_level:,.0f}"
    return {
        "game": score.game,
        "initialization": score.initialization,
        "agents": str(score.agents),
        "area": interval(score.area, digits),
        "final return": _or_dash(score.final),
        "human-normalised": "–" if score.human_final is None else f"{score.human_final:.1%}",
        "agent steps to the baseline's level": reached,
    }


def _or_dash(mean: Mean | None) -> str:
    return "–" if mean is None else interval(mean, _digits(mean))


def _digits(mean: Mean) -> int:
    """Return as many decimals as tell values apart: two below 10, none from 1,000 on."""
    size = abs(mean.mean)
    return 2 if size < 10 else 1 if size < 1000 else 0
