from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from leap_rl.core.parsing import config_parser, flatten, options_given, parse
from leap_rl.envs.atari.settings import PRESETS
from leap_rl.runs.config import LearnConfig, TrainConfig
from leap_rl.runs.header import OPERATIONAL, defining_options, fingerprint, to_mapping
from tests.commands import parsed

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "configs").glob("*.yaml"))


def read(path: Path, *argv: str) -> TrainConfig:
    return parsed(TrainConfig, "--config", path, *argv)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_config_loads(path: Path) -> None:
    task = read(path).task
    assert task.updates >= 1 or task.kind == "images"  # whose epochs say it, for each set its own


@pytest.mark.parametrize(
    ("name", "sizes"), [("omniglot", (1000, 20, 100)), ("multi_cv", (1000, 10, 0))]
)
def test_every_line_of_the_papers_image_configs_says_where_it_comes_from(
    name: str, sizes: tuple[int, int, int]
) -> None:
    text = (ROOT / f"configs/{name}_paper.yaml").read_text()
    options = [line for line in text.splitlines() if re.match(r"\s*\w+: \S", line)]
    config = read(ROOT / f"configs/{name}_paper.yaml")
    # The digest is found when a run is made.
    assert len(options) == len(defining_options(config)) - 1 + 1  # and meta.meta_steps
    for line in options[:-1]:
        comment = line.partition("#")[2]
        if not line.strip().startswith("kind"):
            assert re.search(r"not given|appendix|section|algorithm|released", comment), line
    assert (config.meta.meta_steps, config.meta.batch_size, config.task.updates) == sizes


def test_every_line_of_the_papers_config_says_where_it_comes_from() -> None:
    text = (ROOT / "configs/atari_paper.yaml").read_text()
    options = [line for line in text.splitlines() if re.match(r"\s*\w+: \S", line)]
    by_preset = re.findall(r"^ {4}\w+:", text, re.MULTILINE)
    assert by_preset == ["    preset:"]
    settings = TrainConfig().task.atari.resolved()
    spelled = len(defining_options(TrainConfig())) - len(settings) + 1  # the preset
    assert len(options) == spelled + 1  # and meta.meta_steps
    for name, value in settings.items():
        said = value if isinstance(value, str) else json.dumps(value)
        assert re.search(rf"\b{name}:? {said}\b", text), name
    for line in options:
        comment = line.partition("#")[2]
        assert re.search(r"not given|appendix|section|algorithm", comment), line


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_preset_on_the_command_line_leaves_nothing_of_the_files(path: Path) -> None:
    if read(path).task.kind != "atari":
        return
    assert read(path, "--task.atari.preset", "machado").task.atari.settings == PRESETS["machado"]


def test_the_fingerprint_is_of_what_defines_the_run() -> None:
    base = TrainConfig()
    for name, value in flatten(to_mapping(base)).items():
        changed = _changed(name, value)
        if changed is None:
            continue
        other = parsed(TrainConfig, *changed)
        operational = name in OPERATIONAL or name.partition(".")[0] in OPERATIONAL
        assert (fingerprint(other, None) == fingerprint(base, None)) == operational, name


def _changed(name: str, value: object) -> list[str] | None:
    """Options that change one field, with whatever must change along."""
    choices = {
        "meta.method": "reptile",
        "meta.updates_per_round": None,  # of one method alone; see below
        "meta.p": "1",
        "meta.metric": "euclidean",
        "meta.task_unit": "none",
        "meta.loss_difference": "same_batch",
        "meta.optimizer": "adam",
        "meta.end_batches": None,  # of one method alone
        "meta.init": "somewhere.safetensors",
        "meta.close_after_s": "60",
        "task.on_divergence": "drop_task",
        "task.kind": "catch",
        "task.games": "held_out",
        "task.agent_steps": "5000160",
        "task.num_envs": "16",
        "task.unroll_length": "10",
        "task.atari.preset": "machado",
        "task.atari.frameskip": "3",
        "task.atari.max_frames": "400",
        "task.atari.sticky": "0.5",
        "agent.algorithm": None,  # others have other options; see below
        "agent.reward_clip": "1.0",
        "agent.encoder": "nature",
        "agent.initial_weights": "he",
        "agent.share": "convolutions",
        "agent.value_gain": "0.001",
        "agent.rmsprop_start": "zero",
        "agent.path_loss": "value",
        "agent.max_grad_norm": "0.5",
        "agent.precision": "bfloat16",
        "agent.device": "cuda",
        "agent.gamma": "0.9",
        "agent.lr": "0.5",
        "agent.rmsprop_eps": "0.5",
        "agent.value_coefficient": "0.25",
        "agent.rmsprop_alpha": "0.9",
        "runtime.kind": "local",
        "runtime.trainers": "2",
        "runtime.gpus_per_trainer": "0",
        "runtime.keep_checkpoints": "3",
        "runtime.stop_after_s": "5",
        "runtime.address": "auto",
        "runtime.metrics_port": "9464",
        "validation.every_meta_steps": "2",
        "validation.games": None,  # has no effect without the one before
        "validation.agents": None,  # likewise
        "run_dir": "elsewhere",
        "tracking.wandb": "offline",
        "tracking.console": "plain",
        "tracking.wandb_tags": "[a]",
    }
    if name in choices:
        choice = choices[name]
        return None if choice is None else [f"--{name}", choice]
    if isinstance(value, bool):
        return [f"--{name}", str(not value).lower()]
    if isinstance(value, int | float):
        return [f"--{name}", str(value + 1)]
    return [f"--{name}", "other"]


@pytest.mark.parametrize(
    ("changed", "same"),
    [
        (["--task.data", "elsewhere"], True),
        (["--task.data_sha256", "1" * 64], False),
        (["--task.games", "[Latin]"], False),
        (["--task.omniglot.updates", "5"], False),
        (["--agent.classifier.lr", "0.5"], False),
        (["--agent.classifier.share", "all"], False),
        (["--task.omniglot.split", "1"], False),
        (["--agent.algorithm", "classifier"], False),
        (["--meta.method", "maml"], False),
    ],
)
def test_drawings_count_by_their_content_not_by_their_place(changed: list[str], same: bool) -> None:
    base = ["--task.data", "here", "--task.data_sha256", "0" * 64, "--task.games", "[Greek]"]
    one, other = (
        fingerprint(read(ROOT / "configs/omniglot_leap.yaml", *base, *more), None)
        for more in ([], changed)
    )
    assert (one == other) == same


def test_options_without_effect_are_neither_taken_nor_written_down() -> None:
    omniglot = to_mapping(read(ROOT / "configs/omniglot_leap.yaml"))
    assert omniglot["agent"].keys() == {"algorithm", "classifier"}
    assert not {"agent_steps", "num_envs", "unroll_length", "atari"} & omniglot["task"].keys()
    assert not {"data", "data_sha256", "omniglot"} & to_mapping(TrainConfig())["task"].keys()
    for argv, message in (
        (
            ["--agent.lr", "0.5"],
            "agent.lr = 0.5: has no effect with agent.algorithm = classifier; set "
            "agent.classifier.lr",
        ),
        (["--agent.device", "cuda"], "agent.device = cuda: has no effect"),
        (["--runtime.env_processes", "2"], "runtime.env_processes = 2: has no effect"),
        (["--task.agent_steps", "160"], "task.agent_steps: has no effect"),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            read(ROOT / "configs/omniglot_leap.yaml", *argv)
    with pytest.raises(ValueError, match=r"task\.data: has no effect with task\.kind = atari"):
        read(ROOT / "configs/demo.yaml", "--task.data", "here")
    with pytest.raises(
        ValueError, match=r"env_processes = 2: has no effect with task\.kind = quadratic"
    ):
        read(ROOT / "configs/debug.yaml", "--runtime.env_processes", "2")
    runtime = read(ROOT / "configs/debug.yaml", "--runtime.env_processes", "auto").runtime
    assert (runtime.lends_cores, runtime.own_env_processes) == (True, 1)


@pytest.mark.parametrize("name", ["minatar", "gymnasium_cart_pole", "atari_paper", "minatar_ppo"])
@pytest.mark.parametrize("algorithm", ["a2c", "rllib:PPO"])
def test_a_configs_algorithm_is_changed_by_one_word(name: str, algorithm: str) -> None:
    config = LearnConfig.from_yaml(name, {"agent.algorithm": algorithm})
    agent = to_mapping(config)["agent"]
    assert ("rmsprop_alpha" in agent, "rllib" in agent) == (algorithm == "a2c", algorithm != "a2c")
    assert agent["lr"] == TrainConfig.from_yaml(name).agent.lr
    # What changes what is computed is not left out unsaid.
    if algorithm != "a2c":
        with pytest.raises(ValueError, match=r"agent\.share = convolutions: has no effect with"):
            LearnConfig.from_yaml(
                name, {"agent.algorithm": algorithm, "agent.share": "convolutions"}
            )


def test_a_config_of_train_serves_learn_but_its_errors_stay(tmp_path: Path) -> None:
    (tmp_path / "dotted.yaml").write_text("seed: 4\nmeta.meta_steps: 3\n")
    assert LearnConfig.from_yaml(tmp_path / "dotted.yaml").seed == 4
    assert LearnConfig.from_yaml("minatar").task == TrainConfig.from_yaml("minatar").task
    with pytest.raises(ValueError, match=r"meta\.batch_size: no such option"):
        LearnConfig.from_yaml("minatar", {"meta.batch_size": 4})
    with pytest.raises(ValueError, match=r"life_loss_ends = true: agent\.algorithm = rllib:PPO"):
        LearnConfig.from_yaml("demo", {"agent.algorithm": "rllib:PPO"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "agent:\n  reward_clip: null",
            "line 3: agent.reward_clip = null: must be a number or auto",
        ),
        ("agent:\n  reward_clip: [1]", "line 3: agent.reward_clip = [1]: must be a number or auto"),
        ("agent:\n  reward_clip: {a: 1}", "agent.reward_clip = {'a': 1}: must be a number or auto"),
        ("agent:\n  lr: fast", "line 3: agent.lr = fast: must be a number"),
        ("agent:\n  lr: -1", "line 3: agent.lr = -1.0: must be greater than 0"),
        ("agent: {rllib: {clip: null}}", "line 2: agent.rllib.clip = null: must be a number"),
        ("agent:\n  rllib: null", "line 3: agent.rllib = null: must be a mapping of options"),
        ("agent:\n\ntask:", "line 2: agent = null: must be a mapping of options"),
        ("agent: [1]", "line 2: agent = [1]: must be a mapping of options"),
        ("agent: fast", "line 2: agent = fast: must be a mapping of options"),
        ("agent:\n  options: 3", "line 3: agent.options = 3: must be a mapping"),
        ("agent:\n  precision: null", "line 3: agent.precision = null: must be one of auto, float"),
        ("tracking:\n  wandb_tags: null", "line 3: tracking.wandb_tags = null: must be a list"),
        (
            "tracking.tensorboard: null",
            "line 2: tracking.tensorboard = null: must be true or false",
        ),
        ("task:\n  games: [[a]]", "games = [['a']]: must be a list (each a text) or a text"),
        ("seed: null", "line 2: seed = null: must be a whole number"),
        ("runtime:\n  trainers: null", "runtime.trainers = null: must be a whole number or auto"),
        ("agent:\n  speed: 3", "line 3: agent.speed: no such option"),
        ("1: 2", "line 2: 1: no such option"),
    ],
)
def test_a_wrong_value_names_its_option_file_and_line(
    text: str, message: str, tmp_path: Path
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(f"# Mine.\n{text}\n")
    before = f"config = {file}: "
    for first in (file, ROOT / "configs/debug.yaml"):
        with pytest.raises(ValueError, match=rf"^{re.escape(before)}.*{re.escape(message)}"):
            read(first, "--config", str(file))


def test_a_wrong_value_of_the_command_line_names_no_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("agent:\n  lr: 0.5\n  value_gain: null\n")  # as this one may be
    assert read(file).agent.value_gain is None
    with pytest.raises(ValueError, match=r"^agent\.lr = -1\.0: must be greater"):
        read(file, "--agent.lr", "-1")
    with pytest.raises(ValueError, match=r"^agent\.rllib = 4: must be a mapping of options"):
        read(file, "--agent", "{rllib: 4}")
    file.write_text("agent:\n  lr: fast\n")
    with pytest.raises(ValueError, match=r"line 2: agent\.lr = fast: must be a number"):
        read(file, "--agent.lr", "0.5")
    with pytest.raises(ValueError, match=r"line 2: agent\.lr = fast: must be a number"):
        options_given(TrainConfig, ["--config", str(file)])


def test_maml_is_refused_where_nothing_can_be_differentiated_through() -> None:
    for kind, who in (("atari", "a2c"), ("catch", "a2c"), ("quadratic", "gradient_descent")):
        argv = ["--task.kind", kind, "--task.games", "all", "--meta.method", "maml"]
        with pytest.raises(ValueError, match=rf"meta\.method = maml.*agent\.algorithm = {who}"):
            parsed(TrainConfig, *argv)


def test_no_parser_changes_the_next_ones_defaults() -> None:
    first = config_parser(TrainConfig, program="test")
    assert parse(first, TrainConfig, [], defaults={"seed": 7}).seed == 7
    assert parsed(TrainConfig) == TrainConfig()


def test_a_pool_and_its_games_are_the_same_run() -> None:
    by_name = TrainConfig()
    spelled = list(by_name.task.resolved_games)
    other = parsed(TrainConfig, "--task.games", str(spelled))
    assert fingerprint(other, None) == fingerprint(by_name, None)


def finetune(*argv: str) -> TrainConfig:
    return parsed(TrainConfig, "--meta.method", "pretraining", *argv)


def test_a_round_of_finetuning_is_a_budget_of_agent_steps() -> None:
    whole, three, four = (
        finetune(),
        finetune("--meta.updates_per_round", "3"),
        finetune("--meta.updates_per_round", "4"),
    )
    assert whole.task == TrainConfig().task
    assert three.task.updates == 3
    assert three.task.agent_steps == 3 * 32 * 5
    assert len({fingerprint(config, None) for config in (whole, three, four)}) == 3
    options = to_mapping(three)
    assert options["task"]["agent_steps"] == 480
    again = finetune("--meta.updates_per_round", "3", "--task.agent_steps", "320")
    assert to_mapping(again) == options, "it takes the place of another budget"
    image = read(
        ROOT / "configs/omniglot_leap.yaml",
        *["--meta.method", "pretraining", "--meta.updates_per_round", "3"],
    )
    assert image.task.updates == 3


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (
            ["--task.games", '["pong", "qbert"]', "--meta.batch_size", "3"],
            r"meta\.batch_size = 3: .* one agent a game, and task\.games has 2; take at most 2",
        ),
        (["--meta.close_after_s", "60"], r"meta\.close_after_s = 60.0: .* cannot cut off agents"),
    ],
)
def test_rounds_that_cannot_be_are_refused(argv: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        finetune(*argv)


def test_maml_is_not_cut_off() -> None:
    argv = ["--meta.method", "maml", "--meta.close_after_s", "60"]
    with pytest.raises(ValueError, match=r"meta\.close_after_s = 60.0: .* cut off has none; leave"):
        read(ROOT / "configs/omniglot_leap.yaml", *argv)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
@pytest.mark.parametrize("method", ["reptile", "fomaml"])
def test_a_method_is_one_word(path: Path, method: str) -> None:
    assert read(path, "--meta.method", method).meta.build().name == method


def test_a_custom_encoder_and_its_arguments_define_the_run() -> None:
    parser = config_parser(TrainConfig, program="test")
    given = ["--agent.encoder", "mine:vit", "--agent.encoder_arguments"]
    prints = {
        fingerprint(parse(parser, TrainConfig, words, trusts_imports=True), None)
        for words in (
            [*given, "{}"],
            [*given, '{"width": 3}'],
            [*given, '{"width": 3}', "--agent.encoder_sha256", "00"],
        )
    }
    assert len(prints) == 3


def test_values_that_only_look_like_options_or_numbers_are_taken() -> None:
    tag = "20261125123456789012345"
    assert parsed(TrainConfig, "--tracking.wandb_tags", f'["{tag}"]').tracking.wandb_tags == (tag,)
    own = f'{{s.t: 1, s: {{t: 2}}, ids: ["{tag}"]}}'
    words = ["--agent.algorithm", "my:learn", "--agent.options", own]
    made = parse(
        config_parser(TrainConfig, program="test"), TrainConfig, words, trusts_imports=True
    )
    assert made.agent.options == {"s.t": 1, "s": {"t": 2}, "ids": [tag]}
