"""``leap-rl export``: write an initialization with its options and a model card."""

from __future__ import annotations

import argparse
import hashlib
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

from leap_rl.cli import command_parser
from leap_rl.core import plain_yaml
from leap_rl.core.lines import say
from leap_rl.core.parsing import flatten, spelled
from leap_rl.core.regular_file import LARGEST, read_given
from leap_rl.core.version import __version__
from leap_rl.learners.config import LIBRARYS_OWN
from leap_rl.learners.registry import encoder_shared_by, make_game_learner
from leap_rl.networks.custom import check_trust
from leap_rl.runs.config import Config, EvaluateConfig
from leap_rl.runs.display import shown, trusting
from leap_rl.runs.header import OPERATIONAL, read_run, to_mapping
from leap_rl.runs.initializations import FoundInitialization, find_initialization
from leap_rl.runs.invocation import Invocation
from leap_rl.runs.kinds import meta_trains
from leap_rl.sharing.card import CARD, ONNX, OPTIONS, Card, write_card
from leap_rl.sharing.exported import encoder_of
from leap_rl.sharing.onnx_file import onnx_of
from leap_rl.storage.durable_files import make_folder, write_atomically
from leap_rl.storage.open_run import open_run
from leap_rl.storage.run_folder import INITIALIZATION
from leap_rl.training.rounds.evaluation_slots import RANDOM

_DESCRIPTION = """\
Write a run's initialization into a folder of its own, to share or to load elsewhere:

  initialization.safetensors   the parameters by name, as the run's checkpoint has them
  config.yaml                  the options of the run, as --config takes them
  README.md                    a model card: games, budget, method, what was measured, how to load
  encoder.onnx                 with --to onnx, the encoder for programs without PyTorch

The folder can stand wherever an initialization is named (leap-rl evaluate --init FOLDER), and
leap_rl.load_encoder("FOLDER") returns the encoder. leap-rl push uploads it. With agent.share agent
the parameters include the heads'.

encoder.onnx takes `observations`, uint8 [N, H, W, C] in 0..255, which it scales itself, or float32
vectors [N, L] (those of bytes divided by 255), for any N, and returns `features`, float32 [N, F].
To write it takes pip install 'leap-rl[onnx]'.

  leap-rl export runs/mine --out shared/mine --evaluation runs/eval
  leap-rl export runs/mine@best --out shared/mine --to onnx"""


_DEFAULTS = {one.name: one.default for one in fields(EvaluateConfig)}


class _Evaluated(NamedTuple):
    """What a card tells of an evaluation."""

    verdicts: tuple[str, ...]
    rows: tuple[Mapping[str, str], ...]
    command: str


def main(argv: Sequence[str], call: Invocation) -> int:
    """Run the command; returns its exit status."""
    given = options().parse_args(argv)
    out = Path(given.out)
    one = find_initialization(given.run)
    export(
        one,
        out,
        evaluations=given.evaluation,
        to_onnx=given.to == "onnx",
        trusts_imports=call.trusts_imports,
    )
    say(f"exported {given.run} to {shown(out)}; its card is {shown(out / CARD)}")
    return 0


def options() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    parser = command_parser("export", _DESCRIPTION)
    parser.add_argument("run", metavar="RUN", help="RUN, RUN@12 or RUN@best, of leap-rl train")
    parser.add_argument("--out", required=True, help="the folder, new or empty")
    parser.add_argument(
        "--to",
        choices=("safetensors", "onnx"),
        default="safetensors",
        help="the form of the encoder; onnx comes beside safetensors (default: safetensors)",
    )
    add_evaluation(parser)
    return parser


def add_evaluation(parser: argparse.ArgumentParser) -> None:
    """Add the option that names evaluations for the card."""
    help = "an evaluation of the run whose verdicts the card has; may be given several times"
    parser.add_argument("--evaluation", action="append", default=[], metavar="EVAL", help=help)


def export(
    one: FoundInitialization,
    out: Path,
    *,
    evaluations: Sequence[str] = (),
    to_onnx: bool = False,
    trusts_imports: bool = False,
) -> None:
    """Write an initialization's folder, whose name becomes the initialization's.

    Args:
        one: The initialization.
        out: The folder.
        evaluations: Folders of evaluations whose verdicts the card tells.
        to_onnx: Whether the encoder is written as an ONNX file too.
        trusts_imports: Whether the module of a custom encoder may be imported for that.

    Raises:
        ValueError: It lies in no run, it is no encoder of agents, the folder is not empty, an
            evaluation is of other initializations or has nothing to say yet, or there is no whole
            encoder for ONNX or a package for it is missing.
    """
    if one.run is None or one.file is None:
        raise ValueError(f"{one.given}: lies in no run, so nothing is known of it; name a run")
    run = open_run(one.run)
    loaded = read_run(run)
    config = loaded.config
    assert meta_trains(config), "find_initialization refuses others"
    shared = encoder_shared_by(config.task, config.agent)
    if config.agent.encoder == LIBRARYS_OWN:
        learner = make_game_learner(task=config.task, agent=config.agent)
        shared = config.agent.encoder_spec, learner.observation_shape
    if shared is None:
        raise ValueError(
            f"{one.given}: task.kind = {config.task.kind} has no agents; only their encoders are "
            "exported"
        )
    if to_onnx and config.agent.encoder == LIBRARYS_OWN:
        raise ValueError(
            f"--to onnx: {one.given} has agent.encoder = {LIBRARYS_OWN}, the network of "
            f"{config.agent.algorithm}; export it to safetensors alone"
        )
    if to_onnx and config.agent.share == "convolutions":
        raise ValueError(
            f"--to onnx: {one.given} has agent.share = convolutions, so no whole encoder; "
            "export it to safetensors alone"
        )
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"--out {out}: is there already; name a new folder")
    if not one.file.parent.name.isdecimal():
        raise ValueError(f"{one.given}: is no checkpoint of its run; name the run, or RUN@12")
    number = int(one.file.parent.name)
    data = read_given(one.file, LARGEST)
    sha256 = hashlib.sha256(data).hexdigest()
    games = config.task.resolved_games  # of version 0 they are to come
    evaluated = [_evaluated(path, one.given, sha256, config) for path in evaluations]
    encoder, observation_shape = shared
    card = Card(
        name=out.absolute().name,
        encoder=encoder.name,
        encoder_arguments=encoder.arguments,
        encoder_sha256=encoder.sha256,
        observation_shape=observation_shape,
        share=config.agent.share,
        method=config.meta.method,
        games=games if one.trained is None else one.trained.games or games,
        meta_steps=number,
        agent_steps=None if one.trained is None else int(one.trained.agent_steps),
        seed=config.seed,
        leap_rl=__version__,
        sha256=sha256,
        verdicts=tuple(verdict for each in evaluated for verdict in each.verdicts),
        measured=tuple(row for each in evaluated for row in each.rows),
        commands=tuple(each.command for each in evaluated),
    )
    if to_onnx:
        check_trust(card.encoder_spec, one.given, trusts_imports=trusts_imports)
    normalized = config.agent.normalize_observations
    card_text = write_card(
        card,
        normalized=normalized,
        algorithm=config.agent.algorithm,
        trust=trusting(config.agent.imports),
    )
    network = onnx_of(encoder_of(card, data), card.observation_shape) if to_onnx else None
    make_folder(out)
    write_atomically(out / INITIALIZATION, data)
    options = _options_of(config)
    start = config.meta.init
    if not start.startswith(("random", "pretrained:", "hf://")):  # a place on this machine
        options["meta"]["init"] = f"sha256:{loaded.header.init_sha256}"
    write_atomically(out / OPTIONS, plain_yaml.dump(options).encode())
    write_atomically(out / CARD, card_text.encode())
    if network is not None:
        write_atomically(out / ONNX, network)


def _options_of(config: Config) -> dict[str, Any]:
    """Return the defining options, with device and precision left to the next machine."""
    options = to_mapping(config)
    for name in OPERATIONAL - {"meta.meta_steps"}:
        group, _, last = name.rpartition(".")
        (options[group] if group else options).pop(last, None)
    options["agent"] |= {"device": "auto", "precision": "auto"}
    return options


def _evaluated(path: str, given: str, sha256: str, run: Config) -> _Evaluated:
    from leap_rl.evaluation.comparison import read_summary
    from leap_rl.evaluation.summary_tables import measured_rows
    from leap_rl.evaluation.verdict import notes_of, verdict_of

    folder = open_run(path)
    summary = read_summary(folder)
    evaluation, found = summary.evaluation, read_run(folder)
    if not evaluation.curves or not summary.comparisons:
        raise ValueError(f"--evaluation {path}: compares nothing yet")
    if sha256 not in found.header.initializations:
        raise ValueError(
            f"--evaluation {path}: is of other initializations, not of {given}; leap-rl evaluate "
            f"--init {given} makes one"
        )
    agents = f"{evaluation.agents_per_game} agents of each run"
    if RANDOM in evaluation.initializations:
        random = evaluation.random_agents or evaluation.agents_per_game
        agents += f" and {random} from random starts"
    where = (
        f"{', '.join(evaluation.games)}, {evaluation.agent_steps:,} agent steps an agent, {agents}"
    )
    verdicts = [f"{where}: {verdict_of(comparison)}" for comparison in summary.comparisons]
    notes = " ".join(notes_of(summary))
    return _Evaluated(
        verdicts=(*verdicts, notes) if notes else tuple(verdicts),
        rows=tuple(measured_rows(summary)),
        command=_command(found.config, run),
    )


def _command(evaluation: Config, run: Config) -> str:
    """Return what makes an evaluation of the exported folder, which sets what it does not say."""
    before = flatten(_options_of(run))
    words: list[str] = []
    for name, value in flatten(_options_of(evaluation)).items():
        group = name.partition(".")[0]
        default = before.get(name) if group in ("task", "agent") else _DEFAULTS.get(name)
        if name != "init" and value != default:
            words += [f"--{name}", value if isinstance(value, str) else spelled(value)]
    words = ["leap-rl", "evaluate", "--init", "FOLDER", *words]
    return shlex.join(words) + trusting(evaluation.imports)
