"""MAML: the gradient of the last loss through all updates (Finn et al., ICML 2017).

The Leap paper compares itself with it in section 4.1, where tasks are supervised and K = 5. The
method watches the path as first-order MAML does and takes a task's contribution from its end. What
differs is the gradient that it is shown there: the task itself differentiates f(θᴷ) by θ⁰, since it
alone can compute its updates again.

Dimensions: P flattened shared parameters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from leap_rl.meta.fomaml import FOMAMLPath


@dataclass(frozen=True)
class MAML:
    """The method; it has nothing to set. Its tasks must be asked for the gradient by their start.

    As long as a path is not finished its gradient is the first-order one.
    """

    name: ClassVar[str] = "maml"
    end_batches: ClassVar[int] = 1
    keeps_tasks: ClassVar[bool] = False

    def start(self, theta0: Tensor, *, borrow: bool = False) -> FOMAMLPath:
        """Begin a task's path at `theta0`, float32 [P]; see `Method.start`.

        Raises:
            ValueError: not a float32 vector.
            NonFiniteError: a parameter is NaN or infinite.
        """
        return FOMAMLPath(theta0, borrow=borrow)
