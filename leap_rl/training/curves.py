"""The episodes of a round as a Parquet file, RUN/curves/NNNNNN.parquet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leap_rl.training.rounds.plan import FilledSlot


def episodes_file(round_number: int, slots: Mapping[int, FilledSlot]) -> bytes:
    """Return the Parquet file of the episodes of a round's slots.

    Columns: meta_step, slot, game, agent_steps (of the task, when the episode ended),
    episode_return (raw), length (agent steps).
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    counts = [len(slot.episodes.returns) for slot in slots.values()]
    episodes = [slot.episodes for slot in slots.values()]
    games = np.repeat([slot.spec.game.encode() for slot in slots.values()], counts).tolist()

    def column(values: NDArray[Any]) -> Any:
        return pa.Array.from_buffers(
            pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(values)]
        )

    # From buffers: pyarrow imports pandas, nearly a second of each start, to convert an array.
    offsets = np.cumsum([0, *map(len, games)], dtype=np.int32)
    table = pa.table(
        {
            "meta_step": column(np.full(sum(counts), round_number, dtype=np.int32)),
            "slot": column(np.repeat(np.array(list(slots), dtype=np.int32), counts)),
            "game": pa.StringArray.from_buffers(
                len(games), pa.py_buffer(offsets), pa.py_buffer(b"".join(games))
            ),
            "agent_steps": column(np.concatenate([one.agent_steps for one in episodes])),
            "episode_return": column(np.concatenate([one.returns for one in episodes])),
            "length": column(np.concatenate([one.lengths for one in episodes])),
        }
    )
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return bytes(sink.getvalue().to_pybytes())
