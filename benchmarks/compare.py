"""Ours against peers, in turns within one run; writes the table of docs/performance.md.

    .venv/bin/python benchmarks/compare.py --peers sb3_a2c atari_vector_env_step

For each game: ours, the first peer, ours, the next one, and so on, `--repeats` times over, so that
each peer is set against the two of ours around it. The table has medians, of ours and of the peer's
rates and of the ratios. `--ours_only` runs ours over the games and adds the emulator's limit: the
table of the targets. Run `make peers` first, and leave the machine alone meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

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
}
"""Each peer's script, and the environment that it needs."""

Figures = dict[str, Any]


def run_json(words: list[str]) -> Figures:
    """Run a command that prints one JSON object, and return that; its progress is ours."""
    run = subprocess.run(words, stdout=subprocess.PIPE, text=True, cwd=HERE / "peers")
    if run.returncode != 0:
        sys.exit(f"compare: {' '.join(words)} failed (exit status {run.returncode})")
    figures: Figures = json.loads(run.stdout.splitlines()[-1])
    return figures


def ours(game: str, given: argparse.Namespace) -> Figures:
    """Measure our throughput."""
    words = ["--game", game, "--trainers", str(given.processes), "--seconds", str(given.seconds)]
    more = ["--agent.precision", given.precision, "--envs", str(given.envs), "--json"]
    return run_json([sys.executable, "-m", "leap_rl", "bench", "throughput", *words, *more])


def peers(name: str, game: str, given: argparse.Namespace) -> Figures:
    """Measure a peer's throughput."""
    python = HERE / "peers" / f".venv-{PEERS[name]}" / "bin" / "python"
    if not python.exists():
        sys.exit(f"compare: {name}: {python.relative_to(HERE.parent)} is missing; run `make peers`")
    # Ours spends half its time on the agent's windows.
    words = ["--game", game, "--processes", str(given.processes), "--envs", str(given.envs)]
    return run_json([str(python), f"{name}.py", *words, "--seconds", str(given.seconds / 2)])


def compare(given: argparse.Namespace) -> str:
    """Run everything; returns the table in Markdown."""
    rows, seen, last = [], {}, {}
    for game in given.games:
        own: list[Figures] = []
        pairs: dict[str, list[tuple[float, float]]] = {name: [] for name in given.peers}
        for _ in range(given.repeats):
            for name in given.peers:
                own.append(ours(game, given))
                figures = peers(name, game, given)
                seen[name] = figures["versions"]
                pairs[name].append((own[-1]["agent_steps_per_s"], figures["agent_steps_per_s"]))
        own.append(ours(game, given))
        last = own[-1]
        rate = median(figures["agent_steps_per_s"] for figures in own)
        fraction = median(figures["fraction_of_limit"] for figures in own)
        row = [game, f"{rate:,.0f}", f"{fraction:.2f}"]
        for name in given.peers:
            theirs = median(peer for _, peer in pairs[name])
            row.append(f"{theirs:,.0f} ({median(o / peer for o, peer in pairs[name]):.2f}×)")
        rows.append(row)
        print(f"compare: {' '.join(row)}", file=sys.stderr, flush=True)
    head = ["game", "leap_rl", "of the limit", *given.peers]
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    note = ", ".join(
        f"{name}: {' '.join(f'{package} {number}' for package, number in versions.items())}"
        for name, versions in {"leap_rl": last["versions"], **seen}.items()
    )
    return "\n".join(
        [
            *(f"| {' | '.join(line)} |" for line in lines),
            "",
            f"Agent steps/s, {given.processes} processes of {given.envs} environments; in brackets "
            f"how many times a peer's rate ours is. {last['processor']}, {last['cores']} cores, "
            f"{last['precision']}; {datetime.now(UTC):%Y-%m-%d}. {note}.",
        ]
    )


def targets(given: argparse.Namespace) -> str:
    """Run ours over the games; returns the table in Markdown."""
    measured = []
    for game in given.games:
        runs = [ours(game, given) for _ in range(given.repeats)]
        measured.append(sorted(runs, key=lambda run: run["fraction_of_limit"])[len(runs) // 2])
        print(f"compare: {game} {measured[-1]['fraction_of_limit']}", file=sys.stderr, flush=True)
    names = ("agent_steps_per_s", "emulator_limit_per_s", "fraction_of_limit")
    columns = {name: [figures[name] for figures in measured] for name in names}
    rows = [(figures["game"], *(figures[name] for name in names)) for figures in measured]
    rows.append(("**median**", *(median(columns[name]) for name in names)))
    rows.append(("**least**", *(min(columns[name]) for name in names)))
    one = measured[0]
    busiest = max(figures["others_cpu_share"] for figures in measured)
    return "\n".join(
        [
            "| game | learning, agent steps/s | bare emulator | fraction |",
            "|---|---:|---:|---:|",
            *(
                f"| {game} | {rate:,.0f} | {limit:,.0f} | {fraction:.3f} |"
                for game, rate, limit, fraction in rows
            ),
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
    parser.add_argument("--peers", nargs="+", default=list(PEERS), choices=PEERS, metavar="PEER")
    parser.add_argument("--ours_only", action="store_true")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--envs", type=int, default=32, help="of each process")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each measurement")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--precision", default="auto", help="ours: auto, float32 or bfloat16")
    return parser


def main() -> None:
    """Run the command."""
    given = options().parse_args()
    print(targets(given) if given.ours_only else compare(given))


if __name__ == "__main__":
    main()
