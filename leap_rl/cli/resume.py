"""``leap-rl resume``: resume a run from its last meta-step."""

from __future__ import annotations

from collections.abc import Sequence

from leap_rl.cli import EXIT_USAGE, carry_out_and_announce, options_over
from leap_rl.core.lines import say
from leap_rl.core.parsing import naming_lines
from leap_rl.runs.display import shown
from leap_rl.runs.header import read_run
from leap_rl.runs.invocation import Invocation
from leap_rl.runs.resumption import prepare
from leap_rl.storage.open_run import open_run

_HELP = """\
usage: leap-rl resume RUN [OPTIONS]

Resume the run in the folder RUN from its last meta-step, to the same bits as if it had never
been stopped. The complete tasks of the open meta-step are kept.

OPTIONS are those of the command that made the run (leap-rl train --help). Those that say where and
how it is computed may change, such as --runtime.trainers, and so may --meta.meta_steps, to extend
the run. To change what is computed, see leap-rl fork --help."""


def main(argv: Sequence[str], call: Invocation) -> int:
    """Run the command; returns its exit status."""
    if not argv or argv[0] in ("-h", "--help"):
        say(_HELP)
        return 0 if argv else EXIT_USAGE
    run = read_run(open_run(argv[0]))
    program = f"leap-rl resume {shown(run.folder)}"
    options = options_over(type(run.config), argv[1:], stored=run.options, program=program)
    with naming_lines(argv[1:]):
        run = prepare(run, options, trusts_imports=call.trusts_imports)
    return carry_out_and_announce(run, call, resumes=True)
