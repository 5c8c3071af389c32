"""What `path.watch` costs stable-baselines3's own time, by pairs of runs that differ in it alone.

    .venv/bin/python -m benchmarks.watch --algorithm PPO --env CartPole-v1 --pairs 10

Both runs of a pair have one seed and so the same updates; which goes first alternates. Each learns
with the library's defaults on one thread, and all of its policy's parameters are the path. Time is
that of the process, which other work on the machine does not lengthen; making the agent is left
out. It prints a JSON object: the median overhead in percent with its interval.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
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


def seconds(given: argparse.Namespace, *, seed: int, watched: bool) -> tuple[float, int]:
    """Have an agent learn; returns the process's seconds, and the segments of its path."""
    import stable_baselines3

    model: Any = getattr(stable_baselines3, given.algorithm)(
        "MlpPolicy", given.env, seed=seed, device="cpu"
    )
    shared = [each for each in model.policy.parameters() if each.requires_grad]
    path = METHODS[given.metric].start(parameters_to_vector(shared).detach())
    watch = path.watch(model.policy.optimizer, shared, lambda: 0.5) if watched else nullcontext()
    began = time.process_time()
    with watch:
        model.learn(given.agent_steps)
    return time.process_time() - began, path.segments


def main(words: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    given = options().parse_args(words)
    torch.set_num_threads(1)
    overheads, segments = [], 0
    seconds(given, seed=0, watched=True)  # the first run loads and compiles
    for pair in range(given.pairs):
        took = {}
        for watched in (False, True) if pair % 2 else (True, False):
            took[watched], found = seconds(given, seed=pair, watched=watched)
            segments = max(segments, found)
        overheads.append(100 * (took[True] / took[False] - 1))
    found_overhead = estimate(overheads)
    print(
        json.dumps(
            {
                "algorithm": given.algorithm,
                "env": given.env,
                "metric": given.metric,
                "segments": segments,
                "pairs": given.pairs,
                "overhead_percent": round(found_overhead.median, 2),
                "interval": [round(found_overhead.low, 2), round(found_overhead.high, 2)],
            }
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
