"""How loops are compiled: the one place that says what numba may do.

Without `fastmath`: numba then keeps the order of every sum, so that one kind of processor gives one
result, whatever it is that the compiler vectorizes.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TypeVar, cast

import numba
from numba.core.errors import NumbaExperimentalFeatureWarning

# A kernel that takes any record with some fields is given records with more; numba says each time
# it compiles one that it may change its mind on that.
warnings.filterwarnings(
    "ignore", ".*has been considered a subtype", NumbaExperimentalFeatureWarning
)

F = TypeVar("F", bound=Callable[..., object])


def kernel(function: F) -> F:
    """Compile a loop over arrays when it is first called.

    The machine code, for this kind of processor, is kept beside the module or, where that cannot be
    written, in the user's cache folder: compiling takes seconds, and every trainer would do it. It
    is compiled again when the module changes, but not when a constant or a kernel of another module
    does: after changing one, remove the `__pycache__` folders. A division by zero gives infinity or
    NaN, as in numpy, and not an exception.
    """
    return cast(F, numba.njit(cache=True, nogil=True, error_model="numpy")(function))
