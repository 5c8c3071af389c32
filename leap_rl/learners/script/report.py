"""What a script is given beside its encoder: counted environments, and its report."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from torch.optim import Optimizer

from leap_rl.envs.single import SingleEnv
from leap_rl.envs.state import Observations
from leap_rl.learners.task import EpisodeEnd
from leap_rl.meta.watch import Loss

LARGEST: Final = 1e30
"""Of an episode's return, such that sums and squares of many are finite."""

Watches = Callable[[Optimizer | Iterable[Optimizer], Loss | None], None]


class MisuseError(ValueError):
    """A script does what its function must not; the message says what."""


class Report:
    """Takes in a script's episodes and optimizers, and counts the agent steps that it plays.

    Attributes:
        agent_steps: Actions taken in the environments so far.
        rewards: The sum of their rewards.
        episodes: Those that the script told and nobody took yet.
    """

    def __init__(self, budget: int, watches: Watches) -> None:
        self._budget, self._watches = budget, watches
        self.agent_steps = self.resets = 0
        self.rewards = 0.0
        self.episodes: list[EpisodeEnd] = []
        self._last = 0

    def __call__(self, agent_step: int, episode_return: float, length: int) -> None:
        """Tell an episode that ended.

        Args:
            agent_step: The script's agent steps by then, over all its environments; never less
                than in the last call.
            episode_return: The sum of the episode's own rewards, not clipped.
            length: Agent steps of the episode.

        Raises:
            MisuseError: No such episode can have been played.
        """
        agent_step, length, total = int(agent_step), int(length), float(episode_return)
        told = f"report({agent_step}, {total:g}, {length})"
        if agent_step < self._last:
            raise MisuseError(f"{told}: the call before was at agent step {self._last}")
        if agent_step > self._budget:
            raise MisuseError(
                f"{told}: is beyond the budget of {self._budget} agent steps; play as many and no "
                "more, or choose a task.agent_steps that the script's batches divide"
            )
        if agent_step > self.most:
            raise MisuseError(
                f"{told}: {self.agent_steps} of {self._budget} agent steps are played by then; "
                "count one for each action in each environment"
            )
        if not (abs(total) <= LARGEST and 1 <= length <= agent_step):
            raise MisuseError(
                f"{told}: must be the agent step, the episode's return and its length"
            )
        self._last = agent_step
        self.episodes.append(EpisodeEnd(agent_step, total, length))

    def watch(self, optimizer: Optimizer | Iterable[Optimizer], loss: Loss | None = None) -> None:
        """Show each step of the encoder's optimizer to the method; to be called before the first.

        Args:
            optimizer: What steps the encoder's parameters, and maybe others; or several.
            loss: A function of nothing that returns the loss of the batch just gone through, such
                as `lambda: loss`. Without it differences of the loss are 0, and Leap is Reptile.

        Raises:
            MisuseError: It was called before, or no optimizer steps the encoder.
        """
        self._watches(optimizer, loss)

    @property
    def most(self) -> int:
        """Agent steps as a script may count them: with the calls that only begin an episode.

        In Gymnasium's `AutoresetMode.NEXT_STEP` such a call takes the place of a step.
        """
        return self.agent_steps + self.resets

    def step(self) -> None:
        """Count an agent step that is about to be made; MisuseError if it is beyond the budget."""
        if self.agent_steps == self._budget:
            raise MisuseError(
                f"takes more agent steps than its budget, {self._budget}; stop at the budget, "
                "counting each environment's steps"
            )
        self.agent_steps += 1


class CountedEnv(SingleEnv):
    """An environment of a script; a first `reset` without a seed takes one of the task's.

    Its spaces' own draws, as of `action_space.sample()`, are of that seed, too.
    """

    def __init__(self, envs: Any, report: Report, check: Callable[[], None], seed: int) -> None:
        super().__init__(envs)
        self._report, self._check = report, check
        self._seed: int | None = seed
        self.action_space.seed(seed)
        self.observation_space.seed(seed)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observations, dict[str, Any]]:
        first, self._seed = self._seed, None
        if first is None:
            self._report.resets += 1
        return super().reset(seed=first if seed is None else seed, options=options)

    def step(self, action: Any) -> tuple[Observations, float, bool, bool, dict[str, Any]]:
        self._check()
        self._report.step()
        stepped = super().step(action)
        self._report.rewards += stepped[-1]["raw_reward"]
        return stepped
