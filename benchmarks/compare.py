"""Compares leap_rl with peers in alternating runs; writes the tables of docs/performance.md.

    .venv/bin/python -m benchmarks.compare --peers sb3_a2c atari_vector_env_step --out rows.jsonl

For each game: ours, the first peer, ours, the next one, ours, and so on, `--repeats` times over.
Each run of a peer is set against the two of ours around it: the ratio is the mean of their rates
over the peer's. The table has medians, of ours and of the peer's rates and of the ratios, and at
its end the medians over the games. `--ours_only` runs ours alone and adds the emulator's limit: the
table of the targets. `--out FILE` keeps each finished game as a line of JSON; called again with the
same options, it measures the games that FILE lacks. Run `make peers` first, and leave the machine
alone meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from leap_rl.core.machine import cores

HERE = Path(__file__).resolve().parent

TARGET_GAMES = [
    *["breakout", "space_invaders", "up_n_down", "pong"],
    *["road_runner", "alien", "wizard_of_wor", "air_raid"],
]
PEERS = {
    "sb3_a2c": "sb3",
    "rllib_ppo": "rllib",
    "envpool_step": "envpool",
    "atari_vector_env_step": "ale",
    "jax_a2c": "jax",
    "sb3_small_a2c": None,
}
"""Each peer's script, and the environment that it needs; none is the project's own."""

SMALL = ("jax_a2c", "sb3_small_a2c")
"""Peers on games that are not Atari's."""

RATES = {"wall": "agent_steps_per_s", "cpu": "agent_steps_per_cpu_s"}
FRACTIONS = {"wall": "fraction_of_limit", "cpu": "fraction_by_cpu_time"}
"""What is compared, and its fraction of the limit, by clock."""

ISAS = {
    "avx2": {
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "ATEN_CPU_CAPABILITY": "avx2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    },
}
"""What ours and the peers may use of the processor, by the variables that their libraries read."""

SETTINGS = ("peers", "processes", "envs", "seconds", "repeats", "precision", "isa", "clock")
"""The options that a game's metrics depend on."""

Metrics = dict[str, Any]
Row = dict[str, Any]
"""A game: its `settings`, and the metrics of all runs in the order in which they were made, of
`ours` and, by name, of the `peers`."""


def run_json(words: list[str], isa: str | None) -> Metrics:
    """Run a command that prints one JSON object, and return that; its progress is ours."""
    paths = [str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    own = {"PYTHONPATH": os.pathsep.join(paths)}  # a peer in the project's own environment
    environment = os.environ | own | (ISAS[isa] if isa else {})
    run = subprocess.run(
        words, stdout=subprocess.PIPE, text=True, cwd=HERE / "peers", env=environment
    )
    if run.returncode != 0:
        sys.exit(f"compare: {' '.join(words)} failed (exit status {run.returncode})")
    metrics: Metrics = json.loads(run.stdout.splitlines()[-1])
    return metrics


def ours(game: str, given: argparse.Namespace) -> Metrics:
    """Measure our throughput."""
    words = ["--game", game, "--trainers", str(given.processes), "--seconds", str(given.seconds)]
    more = ["--agent.precision", given.precision, "--envs", str(given.envs), "--json"]
    leap_rl = [sys.executable, "-m", "leap_rl", "bench", "throughput"]
    return run_json([*leap_rl, *words, *more], given.isa)


def peers(name: str, game: str, given: argparse.Namespace) -> Metrics:
    """Measure a peer's throughput."""
    own = PEERS[name]
    python = HERE / "peers" / f".venv-{own}" / "bin" / "python" if own else Path(sys.executable)
    if not python.exists():
        sys.exit(f"compare: {name}: {python.relative_to(HERE.parent)} is missing; run `make peers`")
    # Ours spends half its time on the agent's windows.
    words = ["--game", game, "--processes", str(given.processes), "--envs", str(given.envs)]
    seconds = ["--seconds", str(given.seconds / 2)]
    return run_json([str(python), f"{name}.py", *words, *seconds], given.isa)


def measure(game: str, given: argparse.Namespace) -> Row:
    """Run ours and the peers in turns: ours first and last."""
    own: list[Metrics] = []
    theirs: dict[str, list[Metrics]] = {name: [] for name in given.peers}
    for _ in range(given.repeats):
        for name in given.peers:
            own.append(ours(game, given))
            theirs[name].append(peers(name, game, given))
        if not given.peers:
            own.append(ours(game, given))
    if given.peers:
        own.append(ours(game, given))
    return {"game": game, "settings": settings(given), "ours": own, "peers": theirs}


def settings(given: argparse.Namespace) -> dict[str, Any]:
    """Return what a game's metrics depend on."""
    return {name: getattr(given, name) for name in SETTINGS}


def kept_rows(given: argparse.Namespace) -> dict[str, Row]:
    """Return the rows of an earlier call, by game."""
    if given.out is None or not given.out.exists():
        return {}
    rows = [json.loads(line) for line in given.out.read_text().splitlines()]
    for row in rows:
        for name, value in settings(given).items():
            if row["settings"].get(name) != value:
                sys.exit(
                    f"compare: --{name} = {value}: {given.out} was measured with "
                    f"{row['settings'].get(name)}; keep to that, or name another file"
                )
    return {row["game"]: row for row in rows}


def all_rows(given: argparse.Namespace) -> list[Row]:
    """Measure the games that are not kept yet; each is told and kept as soon as it is done."""
    kept = kept_rows(given)
    rows = []
    for game in given.games:
        if game in kept:
            print(f"compare: {game} is in {given.out} already", file=sys.stderr, flush=True)
            rows.append(kept[game])
            continue
        row = measure(game, given)
        rows.append(row)
        if given.out is not None:
            with given.out.open("a") as file:
                file.write(json.dumps(row) + "\n")
        cells = summary(row) if given.peers else limit_cells(row)
        print(f"compare: {' '.join(cells)}", file=sys.stderr, flush=True)
    return rows


def of_ours(row: Row, name: str) -> float:
    """Return the median of one of our metrics."""
    return float(median(metrics[name] for metrics in row["ours"]))


def ratios(row: Row) -> dict[str, float]:
    """Return our rate divided by each peer's: the median over its runs.

    Each is set against the mean of the two of ours around it.
    """
    rate = RATES[row["settings"]["clock"]]
    own = [metrics[rate] for metrics in row["ours"]]
    around = [(before + after) / 2 for before, after in pairwise(own)]
    found = {}
    for place, (name, runs) in enumerate(row["peers"].items()):
        means = around[place :: len(row["peers"])]
        found[name] = median(
            mean / metrics[rate] for mean, metrics in zip(means, runs, strict=True)
        )
    return found


def summary(row: Row) -> list[str]:
    """Return a game's line of the table of the peers."""
    clock = RATES[row["settings"]["clock"]]
    cells = [row["game"], f"{of_ours(row, clock):,.0f}"]
    cells.append(f"{of_ours(row, FRACTIONS[row['settings']['clock']]):.2f}")
    for name, ratio in ratios(row).items():
        rate = median(metrics[clock] for metrics in row["peers"][name])
        cells.append(f"{rate:,.0f} ({ratio:.2f}×)")
    return cells


def compare(rows: list[Row], given: argparse.Namespace) -> str:
    """Return the table of the peers in Markdown."""
    head = ["game", "leap_rl", "of the limit", *given.peers]
    fraction = median(of_ours(row, FRACTIONS[given.clock]) for row in rows)
    last = ["**median**", "", f"{fraction:.2f}"]
    last += [f"({median(ratios(row)[name] for row in rows):.2f}×)" for name in given.peers]
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *map(summary, rows), last]
    one = rows[-1]["ours"][-1]
    seen = {name: runs[-1]["versions"] for name, runs in rows[-1]["peers"].items()}
    note = ", ".join(
        f"{name}: {' '.join(f'{package} {number}' for package, number in versions.items())}"
        for name, versions in {"leap_rl": one["versions"], **seen}.items()
    )
    of_cpu = " of CPU time" if given.clock == "cpu" else ""
    return "\n".join(
        [
            *(f"| {' | '.join(line)} |" for line in lines),
            "",
            f"Agent steps/s{of_cpu}, {given.processes} processes of {given.envs} environments; in "
            f"brackets how many times a peer's rate ours is. {one['processor']}, {one['cores']} "
            f"cores, {one['precision']}; {one['date']}. {note}.",
        ]
    )


LIMIT_COLUMNS = {
    "agent_steps_per_s": "{:,.0f}",
    "emulator_limit_per_s": "{:,.0f}",
    "fraction_of_limit": "{:.3f}",
}


def middle(row: Row) -> Metrics:
    """Return that of our runs whose fraction is the median, so that its metrics fit together."""
    runs: list[Metrics] = sorted(row["ours"], key=lambda run: run["fraction_of_limit"])
    return runs[len(runs) // 2]


def limit_cells(row: Row) -> list[str]:
    """Return a game's line of the table of the targets."""
    return [row["game"], *(shape.format(middle(row)[n]) for n, shape in LIMIT_COLUMNS.items())]


def targets(rows: list[Row]) -> str:
    """Return the table of the targets in Markdown."""
    measured = [middle(row) for row in rows]
    lines = [limit_cells(row) for row in rows]
    for name, of in (("median", median), ("least", min)):
        values = (
            shape.format(of([metrics[column] for metrics in measured]))
            for column, shape in LIMIT_COLUMNS.items()
        )
        lines.append([f"**{name}**", *values])
    one = measured[-1]
    busiest = max(metrics["others_cpu_share"] for metrics in measured)
    return "\n".join(
        [
            "| game | learning, agent steps/s | bare emulator | fraction |",
            "|---|---:|---:|---:|",
            *(f"| {' | '.join(line)} |" for line in lines),
            "",
            f"{one['trainers']} trainers of {one['envs']} environments, unroll {one['unroll']}, "
            f"{one['encoder']}, {one['precision']}; {one['processor']}, {one['cores']} cores; "
            f"others used at most {busiest:.1%} of the machine; {one['date']}.",
        ]
    )


def options() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--games", nargs="+", default=TARGET_GAMES, metavar="GAME")
    parser.add_argument(
        "--peers",
        nargs="+",
        default=[name for name in PEERS if name not in SMALL],
        choices=PEERS,
        metavar="PEER",
    )
    parser.add_argument("--ours_only", action="store_true")
    parser.add_argument("--processes", type=int, default=cores())
    parser.add_argument("--envs", type=int, default=32, help="of each process")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each measurement")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--precision", help="ours: auto (the default), float32 or bfloat16")
    parser.add_argument(
        "--isa", choices=ISAS, help="let ours and the peers use no more of the processor; float32"
    )
    parser.add_argument(
        "--clock", choices=RATES, default="wall", help="cpu: of the processes' own CPU time"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="keep finished games, and resume")
    return parser


def read(words: list[str] | None = None) -> argparse.Namespace:
    """Return the options, those that follow from others filled in."""
    parser = options()
    given = parser.parse_args(words)
    if given.isa and given.precision not in (None, "float32"):
        parser.error(f"--precision {given.precision}: --isa {given.isa} is measured in float32")
    given.precision = given.precision or ("float32" if given.isa else "auto")
    if given.ours_only:
        given.peers = []
    return given


def main() -> None:
    """Run the command."""
    given = read()
    rows = all_rows(given)
    print(targets(rows) if given.ours_only else compare(rows, given))


if __name__ == "__main__":
    main()
