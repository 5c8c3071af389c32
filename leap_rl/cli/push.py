"""``leap-rl push``: upload an initialization to Hugging Face's hub."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from leap_rl.cli import command_parser
from leap_rl.cli.export import add_evaluation, export
from leap_rl.core.lines import say
from leap_rl.runs.initializations import find_initialization
from leap_rl.runs.invocation import Invocation
from leap_rl.sharing import hub
from leap_rl.sharing.exported import find

_DESCRIPTION = """\
Upload a run's initialization to a repository of Hugging Face's hub, which is made if there is none:
the files that leap-rl export writes. The model card becomes the repository's page.

  leap-rl push runs/mine me/atari-leap --evaluation runs/eval
  leap-rl push shared/mine me/atari-leap --private

Its name is then hf://me/atari-leap, or hf://me/atari-leap@REVISION for a branch, a tag or a commit,
wherever an initialization may be named.

This takes pip install 'leap-rl[hub]'. Log in first, by hf auth login, or set HF_TOKEN."""


def main(argv: Sequence[str], call: Invocation) -> int:
    """Run the command; returns its exit status."""
    given = options().parse_args(argv)
    hub.check_repository(given.repository)
    exported = find(given.run)
    if exported is not None and given.evaluation:
        raise ValueError(
            f"--evaluation: {given.run} has its card already; name the run, or export it again"
        )
    with TemporaryDirectory() as temporary:
        if exported is None:
            folder = Path(temporary) / given.repository.rpartition("/")[2]
            export(find_initialization(given.run), folder, evaluations=given.evaluation)
        else:
            exported.read()  # which checks it
            folder = exported.folder
        commit = hub.upload(folder, given.repository, private=given.private)
    say(f"pushed {given.run} to {hub.PREFIX}{given.repository}@{commit}")
    return 0


def options() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    parser = command_parser("push", _DESCRIPTION)
    parser.add_argument(
        "run",
        metavar="RUN|FOLDER",
        help="RUN, RUN@12 or RUN@best, of leap-rl train, or a folder that leap-rl export wrote",
    )
    parser.add_argument("repository", metavar="USER/REPO", help="the repository on the hub")
    parser.add_argument(
        "--private", action="store_true", help="if the repository is new, let nobody else see it"
    )
    add_evaluation(parser)
    return parser
