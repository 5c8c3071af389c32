"""Summaries of evaluations: their verdicts, notes, tables and rows."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from leap_rl.evaluation.comparison import summarize
from leap_rl.evaluation.estimates import ESTIMATES, estimate_rows, estimates_document
from leap_rl.evaluation.results import EvaluationResults, LearningCurve, Training
from leap_rl.evaluation.statistics import IntervalEstimate
from leap_rl.evaluation.summary import Summary
from leap_rl.evaluation.summary_tables import summary_tables
from leap_rl.evaluation.verdict import agent_steps, number, saves
from leap_rl.runs.evaluation_tables import AGENTS, agents_of
from leap_rl.training.rounds.evaluation_slots import RANDOM
from tests.evaluation.agents import agent, evaluation, flat, learner, only

TRAINED = {"leap": Training(agent_steps=2e6, games=("breakout",))}


def learners(
    halves: Mapping[str, float],
    games: Sequence[str] = ("breakout",),
    *,
    runs: int = 3,
    seeds: int = 6,
    **named: Any,
) -> list[LearningCurve]:
    """Agents of random starts and of runs, by when half of their rise is over."""
    return [
        learner(name, game, seed, half=half, run=run, **named)
        for name, half in halves.items()
        for game in games
        for run in range(1 if name == RANDOM else runs)
        for seed in range(seeds)
    ]


def quick(games: Sequence[str] = ("breakout",), **named: Any) -> EvaluationResults:
    return evaluation(learners({RANDOM: 0.6, "leap": 0.3}, games, **named), training=TRAINED)


def verdict(results: EvaluationResults) -> str:
    return summarize(results).verdict[0]


def row(summary: Summary, measure: str, member: str = "breakout", arm: str = "leap") -> Any:
    (found,) = (
        each
        for each in estimate_rows(summary)
        if (each["arm"], each["member"], each["measure"]) == (arm, member, measure)
    )
    return found


def test_what_helps_says_what_is_saved_and_from_which_task_it_pays() -> None:
    summary = summarize(quick())
    saved = only(summary).games["breakout"].saved
    assert 0 < saved.low < saved.value < saved.high < 60_000
    said = summary.verdict[0]
    effect = only(summary).games["breakout"]
    value, most, low, high = map(agent_steps, (saved.value, effect.most, saved.low, saved.high))
    assert said.startswith(
        f"leap saves {value} of at most {most} agent steps a task (95 % interval {low} to {high}) "
        f"in breakout; final return {number(effect.final.value)} against "
        f"{number(effect.reference.means.final)}. Meta-training took 2 million agent steps, so it "
        f"pays from the {math.ceil(2e6 / saved.value)}"
    )
    assert said.endswith("; it was trained on this game.")
    assert len(summary.verdict) == 1


@pytest.mark.parametrize(
    ("saved", "said"),
    [
        ((72_049, 57_000, 87_010), "saves 72,000 of at most 90,000 agent steps a task (95 % "
         "interval 57,000 to 87,000)"),
        ((-18_200, -26_100, -10_300), "does harm: it costs 18,200 agent steps a task (95 % "
         "interval 10,300 to 26,100)"),
        ((500, -1_000, 2_000), "is not seen to help: it saves 500 of at most 90,000 agent steps a "
         "task (95 % interval -1,000 to 2,000)"),
        ((-500, -2_000, 1_000), "is not seen to help: it costs 500 agent steps a task (95 % "
         "interval -1,000 to 2,000)"),
        ((72_049, -math.inf, math.inf), "saves 72,000 of at most 90,000 agent steps a task "
         "(no interval)"),
        ((-500, -math.inf, math.inf), "costs 500 agent steps a task (no interval)"),
    ],
)  # fmt: skip
def test_what_is_saved_in_words(saved: tuple[float, float, float], said: str) -> None:
    assert saves(IntervalEstimate(*saved), 90_000) == said


@pytest.mark.parametrize(
    ("value", "said"),
    [(-0.2, "0"), (999_960, "1 million"), (9.61e6, "9.61 million"), (2.345e9, "2.34 billion"),
     (math.nan, "–"), (-1_234, "-1,230")],
)  # fmt: skip
def test_agent_steps_have_three_figures(value: float, said: str) -> None:
    assert agent_steps(value) == said


def test_what_hurts_and_what_is_open_is_not_known_to_pay() -> None:
    late = verdict(evaluation(learners({RANDOM: 0.3, "leap": 0.6}), training=TRAINED))
    assert late.startswith("leap does harm: it costs ")
    null = verdict(evaluation(learners({RANDOM: 0.4, "leap": 0.4}), training=TRAINED))
    assert null.startswith("leap is not seen to help: it ")
    for said in (late, null):
        assert "took 2 million agent steps and is not known to pay; it was trained" in said


def test_identical_agents_save_exactly_nothing() -> None:
    random = learners({RANDOM: 0.4})
    same = [replace(curve, initialization="leap") for curve in random]
    found = only(summarize(evaluation([*random, *same]))).games["breakout"]
    assert (found.saved.value, found.final_difference.value) == (0.0, 0.0)


def test_few_agents_have_no_interval_and_no_claim() -> None:
    summary = summarize(quick(seeds=2))
    assert "agent steps a task (no interval) in breakout" in summary.verdict[0]
    assert "not known to pay" in summary.verdict[0]
    assert "Intervals take at least 3 agents of each run and 5 of random." in summary.verdict
    one = summarize(quick(runs=1)).verdict
    assert "This holds for one initialization of leap, not for its method." in one
    assert "Two runs are few for a claim about a method: leap." in summarize(quick(runs=2)).verdict


def test_the_best_of_starts_of_few_agents_is_named_without_a_claim() -> None:
    best = summarize(evaluation(learners({RANDOM: 0.6, "leap": 0.2, "reptile": 0.4}, seeds=2)))
    assert best.verdict[0].startswith("Of 2 starts leap saves most: ")
    assert best.verdict[0].endswith(" more than reptile, which may be chance.")


def test_of_starts_that_cost_none_is_said_to_save_most() -> None:
    worst = summarize(evaluation(learners({RANDOM: 0.2, "leap": 0.6, "reptile": 0.4}, seeds=2)))
    assert worst.verdict[0] == "None of 2 starts is seen to help."


def test_agents_that_diverged_are_not_waited_for() -> None:
    whole = quick()
    left = replace(whole, curves=whole.curves[:-1])
    assert "agents are finished; all that is said is of these." in " ".join(summarize(left).verdict)
    assert not left.complete
    dropped = replace(left, dropped=1)
    assert dropped.complete
    said = summarize(dropped).verdict
    assert f"1 of {whole.agents} agents diverged and are left out." in said
    assert "are finished" not in " ".join(said)


def test_random_agents_that_do_not_learn_leave_returns_alone() -> None:
    curves = learners({RANDOM: 0.5, "leap": 0.3}, end=10.0, luck=0.0)
    summary = summarize(evaluation(curves, training=TRAINED))
    final = only(summary).games["breakout"].final.value
    assert summary.verdict[0].startswith("leap: breakout: agents from random starts do not learn")
    assert f"; final return {number(final)} against " in summary.verdict[0]
    assert "(difference " in summary.verdict[0]
    assert "pay" not in summary.verdict[0]
    measures = {each["measure"] for each in estimate_rows(summary) if each["member"] != "all"}
    assert measures == {
        *("final_return", "final_return_difference", "jumpstart_difference"),
        "return_area_log_ratio",
    }
    (table, *_) = summary_tables(summary)
    assert table.rows[0]["agent steps saved"] == table.rows[0]["of at most"] == "–"


def test_the_best_of_starts_that_saw_different_games_is_best_over_the_same_ones() -> None:
    games = ("breakout", "pong", "qbert")
    curves = learners({RANDOM: 0.6, "other": 0.55}, games)
    curves += learners({"leap": 0.1}, ("breakout", "pong"))
    curves += learners({"leap": 0.6}, ("qbert",))
    seen = {"leap": ("breakout", "pong"), "other": ("asterix",)}
    training = {name: Training(agent_steps=2e6, games=games) for name, games in seen.items()}
    best = summarize(evaluation(curves, training=training)).verdict[0]
    assert best.startswith("Of 2 starts leap saves most: ")
    assert "more than other, beyond chance" in best


@pytest.mark.parametrize(
    ("saw", "where"),
    [("pong", "in games that it never saw"), ("qbert", "in the 1 game that all have agents in")],
)
def test_the_best_of_a_part_of_a_study_is_best_over_the_games_that_all_have(
    saw: str, where: str
) -> None:
    curves = learners({RANDOM: 0.6, "both": 0.2}) + learners({"part": 0.3})
    curves += learners({RANDOM: 0.6, "both": 0.6}, ("pong",))  # which lowers the mean of both
    training = {name: Training(agent_steps=2e6, games=(saw,)) for name in ("part", "both")}
    summary = summarize(evaluation(curves, training=training))
    ranking, (part, both) = summary.ranking, sorted(summary.comparisons, key=lambda c: len(c.games))
    assert ranking is not None
    assert (ranking.best, ranking.games) == ("both", ("breakout",))
    assert both.over["all"].saved.value < part.over["all"].saved.value
    assert summary.verdict[0].startswith(f"Of 2 starts both saves most {where}: ")
    assert summary.verdict[0].endswith("more than part, beyond chance.")


@pytest.mark.parametrize(
    ("learned", "games"), [("breakout", {"breakout"}), ("pong", {"breakout", "pong"})]
)
def test_starts_are_ranked_by_games_that_can_be_measured(learned: str, games: set[str]) -> None:
    """By new games, here breakout, unless random starts learn none of these."""
    starts = {RANDOM: 0.6, "leap": 0.3, "reptile": 0.5}
    curves = learners(starts, (learned,))
    (other,) = {"breakout", "pong"} - {learned}
    curves += learners(starts, (other,), end=10.0, luck=0.0)
    training = {name: Training(agent_steps=2e6, games=("pong",)) for name in ("leap", "reptile")}
    ranking = summarize(evaluation(curves, training=training)).ranking
    assert ranking is not None
    assert (ranking.best, set(ranking.games)) == ("leap", games)
    assert ranking.kind == ("new" if learned == "breakout" else "all")
    assert summarize(quick()).ranking is not None
    assert summarize(evaluation(learners({"leap": 0.3}))).ranking is None


def test_the_best_by_seen_games_alone_is_said_to_be_of_these() -> None:
    starts = {RANDOM: 0.6, "leap": 0.3, "reptile": 0.5}
    still = learners(starts, end=10.0, noise=0.0, luck=0.0)
    curves = still + learners(starts, ("pong",))
    training = {name: Training(agent_steps=2e6, games=("pong",)) for name in ("leap", "reptile")}
    said = summarize(evaluation(curves, training=training)).verdict[0]
    assert said.startswith("Of 2 starts leap saves most in games that it was trained on: ")


def test_a_mean_says_how_many_of_its_games_random_starts_do_not_learn() -> None:
    starts = {RANDOM: 0.6, "leap": 0.3}
    curves = learners(starts) + learners(starts, ("pong",), end=10.0, luck=0.0)
    said = summarize(evaluation(curves)).verdict[0]
    assert "in the mean of 2 games (helps in 1, agents from random starts do not learn 1)" in said
    said = summarize(evaluation(curves, training=TRAINED)).verdict[0]
    assert "; cannot be measured by agent steps in games that it did not see, as agents" in said


def test_where_random_starts_get_worse_nothing_is_saved_or_lost() -> None:
    halves = {RANDOM: 0.5, "good": 0.3, "bad": 0.3}
    curves = learners(halves)
    for name, end in ((RANDOM, 10.0), ("good", 20.0), ("bad", 5.0)):
        curves += learners({name: 0.4}, ("pong",), start=20.0, end=end, noise=1.0, luck=0.5)
    summary = summarize(evaluation(curves, training=TRAINED))
    said = " ".join(summary.verdict)
    assert "pong: agents from random starts get worse in this budget (return 19.7 at first" in said
    for comparison in summary.comparisons:
        alone, mean = comparison.games["breakout"], comparison.over["all"]
        assert comparison.games["pong"].saved.value == comparison.games["pong"].most == 0
        assert 2 * mean.saved.value == pytest.approx(alone.saved.value)
        assert 2 * mean.most == pytest.approx(alone.most)
        assert mean.saved.low > 0
    good, bad = (each.games["pong"].final_difference for each in summary.comparisons)
    assert bad.high < 0 < good.low


def test_an_uncertain_reference_has_neither_speed_up_nor_break_even() -> None:
    curves = learners({RANDOM: 0.7, "leap": 0.15}, noise=60.0, luck=1.0, runs=4)
    summary = summarize(evaluation(curves, training=TRAINED))
    reference = summary.games["breakout"].reference
    assert reference.verdict == "uncertain"
    assert only(summary).games["breakout"].saved.low > 0
    more = reference.more_agents
    note = f"breakout: the reference is uncertain; {more} more random agent{'s' * (more > 1)}"
    assert f"{note} would settle it." in summary.verdict
    assert "is not known to pay" in summary.verdict[0]
    measures = {each["measure"] for each in estimate_rows(summary)}
    assert "agent_steps_saved" in measures
    assert not measures & {"speed_up_50", "speed_up_90", "break_even_tasks"}


@pytest.mark.parametrize("saw", ["breakout", "pong", "qbert"])
def test_a_mean_with_an_uncertain_game_has_no_break_even(saw: str) -> None:
    curves = learners({RANDOM: 0.7, "leap": 0.15}, noise=60.0, luck=1.0, runs=4)
    curves += learners({RANDOM: 0.6, "leap": 0.3}, ("pong",), runs=4)
    training = {"leap": Training(agent_steps=2e6, games=(saw,))}
    summary = summarize(evaluation(curves, training=training))
    assert summary.games["breakout"].reference.verdict == "uncertain"
    assert all(over.saved.low > 0 for over in only(summary).over.values())
    rows = [each for each in estimate_rows(summary) if each["measure"] == "break_even_tasks"]
    sound = {"breakout": ["pong", "new"], "pong": ["pong", "seen"], "qbert": ["pong"]}[saw]
    assert [each["member"] for each in rows] == sound
    assert ("it pays from" in summary.verdict[0]) == ("new" in sound)


def rarely(curves: Sequence[LearningCurve]) -> list[LearningCurve]:
    """The agents with episodes twenty times as long."""
    return [
        replace(curve, agent_steps=curve.agent_steps[::20], returns=curve.returns[::20])
        for curve in curves
    ]


def test_episodes_that_are_too_long_are_said_to_be() -> None:
    results = quick()
    said = verdict(replace(results, curves=tuple(rarely(results.curves))))
    assert said.startswith("leap: breakout: episodes are too long for this budget; give agents")


@pytest.mark.parametrize(
    ("unlearned", "said"),
    [
        ((), "leap cannot be measured by agent steps, as episodes are too long for this budget; "),
        (("qbert",), "steps, as agents from random starts gain nothing or episodes are too long "),
        (("learned",), "in the mean of 3 games (helps in 1, episodes are too long in 2)"),
    ],
)
def test_why_games_cannot_be_measured_is_said_by_their_references(
    unlearned: Sequence[str], said: str
) -> None:
    curves = rarely(learners({RANDOM: 0.6, "leap": 0.3}, ("breakout", "pong")))
    height = {"learned": 50.0, "qbert": 10.0}
    for game in unlearned:
        curves += learners({RANDOM: 0.6, "leap": 0.3}, (game,), end=height[game], luck=0.1)
    assert said in verdict(evaluation(curves))


@pytest.mark.parametrize("games", [("breakout",), ("breakout", "pong")])
def test_a_verdict_begins_its_sentences_in_capitals(games: Sequence[str]) -> None:
    """What its meta-training took begins the last one, but for version 0, which took nothing."""
    untrained = {"leap": Training(agent_steps=0.0, games=())}
    said = verdict(replace(quick(games), training=untrained))
    assert said.endswith(f". It never saw {'this game' if len(games) == 1 else 'these games'}.")


def test_games_seen_and_new_have_means_of_their_own() -> None:
    summary = summarize(quick(("breakout", "pong", "qbert")))
    comparison = only(summary)
    assert {scope: found.games for scope, found in comparison.over.items()} == {
        "all": ("breakout", "pong", "qbert"),
        "seen": ("breakout",),
        "new": ("pong", "qbert"),
    }
    said = summary.verdict[0]
    assert said.startswith("leap saves ")
    assert " in 1 game that meta-training saw; saves " in said
    assert " in the mean of 2 games that it did not see (helps in 2); final returns are" in said
    assert said.endswith("in new games.")
    new = comparison.over["new"]
    effects = [comparison.games[game] for game in new.games]
    assert new.saved.value == pytest.approx(np.mean([each.saved.value for each in effects]))
    assert new.most == pytest.approx(np.mean([each.most for each in effects]))
    assert new.sign_flip == 0.5
    assert row(summary, "agent_steps_saved", "new")["estimate"] == new.saved.value
    assert row(summary, "agent_steps_saved", "seen")["low"] == comparison.over["seen"].saved.low
    assert f"from the {math.ceil(2e6 / new.saved.value)}" in said
    never = summarize(quick(("pong", "qbert"))).verdict[0]
    assert never.endswith("; it never saw these games.")
    unknown = summarize(replace(quick(), training={})).verdict[0]
    assert unknown.endswith("What its meta-training took is not known.")


def test_the_means_interval_over_games_takes_runs_together() -> None:
    """Runs that differ alike in both games leave as much to chance as in one game."""
    curves = learners({RANDOM: 0.6}, ("breakout", "pong")) + [
        learner("leap", game, seed, half=half, run=run, luck=0.0, noise=0.5)
        for game in ("breakout", "pong")
        for run, half in enumerate((0.2, 0.3, 0.4))
        for seed in range(6)
    ]
    comparison = only(summarize(evaluation(curves)))
    alone = comparison.games["pong"].saved
    both = comparison.over["all"].saved
    assert np.ptp(both[1:]) > 0.85 * np.ptp(alone[1:])


def test_two_initializations_are_set_against_each_other() -> None:
    halves = {RANDOM: 0.6, "leap": 0.3, "reptile": 0.5}
    summary = summarize(evaluation(learners(halves, ("breakout", "pong"))))
    (contrast,) = summary.contrasts
    means = [each.over["all"].saved.value for each in summary.comparisons]
    assert contrast.saved.value == pytest.approx(means[0] - means[1])
    assert contrast.saved.low > 0
    tables = {table.title: table.rows for table in summary_tables(summary)}
    assert tables["Initializations against each other"][0]["against"] == "reptile"


def test_own_starts_join_random_agents() -> None:
    curves = learners({RANDOM: 0.6, "leap@0": 0.6, "leap": 0.3}, runs=2)
    summary = summarize(evaluation(curves, own_starts={"leap": "leap@0"}))
    assert [each.initialization for each in summary.comparisons] == ["leap"]
    assert len(summary.games["breakout"].reference.agents) == 6 + 2 * 6
    assert list(summary.games["breakout"].runs) == [RANDOM, "leap"]
    alone = [curve for curve in curves if curve.initialization != RANDOM]
    summary = summarize(evaluation(alone, own_starts={"leap": "leap@0"}))
    assert summary.reference == RANDOM
    assert len(summary.games["breakout"].reference.agents) == 12


def test_without_random_starts_the_first_is_what_others_are_set_against() -> None:
    curves = learners({"finetuned": 0.6, "leap": 0.3})
    summary = summarize(evaluation(curves, training=TRAINED))
    assert "agent steps; it" in summary.verdict[0], (
        "what training took over nothing, without a task"
    )
    assert "from random" not in " ".join(summary.verdict)
    still = learners({"finetuned": 0.5, "leap": 0.3}, end=10.0, luck=0.0)
    assert "agents of finetuned do not learn" in verdict(evaluation(still))
    assert summary.reference == "finetuned"
    assert only(summary).initialization == "leap"
    assert "not against a random one" in " ".join(summary.verdict)
    alone = summarize(evaluation(curves[:18]))
    assert alone.comparisons == ()
    assert "finetuned is the only initialization" in " ".join(alone.verdict)


def test_agents_that_restarted_or_finished_no_episode_take_no_part() -> None:
    results = quick(("breakout", "pong"), runs=2)
    odd = {("leap", 1, "pong", 2), (RANDOM, 0, "breakout", 0)}

    def changed(curve: LearningCurve, **changes: Any) -> LearningCurve:
        key = (curve.initialization, curve.run, curve.game, curve.seed)
        return replace(curve, **changes) if key in odd else curve

    silent = {"returns": np.array([]), "agent_steps": np.array([], dtype=np.int64)}
    left = [one for one in results.curves if changed(one, restarted=True) is one]
    expected = summarize(replace(results, curves=tuple(left)))
    for changes, word in (({"restarted": True}, "diverged"), (silent, "finished no episode")):
        found = summarize(
            replace(results, curves=tuple(changed(one, **changes) for one in results.curves))
        )
        assert only(found).games["pong"].saved == only(expected).games["pong"].saved
        assert only(found).over["all"] == only(expected).over["all"]
        assert math.isfinite(only(found).over["all"].saved.low)
        assert found.middles == expected.middles
        notes = [note for note in found.verdict if word in note]
        assert [note.partition(" ")[0] for note in notes] == ["breakout:", "pong:"]
        assert len(list(agents_of(found))) == 2 * 6 * 3
    document = estimates_document(found)
    assert next(each["agents"] for each in document["rows"] if each["member"] == "pong") == 5


def test_a_part_of_an_evaluation_is_judged_by_what_there_is() -> None:
    results = quick(("breakout", "pong"))
    arm = [one for one in results.curves if one.initialization == "leap"]
    random = [one for one in results.curves if one.initialization == RANDOM]
    # Nobody of random has finished pong; leap's third run has finished nothing.
    some = [one for one in random if one.game == "breakout"] + [one for one in arm if one.run < 2]
    part = summarize(replace(results, curves=tuple(some)))
    assert list(part.games) == list(only(part).games) == ["breakout"]
    assert len(list(agents_of(part))) == len(some)
    assert f"{len(some)} of 48 agents are finished; all that is said is of these." in part.verdict
    # A game that lacks a run leaves games without a common interval.
    most = [one for one in results.curves if (one.game, one.run) != ("pong", 2)]
    over = only(summarize(replace(results, curves=tuple(most)))).over["all"]
    assert math.isinf(over.saved.low)
    # As many runs, but others, have none either: they cannot be left out of both games at once.
    lacks = {("breakout", 2), ("pong", 0)}
    other = [one for one in results.curves if one not in arm or (one.game, one.run) not in lacks]
    others = summarize(replace(results, curves=tuple(other)))
    assert all(math.isfinite(effect.saved.low) for effect in only(others).games.values())
    assert math.isinf(only(others).over["all"].saved.low)
    assert "Two runs are few for a claim about a method: leap." in others.verdict
    single = [one for one in results.curves if one not in arm or one.game == "pong" or not one.run]
    note = "This holds for one initialization of leap, not for its method."
    assert note in summarize(replace(results, curves=tuple(single))).verdict
    without = summarize(replace(results, curves=tuple(random)))
    assert without.verdict[0] == (
        "leap: in no game did agents of it and of random finish episodes, so nothing can be said."
    )
    empty = summarize(replace(results, curves=()))
    assert summary_tables(empty) == []
    assert list(estimate_rows(empty)) == []


def test_games_in_which_nothing_is_ever_gained_are_told() -> None:
    curves = [
        flat(value, initialization=name, game=game, seed=seed)
        for name, value in ((RANDOM, 3.0), ("leap", 5.0))
        for game in ("breakout", "pong")
        for seed in range(5)
    ]
    summary = summarize(evaluation(curves))
    assert (
        "leap cannot be measured by agent steps, as agents from random starts"
        in (summary.verdict[0])
    )
    assert "final returns are higher in 2 and lower in 0 of 2 games" in summary.verdict[0]
    json.dumps(estimates_document(summary), allow_nan=False)


def test_of_many_intervals_some_leave_out_0_by_chance() -> None:
    games = ("breakout", "assault", "qbert", "seaquest", "asterix")
    notes = " ".join(summarize(quick(games, runs=1)).verdict)
    assert "Of 5 intervals of single games some 0.3" in notes
    arms = {RANDOM: 0.6} | {f"leap_{arm}": 0.3 for arm in range(5)}
    notes = summarize(evaluation(learners(arms))).verdict
    assert "Of 5 intervals some 0.3 leave out 0 by chance alone." in notes
    assert "intervals of single" not in " ".join(summarize(quick(games, seeds=2)).verdict)


def test_the_document_has_the_fields_and_measures_of_its_schema() -> None:
    document = estimates_document(summarize(quick(("breakout", "pong"))), question="Does it?")
    assert (document["question"], document["budget_agent_steps"]) == ("Does it?", 100_000)
    assert [(one["name"], one["seen"]) for one in document["members"]] == [
        ("breakout", True),
        ("pong", False),
    ]
    assert set(document["members"][0]["reference"]) == {
        *("m0", "m1", "low", "high", "noise", "verdict"),
    }
    assert {tuple(each) for each in document["rows"]} == {ESTIMATES}
    assert {each["measure"] for each in document["rows"] if each["member"] == "pong"} == {
        *("agent_steps_saved", "agent_steps_saved_share", "speed_up_50", "speed_up_90"),
        *("final_return", "final_return_difference", "jumpstart_difference"),
        *("return_area_log_ratio", "break_even_tasks"),
    }
    assert {each["measure"] for each in document["rows"] if each["member"] == "all"} == {
        *("agent_steps_saved", "agent_steps_saved_share", "break_even_tasks"),
    }
    assert {(each["runs"], each["agents"]) for each in document["rows"]} == {(3, 6)}
    json.dumps(document, allow_nan=False)


def test_a_speed_up_that_is_a_bound_is_one_in_rows_and_tables() -> None:
    def at_once(value: float, seed: int) -> LearningCurve:
        ends = range(500, 100_001, 500)
        returns = [value + 0.1 * seed] * len(ends)
        return agent(ends, returns, initialization="leap", seed=seed)

    random = learners({RANDOM: 0.5}, luck=1.0, noise=1.0)
    for value, bound in ((60.0, "at least"), (0.0, "at most")):
        summary = summarize(evaluation([*random, *(at_once(value, seed) for seed in range(4))]))
        found = row(summary, "speed_up_50")
        assert (found["censored"], found["low"], found["high"]) == (bound, None, None)
        assert math.isfinite(found["estimate"])
        shown = summary_tables(summary)[0].rows[0]["speed-up to half of the gain"]
        assert shown == f"{bound} ×{found['estimate']:.1f}"


def test_tables_say_what_rows_say() -> None:
    summary = summarize(quick(("breakout", "pong")))
    tables = {table.title: table for table in summary_tables(summary)}
    assert [table.folded for table in tables.values()] == [False] * 3 + [True] * 2
    saved, share, pays = (
        row(summary, measure, "pong")
        for measure in ("agent_steps_saved", "agent_steps_saved_share", "break_even_tasks")
    )
    shown = tables["Agent steps saved"].rows[1]
    low, high = (agent_steps(saved[end]) for end in ("low", "high"))
    assert shown["agent steps saved"] == f"{agent_steps(saved['estimate'])} ({low} to {high})"
    assert shown["of at most"] == agent_steps(saved["estimate"] / share["estimate"])
    assert pays["estimate"] == pytest.approx(2e6 / saved["estimate"])
    assert pays["low"] == pytest.approx(2e6 / saved["high"])
    assert shown["pays from task"].startswith(f"{math.ceil(pays['estimate'])} (")
    assert (shown["trained on it"], shown["game"]) == ("no", "pong")
    assert tables["Agents from random starts"].rows[0]["agents"] == "6"
    assert [each["games"] for each in tables["Means over games"].rows] == [
        *("all (2)", "trained on (1)", "never seen (1)"),
    ]
    assert 0 < summary.middles[RANDOM].value < summary.middles["leap"].value


def test_every_agent_has_a_row() -> None:
    summary = summarize(quick())
    rows = [dict(zip(AGENTS, each, strict=True)) for each in agents_of(summary)]
    assert len(rows) == 6 + 3 * 6
    game = summary.games["breakout"]
    of_random = [each for each in rows if each["initialization"] == RANDOM]
    finals = [each["final return"] for each in of_random]
    np.testing.assert_allclose(finals, game.reference.agents.final)
    assert {each["run"] for each in rows} == {"random-0", "leap-0", "leap-1", "leap-2"}
