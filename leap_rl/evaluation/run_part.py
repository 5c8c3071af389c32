"""What a report says of a meta-training run, finished or under way."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from leap_rl.storage.locked_folder import RunFolderError
from leap_rl.storage.run_folder import RunFolder


@dataclass(frozen=True, kw_only=True)
class SlotHistory:
    """How the slots of a run's closed rounds were filled."""

    tasks: int
    """That count."""
    repeated: int
    """Slots that took more than one attempt, as a trainer was lost: that work was repeated from
    the newest snapshot on."""
    attempts: int
    """Handed out in all."""
    restarted: int
    """Tasks that began again with another seed, as their numbers went bad."""
    dropped: Sequence[str]
    """Why a task was left out, a line each."""
    cut_off: int
    processors: Mapping[str, int]
    """Tasks by the kind of processor that computed them."""


def slot_history(folder: RunFolder) -> SlotHistory:
    """Read how the slots of closed rounds were filled; damaged checkpoints are passed over."""
    entries: list[tuple[int, dict[str, Any]]] = []
    for number in folder.checkpoints():
        try:
            entries += [(number - 1, entry) for entry in folder.read_state(number).get("slots", [])]
        except RunFolderError:
            continue
    dropped = [
        f"{entry['game']} in round {round_number}: {entry['dropped']}"
        for round_number, entry in entries
        if "dropped" in entry
    ]
    slots = [entry for _, entry in entries]
    return SlotHistory(
        tasks=len(slots) - len(dropped),
        repeated=sum(entry["attempt"] > 1 for entry in slots),
        attempts=sum(entry["attempt"] for entry in slots),
        restarted=sum(entry.get("restarts", 0) > 0 for entry in slots),
        dropped=dropped,
        cut_off=sum(bool(entry.get("cut_off")) for entry in slots),
        processors=Counter(entry["processor"] for entry in slots if entry.get("processor")),
    )


def history_sentence(history: SlotHistory) -> str:
    """Return in plain words what went wrong on the way, and what it cost."""
    if not history.tasks and not history.dropped:
        return "No task is counted yet."
    parts = []
    if history.repeated:
        extra = history.attempts - history.tasks - len(history.dropped)
        parts.append(
            f"{history.repeated} of them took another trainer to finish ({extra} more attempts, "
            "each from the newest snapshot on)"
        )
    if history.restarted:
        parts.append(f"{history.restarted} began again with another seed")
    if history.cut_off:
        parts.append(f"{_were(history.cut_off)} cut off")
    if history.dropped:
        parts.append(f"{_were(len(history.dropped), ' more')} dropped")
    return (
        f"{history.tasks} tasks count; "
        + (", ".join(parts) if parts else "each was done in one go")
        + "."
    )


def _were(count: int, more: str = "") -> str:
    return f"{count}{more} {'was' if count == 1 else 'were'}"


def run_verdict(rows: Sequence[Mapping[str, float]], meta_steps: int) -> list[str]:
    """Return in plain words where a meta-training run stands, and what that does not say."""
    if not rows:
        return [
            "No meta-step is done yet: there is nothing to judge.",
            "Come back when the first row is in metrics.jsonl.",
        ]
    done = len(rows)
    state = "finished" if done >= meta_steps else f"under way, {done / meta_steps:.0%} done"
    sentences = [f"Meta-trained for {done} of {meta_steps} meta-steps ({state})."]
    judged = [row for row in rows if "validation/gain" in row]
    if len(judged) > 1:
        newest, best = judged[-1], judged[-1]["validation/best"]
        sentences.append(
            f"In validation, version {newest['meta_step']:.0f} gains "
            f"{newest['validation/gain']:+.2f} standard deviations over version 0; version "
            f"{best:.0f} did best so far. That is {_agents(newest)}: a hint, no proof."
        )
    else:
        sentences.append("Nothing here says whether the initialization helps: evaluate it.")
    energy = trend_sentence(rows)
    return sentences + ([energy] if energy else [])


def _agents(row: Mapping[str, float]) -> str:
    count = row.get("validation/agents", 1)
    return "one agent a game" if count == 1 else f"{count:.0f} agents a game"


def trend_sentence(rows: Sequence[Mapping[str, float]]) -> str | None:
    """Return how the games' paths changed from the run's first to its last tenth, if they have."""
    part = max(1, len(rows) // 10)
    for name in ("energy", "length"):
        first, last = (_by_game(part_of, name) for part_of in (rows[:part], rows[-part:]))
        both = [game for game in first if game in last and first[game] > 0]
        if len(rows) > 1 and both:
            falls = sum(last[game] < first[game] for game in both)
            return (
                f"The {name} of the gradient paths, which Leap makes smaller, fell in {falls} of "
                f"the {len(both)} games that are both among the first and the last "
                f"{part} meta-step{'s' * (part > 1)}."
            )
    return None


def _by_game(rows: Sequence[Mapping[str, float]], name: str) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for row in rows:
        for key, value in row.items():
            area, _, rest = key.partition("/")
            if area == "path" and rest.endswith(f"/{name}"):
                found.setdefault(rest.removesuffix(f"/{name}"), []).append(value)
    return {game: fmean(values) for game, values in found.items()}


def game_rows(rows: Sequence[Mapping[str, float]]) -> list[dict[str, str]]:
    """Return a table of games: how often each was drawn, and its metrics' means."""
    of_games = (re.fullmatch("loss/(.+)/total", key) for row in rows for key in row)
    games = sorted({found[1] for found in of_games if found})
    table = []
    for game in games:

        def mean(key: str, form: str, game: str = game) -> str:
            values = [row[name] for row in rows if (name := key.replace("*", game)) in row]
            return form.format(fmean(values)) if values else "–"

        drawn = sum(f"loss/{game}/total" in row for row in rows)
        table.append(
            {
                "game": game,
                "meta-steps": str(drawn),
                "mean return": mean("return/*/mean", "{:,.1f}"),
                "training error": mean("error/*/training", "{:.1%}"),
                "contribution's norm": mean("path/*/contribution_norm", "{:,.3g}"),
                "cosine to the mean": mean("path/*/cosine", "{:+.2f}"),
                "displacement": mean("path/*/displacement", "{:.3g}"),
            }
        )
    empty = [name for name in (table[0] if table else ()) if all(r[name] == "–" for r in table)]
    return [{name: row[name] for name in row if name not in empty} for row in table]
