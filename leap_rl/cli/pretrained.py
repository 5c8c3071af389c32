"""``leap-rl pretrained``: list the initializations that come with leap_rl."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill

from leap_rl.cli import command_parser
from leap_rl.core.lines import say
from leap_rl.runs.invocation import Invocation
from leap_rl.sharing.card import CARD, read_card
from leap_rl.sharing.pretrained import PREFIX, locate, names

_DESCRIPTION = """\
List the initializations that come with leap_rl: what each was meta-trained on, and what was
measured. Each can stand wherever an initialization is named, as pretrained:NAME, and from Python
leap_rl.pretrained.load("NAME") returns the encoder."""


def main(argv: Sequence[str], call: Invocation) -> int:
    """Run the command; returns its exit status."""
    parser = command_parser("pretrained", _DESCRIPTION)
    parser.add_argument("name", nargs="?", metavar="NAME", help="show its whole model card")
    name = parser.parse_args(argv).name
    if name is not None:
        say((locate(name) / CARD).read_text(), end="")
        return 0
    for each in names():
        card = read_card(locate(each))
        say(f"{PREFIX}{each}")
        said = [
            f"{card.method}, {card.meta_steps} meta-steps, {card.agent_steps:,} agent steps: "
            f"{', '.join(card.games)}",
            *card.verdicts,
        ]
        for sentence in said:
            say(fill(sentence, width=100, initial_indent="  ", subsequent_indent="    "))
    return 0
