"""Evaluations as objects: compare initializations, read the verdict."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leap_rl.core.parsing import typed_options
from leap_rl.evaluation.comparison import read_summary
from leap_rl.evaluation.estimates import ESTIMATES, estimate_rows
from leap_rl.evaluation.summary import Summary
from leap_rl.runs.api.runs import Callback, Run, follow, place_for, place_of
from leap_rl.runs.config import EvaluateConfig
from leap_rl.runs.evaluation_tables import AGENTS, agents_of
from leap_rl.runs.initializations import check_name
from leap_rl.runs.kinds import EVALUATING, kind_of
from leap_rl.runs.process import Request, call

if TYPE_CHECKING:
    from pandas import DataFrame

Initialization = Run | str | Path
"""A run, or what `--init` names: RUN, RUN@12, RUN@best, a file, pretrained:NAME, hf://USER/REPO,
also with @mix=0.5 after it."""
Initializations = (
    Initialization
    | Sequence[Initialization]
    | Mapping[str, Initialization | Sequence[Initialization]]
)


class Evaluation(Run):
    """An evaluation in its folder: agents that learned from several initializations.

    Args:
        place: The evaluation's folder, or its URL in an object store.

    Raises:
        ValueError: There is no evaluation, or its config is damaged.
    """

    def __init__(self, place: str | Path) -> None:
        super().__init__(place)
        if kind_of(self.config) is not EVALUATING:
            raise ValueError(f"{place}: is a run of leap-rl {self.config.command}, no evaluation")
        self._whole: Summary | None = None

    @property
    def verdict(self) -> str:
        """What came out, in sentences; those of `leap-rl evaluate`, a line each.

        Raises:
            ValueError: No agent is finished yet.
        """
        return "\n".join(self._summary.verdict)

    def agents(self) -> DataFrame:
        """Return a row for each agent: its initialization, game, seed, returns, reward rate."""
        from pandas import DataFrame

        return DataFrame(list(agents_of(self._summary)), columns=list(AGENTS))

    def estimates(self) -> DataFrame:
        """Return a row for each initialization, game and measure, with 95 % intervals.

        Such as the agent steps saved, the final return, the speed-up to half of what agents from
        random starts gain; docs/evaluation.md defines them.
        """
        from pandas import DataFrame

        return DataFrame(list(estimate_rows(self._summary)), columns=list(ESTIMATES))

    def report(self) -> Path:
        """Write the page that `leap-rl report` writes, and return its path."""
        call(Request(action="report", command="report", place=self.place, quiet=True))
        return self.path / "report" / "index.html"

    @property
    def _summary(self) -> Summary:
        if self._whole is not None:
            return self._whole
        summary = read_summary(self._folder)
        if not summary.evaluation.curves:
            raise ValueError(f"{self.place}: no agent is finished yet; resume it")
        if summary.evaluation.complete:  # otherwise more agents may finish
            self._whole = summary
        return summary


def evaluate(
    initializations: Initializations,
    *,
    games: str | Sequence[str] | None = None,
    agent_steps: int | None = None,
    seeds: int = 10,
    run_dir: str | Path | None = None,
    options: Mapping[str, Any] | None = None,
    callbacks: Sequence[Callback] = (),
    trust_imports: bool = False,
    quiet: bool = False,
) -> Evaluation:
    """Compare initializations by what agents learn from them, as `leap-rl evaluate` does.

    Tasks and agents are set as the first run's were. Random encoders are compared too, unless
    `options` has `{"random": False}`.

    Args:
        initializations: One, several, or several by name; a name's runs are judged together.
        games: A game, a pool, or several of either; none for Atari's pool held_out.
        agent_steps: Of each agent; none for those of the first run's tasks.
        seeds: Agents of each run in each game, and from random starts unless `options` has
            `{"random_agents": 20}`.
        run_dir: The evaluation's folder, new or empty; none for one in `runs`.
        options: Any other options by dotted name, such as `{"task.num_envs": 32}`.
        callbacks: As for `train`; called with the rows of the agents' progress.
        trust_imports: Whether modules may be imported that `games` names.
        quiet: Whether the evaluation says nothing on stderr.

    Returns:
        The evaluation; it is not finished if it was stopped.

    Raises:
        ValueError: An argument cannot be; the message names the field.
        RunFailedError: The evaluation failed, or its process was killed.
    """
    given = dict(options or {}) | {"seeds": seeds}
    if games is not None:
        given["task.games"] = games if isinstance(games, str) else list(games)
    if agent_steps is not None:
        given["task.agent_steps"] = agent_steps
    inits = tuple(_named(initializations))
    if not inits and given.get("random", True):
        raise ValueError(f"initializations = {initializations!r}: name a run, or several")
    with place_for("evaluate", run_dir) as place:
        request = Request(
            action="make",
            command="evaluate",
            place=place,
            options=typed_options(EvaluateConfig, given),
            inits=inits,
            trusts_imports=trust_imports,
            quiet=quiet,
        )
        follow(request, callbacks)
    return Evaluation(place)


def _named(initializations: Initializations) -> Iterable[str]:
    """Return the initializations as `--init` has them."""
    if isinstance(initializations, Mapping):
        for name, runs in initializations.items():
            check_name(name)
            places = [place_of(run) for run in _listed(runs)]
            if not places:
                raise ValueError(f"initializations: {name!r} has no run; name one, or several")
            for place in places:
                if "," in place:
                    raise ValueError(f"initializations: {place!r}: name a place without a comma")
            yield f"{name}={','.join(places)}"
    else:
        yield from map(place_of, _listed(initializations))


def _listed(one: Initialization | Sequence[Initialization]) -> Sequence[Initialization]:
    return [one] if isinstance(one, Run | str | Path) else one
