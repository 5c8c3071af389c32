"""``leap-rl evaluate``: what agents learn from initializations, against random encoders."""

from __future__ import annotations

import json
from collections.abc import Sequence

from leap_rl.cli import carry_out_and_announce, is_shown, refuse_lists_given_twice
from leap_rl.core.parsing import config_parser, naming_lines, options_given, parse
from leap_rl.runs.config import EvaluateConfig
from leap_rl.runs.evaluation import configure, create_evaluation, defaults_of
from leap_rl.runs.initializations import find_group
from leap_rl.runs.invocation import Invocation

SHORT = {
    "--games": ["--task.games"],
    "--agent_steps": ["--task.agent_steps"],
    "--out": ["--run_dir"],
    "--no_random": ["--random", "false"],
}
"""Short forms of options."""

_NO_INIT = "init: name a run or an initialization, as --init runs/mine"

_DESCRIPTION = """\
Learn games from initializations and from random encoders, several agents each, and compare.

  leap-rl evaluate --init leap=runs/a,runs/b,runs/c --games held_out --agent_steps 1000000

  --init NAME=RUN,RUN,...
                      what is compared; may be given several times. The runs of one method, which
                      differ in their seeds, are judged together; a single RUN needs no name, and
                      what is found holds for that one run. RUN, RUN@12 (its version 12), RUN@best
                      (the best validated), a checkpoint's folder, one that leap-rl export wrote,
                      pretrained:NAME (leap-rl pretrained lists them), hf://USER/REPO or
                      hf://USER/REPO@REVISION (leap-rl push makes them), or a file. After any of
                      these @mix=0.5 starts agents from half of it and half of a random encoder.
                      Tasks and agents are set as in the first one's run.
  --seeds             agents of each run in each game; an interval takes three
  --random_agents     agents from random starts in each game, if not as many; more of them narrow
                      every interval
  --own_start true    learn from the runs' own random starts too, beside fresh ones
  --games             short for --task.games: a name, a pool, or '["pong", "qbert"]'; Atari's
                      pool held_out by default
  --agent_steps       short for --task.agent_steps
  --out               short for --run_dir
  --open              show the report in the browser when it is done
  --no_random         leave out the baseline of random encoders (--random false)

Agents of the same game and seed share everything but where their encoders start: heads, emulators,
the draws of their actions. All run at once over the trainers; leap-rl resume continues an
evaluation that was stopped, to the same curves. At its end it writes a report into its folder;
leap-rl report makes it again at any time."""


def main(argv: Sequence[str], call: Invocation) -> int:
    """Run the command; returns its exit status."""
    refuse_lists_given_twice(argv, ["--games"])
    inits, words = take_inits([word for word in argv if word != "--open"])
    parser = config_parser(EvaluateConfig, program="leap-rl evaluate")
    parser.description = _DESCRIPTION
    if not inits:
        if not is_shown(words) and not any(w.partition("=")[0] == "--config" for w in words):
            raise ValueError(_NO_INIT)
        # It prints what is asked for, or a config names them.
        inits = parse(parser, EvaluateConfig, words, trusts_imports=call.trusts_imports).init
    options = options_given(EvaluateConfig, words)
    if is_shown(words):
        groups = [find_group(init) for init in inits]
        shown = [*words, f"--init={json.dumps([group.option for group in groups])}"]
        defaults = defaults_of(groups, options)
        parse(parser, EvaluateConfig, shown, defaults=defaults, trusts_imports=call.trusts_imports)
    with naming_lines(words):
        config, groups = configure(inits, options, trusts_imports=call.trusts_imports)
        run = create_evaluation(config, groups)
    return carry_out_and_announce(run, call, opens="--open" in argv)


def take_inits(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return what --init names, and the other arguments with the short ones spelled out."""
    inits, options = [], []
    words = iter(argv)
    for word in words:
        name, equals, value = word.partition("=")
        if name in ("--init", "--init+"):  # jsonargparse offers the second for lists
            value = value if equals else next(words, "")
            if not value:
                raise ValueError(_NO_INIT)
            inits.append(value)
        else:
            option, *values = SHORT.get(name, [name])
            if values and equals:
                raise ValueError(f"{word}: takes no value; say {name} alone")
            options += [option + equals + value, *values]
    return inits, options
