"""leap_rl from Python, in the words of its command line: `leap_rl.train` is `leap-rl train`.

Runs are computed in a process of their own, as the command line computes them. So the bits are the
same, and the caller's torch, signal handlers, plots and child processes stay as they are.
"""

from leap_rl.runs.api.evaluations import Evaluation, evaluate
from leap_rl.runs.api.runs import Run, StopRun, learn, load_encoder, resume, train

__all__ = ["Evaluation", "Run", "StopRun", "evaluate", "learn", "load_encoder", "resume", "train"]
