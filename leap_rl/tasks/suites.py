"""The suites of tasks, by `task.kind`. Importing this imports neither torch nor environments."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from leap_rl.core.choices import Domain
from leap_rl.envs.atari.games import ACTION_COUNTS, find_mode, resolve_games
from leap_rl.envs.names import parse_game
from leap_rl.tasks.images.config import POOLS, SOURCE
from leap_rl.tasks.options import MIXED, SIZES, TaskOptions
from leap_rl.tasks.suite import ActionSpace, GameSuite, OwnVector, Suite, T, check_games

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from leap_rl.envs.workers import Slice
    from leap_rl.tasks.images.data import Omniglot
    from leap_rl.tasks.images.sets import Folder, ImageSet


class AtariSuite(GameSuite):
    """ALE's games, with their modes and difficulties."""

    kind = "atari"
    options = ("mix_games", "agent_steps", "num_envs", "unroll_length", "atari")
    records_video = True
    spreads_environments = True
    # More than ten actions, so not in the pool to pretrain on, and none of the paper's nine either.
    validation_games = ("boxing", "seaquest")
    evaluation_games = "held_out"

    def resolve_games(self, games: Sequence[str]) -> tuple[str, ...]:
        return resolve_games(list(games))

    def frames_per_agent_step(self, task: TaskOptions) -> int:
        return task.atari.settings.frameskip

    def unseen(self, task: TaskOptions) -> str:
        return "breakout@mode=12" if "breakout" in task.resolved_games else "breakout"

    def observation_shape(self, task: TaskOptions) -> tuple[int, ...]:
        return task.atari.settings.observation_shape

    def action_space(self, task: TaskOptions, game: str) -> ActionSpace:
        return ActionSpace(ACTION_COUNTS[find_mode(game).game])

    def life_loss_ends(self, task: TaskOptions) -> bool:
        return task.atari.settings.life_loss_ends

    def environments(self, task: TaskOptions, game: str) -> Slice:
        from leap_rl.envs.atari.envs import AtariEnvs

        return partial(AtariEnvs, find_mode(game).name, settings=task.atari.settings)


class GymnasiumSuite(GameSuite):
    """Environments by their ids, a user's own too."""

    kind = "gymnasium"
    options = ("mix_games", "agent_steps", "num_envs", "unroll_length", "gymnasium")
    reward_clip = math.inf
    sized_by_games = True
    spreads_environments = True

    def resolve_games(self, games: Sequence[str]) -> tuple[str, ...]:
        if list(games) in ([], ["pretraining"], ["all"]):
            raise ValueError(
                f"task.games = {list(games)}: task.kind = {self.kind} has no pools; name one or "
                "more ids, such as CartPole-v1"
            )
        ids = tuple(parse_game(game).name for game in games)
        return check_games(self.kind, ids, ids)

    def unseen(self, task: TaskOptions) -> str | None:
        games, left_out = task.resolved_games, "MinAtar/Breakout-v1"
        minatar = all(game.startswith("MinAtar/") for game in games)
        return left_out if minatar and left_out not in games else None

    def imports(self, task: TaskOptions) -> tuple[str, ...]:
        modules = (parse_game(game).module for game in task.resolved_games)
        return tuple(dict.fromkeys(module for module in modules if module is not None))

    def resolve(self, task: T) -> T:
        """Return the options with the shape of the observations, and sizes that fit the games.

        Each game is tried for a while: ValueError if one cannot be made, cannot be played here, or
        does not repeat itself, or if they have no shape in common.
        """
        from leap_rl.envs.games import check_names_module, check_repeats, is_vector_env
        from leap_rl.envs.own_vector import check_vector_env

        shape = self._common_shape(task)
        task = super().resolve(task)
        task = replace(task, gymnasium=replace(task.gymnasium, observation_shape=list(shape)))
        if not task.is_sized:
            task = replace(task, **task.sized(SIZES[self.domain(task)]))
        remake = task.gymnasium.remake
        for game in task.resolved_games:
            check_names_module(game)
            if not is_vector_env(game):
                check_repeats(game, remake=remake, palette=task.gymnasium.palette)
                continue
            for option, given in (("mix_games", task.mix_games), ("gymnasium.remake", remake)):
                if given:
                    raise ValueError(
                        f"task.{option} = true: is for single environments, and task.games has "
                        f"the VectorEnv {game!r}; leave it out"
                    )
            check_vector_env(game, num_envs=task.num_envs, shape=shape)
        return task

    def check_machine(self, task: TaskOptions) -> None:
        self._common_shape(task)

    def observation_shape(self, task: TaskOptions) -> tuple[int, ...]:
        return task.gymnasium.shape or self._common_shape(task)

    def action_space(self, task: TaskOptions, game: str) -> ActionSpace:
        from leap_rl.envs.games import traits_of

        traits = traits_of(game)
        return ActionSpace(traits.num_actions, traits.continuous)

    def own_vector(self, task: TaskOptions, game: str) -> OwnVector | None:
        from leap_rl.envs.games import is_vector_env, traits_of

        if game == MIXED or not is_vector_env(game):
            return None
        traits = traits_of(game)
        return OwnVector(traits.next_step, traits.restorable)

    def domain(self, task: TaskOptions) -> Domain:
        if len(self.observation_shape(task)) > 1:
            return "images"
        return "continuous" if self.continuous_actions(task) else "vectors"

    def environments(self, task: TaskOptions, game: str) -> Slice:
        from leap_rl.envs.games import is_vector_env
        from leap_rl.envs.own_vector import OwnVectorEnvs
        from leap_rl.envs.replayed import ReplayedEnvs

        own = task.gymnasium
        shape = self.observation_shape(task)
        if is_vector_env(game):
            return partial(OwnVectorEnvs, game, shape=shape)
        return partial(ReplayedEnvs, game, shape=shape, remake=own.remake, palette=own.palette)

    def _common_shape(self, task: TaskOptions) -> tuple[int, ...]:
        from leap_rl.envs.games import common_shape

        own = task.gymnasium
        return common_shape(task.resolved_games, pad=own.pad, palette=own.palette, wanted=own.shape)


CATCH_GAMES = ("catch", "catch_mirrored", "catch_up", "catch_dark")
"""The variants, see `leap_rl.envs.small.catch`."""
CATCH_ACTIONS = 3
"""Of each: stay, left, right."""


class CatchSuite(GameSuite):
    """The variants of Catch."""

    kind = "catch"
    options = ("mix_games", "agent_steps", "num_envs", "unroll_length")

    def resolve_games(self, games: Sequence[str]) -> tuple[str, ...]:
        return check_games(self.kind, tuple(games), CATCH_GAMES)

    def unseen(self, task: TaskOptions) -> str | None:
        return next((game for game in CATCH_GAMES if game not in task.resolved_games), None)

    def observation_shape(self, task: TaskOptions) -> tuple[int, ...]:
        return (84, 84, 3)

    def action_space(self, task: TaskOptions, game: str) -> ActionSpace:
        return ActionSpace(CATCH_ACTIONS)

    def environments(self, task: TaskOptions, game: str) -> Slice:
        from leap_rl.envs.small.catch import CatchEnvs

        return lambda *, num_envs, first: CatchEnvs(game, num_envs=num_envs)


class ImageSuite(Suite):
    """Images to classify."""

    subject = "images to classify"
    learned_by = "classifier"
    unit = "examples"


class OmniglotSuite(ImageSuite):
    """Alphabets to classify the characters of."""

    kind = "omniglot"
    options = ("data", "data_sha256", "omniglot")
    compared_by = "benchmarks/paper/omniglot_scores.py compares initializations of classifiers"

    def resolve_games(self, games: Sequence[str]) -> tuple[str, ...]:
        """Return the alphabets; none where a pool is named, whose alphabets the data knows."""
        return () if set(games) & set(POOLS) else tuple(games)

    def updates(self, task: TaskOptions) -> int:
        return task.omniglot.updates

    def with_updates(self, task: T, updates: int) -> T:
        return replace(task, omniglot=replace(task.omniglot, updates=updates))

    def budget(self, task: TaskOptions) -> int:
        return task.omniglot.updates * task.omniglot.batch_size

    def resolve(self, task: T) -> T:
        """Return the options with the alphabets spelled out and the data's SHA-256."""
        from leap_rl.tasks.images.data import resolve_alphabets

        data = open_data(task)
        asked = [task.games] if isinstance(task.games, str) else list(task.games)
        games = resolve_alphabets(asked, data, task.omniglot)
        return replace(task, games=list(games), data_sha256=data.sha256)

    def check_machine(self, task: TaskOptions) -> None:
        open_data(task)

    def images(self, task: TaskOptions, game: str) -> NDArray[np.uint8]:
        """Return an alphabet's images, see `task_images`."""
        from leap_rl.tasks.images.data import task_images

        assert task.data is not None
        return task_images(task.data, game, task.omniglot.split)


def open_data(task: TaskOptions) -> Omniglot:
    """Return the images; ValueError if they are missing, or others than the run's."""
    from leap_rl.tasks.images.data import read_omniglot

    if task.data is None:
        raise ValueError(
            "task.data = null: task.kind = omniglot needs Omniglot's images; get "
            f"images_background.zip and images_evaluation.zip from {SOURCE} and name their folder"
        )
    data = read_omniglot(task.data)
    _check_sha256(task, data.sha256)
    return data


def _check_sha256(task: TaskOptions, found: str) -> None:
    if task.data_sha256 not in (None, found):
        raise ValueError(
            f"task.data = {task.data}: holds other images (SHA-256 {found}) than "
            f"task.data_sha256 = {task.data_sha256}; name the folder with those that the run began "
            "with"
        )


class ImageSetsSuite(ImageSuite):
    """Data sets to classify, each with as many updates as its epochs have."""

    kind = "images"
    options = ("data", "data_sha256", "images")
    compared_by = "benchmarks/paper/multi_cv.py compares initializations of classifiers"

    def resolve_games(self, games: Sequence[str]) -> tuple[str, ...]:
        """Return the sets; none where a pool is named, whose sets the data knows."""
        return () if list(games) in (["pretraining"], ["all"]) else tuple(games)

    def updates(self, task: TaskOptions) -> int:
        """Return K where it is given; 0 where epochs say it, for each set its own."""
        return task.images.updates or 0

    def with_updates(self, task: T, updates: int) -> T:
        return replace(task, images=replace(task.images, updates=updates or None))

    def budget(self, task: TaskOptions) -> int:
        """Return the largest of the sets' budgets, in images."""
        from leap_rl.tasks.images.sets import updates_of

        most = (updates_of(str(task.data), game, task.images) for game in task.resolved_games)
        return task.images.batch_size * max(most, default=self.updates(task))

    def resolve(self, task: T) -> T:
        """Return the options with the sets spelled out, each read once, and the data's SHA-256."""
        folder = self._open(task)
        asked = (task.games,) if isinstance(task.games, str) else tuple(task.games)
        games = list(check_games(f"images in {task.data}", asked, folder.names))
        found = replace(task, games=games, data_sha256=folder.sha256)
        for game in games:
            self.images(found, game)
        return found

    def check_machine(self, task: TaskOptions) -> None:
        self._open(task)

    def images(self, task: TaskOptions, game: str) -> ImageSet:
        """Return a set's images, see `read_set`."""
        from leap_rl.tasks.images.sets import read_set

        return read_set(str(task.data), game, task.images)

    def _open(self, task: TaskOptions) -> Folder:
        from leap_rl.tasks.images.sets import read_folder

        if task.data is None:
            raise ValueError(
                "task.data = null: task.kind = images needs a folder of data sets, such as mnist "
                "with its four IDX files; name it (docs/multi_cv.md)"
            )
        folder = read_folder(task.data)
        _check_sha256(task, folder.sha256)
        return folder


QUADRATIC_GAMES = tuple(f"bowl_{index}" for index in range(8))
"""Bowls in a space of a few dimensions, each with its own lowest point."""


class QuadraticSuite(Suite):
    """The bowls."""

    kind = "quadratic"
    subject = "bowls to descend"
    learned_by = "gradient_descent"
    options = ("agent_steps", "num_envs", "unroll_length")
    compared_by = "evaluate games"

    def resolve_games(self, games: Sequence[str]) -> tuple[str, ...]:
        return check_games(self.kind, tuple(games), QUADRATIC_GAMES)


SUITES: dict[str, Suite] = {
    suite.kind: suite
    for suite in (
        AtariSuite(),
        GymnasiumSuite(),
        CatchSuite(),
        OmniglotSuite(),
        ImageSetsSuite(),
        QuadraticSuite(),
    )
}

OPTIONS: tuple[str, ...] = tuple(
    dict.fromkeys(option for suite in SUITES.values() for option in suite.options)
)
"""Fields of `TaskOptions` that have an effect on some suites alone."""


def suite_of(kind: str) -> Suite:
    """Return the suite of that name; ValueError if there is none."""
    if kind not in SUITES:
        raise ValueError(
            f"task.kind = {kind!r}: must be one of {', '.join(SUITES)}; environments of your own "
            "are games of gymnasium (docs/environments.md), and agent.algorithm says who learns"
        )
    return SUITES[kind]
