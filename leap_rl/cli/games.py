"""``leap-rl games``: the games, their action counts and the pools they are in."""

from __future__ import annotations

from collections.abc import Sequence

from leap_rl.cli import command_parser
from leap_rl.core.lines import say
from leap_rl.envs.atari.games import (
    ACTION_COUNTS,
    POOLS,
    difficulties,
    listed,
    modes,
    resolve_games,
)
from leap_rl.runs.invocation import Invocation
from leap_rl.tasks.suites import CATCH_GAMES


def main(argv: Sequence[str], call: Invocation) -> int:
    """Run the command; returns its exit status."""
    parser = command_parser(
        "games",
        "List the games with their action counts, modes, difficulties and pools. A "
        "pool's name can stand in task.games for all of its games.",
    )
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="an entry of task.games, such as paper, pong@mode=1 or modes:freeway (all modes of a "
        "game): list the games it stands for",
    )
    names = parser.parse_args(argv).names
    if names:
        for game in resolve_games(names):
            say(game)
    else:
        _list_all()
    return 0


def _list_all() -> None:
    say(f"{'game':<18} {'actions':>7}  {'modes':<23} {'difficulties':<13} pools")
    for game, actions in ACTION_COUNTS.items():
        pools = [name for name, games in POOLS.items() if game in games and name != "all"]
        mark = "  (held out)" if "held_out" in pools else ""
        own = f"{_short(modes(game)):<23} {_short(difficulties(game)):<13}"
        say(f"{game:<18} {actions:>7}  {own} {', '.join(pools)}{mark}".rstrip())
    say(f"\n{'pool':<18} {'games':>7}")
    for name, games in POOLS.items():
        say(f"{name:<18} {len(games):>7}")
    say("\nA game's modes and difficulties are games too, the first of each being the default:")
    say("freeway@mode=4,difficulty=1; the pool modes:freeway is all of its modes.")
    say(f"\ntask.kind = catch, our own small game: {', '.join(CATCH_GAMES)}")
    say("task.kind = omniglot: the alphabets in task.data, see docs/omniglot.md")
    say("task.kind = images: the data sets in task.data, see docs/multi_cv.md")


def _short(numbers: Sequence[int]) -> str:
    """Return rising numbers in one column, such as `0 to 31, 128` or `0, 4, ... 44`."""
    text = listed(numbers)
    return text if len(text) <= 23 else f"{listed(numbers[:2])}, ... {numbers[-1]}"
