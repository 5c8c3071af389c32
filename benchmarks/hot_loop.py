"""Measures each decision in the agent's hot loop: both alternatives in turns, within one run.

    .venv/bin/python -m benchmarks.hot_loop [--repeats 40] [--encoder mnih2013]

Needs no emulator and no game: 32 random observations, unroll 5, one thread. Prints a table of
medians and of the ratio old / new, pair by pair.
"""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

import torch

from leap_rl.core import determinism
from leap_rl.core.kernels import kernel
from leap_rl.learners.a2c.rmsprop import RMSProp
from leap_rl.learners.config import AgentConfig
from leap_rl.learners.defaults import PAPER
from leap_rl.meta import Leap
from leap_rl.networks.actor_critic import ActorCritic, ForwardBackward
from leap_rl.networks.autograd import AutogradForwardBackward
from leap_rl.networks.dense_conv_cpu import DenseConvCpu, is_plain, space_to_depth
from leap_rl.networks.encoders import initialize
from leap_rl.networks.parameters import FlatParameters, flatten_parameters
from leap_rl.tasks.config import TaskConfig

TASK, AGENT = TaskConfig(), AgentConfig()
UNROLL, ENVIRONMENTS, ACTIONS = TASK.unroll_length, TASK.num_envs, 6
SHAPE = TASK.atari.settings.observation_shape
RATES = {"lr": PAPER.lr, "alpha": AGENT.rmsprop_alpha, "eps": PAPER.rmsprop_eps}


@dataclass(frozen=True)
class Choice:
    """One decision: what is done, and what it is set against."""

    name: str
    new: Callable[[], object]
    old: Callable[[], object]


def network(encoder: str) -> tuple[ActorCritic, FlatParameters]:
    """Make a network with a random initialization."""
    made = ActorCritic(encoder, observation_shape=SHAPE, num_logits=ACTIONS)
    flat = flatten_parameters(made)
    initialize(made, torch.Generator().manual_seed(0))
    return made, flat


def images() -> list[torch.Tensor]:
    """Draw the observations of an unroll."""
    shape = (ENVIRONMENTS, *SHAPE)
    return [torch.randint(0, 256, shape, dtype=torch.uint8) for _ in range(UNROLL)]


def update(passes: ForwardBackward, observations: list[torch.Tensor]) -> Callable[[], object]:
    """Return the passes of one update: a rollout, its bootstrap values and the gradient."""
    logits_grad = torch.randn(UNROLL, ENVIRONMENTS, ACTIONS) / (UNROLL * ENVIRONMENTS)
    values_grad = torch.randn(UNROLL, ENVIRONMENTS) / (UNROLL * ENVIRONMENTS)

    def run() -> None:
        for observation in observations:
            passes.record(observation)
        passes.forward(observations[0])
        passes.backward(logits_grad, values_grad)

    return run


def in_a_process(malloc: str, encoder: str) -> float:
    """Return the milliseconds of an update in a process of its own, as its malloc is set up."""
    words = [sys.executable, __file__, "--malloc", malloc, "--encoder", encoder]
    return float(subprocess.run(words, check=True, capture_output=True, text=True).stdout)


def alone(malloc: str, encoder: str) -> None:
    """Print what `in_a_process` reads."""
    if malloc == "default":
        determinism._keep_freed_memory = lambda: None
    determinism.configure_torch()
    made, flat = network(encoder)
    passes = DenseConvCpu(made) if is_plain(made) else AutogradForwardBackward(made, flat)
    run = update(passes, images())
    times = [seconds(run) for _ in range(30)]
    print(median(times[5:]) * 1e3)


def filling_memory(run: Callable[[], object]) -> Callable[[], object]:
    """Return the same work with torch's default for deterministic algorithms."""

    def filled() -> None:
        torch.utils.deterministic.fill_uninitialized_memory = True  # type: ignore[attr-defined]
        try:
            run()
        finally:
            torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]

    return filled


def observe(p: Literal[1, 2], encoder: str, *, lean: bool) -> Callable[[], object]:
    """Return one `observe` of Leap's path, as an agent or as any other loop calls it."""
    _, flat = network(encoder)
    points = [(flat.vector.clone() + k * 1e-4, torch.randn_like(flat.vector)) for k in range(2)]
    path = Leap(p=p).start(points[0][0], borrow=lean)
    path.observe(points[0][0], 0.0, points[0][1])
    calls = 0

    def run() -> None:
        nonlocal calls
        calls += 1
        theta, grad = points[calls % 2]
        path.observe(theta, float(calls % 3), grad, step_length=0.08 if lean else None)

    return run


def choices(encoder: str, precision: str) -> list[Choice]:
    """Return the decisions."""
    observations = images()
    made, flat = network(encoder)
    other, other_flat = network(encoder)
    autograd = update(AutogradForwardBackward(other, other_flat), observations)
    if not is_plain(made):
        return [Choice("fresh memory left as it is / filled", autograd, filling_memory(autograd))]
    direct = update(DenseConvCpu(made, dtype=getattr(torch, precision)), observations)
    optimizer, plain = (
        made(flat, lr=RATES["lr"], alpha=RATES["alpha"], eps=RATES["eps"])
        for made in (RMSProp, PlainRMSProp)
    )
    shared_size = flat.layout.before("policy").size
    leaf = torch.nn.Parameter(other_flat.vector)
    leaf.grad = other_flat.grad
    torchs = torch.optim.RMSprop(
        [leaf], lr=RATES["lr"], alpha=RATES["alpha"], eps=RATES["eps"], foreach=False
    )
    convolution = next(made.encoder.children())
    assert isinstance(convolution, torch.nn.Conv2d)
    stride = convolution.stride[0]
    height, width, channels = SHAPE
    blocks = (ENVIRONMENTS, height // stride, stride, width // stride, stride * channels)
    image = observations[0].view(blocks)
    return [
        Choice("passes written out / autograd in float32", direct, autograd),
        Choice("fresh memory left as it is / filled", direct, filling_memory(direct)),
        Choice("RMSProp in one pass / torch's", lambda: optimizer.step(shared_size), torchs.step),
        Choice(
            "RMSProp with its step's length / without",
            lambda: optimizer.step(shared_size),
            lambda: plain.step(shared_size),
        ),
        Choice(
            "space to depth, compiled / torch's",
            lambda: space_to_depth(observations[0], stride),
            lambda: image.transpose(2, 3).contiguous(),
        ),
        Choice(
            "Leap, energy: borrowing / copying",
            observe(2, encoder, lean=True),
            observe(2, encoder, lean=False),
        ),
        Choice(
            "Leap, length: borrowing / copying",
            observe(1, encoder, lean=True),
            observe(1, encoder, lean=False),
        ),
    ]


@kernel
def _plain_rmsprop(theta: Any, grad: Any, mean_square: Any, new_theta: Any, rates: Any) -> None:
    """`rmsprop._rmsprop` without the sums of squares that only Leap uses.

    The vectors are plain [N]: with no order of sums to keep, this is what compiles to the fastest.
    """
    lr, alpha, rest, eps, scale = rates[0], rates[1], rates[2], rates[3], rates[4]
    correction = rates[5]
    for index in range(theta.shape[0]):
        g = scale * grad[index]
        v = alpha * mean_square[index] + rest * g * g
        mean_square[index] = v
        new_theta[index] = theta[index] - lr * g / (math.sqrt(correction * v) + eps)


class PlainRMSProp(RMSProp):
    """RMSProp that does not measure its step: the baseline of what Leap costs there."""

    def _step_compiled(self, shared_size: int, grad_scale: float) -> tuple[float, float]:
        flat = self._flat
        rates = torch.tensor(
            [self._lr, self._alpha, 1.0 - self._alpha, self._eps, grad_scale, self._correction]
        ).numpy()
        theta, grad, mean_square, new_theta = (
            vector.numpy() for vector in (flat.vector, flat.grad, self.mean_square, flat.spare)
        )
        _plain_rmsprop(theta, grad, mean_square, new_theta, rates)
        return 0.0, 0.0


def seconds(run: Callable[[], object]) -> float:
    """Return how long a call took, with a cache that other work has used before."""
    _OTHER_WORK.add_(1.0)
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


_OTHER_WORK = torch.zeros(2_000_000)  # 8 MB: what emulators and activations leave of a cache


def options() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=40, help="pairs of each decision")
    parser.add_argument("--encoder", choices=("mnih2013", "nature", "impala"), default="mnih2013")
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--malloc", choices=("tuned", "default"), help="one update alone, in ms")
    return parser


def main() -> None:
    """Measure and print."""
    given = options().parse_args()
    torch.manual_seed(0)
    if given.malloc:
        alone(given.malloc, given.encoder)
        return
    determinism.configure_torch()
    print("| new / old | new, ms | old, ms | old / new |\n|---|---:|---:|---:|")
    for choice in choices(given.encoder, given.precision):
        for run in (choice.new, choice.old):
            run()
        report(
            choice.name,
            [(seconds(choice.new) * 1e3, seconds(choice.old) * 1e3) for _ in range(given.repeats)],
        )
    report(
        "freed memory kept / given back, whole processes",
        [
            (in_a_process("tuned", given.encoder), in_a_process("default", given.encoder))
            for _ in range(max(3, given.repeats // 10))
        ],
    )


def report(name: str, pairs: list[tuple[float, float]]) -> None:
    """Print one row: milliseconds of the new way and of the old one."""
    new, old = (median(times) for times in zip(*pairs, strict=True))
    ratio = median(slow / fast for fast, slow in pairs)
    print(f"| {name} | {new:.3f} | {old:.3f} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    determinism.prepare_environment()
    main()
