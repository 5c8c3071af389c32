"""``leap-rl study``: which start helps on a family of environments, how much, and if it pays."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from textwrap import fill

from leap_rl.cli import is_shown, refuse_lists_given_twice
from leap_rl.core.lines import say
from leap_rl.core.parsing import config_parser, options_given, parse
from leap_rl.runs.display import shown
from leap_rl.runs.invocation import Invocation
from leap_rl.runs.report import announce_report
from leap_rl.studies.config import StudyConfig, configure
from leap_rl.studies.defaults import defaults_of
from leap_rl.studies.folder import STUDY, StudyFolder

_DESCRIPTION = """\
Which start helps new agents on a family of environments, how much, and when does it pay?

  leap-rl study carts.yaml --out runs/carts
  leap-rl study --games MinAtar/Asterix-v1 MinAtar/Freeway-v1 --held_out MinAtar/Breakout-v1

Each arm learns starts from the members that --games names, in several runs. New agents then learn
the members that --held_out names, from these starts and from random ones. Called again, it resumes:
a cell, an ordinary run in OUT/runs, is computed once.

  FILE or OUT         a study file, or the folder of a study that was begun
  --out               the study's folder: runs/FILE without its suffix, or runs/study
  --games, --held_out
                      members, one or several
  --arms              their names, such as leap pretraining; random is always added
  --quick             a first answer in minutes, which proves little
  --calibrate         learn two members from scratch at three learning rates and three budgets, and
                      write the study that shows a gain to OUT
  --plan              print cells, agent steps and hours, and compute nothing else
  --report            write the page of what is finished, and compute nothing
  --open              show the page in the browser

The page, OUT/index.html, has the question, the answer, figures, tables and costs; each table is a
CSV beside it, and OUT/estimates.json is for programs."""

LISTS = ("--games", "--held_out", "--arms")
"""Options whose values are words, one after the other."""
FLAGS = ("--plan", "--calibrate", "--report", "--open")


def main(argv: Sequence[str], call: Invocation) -> int:
    """Run the command; returns its exit status."""
    refuse_lists_given_twice(argv, LISTS)
    words, out = take_out([word for word in argv if word not in FLAGS])
    if is_shown(words):
        parser = config_parser(StudyConfig, program="leap-rl study")
        parser.description = _DESCRIPTION
        given = options_given(StudyConfig, words)
        defaults = defaults_of(given, trusts_imports=call.trusts_imports) if given else {}
        parse(parser, StudyConfig, words, defaults=defaults, trusts_imports=True)
    study = configure(words, trusts_imports=call.trusts_imports)
    folder = StudyFolder.at(out)
    if "--plan" in argv:
        from leap_rl.studies.plan import plan

        say(plan(folder, study, trusts_imports=call.trusts_imports, started_s=call.started_s))
        return 0
    if "--calibrate" in argv:
        from leap_rl.studies.calibration import calibrate

        return calibrate(
            folder, study, trusts_imports=call.trusts_imports, started_s=call.started_s
        )
    from leap_rl.studies import study as studies

    given = {"trusts_imports": call.trusts_imports}
    if "--report" in argv:
        found = studies.report(folder, study, **given)
    else:
        outcome = studies.carry_out(folder, study, started_s=call.started_s, **given)
        if outcome.status:
            return outcome.status
        found = outcome.answer
    say()
    for sentence in found:
        say(fill(sentence, width=100, subsequent_indent="  "))
    say(f"\n  folder  {shown(folder.path)}")
    announce_report(folder.page, opens="--open" in argv)
    return 0


def take_out(argv: Sequence[str]) -> tuple[list[str], str]:
    """Return the arguments as options alone, lists as JSON, and the study's folder."""
    file: list[str] = []
    words: list[str] = []
    out: str | None = None
    rest = list(argv)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        if name == "--out":
            if not equals and not rest:
                raise ValueError("out: name a folder, as --out runs/carts")
            out = value if equals else rest.pop(0)
        elif word in LISTS:
            values = []
            while rest and not rest[0].startswith("--"):
                values.append(rest.pop(0))
            is_spelled = len(values) == 1 and values[0][:1] in "[{"
            words += [word, values[0] if is_spelled else json.dumps(values)]
        elif word == "--quick" and (not rest or rest[0] not in ("true", "false")):
            words.append("--quick=true")
        elif not word.startswith("-") and not file:
            file = ["--config", str(_file(word))]
            if Path(word).is_dir():
                out = out or word
            out = out or f"runs/{Path(word).stem}"
        else:
            words.append(word)
            if word.startswith("--") and not equals and rest and not rest[0].startswith("--"):
                words.append(rest.pop(0))
    return file + words, out or "runs/study"


def _file(word: str) -> Path:
    if not Path(word).is_dir():
        return Path(word)
    if not (Path(word) / STUDY).exists():
        raise ValueError(f"{word}: is a folder without a study; name a study file")
    StudyFolder.at(word).read()  # which checks its sum
    return Path(word) / STUDY
