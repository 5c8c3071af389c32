"""Snapshots of environments as plain arrays, which any file format can hold and which run no code.

A state is a flat mapping of names to arrays, each of them in the order of the environments. Bytes
that differ in length between environments are one array, end to end, beside one of the sizes [B].
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

State = dict[str, NDArray[Any]]

Observations: TypeAlias = NDArray[np.uint8] | NDArray[np.float32]
"""Pixels, or other numbers."""

Actions: TypeAlias = NDArray[Any]
"""Of B environments: int64 [B] in 0..A-1, or float32 [B, D] of continuous ones of D numbers."""

IDENTITY = "identity"
"""The key of the text, as uint8, that says which environments a state is of."""

_WORD = 2**64


def check_state(state: Mapping[str, NDArray[Any]], *, like: State) -> None:
    """Raise ValueError, which names the field, for a state of other environments than `like`'s.

    An array whose name has a partner `NAME_sizes` may have another length, if this partner sums up
    to it.
    """
    if state.keys() != like.keys():
        names = ", ".join(sorted(state.keys() ^ like.keys()))
        raise ValueError(f"state: {names} missing or unknown; restore what state() returned")
    found, identity = (bytes(one[IDENTITY]).decode(errors="replace") for one in (state, like))
    if found != identity:
        raise ValueError(
            f"state.{IDENTITY} = {found}: must be {identity}; restore into environments made alike"
        )
    for name, pattern in like.items():
        array = state[name]
        sizes = state.get(f"{name}_sizes")
        shape = pattern.shape if sizes is None else (int(sizes.sum()),)
        if array.shape != shape or array.dtype != pattern.dtype:
            raise ValueError(
                f"state.{name} is {array.dtype} {list(array.shape)}: must be "
                f"{pattern.dtype} {list(shape)}; restore into as many environments as it is of"
            )


def text_array(text: str) -> NDArray[np.uint8]:
    """Return a text's bytes."""
    return np.frombuffer(text.encode(), dtype=np.uint8).copy()


def join_bytes(parts: Sequence[bytes]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return all parts end to end, and their sizes [B]."""
    sizes = np.array([len(part) for part in parts], dtype=np.int64)
    return np.frombuffer(b"".join(parts), dtype=np.uint8).copy(), sizes


def split_bytes(joined: NDArray[np.uint8], sizes: NDArray[np.int64]) -> Iterator[bytes]:
    """Undo `join_bytes`."""
    for part in np.split(joined, np.cumsum(sizes)[:-1]):
        yield part.tobytes()


def save_generators(generators: Sequence[np.random.Generator]) -> NDArray[np.uint64]:
    """Return the states of PCG64 generators, uint64 [B, 6].

    A row: the upper and lower half of the state, of the increment; `has_uint32`; `uinteger`.
    """
    rows = []
    for generator in generators:
        state: Mapping[str, Any] = generator.bit_generator.state
        assert state["bit_generator"] == "PCG64"
        halves = [*divmod(state["state"]["state"], _WORD), *divmod(state["state"]["inc"], _WORD)]
        rows.append([*halves, state["has_uint32"], state["uinteger"]])
    return np.array(rows, dtype=np.uint64).reshape(len(generators), 6)


def restore_generators(saved: NDArray[np.uint64]) -> list[np.random.Generator]:
    """Undo `save_generators`."""
    generators = []
    for state_high, state_low, inc_high, inc_low, has_uint32, uinteger in saved.tolist():
        bits = np.random.PCG64()
        bits.state = {
            "bit_generator": "PCG64",
            "state": {"state": state_high * _WORD + state_low, "inc": inc_high * _WORD + inc_low},
            "has_uint32": has_uint32,
            "uinteger": uinteger,
        }
        generators.append(np.random.Generator(bits))
    return generators


def join_states(states: Sequence[State]) -> State:
    """Return the state of all environments from those of slices of them, in order."""
    joined = {name: np.concatenate([state[name] for state in states]) for name in states[0]}
    return {**joined, IDENTITY: states[0][IDENTITY]}


def split_state(state: Mapping[str, NDArray[Any]], counts: Sequence[int]) -> list[State]:
    """Undo `join_states`, for slices of so many environments each."""
    edges = np.cumsum(counts)[:-1]
    slices: list[State] = [{IDENTITY: state[IDENTITY]} for _ in counts]
    for name in state.keys() - {IDENTITY}:
        sizes = state.get(f"{name}_sizes")
        places = edges if sizes is None else np.append(0, np.cumsum(sizes))[edges]
        for part, array in zip(slices, np.split(state[name], places), strict=True):
            part[name] = array
    return slices
