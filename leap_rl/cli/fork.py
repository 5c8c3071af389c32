"""``leap-rl fork``: a new run that starts from a checkpoint of another."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from leap_rl.app.creation import make_run, resolve
from leap_rl.app.display import shown, tell
from leap_rl.app.execution import run
from leap_rl.app.invocation import Invocation
from leap_rl.app.policies import make_meta_training
from leap_rl.app.record import Origin, StoredRun, parse_over, read_run
from leap_rl.cli import EXIT_USAGE
from leap_rl.config import TrainConfig
from leap_rl.storage.locked_folder import RunFolderError
from leap_rl.storage.open_run import open_run
from leap_rl.storage.run_folder import INITIALIZATION, LONGEST_NUMBER, RunFolder
from leap_rl.training.rounds.meta_training import OUTER_OPTIMIZER

_HELP = """\
usage: leap-rl fork RUN --at S [--run_dir NEW] [OPTIONS]

Make a new run that starts from checkpoint S of the meta-training run in the folder RUN: from the
initialization after S meta-steps and the outer optimizer's state. RUN itself is only read.

  RUN            a run of leap-rl train, or a fork of one
  --at S         the checkpoint, a folder in RUN/checkpoints; 0 is the start
  --run_dir NEW  the new run's folder; runs/fork-DATE-TIME if there is none
  OPTIONS        those of leap-rl train, over those of RUN; any may change, what is computed
                 too, as long as the encoder's parameters keep their shapes

The new run continues the count: its first meta-step is S, and --meta.meta_steps says how many there
are in all, those before S included. Random streams derive from the seed and the meta-step, so that
a fork with nothing changed comes to the same bits as RUN. If meta.optimizer changes, the outer
optimizer starts from scratch.

For instance, to continue from meta-step 50 with a smaller rate:
  leap-rl fork runs/mine --at 50 --meta.meta_lr 0.25 --run_dir runs/mine-slower"""


def main(argv: Sequence[str], call: Invocation) -> int:
    """Run the command; returns its exit status."""
    if not argv or argv[0] in ("-h", "--help"):
        print(_HELP)
        return 0 if argv else EXIT_USAGE
    at, options = take_at(argv[1:])
    parent = open_run(argv[0])
    folder, config = create_fork(parent, at, options, trusts_imports=call.trusts_imports)
    return run(config, folder, call)


def take_at(argv: Sequence[str]) -> tuple[int, list[str]]:
    """Return the value of `--at` and the other arguments.

    Raises:
        ValueError: It is missing, or no number of a checkpoint.
    """
    options, value = list(argv), None
    for index, word in enumerate(options):
        if word == "--at":
            value, options[index : index + 2] = "".join(options[index + 1 : index + 2]), []
            break
        if word.startswith("--at="):
            value = options.pop(index).removeprefix("--at=")
            break
    if value is None:
        raise ValueError("--at S: is missing; it names the checkpoint of RUN to start from")
    if not (value.isascii() and value.isdecimal() and len(value) <= LONGEST_NUMBER):
        raise ValueError(f"--at {value}: must be the number of a checkpoint, such as 12")
    return int(value), options


def create_fork(
    parent: RunFolder, at: int, argv: Sequence[str], *, trusts_imports: bool
) -> tuple[RunFolder, TrainConfig]:
    """Make the folder of a run that starts from a parent's checkpoint, with other options.

    Raises:
        ValueError: It cannot be forked there, or not with these options.
        RunFolderError: The parent's folder is damaged.
    """
    run = read_run(parent)
    if not isinstance(run.config, TrainConfig):
        raise ValueError(
            f"{shown(parent)}: is a run of leap-rl {run.config.command}, which has nothing to "
            "fork; only runs of leap-rl train do"
        )
    stored = {**run.options, "run_dir": None}
    program = f"leap-rl fork {shown(parent)} --at S"
    asked = parse_over("train", stored, argv, program=program, trusts_imports=trusts_imports)
    assert isinstance(asked, TrainConfig)
    config = resolve(asked)
    files, agent_steps = _read(parent, at, run.record.fingerprint)
    _check_options(run, config, at)
    (optimizer, _), (before, _) = config.meta.outer, run.config.meta.outer
    keep_optimizer = optimizer == before
    try:
        files = make_meta_training(config).adopt(files, keep_optimizer=keep_optimizer)
    except (KeyError, ValueError) as error:
        raise ValueError(
            f"checkpoint {at} of {shown(parent)} does not fit these options: {error}"
        ) from None
    sums = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    folder = make_run(
        config,
        lambda folder: folder.write_checkpoint(at, files, {"agent_steps": agent_steps}),
        init_sha256=run.record.init_sha256,
        sources=[parent.checkpoint(at) / INITIALIZATION],
        origin=Origin(
            run=parent.path.name,
            at=at,
            initialization_sha256=sums[INITIALIZATION],
            optimizer_sha256=sums[OUTER_OPTIMIZER],
        ),
    )
    if not keep_optimizer:
        tell(f"meta.optimizer = {optimizer}: the outer optimizer starts from scratch")
    return folder, config


def _read(parent: RunFolder, at: int, fingerprint: str) -> tuple[dict[str, bytes], int]:
    """Return a checkpoint's files by name, and the agent steps that it took."""
    there = parent.checkpoints()
    if at not in there:
        known = f"it has {there[0]} to {there[-1]}" if there else "it has none"
        raise ValueError(f"--at {at}: {shown(parent)} has no such checkpoint; {known}")
    if parent.is_thinned_out(at):
        raise ValueError(
            f"--at {at}: the parameters of that checkpoint were removed (runtime.keep_checkpoints)"
        )
    files, state = parent.read_checkpoint(at)
    parent.refuse_foreign(state, fingerprint)
    agent_steps = state.get("agent_steps")
    if not isinstance(agent_steps, int) or not {INITIALIZATION, OUTER_OPTIMIZER} <= files.keys():
        raise RunFolderError(f"{parent.checkpoint(at)}: is no checkpoint of a meta-training run")
    return files, agent_steps


def _check_options(run: StoredRun, config: TrainConfig, at: int) -> None:
    assert isinstance(run.config, TrainConfig)
    if config.meta.init != run.config.meta.init:
        raise ValueError(
            f"meta.init = {config.meta.init}: a fork starts from the checkpoint that --at names"
        )
    if config.meta.meta_steps <= at:
        raise ValueError(
            f"meta.meta_steps = {config.meta.meta_steps}: {at} of them are behind the checkpoint "
            f"that --at names; take at least --meta.meta_steps {at + 1}"
        )
