"""What `path.watch` costs stable-baselines3's own time, by pairs of runs that differ in it alone.

    .venv/bin/python -m benchmarks.watch --algorithm PPO --env CartPole-v1 --pairs 10

Both runs of a pair have one seed and so the same updates; which goes first alternates. Each learns
with the library's defaults on one thread, and all of its policy's parameters are the path, losses
too. Time is that of the process; making the agent is left out. It prints a JSON object: the median
overhead of pairs in percent with its interval, and the same of the time within the hooks over the
rest of the same run, which other work on the machine disturbs less.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Final

import torch
from torch.nn.utils import parameters_to_vector

from benchmarks.harness.experiment import positive
from benchmarks.harness.medians import estimate
from leap_rl.meta import Leap

METHODS: Final = {
    "optimizer": Leap(metric="optimizer", task_unit=True),
    "euclidean": Leap(),
}


def options() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--algorithm", choices=("PPO", "A2C", "DQN"), default="PPO")
    parser.add_argument("--env", default="CartPole-v1", help="a Gymnasium id")
    parser.add_argument("--metric", choices=tuple(METHODS), default="optimizer")
    parser.add_argument("--agent_steps", type=positive, default=8192, help="of each run")
    parser.add_argument("--pairs", type=positive, default=10)
    return parser


class Clock:
    """Hooks around those of a watch, which run in the order that they were registered in."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._began = 0.0

    def start(self, *_: Any) -> None:
        """Begin."""
        self._began = time.process_time()

    def stop(self, *_: Any) -> None:
        """Add what went by."""
        self.seconds += time.process_time() - self._began


def seconds(given: argparse.Namespace, *, seed: int, watched: bool) -> tuple[float, float, int]:
    """Have an agent learn; returns the process's seconds, the hooks', and the path's segments."""
    import stable_baselines3

    from leap_rl.learners.sb3.task import last_loss

    model: Any = getattr(stable_baselines3, given.algorithm)(
        "MlpPolicy", given.env, seed=seed, device="cpu"
    )
    shared = [each for each in model.policy.parameters() if each.requires_grad]
    path = METHODS[given.metric].start(parameters_to_vector(shared).detach())
    clock, optimizer = Clock(), model.policy.optimizer
    with ExitStack() as stack:
        if watched:
            loss = stack.enter_context(last_loss())
            optimizer.register_step_pre_hook(clock.start)
            optimizer.register_step_post_hook(clock.start)
            stack.enter_context(path.watch(optimizer, shared, loss))
            optimizer.register_step_pre_hook(clock.stop)
            optimizer.register_step_post_hook(clock.stop)
        began = time.process_time()
        model.learn(given.agent_steps)
        took = time.process_time() - began
    return took, clock.seconds, path.segments


def main(words: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    given = options().parse_args(words)
    torch.set_num_threads(1)
    overheads, within, segments = [], [], 0
    seconds(given, seed=0, watched=True)  # the first run loads and compiles
    for pair in range(given.pairs):
        took = {}
        for watched in (False, True) if pair % 2 else (True, False):
            took[watched], hooks, found = seconds(given, seed=pair, watched=watched)
            if watched:
                segments = found
                within.append(100 * hooks / (took[True] - hooks))
        overheads.append(100 * (took[True] / took[False] - 1))
    print(
        json.dumps(
            {
                "algorithm": given.algorithm,
                "env": given.env,
                "metric": given.metric,
                "segments": segments,
                "pairs": given.pairs,
                "overhead_percent": [round(each, 2) for each in estimate(overheads)],
                "within_hooks_percent": [round(each, 2) for each in estimate(within)],
            }
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
