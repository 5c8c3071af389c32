"""What a round records: rows of metrics, whose keys `docs/metrics.md` explains, and its episodes.

Dimensions: P flattened shared parameters.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from statistics import fmean
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from leap_rl.meta.outer_step import OuterStepResult
from leap_rl.meta.vectors import pairwise_cosines
from leap_rl.tracking.metrics import Row, Unit
from leap_rl.training.messages import CurvePoint
from leap_rl.training.rounds.plan import DroppedSlot, FilledRound, FilledSlot, LoggedRow

Values = dict[str, float | int]

EPISODES: Final = ("meta_step", "slot", "agent_steps", "episode_return", "length")
"""The columns of numbers in a file of episodes."""

MOST_EPISODES: Final = 2**26
"""In a file that is read: a few bytes can stand for as many as they say."""


def meta_step_row(
    filled: FilledRound,
    contributions: Sequence[Tensor],
    step: OuterStepResult,
    *,
    initialization_norm: float,
    agent_steps_before: int,
    frames_per_agent_step: int,
    validation: Mapping[str, float | int],
    unit: Unit = "agent_steps",
) -> LoggedRow:
    """Return the row of a meta-step, axis `meta_step`.

    A game that fills several slots gets the mean over its slots; its mean return is over all their
    episodes together, never a mean of means.

    Args:
        filled: The meta-step, with the tasks that count and those that were dropped.
        contributions: Of those that count, [P] each.
        step: The outer step's result.
        initialization_norm: Before the step.
        agent_steps_before: Of all meta-steps before this one.
        frames_per_agent_step: 0 for tasks without frames.
        validation: Metrics of the initialization before the step; mostly none.
        unit: Tasks that count examples have no episodes.
    """
    slots, dropped = filled.slots, filled.dropped
    new_agent_steps = sum(slot.record.agent_steps for slot in slots)
    agent_steps = agent_steps_before + new_agent_steps
    row: Values = {"meta_step": filled.number, unit: agent_steps}
    if frames_per_agent_step:
        row["frames"] = agent_steps * frames_per_agent_step

    row["meta/contribution_norm"] = step.mean_norm
    row["meta/step_norm"] = step.step_norm
    row["meta/initialization_norm"] = initialization_norm
    if initialization_norm > 0:
        row["meta/step_ratio"] = step.step_norm / initialization_norm

    paths = [
        {**slot.record.path, **_pull(contribution, step.mean, len(slots))}
        for slot, contribution in zip(slots, contributions, strict=True)
    ]
    games = [slot.spec.game for slot in slots]
    for game in dict.fromkeys(games):
        places = [place for place, other in enumerate(games) if other == game]
        row |= _game(game, [slots[i] for i in places], [paths[i] for i in places], unit)
    row |= _cosines(games, contributions)

    restarted = [slot.restarts > 0 for slot in slots] + [slot.restarts > 0 for slot in dropped]
    row["tasks/restarted"] = sum(restarted)
    row["tasks/cut_off"] = sum(slot.cut_off for slot in slots)
    row["tasks/dropped"] = len(dropped)
    for lost in dropped:
        key = f"tasks/{lost.spec.game}/dropped"
        row[key] = row.get(key, 0) + 1
    row |= _speeds(slots, unit)
    row["time/meta_step_s"] = filled.elapsed_s
    if filled.elapsed_s > 0:
        row[f"throughput/{unit}_per_s"] = new_agent_steps / filled.elapsed_s
    return LoggedRow(axis="meta_step", values=row | dict(validation))


def timed(rows: Sequence[LoggedRow], filled: FilledRound) -> list[LoggedRow]:
    """Return a round's rows, the last of them with the time that all of its trainers took."""
    if not rows:
        return []
    working_s = math.fsum(slot.record.working_s for slot in filled.slots)
    values: Values = {
        "time/working_s": working_s,
        "time/waiting_s": math.fsum(slot.record.waiting_s for slot in filled.slots),
    }
    available_s = filled.trainers * filled.elapsed_s
    if available_s > 0:
        values["time/busy_share"] = working_s / available_s
    *others, last = rows
    return [*others, LoggedRow(axis=last.axis, values={**last.values, **values})]


def speed(row: Row, game: str) -> float | None:
    """Return how fast a trainer learned a game, in its unit a second; none if unknown."""
    keys = (f"throughput/{game}/{unit}_per_s" for unit in ("agent_steps", "examples"))
    return next((row[key] for key in keys if key in row), None)


def _speeds(slots: Sequence[FilledSlot], unit: Unit) -> Values:
    """Return each game's agent steps a second of a trainer."""
    made: dict[str, int] = {}
    spent_s: dict[str, float] = {}
    for slot in slots:
        game, record = slot.spec.game, slot.record
        if record.working_s > 0:  # of a task that was cut off it is not known
            made[game] = made.get(game, 0) + record.agent_steps
            spent_s[game] = spent_s.get(game, 0.0) + record.working_s
    return {f"throughput/{game}/{unit}_per_s": made[game] / spent_s[game] for game in made}


def learn_row(game: str, point: CurvePoint, unit: Unit = "agent_steps") -> LoggedRow:
    """Return a point of a lone agent's learning curve; its axis is its unit."""
    row: Values = {unit: point.agent_steps}
    if unit == "agent_steps":
        row |= _returns(game, point.return_sum, point.episodes)
    row |= _losses(game, point.losses)
    row[f"throughput/{game}/{unit}_per_s"] = point.agent_steps_per_s
    return LoggedRow(axis=unit, values=row)


def dropped_row(slot: DroppedSlot, unit: Unit = "agent_steps") -> LoggedRow:
    """Return the row of a lone agent that was dropped."""
    row: Values = {unit: slot.agent_steps, f"tasks/{slot.spec.game}/dropped": 1}
    return LoggedRow(axis=unit, values=row)


def evaluation_row(agent_steps: int, means: Mapping[tuple[str, str], float]) -> LoggedRow:
    """Return a point of an evaluation's learning curves: mean returns by initialization and game.

    `agent_steps` are each agent's, from its start.
    """
    row: Values = {"agent_steps": agent_steps}
    for (initialization, game), mean in means.items():
        row[f"evaluation/{initialization}/{game}/mean_return"] = mean
    return LoggedRow(axis="agent_steps", values=row)


def episodes_file(round_number: int, slots: Mapping[int, FilledSlot]) -> bytes:
    """Return the episodes of a round's slots as a Parquet file, RUN/curves/NNNNNN.parquet.

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


def read_episodes(data: bytes) -> dict[str, NDArray[Any]]:
    """Return the columns of `EPISODES` in what `episodes_file` returned.

    Raises:
        ValueError: It is no such file, or damaged.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        if file.metadata.num_rows > MOST_EPISODES:
            raise ValueError(f"has {file.metadata.num_rows:,} episodes")
        schema = file.schema_arrow
        if set(schema.names) != {*EPISODES, "game"} or not all(
            pa.types.is_integer(kind := schema.field(name).type) or pa.types.is_floating(kind)
            for name in EPISODES
        ):
            raise ValueError(f"has the columns {' '.join(str(schema).split())}")
        table = file.read(columns=list(EPISODES))
        if any(column.null_count for column in table.columns):
            raise ValueError("lacks a value")
        return {name: table[name].to_numpy() for name in EPISODES}
    # pyarrow's errors are of many kinds, and some are none of its own.
    except (pa.ArrowException, OSError, ValueError, LookupError, MemoryError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"cannot be read: {reason}") from None


def norm(vector: Tensor) -> float:
    """Return the Euclidean norm, in float64."""
    return float(torch.linalg.vector_norm(vector, dtype=torch.float64))


def _pull(contribution: Tensor, mean: Tensor, batch_size: int) -> dict[str, float]:
    """Return a contribution's norm, its cosine to the mean and its share of it, as defined."""
    contribution_norm, mean_norm = norm(contribution), norm(mean)
    dot = float(contribution.double() @ mean.double())
    pull = {"contribution_norm": contribution_norm}
    if contribution_norm * mean_norm > 0:
        pull["cosine"] = dot / (contribution_norm * mean_norm)
    if mean_norm > 0:
        # The projection on the mean, by n |mean|: the shares of a batch add up to 1.
        pull["share"] = dot / (batch_size * mean_norm**2)
    return pull


def _cosines(games: Sequence[str], contributions: Sequence[Tensor]) -> dict[str, float]:
    """Return the mean cosine of each pair of games; a slot whose contribution is zero has none."""
    found: dict[str, list[float]] = {}
    between = pairwise_cosines(contributions)
    for first, second in combinations(range(len(games)), 2):
        cosine = float(between[first, second])
        if math.isfinite(cosine):
            one, other = sorted((games[first], games[second]))
            found.setdefault(f"cosine/{one}/{other}", []).append(cosine)
    return {key: fmean(cosines) for key, cosines in found.items()}


def _game(
    game: str, slots: Sequence[FilledSlot], paths: Sequence[dict[str, float]], unit: Unit
) -> Values:
    shares = [path.pop("share") for path in paths if "share" in path]
    row: Values = {f"path/{game}/{name}": mean for name, mean in _means(paths).items()}
    if shares:
        row[f"path/{game}/share"] = math.fsum(shares)
    if unit == "agent_steps":
        return_sum = math.fsum(float(slot.episodes.returns.sum()) for slot in slots)
        row |= _returns(game, return_sum, sum(len(slot.episodes.returns) for slot in slots))
    return row | _losses(game, _means([slot.record.losses for slot in slots]))


def _losses(game: str, losses: Mapping[str, float]) -> Values:
    """Return the keys of a task's losses; those of classifiers have errors too."""
    return {
        f"error/{game}/{name.removesuffix('_error')}"
        if name.endswith("_error")
        else f"loss/{game}/{name}": value
        for name, value in losses.items()
    }


def _returns(game: str, return_sum: float, episodes: int) -> Values:
    row: Values = {f"return/{game}/episodes": episodes}
    if episodes > 0:
        row[f"return/{game}/mean"] = return_sum / episodes
    return row


def _means(metrics: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for each in metrics for name in each)
    return {name: fmean([each[name] for each in metrics if name in each]) for name in names}
