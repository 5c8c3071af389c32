"""``leap-rl pretrained``: list the initializations that come with leap_rl."""

from __future__ import annotations

from collections.abc import Sequence

from leap_rl.cli import command_parser
from leap_rl.core.lines import say
from leap_rl.runs.invocation import Invocation
from leap_rl.sharing.card import CARD, MOST, SAVED, SEEN, Card, read_card
from leap_rl.sharing.pretrained import PREFIX, locate, names

_DESCRIPTION = """\
List the initializations that come with leap_rl: what each was meta-trained on, and how many of at
most how many agent steps a new agent saves, with 95 % intervals. Each can stand wherever an
initialization is named, as pretrained:NAME, and from Python leap_rl.pretrained.load("NAME") returns
the encoder."""

_COLUMNS = ("name", "trained on", "agent steps", "saves on games it saw", "saves on others")


def main(argv: Sequence[str], call: Invocation) -> int:
    """Run the command; returns its exit status."""
    parser = command_parser("pretrained", _DESCRIPTION)
    parser.add_argument("name", nargs="?", metavar="NAME", help="show its whole model card")
    name = parser.parse_args(argv).name
    if name is not None:
        say((locate(name) / CARD).read_text(), end="")
        return 0
    rows = [_COLUMNS, *(_row(each, read_card(locate(each))) for each in names())]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        say("  ".join(cells).rstrip())
    return 0


def _row(name: str, card: Card) -> tuple[str, ...]:
    games = f"{len(card.games)} game{'s' * (len(card.games) > 1)}"
    saves = (_saves(card, seen) for seen in ("yes", "no"))
    steps = "unknown" if card.agent_steps is None else f"{card.agent_steps:,}"
    return f"{PREFIX}{name}", games, steps, *saves


def _saves(card: Card, seen: str) -> str:
    """Return what agents save in games that were trained on, or were not; a mean comes last."""
    if not card.measured:
        return "measured by another rule"
    rows = [row for row in card.measured if row[SEEN] == seen]
    return f"{rows[-1][SAVED]} of {rows[-1][MOST]}" if rows else "not measured"
