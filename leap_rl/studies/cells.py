"""A study's cells: each is an ordinary run in a folder of its own.

    OUT/runs/leap-0-3f2a9c1b             the first meta-training run of leap
    OUT/runs/leap-0-held_out-77ab01cd    new agents that learn the held-out members from it
    OUT/runs/random-0-held_out-5d10ee42  agents from random starts

The last part of a name is of the fingerprint of the run's config, so that another option, or
another default of it, makes another cell. Where there is none of that name, one that an earlier
leap_rl made of the same options, which had fewer of them, is the cell.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from leap_rl.learners.config import AgentConfig
from leap_rl.runs.config import Config, EvaluateConfig, TrainConfig
from leap_rl.runs.creation import resolve
from leap_rl.runs.header import fingerprint, read_run
from leap_rl.runs.resumption import computes
from leap_rl.storage.locked_folder import RunFolderError
from leap_rl.storage.run_folder import INITIALIZATION, RunFolder
from leap_rl.studies.arms import RANDOM, has_run_for_each_member, mix_of, total_agent_steps
from leap_rl.studies.config import StudyConfig
from leap_rl.studies.folder import RUNS
from leap_rl.tasks.config import TaskConfig
from leap_rl.tracking.live import read_live

DIGITS: Final = 8
"""Of a fingerprint, in a cell's name."""

HELD_OUT: Final = "held_out"
SEEN: Final = "seen"

_OF_A_START: Final = ("share", "encoder", "encoder_arguments", "encoder_sha256")
"""Options of an arm's agents that new agents need, to begin where they ended."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Cell:
    """A run of a study: meta-training, or new agents."""

    arm: str
    run: int
    """Of the arm, from 0."""
    members: str | None
    """Which members new agents learn, `HELD_OUT` or `SEEN`; none for meta-training."""
    config: Config
    """Resolved."""
    path: Path
    agent_steps: int
    after: Cell | None = None
    """The meta-training run whose initialization new agents start from."""
    alone: str | None = None
    """The one member that this is learned from, of an arm with a run for each; new agents choose
    among their starts."""
    mix: float | None = None
    """The share of what was learned in new agents' starts, if not all of it."""

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def folder(self) -> RunFolder:
        return RunFolder(self.path)

    @property
    def rounds(self) -> int:
        return self.config.meta.meta_steps if isinstance(self.config, TrainConfig) else 1

    @property
    def rounds_made(self) -> int:
        """Rounds that are made so far; of a damaged run, which is resumed and says so, none."""
        try:
            made = self.folder.latest() if self.folder.exists() else None
        except RunFolderError:
            made = None
        return min(made or 0, self.rounds)

    @property
    def finished(self) -> bool:
        return self.rounds_made == self.rounds

    @property
    def agent_steps_done(self) -> float:
        """Agent steps that are made so far, also of tasks under way."""
        made = self.rounds_made
        live = read_live(self.path) if made < self.rounds else None
        fraction = live.status.round_fraction if live is not None else 0.0
        return self.agent_steps * (made + fraction) / self.rounds


def cells_of(study: StudyConfig, out: Path, *, trusts_imports: bool = False) -> list[Cell]:
    """Return all cells of a study, a meta-training run before its new agents.

    Raises:
        ValueError: Members cannot be learned together, or an arm cannot be; one line that names
            them.
    """
    study = resolved(study)
    arms = [
        (name, alone, config)
        for name in study.trained_arms
        for alone, config in _of_arm(
            study,
            name,
            _own_precision(study, name, study.arm(name, trusts_imports=trusts_imports)),
        )
    ]
    # Arms that differ in their mixes alone share their runs, which are those of the one without.
    arms.sort(key=lambda arm: mix_of(arm[0], study.spelled_arms[arm[0]]) is not None)
    cells = list(_baseline(study, out))
    trained: dict[str, Cell] = {}
    for run in range(study.runs):
        for name, alone, config in arms:
            one = replace(config, seed=config.seed + run)  # an arm may have its own first seed
            content = fingerprint(one, None)
            if content not in trained:
                trained[content] = Cell(
                    arm=name,
                    run=run,
                    members=None,
                    config=one,
                    path=_place(out, f"{name}-{run}", content, one),
                    agent_steps=total_agent_steps(one),
                    alone=alone,
                )
                cells.append(trained[content])
            mix = mix_of(name, study.spelled_arms[name])
            evaluations = _new_agents(study, out, trained[content], arm=name, run=run, mix=mix)
            cells += (replace(cell, alone=alone, mix=mix) for cell in evaluations)
    return cells


def resolved(study: StudyConfig) -> StudyConfig:
    """Return the study with what all its members together say of observations and agents."""
    found = resolve(replace(study.base(), task=_every_member(study, study.task)))
    task = replace(found.task, games=list(study.members))
    return replace(study, task=task, agent=found.agent)


def _every_member(study: StudyConfig, task: TaskConfig) -> TaskConfig:
    return replace(task, mix_games=False, games=[*study.members, *study.held_out_members])


def _own_precision(study: StudyConfig, name: str, arm: TrainConfig) -> TrainConfig:
    """Return an arm in a precision that its encoder has, where it names none."""
    if "agent.precision" in study.spelled_arms[name] or not _is_uncompiled(study, arm):
        return arm
    return replace(arm, agent=replace(arm.agent, precision="float32"))


def _is_uncompiled(study: StudyConfig, arm: TrainConfig) -> bool:
    """Whether an arm's encoder is another one than the study's, whose passes are compiled."""
    compiled = study.agent.precision == "float32_compiled"
    return compiled and arm.agent.encoder != study.agent.encoder


def _of_arm(
    study: StudyConfig, name: str, config: TrainConfig
) -> list[tuple[str | None, TrainConfig]]:
    """Return what an arm trains, resolved, once new agents can start from it in all members.

    Where each member has a run of its own, there is one of each, with the member's name.
    """
    try:
        found = resolve(config)
        if found.agent.normalize_observations != study.agent.normalize_observations:
            raise ValueError(
                f"agent.normalize_observations = {found.agent.normalize_observations}: its new "
                "agents, as of all arms, have the study's own; set it for the whole study"
            )
        if (agent := _agent(study, found)) != study.agent:
            resolve(_evaluation(study, _every_member(study, study.task), agent))
        if has_run_for_each_member(name, study.spelled_arms[name]):
            return [
                (member, replace(found, task=replace(found.task, games=[member])))
                for member in found.task.resolved_games
            ]
    except ValueError as error:
        raise ValueError(f"arms.{name}: {error}") from None
    return [(None, found)]


def _agent(study: StudyConfig, trained: TrainConfig) -> AgentConfig:
    """Return how new agents learn from what was trained: as in all arms, from where it ended."""
    names = (*_OF_A_START, "precision") if _is_uncompiled(study, trained) else _OF_A_START
    return replace(study.agent, **{name: getattr(trained.agent, name) for name in names})


def _baseline(study: StudyConfig, out: Path) -> Iterator[Cell]:
    """Yield cells of agents from random starts, as many in each as of a run of another arm.

    The first one's agents share their seeds with those of the other arms.
    """
    counts = [
        min(study.agents, study.baseline_agents - first)
        for first in range(0, study.baseline_agents, study.agents)
    ]
    for run, agents in enumerate(counts):
        for members, task in _tasks(study):
            config = _evaluation(study, task, study.agent, seed=study.seed + run, seeds=agents)
            yield _cell(out, RANDOM, run, members, config)


def _new_agents(
    study: StudyConfig, out: Path, trained: Cell, *, arm: str, run: int, mix: float | None
) -> Iterator[Cell]:
    """Yield the cells of new agents that start from a run's initialization, mixed or as it is."""
    mark = "" if mix is None else f"@mix={mix}"
    assert isinstance(trained.config, TrainConfig)
    agent = _agent(study, trained.config)
    start = trained.folder.checkpoint(trained.rounds).absolute() / INITIALIZATION
    for members, task in _tasks(study):
        config = _evaluation(
            study,
            task,
            agent,
            seed=study.seed,
            seeds=study.agents,
            init=[f"{arm}={start}{mark}"],
            random=False,
        )
        content = f"{fingerprint(trained.config, None)}@{trained.rounds}{mark}"
        yield _cell(out, arm, run, members, config, content, after=trained, mark=mark)


def _tasks(study: StudyConfig) -> Iterator[tuple[str, TaskConfig]]:
    task = study.new_agents_task()
    if study.held_out_members:
        yield HELD_OUT, replace(task, games=list(study.held_out_members))
    if study.also_seen:
        yield SEEN, replace(task, games=list(study.members))


def _evaluation(
    study: StudyConfig, task: TaskConfig, agent: AgentConfig, **options: Any
) -> EvaluateConfig:
    return EvaluateConfig(
        task=task, agent=agent, runtime=study.runtime, tracking=study.tracking, **options
    )


def evaluation_cell(
    study: StudyConfig,
    out: Path,
    *,
    arm: str,
    run: int,
    members: str,
    task: TaskConfig,
    agent: AgentConfig,
    seeds: int,
) -> Cell:
    """Return a cell of agents from random starts, resolved; ValueError if they cannot be."""
    config = resolve(_evaluation(study, task, agent, seed=study.seed, seeds=seeds))
    return _cell(out, arm, run, members, config)


def _cell(
    out: Path,
    arm: str,
    run: int,
    members: str,
    config: EvaluateConfig,
    content: str | None = None,
    *,
    after: Cell | None = None,
    mark: str = "",
) -> Cell:
    """Return a cell of new agents; ``content`` stands for the initialization that is to be."""
    digest = fingerprint(config, content)
    return Cell(
        arm=arm,
        run=run,
        members=members,
        config=config,
        path=_place(out, f"{arm}-{run}-{members}", digest, config, after=after, mark=mark),
        agent_steps=config.seeds * len(config.task.resolved_games) * config.task.agent_steps,
        after=after,
    )


def _digest_of(trained: Cell | None, mark: str) -> str | None:
    """Return what stands for the start of new agents in a run's head; none before it is made."""
    if trained is None or not trained.finished:
        return None
    try:
        sums: dict[str, str] = trained.folder.read_state(trained.rounds)["sha256"]
    except RunFolderError:  # damaged; its new agents' run says so
        return None
    return sums[INITIALIZATION] + mark


def _place(
    out: Path,
    stem: str,
    digest: str,
    config: Config,
    *,
    after: Cell | None = None,
    mark: str = "",
) -> Path:
    """Return a cell's folder: that of its name, or one that computes the same.

    Names differ where an earlier leap_rl made the run, which had fewer options.
    """
    path = out / RUNS / f"{stem}-{digest[:DIGITS]}"
    if path.exists():
        return path
    run = stem.rpartition("-")[2]  # of meta-training, it may be that of an arm that is gone
    if run.isdecimal() and (same := sorted((out / RUNS).glob(f"*-{run}-{digest[:DIGITS]}"))):
        return same[0]
    for other in sorted((out / RUNS).glob(f"{stem}-{'[0-9a-f]' * DIGITS}")):
        try:
            if computes(read_run(RunFolder(other)), config, _digest_of(after, mark)):
                return other
        except (RunFolderError, ValueError):  # damaged, or of another time: it is computed again
            continue
    return path
