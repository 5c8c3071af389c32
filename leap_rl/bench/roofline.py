"""What the processor allows: matrix products at the rate of the library's own, after the emulator.

A roofline (Williams, Waterman and Patterson 2009) of an agent step: the bare emulator's time, and
the network's operations at the highest rate at which this machine multiplies matrices of the
layers' own shapes in the run's precision. Nothing that learns with these layers is faster on it
unless it computes less.

N, K, M: a product's rows, the length of its sums, and its columns.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from leap_rl.networks.actor_critic import ActorCritic


class Product(NamedTuple):
    """A matrix product [N, K] · [K, M]."""

    n: int
    k: int
    m: int

    @property
    def operations(self) -> int:
        """Multiplications and additions."""
        return 2 * self.n * self.k * self.m


@dataclass(frozen=True, kw_only=True)
class Work:
    """What an unroll asks of the processor."""

    operations: float
    """Multiplications and additions for each observation: forward when it is acted on, backward
    once, and its share of the forward pass of the last observations."""
    products: tuple[Product, ...]
    """Of each layer with weights, forward over the whole unroll."""


class Rate(NamedTuple):
    """Operations a second, by the clock on the wall and by the process's CPU time."""

    wall: float
    cpu: float


def work_of(network: ActorCritic, observations: Tensor, *, unroll: int) -> Work:
    """Count what an unroll of `observations`, uint8 [B, H, W, C] or [B, V], takes."""
    outputs: list[tuple[nn.Module, int]] = []

    def note(layer: nn.Module, _: Any, output: Tensor) -> None:
        outputs.append((layer, output.numel()))

    weighted = [layer for layer in network.modules() if _is_matrix(layer)]
    hooks = [layer.register_forward_hook(note) for layer in weighted]
    parameters = [each for each in network.parameters() if each.requires_grad]
    try:
        with FlopCounterMode(display=False) as forward:
            logits, values = network(observations)
        with FlopCounterMode(display=False) as backward:
            torch.autograd.grad(logits.sum() + values.sum(), parameters, allow_unused=True)
    finally:
        for hook in hooks:
            hook.remove()
    passes = forward.get_total_flops() * (1 + 1 / unroll) + backward.get_total_flops()
    return Work(
        operations=passes / len(observations),
        products=tuple(_product(layer, unroll * size) for layer, size in outputs),
    )


def highest_rate(
    products: tuple[Product, ...], *, dtype: torch.dtype, device: str, seconds: float
) -> Rate:
    """Measure the fastest of the products, as the library computes it, for `seconds` in all."""
    rates = [
        _rate(each, dtype=dtype, device=device, seconds=seconds / len(products))
        for each in products
    ]
    return Rate(max(rate.wall for rate in rates), max(rate.cpu for rate in rates))


def roofline(
    agent: float, limit: float, peaks: Sequence[float], operations: float
) -> dict[str, float]:
    """Return the least time of a trainer's agent step, in µs, and what the agent reaches of it.

    `agent` and `limit` are agent steps a second of one trainer.
    """
    peak = median(peaks)
    emulator_us, products_us = 1e6 / limit, 1e6 * operations / peak
    least_us = emulator_us + products_us
    return {
        "emulator_us": round(emulator_us, 2),
        "operations": round(operations),
        "gflops": round(peak / 1e9, 1),
        "products_us": round(products_us, 2),
        "least_us": round(least_us, 2),
        "fraction": round(agent * least_us / 1e6, 4),
    }


def _is_matrix(layer: nn.Module) -> bool:
    weight = getattr(layer, "weight", None)
    return isinstance(weight, Tensor) and weight.ndim >= 2


def _product(layer: nn.Module, outputs: int) -> Product:
    weight: Any = layer.weight
    columns = weight.shape[0]
    return Product(outputs // columns, weight.numel() // columns, columns)


def _rate(product: Product, *, dtype: torch.dtype, device: str, seconds: float) -> Rate:
    left = torch.ones((product.n, product.k), dtype=dtype, device=device)
    right = torch.ones((product.k, product.m), dtype=dtype, device=device)
    out = torch.empty((product.n, product.m), dtype=dtype, device=device)
    torch.mm(left, right, out=out)  # compiled, and its memory mapped
    done = 0
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    while not done or time.perf_counter() - wall_s < seconds:
        torch.mm(left, right, out=out)
        if device == "cuda":
            torch.cuda.synchronize()
        done += product.operations
    return Rate(done / (time.perf_counter() - wall_s), done / (time.process_time() - cpu_s))
