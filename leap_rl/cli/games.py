"""``leap-rl games``: the games, their action counts and the pools they are in."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from leap_rl.envs.games import ACTION_COUNTS, CATCH_GAMES, POOLS


def main(argv: Sequence[str]) -> int:
    """Run the command; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="leap-rl games",
        description="List the games with their action counts and pools. A pool's name can stand "
        "in task.games for all of its games.",
    )
    parser.parse_args(argv)
    print(f"{'game':<20} {'actions':>7}  pools")
    for game, actions in ACTION_COUNTS.items():
        pools = [name for name, games in POOLS.items() if game in games and name != "all"]
        mark = "  (held out)" if "held_out" in pools else ""
        print(f"{game:<20} {actions:>7}  {', '.join(pools)}{mark}")
    print(f"\n{'pool':<20} {'games':>7}")
    for name, games in POOLS.items():
        print(f"{name:<20} {len(games):>7}")
    print(f"\ntask.kind = catch, our own small game: {', '.join(CATCH_GAMES)}")
    print("task.kind = omniglot: the alphabets in task.data, see docs/omniglot.md")
    return 0
