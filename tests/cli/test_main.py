from __future__ import annotations

import contextlib
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
import yaml

from leap_rl import __version__
from leap_rl.cli import COMMANDS, main
from leap_rl.core.parsing import flatten
from leap_rl.learners.defaults import PAPER
from leap_rl.runs.config import TrainConfig
from leap_rl.runs.header import to_mapping
from tests.commands import Refused, parsed

ROOT = Path(__file__).parents[2]


def test_the_module_and_the_program_are_one() -> None:
    for program in ([sys.executable, "-m", "leap_rl"], [str(ROOT / ".venv/bin/leap-rl")]):
        if not Path(program[0]).exists():
            continue  # installed elsewhere than in .venv
        run = subprocess.run([*program, "--version"], capture_output=True, text=True, check=True)
        assert run.stdout == f"leap-rl {__version__}\n"


def test_help_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(command in text for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with contextlib.suppress(SystemExit):  # what argparse's own help ends with
        assert main([command, "--help"]) == 0
    assert "usage: leap-rl" in capsys.readouterr().out


def test_a_description_comes_first_and_keeps_its_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["evaluate", "--help"])
    text = capsys.readouterr().out
    assert text.startswith("usage: leap-rl evaluate [OPTIONS]\n\n")
    assert "\n  --init NAME=RUN,RUN,...\n" in text


def test_help_explains_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    for option in CONTRACT:
        assert f"--{option}" in text
    assert "Learning rate of the agent's RMSProp, or of the learner's own optimizer. auto:" in text


CONTRACT = [
    *["seed", "run_dir", "runtime.kind", "runtime.trainers", "runtime.address"],
    *["meta.method", "meta.p", "meta.loss_in_path", "meta.loss_scale", "meta.stabilizer"],
    *["meta.meta_steps", "meta.batch_size", "meta.meta_lr", "meta.optimizer", "meta.init"],
    *["task.kind", "task.games", "task.agent_steps", "task.num_envs", "task.unroll_length"],
    *["agent.lr", "agent.encoder", "agent.path_loss", "tracking.wandb"],
]


def printed_config(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, object]:
    with pytest.raises(SystemExit) as end:
        main([*argv, "--print_config"])
    assert end.value.code == 0
    config = yaml.safe_load(capsys.readouterr().out)
    assert isinstance(config, dict)
    return config


def test_a_printed_config_can_be_loaded_again(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    first = printed_config(capsys, "train", "--meta.p", "1", "--task.games", '["pong", "qbert"]')
    assert first["meta"]["p"] == 1  # type: ignore[index]
    assert first["task"]["games"] == ["pong", "qbert"]  # type: ignore[index]
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(first))
    assert printed_config(capsys, "train", "--config", str(path)) == first


def test_the_command_line_overrides_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    config = printed_config(capsys, "train", "--config", "demo", "--meta.meta_steps", "7")
    assert config["meta"]["meta_steps"] == 7  # type: ignore[index]
    assert config["meta"]["batch_size"] == 2  # type: ignore[index]


def test_the_papers_config_is_what_the_defaults_are_but_for_the_outer_step() -> None:
    """By default Leap measures in the optimizer's metric, and SGD takes the step that it means."""
    paper = parsed(TrainConfig, "--config", "atari_paper")
    ours, printed = flatten(to_mapping(TrainConfig())), flatten(to_mapping(paper))
    ours |= {f"agent.{name}": value for name, value in asdict(PAPER).items()}  # what auto is
    assert {name: (ours[name], printed[name]) for name in ours if ours[name] != printed[name]} == {
        "agent.algorithm": ("auto", "a2c"),
        "agent.reward_clip": ("auto", 5.0),
        "meta.metric": ("optimizer", "euclidean"),
        "meta.task_unit": ("path", "none"),
        "meta.optimizer": ("sgd", "adam"),
        "meta.meta_lr": (0.5, 0.001),
    }


@pytest.mark.parametrize(
    ("argv", "parts"),
    [
        (["--meta.p", "3"], ["meta.p = 3", "1, 2"]),
        (["--meta.pp", "1"], ["meta.pp", "no such option", "meta.p"]),
        (["--meta.meta_lr", "fast"], ["meta.meta_lr = fast", "a number"]),
        (["--meta.meta_lr", "-1"], ["meta.meta_lr = -1.0", "greater than 0"]),
        (["--meta.meta_lr", "nan"], ["meta.meta_lr = nan"]),
        (["--seed", "x"], ["seed = x", "whole number"]),
        (["--seed", "-1"], ["seed = -1", "at least 0"]),
        (["--task.games", '["pongg"]'], ["task.games", "'pongg'", "'pong'"]),
        (["--task.games", '["pong", "Pong"]'], ["task.games", "twice"]),
        (["--task.games", "7"], ["task.games"]),
        (["--task.games", '["catch"]'], ["task.games", "'catch'", "leap-rl games lists all"]),
        (["--task.kind", "catch", "--task.games", '["pong"]'], ["'pong'", "task.kind = catch"]),
        (["--task.agent_steps", "1000"], ["task.agent_steps = 1000", "160", "960 or 1120"]),
        (["--task.agent_steps", "0"], ["task.agent_steps = 0", "at least 1"]),
        (["--task.num_envs", "1.5"], ["task.num_envs = 1.5", "whole number"]),
        (["--agent.encoder", "resnet"], ["agent.encoder = 'resnet'", "mnih2013"]),
        (["--agent.gamma", "1.5"], ["agent.gamma = 1.5", "[0, 1]"]),
        (["--runtime.trainers", "many"], ["runtime.trainers = many", "whole number", "auto"]),
        (["--runtime.trainers", "true"], ["runtime.trainers = true", "a whole number or auto"]),
        (["--tracking.wandb_tags", "a"], ["tracking.wandb_tags = a", "a list"]),
        (["--meta.loss_scale", "1e200"], ["meta.loss_scale = 1e+200", "at most 1e+06"]),
        (["--agent.lr", "1e39"], ["agent.lr = 1e+39", "at most 1e6"]),
        (["--run_dir", "/proc/nothing/run"], ["run_dir = /proc/nothing/run", "cannot be written"]),
        (["--runtime.trainers", "0"], ["runtime.trainers = 0", "at least 1"]),
        (["--runtime.kind", "local", "--runtime.trainers", "2"], ["runtime.trainers = 2"]),
        (["--runtime.metrics_port", "0"], ["runtime.metrics_port = 0", "1 and 65535"]),
        (
            ["--runtime.metrics_port", "9464", "--runtime.kind", "local"],
            ["runtime.metrics_port = 9464", "use runtime.kind = ray"],
        ),
        (
            ["--runtime.metrics_port", "9464", "--runtime.address", "auto"],
            ["runtime.metrics_port = 9464", "--metrics-export-port"],
        ),
        (
            ["--runtime.address", "http://10.0.0.5:8265"],
            ["runtime.address = http://10.0.0.5:8265: must be host:port, as", "auto"],
        ),
        (["--runtime.address", "10.0.0.5"], ["runtime.address = 10.0.0.5: must be host:port"]),
        (["--runtime.lease_s", "1"], ["runtime.lease_s = 1.0", "runtime.stream_every_s"]),
        (["--runtime.gpus_per_trainer", "inf"], ["runtime.gpus_per_trainer = inf", "auto"]),
        (["--runtime.gpus_per_trainer", "1.5"], ["runtime.gpus_per_trainer = 1.5", "whole"]),
        (["--runtime.gpus_per_trainer", "0.5"], ["agent.device", "must be 0"]),
        (["--task.atari.frameskip", "7"], ["task.atari.max_frames = 108000", "107996"]),
        (["--task.atari.frame_stack", "65"], ["task.atari.frame_stack = 65", "1..64"]),
        (["--task.kind", "catch", "--task.atari.sticky", "0.5"], ["task.atari", "no effect"]),
        (["--tracking.wandb", "on"], ["tracking.wandb = on", "offline"]),
        (["--config", "/nowhere.yaml"], ["config", "/nowhere.yaml"]),
        (["--run_dir"], ["--run_dir", "expected one argument"]),
        (["--run_dir", ""], ["run_dir = '': must name a folder"]),  # as from an unset "$RUN"
        (
            ["--meta.meta_step", "3"],
            ["meta.meta_step: no such option; did you mean meta.meta_steps?"],
        ),
        (["--agent.learning_rate", "0.1"], ["agent.learning_rate: no such", "mean agent.lr?"]),
        (["--lr", "0.1"], ["lr: no such option; did you mean agent.lr?"]),
        *(
            (["--runtime.stop_after_s", s], ["runtime.stop_after_s = "])
            for s in ["0", "-1", "inf", "nan"]
        ),
        (["--runtime.keep_checkpoints", "0"], ["runtime.keep_checkpoints = 0: must be at least 1"]),
        (["--run_dir", "az://bucket/x"], ["run_dir = az://bucket/x", "s3://"]),
        (["--meta.init", "/nowhere"], ["meta.init = /nowhere: there is no such run or file"]),
        (["stray"], ["stray", "no such option"]),
    ],
)
def test_bad_options_get_one_line_that_names_them(
    argv: list[str], parts: list[str], refused: Refused, tmp_path: Path
) -> None:
    if "--run_dir" not in argv:
        argv = [*argv, "--run_dir", str(tmp_path / "run")]
    line = refused("train", *argv)
    assert all(part in line for part in parts), line
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("meta:\n  pp: 1\n", ["meta.pp", "no such option"]),
        ("sed: 1\n", ["sed", "no such option", "seed"]),
        ("meta: 4\n", ["config.yaml: line 1: meta = 4: must be a mapping"]),
        ("- 1\n", ["config", "mapping"]),
        ("", ["config.yaml: must hold a mapping"]),
        ("seed: [1\n", ["config"]),
        ("seed: 1\nmeta:\n\tmeta_steps: 3\n", ["config.yaml: line 3: is no YAML"]),
        ("meta: {p: 1}\nseed: 2\nmeta: {p: 2}\n", ["config.yaml: line 3: meta is there already"]),
        ("task: {games: [pong, pong]}\nmeta:\n  p: 1\n  p: 2\n", ["line 4: p is there already"]),
        ("seed: true\n", ["config.yaml: line 1: seed = true", "whole number"]),
        ("seed: !!python/object/apply:os.system ['touch /tmp/leap_rl_owned']\n", ["tag"]),
        ("task:\n  class_path: os.system\n  init_args: {}\n", ["class_path = os.system"]),
        ("task:\n  class_path: antigravity.fly\n", ["class_path = antigravity.fly"]),
        ("task:\n  resolved_games: [pong]\n", ["task.resolved_games", "no such option"]),
    ],
)
def test_bad_files_get_one_line(
    text: str, parts: list[str], refused: Refused, tmp_path: Path
) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    line = refused("train", "--config", path, "--run_dir", tmp_path / "run")
    assert all(part in line for part in parts), line
    assert not (tmp_path / "run").exists()
    assert not Path("/tmp/leap_rl_owned").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("export", "the following arguments are required: RUN, --out; leap-rl export --help"),
        ("export a --out=b --ou x", "unrecognized arguments: --ou x"),
        ("trian", "trian: no such command; did you mean train?"),
        ("games asteroids@mode=99", "asteroids has no mode 99; its modes are 0 to 31, 128"),
    ],
)
def test_commands_without_a_config_have_their_errors_in_one_line_too(
    words: str, said: str, refused: Refused
) -> None:
    assert said in refused(*words.split())


def test_a_reader_that_leaves_is_no_error() -> None:
    run = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {sys.executable} -m leap_rl --help | true"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.stderr == ""
    assert run.returncode in (0, 1)  # as it was fast enough, or not


def test_games_lists_all_with_pools(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["games"]) == 0
    lines = capsys.readouterr().out.splitlines()
    row = {line.split()[0]: line for line in lines if line}
    assert row["pong"].split() == ["pong", "6", "0,", "1", "0", "to", "3", "pretraining"]
    assert "held out" in row["breakout"]
    assert "held out" not in row["pong"]
    assert row["pretraining"].split()[-1] == "25"
    assert row["all"].split()[-1] == "62"


def test_games_spells_entries_out(capsys: pytest.CaptureFixture[str]) -> None:
    names = ["modes:pong", "held_out", "ALE/Freeway-v5@difficulty=1,mode=4", "alien@mode=0"]
    assert main(["games", *names]) == 0
    assert capsys.readouterr().out.split() == [
        *("pong", "pong@mode=1", "breakout", "space_invaders"),
        *("freeway@mode=4,difficulty=1", "alien"),
    ]
