"""Multi-headed finetuning: one encoder trained on all games, each with heads of its own.

The baseline that Leap is compared with in the paper (Flennerhag et al., ICLR 2019, section 4). It
knows no tasks that begin and end: a game's agent, its heads, its optimizer and its episodes, goes
on from one round to the next. A round trains each of its games for a few updates from the current
encoder, the games contribute theta0 - theta_K, and SGD with rate 1 makes their mean the next
encoder. With one update a round that is synchronous multi-task SGD: with an agent of plain SGD

    theta <- theta - lr mean over games of grad_f_game(theta).

With more, games drift apart within a round, as in federated averaging (McMahan et al., AISTATS
2017).

Dimensions: P flattened shared parameters, K updates a round.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from leap_rl.meta.reptile import DisplacementPath


@dataclass(frozen=True)
class Finetune:
    """The method; it has nothing to set.

    It contributes what Reptile does. What differs is that its tasks are kept.
    """

    name: ClassVar[str] = "finetune"
    end_batches: ClassVar[int] = 0
    keeps_tasks: ClassVar[bool] = True

    def start(self, theta0: Tensor, *, borrow: bool = False) -> DisplacementPath:
        """Begin a round's path at `theta0`, float32 [P]; see `Method.start`.

        Raises:
            ValueError: not a float32 vector.
            NonFiniteError: a parameter is NaN or infinite.
        """
        return DisplacementPath(theta0, borrow=borrow)
