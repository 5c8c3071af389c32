"""What a study is asked: members alone suffice, and what cannot be is one line."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import leap_rl
from leap_rl.cli import EXIT_USAGE, main
from leap_rl.cli.study import take_out
from leap_rl.core.plain_yaml import dump, load
from leap_rl.envs import games
from leap_rl.runs.config import EvaluateConfig
from leap_rl.studies.arms import ARMS, RANDOM, total_agent_steps
from leap_rl.studies.cells import cells_of
from leap_rl.studies.config import StudyConfig, configure
from leap_rl.studies.plan import refuse_slow
from leap_rl.studies.results import training_of
from tests.commands import Refused

POLES = ["leap_rl/CartPole-v1@gravity=5.0", "leap_rl/CartPole-v1@gravity=20.0"]
LONG = "leap_rl/CartPole-v1@length=1.0,masscart=2.0"
SMALL: Mapping[str, Any] = {
    "games": POLES,
    "held_out": LONG,
    "task.num_envs": 4,
    "task.agent_steps": 400,
    "meta.meta_steps": 3,
}


def asked(**options: Any) -> StudyConfig:
    given = {**SMALL, **{name.replace("__", "."): value for name, value in options.items()}}
    return configure(take_out(words_of(given))[0], trusts_imports=True)


def words_of(options: Mapping[str, Any]) -> list[str]:
    words = []
    for name, value in options.items():
        words += [f"--{name}", *(value if isinstance(value, list) else [str(value)])]
    return words


def test_members_alone_suffice() -> None:
    study = configure(take_out(["--games", *POLES, "--held_out", LONG])[0])
    assert (study.runs, study.agents, study.baseline_agents) == (3, 5, 15)
    assert list(study.arms) == [RANDOM, "leap", "pretraining"]
    assert (study.task.kind, study.members, study.evaluated) == ("gymnasium", (*POLES,), (LONG,))
    # Those of gymnasium_classic_control.yaml, but for what is about its own games.
    assert (study.task.agent_steps, study.meta.meta_steps) == (100_000, 20)
    assert study.agent.lr == "auto", "which a run resolves by what its games are like"
    assert (study.meta.batch_size, study.meta.meta_lr) == (2, None)


@pytest.mark.parametrize(
    ("games", "kind", "encoder", "batch"),
    [
        (["breakout", "freeway@mode=2"], "atari", "mnih2013", 2),
        (["catch", "catch_up", "catch_dark"], "catch", "mnih2013", 3),
        (["MinAtar/Asterix-v1"], "gymnasium", "mnih2013", 1),  # resolved to minatar's
        (["pretraining"], "atari", "mnih2013", 16),
    ],
)
def test_what_is_played_is_known_by_its_name(
    games: list[str], kind: str, encoder: str, batch: int
) -> None:
    held_out = {"gymnasium": "MinAtar/Breakout-v1", "catch": "catch_mirrored"}
    words = ["--games", *games, "--held_out", held_out.get(kind, "pong@mode=1")]
    study = configure(take_out(words)[0])
    assert (study.task.kind, study.agent.encoder, study.meta.batch_size) == (kind, encoder, batch)
    assert study.task.gymnasium.palette == (kind == "gymnasium")


def test_quick_is_small_where_nothing_is_said(tmp_path: Path) -> None:
    quick = configure(take_out(["--quick", "--games", *POLES, "--held_out", LONG])[0])
    assert (quick.runs, quick.agents, quick.baseline_agents, quick.meta.meta_steps) == (1, 5, 10, 6)
    more = ["--games", *POLES, "--held_out", LONG, "--quick", "--runs", "3"]
    assert configure(take_out(more)[0]).runs == 3
    file = tmp_path / "poles.yaml"
    file.write_text("runs: 5\n")
    for named in (["--config", str(file)], [f"--config={file}"]):
        assert configure(take_out([*more[:-2], *named])[0]).runs == 1, "half of a file's"
    for slow in (["--task.agent_steps", "100000"], ["--agent.algorithm", "sb3:PPO"]):
        small = configure(take_out([*more, *slow])[0])
        assert (small.runs, small.agents, small.baseline_agents) == (3, 3, 6), slow
        assert small.meta.meta_steps == 4
    for unknown in ("agent_steps: auto", "num_envs: auto, agent_steps: 64000"):
        file.write_text(f"task: {{{unknown}}}\n")
        with pytest.raises(ValueError, match=r"auto.*or give numbers"):
            configure(take_out([str(file), *more])[0])


@pytest.mark.parametrize(
    ("words", "sizes"),
    [
        ((), (3, 2_048, 98_304)),  # 16 updates of 6,144
        (("--quick",), (1, 2_048, 32_768)),
        (("--agent.sb3", '{"n_steps": 250}'), (16, 250, 100_000)),
        (("--agent.algorithm", "sb3:DQN"), (16, 4, 99_968)),
    ],
)
def test_a_library_learns_in_whole_batches_of_its_own(
    words: Sequence[str], sizes: tuple[int, int, int]
) -> None:
    pytest.importorskip("stable_baselines3")
    members = ["--games", *POLES, "--held_out", LONG]
    task = configure(take_out([*members, "--agent.algorithm", "sb3:PPO", *words])[0]).task
    assert (task.num_envs, task.unroll_length, task.agent_steps) == sizes


def test_a_quick_study_of_ataris_games_is_quick_or_says_what_it_takes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--games", "breakout", "freeway", "boxing", "pong", "qbert", "--held_out", "assault"]
    quick = [*words, "--quick", "--processes", "2"]
    study = configure(take_out([*quick, "--arms", "leap"])[0])
    assert (study.runs, study.agents, study.baseline_agents) == (1, 3, 6)
    assert (study.task.agent_steps, study.meta.batch_size) == (100_000, 4)
    cells = cells_of(study, tmp_path)
    refuse_slow(study, cells)  # 2.5 million agent steps: 13 minutes on two cores
    slow = [*quick, "--arms", "leap", "reptile", "fomaml", "pretraining"]
    assert main(["study", *slow, "--out", str(tmp_path / "out")]) == EXIT_USAGE
    (error,) = capsys.readouterr().err.splitlines()
    # 4 arms of 1.6 million and 3 agents, and 6 random ones, at 3,200 a second; and starts of cells.
    assert error.startswith("leap-rl: quick = true: would take about 0:43:")
    assert "8,200,000 agent steps in 2 processes" in error
    assert not (tmp_path / "out").exists()
    refuse_slow(replace(study, quick=False, meta=replace(study.meta, meta_steps=9)), cells * 9)


def test_a_file_is_overridden_by_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "poles.yaml"
    file.write_text(
        "question: Poles?\ngames: [CartPole-v1]\nheld_out: leap_rl/CartPole-v1@gravity=5.0\n"
        "arms:\n  leap:\n  long: {meta.p: 1}\n  deep:\n    meta: {loss_scale: 2.0}\n"
        "meta: {meta_steps: 7}\n"
    )
    words, out = take_out([str(file), "--runs", "1", "--out", "here"])
    study = configure(words)
    assert out == "here"
    assert take_out([str(file)])[1] == "runs/poles"
    assert study.question == "Poles?"
    assert (study.runs, study.meta.meta_steps) == (1, 7)
    arms = {RANDOM: {}, "leap": {}, "long": {"meta.p": 1}, "deep": {"meta.loss_scale": 2.0}}
    assert study.arms == arms
    assert study.arm("long").meta.p == 1
    assert study.arm("deep").meta.loss_scale == 2.0
    assert StudyConfig.from_mapping(study.to_mapping()) == study


def test_infinity_is_an_option_of_a_study_and_of_an_arm() -> None:
    words = ["--games", "MinAtar/Asterix-v1", "--held_out", "MinAtar/Breakout-v1"]
    more = ["--agent.max_grad_norm", ".inf", "--arms", "{free: {agent.reward_clip: .inf}}"]
    study = configure(take_out([*words, *more])[0])
    assert study.agent.max_grad_norm == study.arm("free").agent.reward_clip == math.inf
    assert StudyConfig.from_mapping(load(dump(study.to_mapping()))) == study


@pytest.mark.parametrize("name", ARMS)
@pytest.mark.parametrize("batch", [1, 2])
def test_all_arms_get_the_same_agent_steps(name: str, batch: int, tmp_path: Path) -> None:
    study = asked(arms=[name], meta__batch_size=batch, meta__meta_steps=4)
    trained = training_of(cells_of(study, tmp_path))[name]
    assert trained.agent_steps == total_agent_steps(study.base()) == 4 * batch * 400
    assert sorted(trained.games) == sorted(POLES)


def test_arms_are_options_of_train() -> None:
    study = asked(arms=["leap_eq8", "pretraining_resets", "pretraining"], meta__batch_size=4)
    printed = study.arm("leap_eq8").meta
    assert (printed.metric, printed.task_unit, printed.outer) == (
        "euclidean",
        "none",
        ("adam", 1e-3),
    )
    resets = study.arm("pretraining_resets").meta
    assert (resets.method, resets.batch_size, resets.outer) == ("reptile", 2, ("sgd", 1.0))
    kept = study.arm("pretraining").meta  # one agent a member, and as many agent steps
    assert (kept.batch_size, kept.meta_steps) == (2, 6)


WRONG = [
    ({"games": "[]"}, "games = []: name the members"),
    ({"held_out": "[]"}, "held_out = []: name members that are not learned from, or say also_seen"),
    ({"held_out": POLES[0]}, f"held_out: {POLES[0]} is among the games that are learned from"),
    ({"arms": "leep"}, "arms = leep: did you mean leap? known are random, leap, leap_eq8,"),
    ({"arms": "random"}, "arms: name one besides random"),
    ({"arms": "{random: {meta.p: 1}}"}, "arms.random: nothing is trained for it"),
    ({"arms": "{mine: 3}"}, "arms.mine = 3: must be options of leap-rl train"),
    ({"arms": "{'a b': {meta.p: 1}}"}, "arms = 'a b': a name has letters, digits"),
    ({"arms": "7"}, "arms = 7: known are random, leap"),
    ({"runs": "0"}, "runs = 0: must be at least 1"),
    ({"agents": "-1"}, "agents = -1: must be at least 1"),
    ({"random_agents": "0"}, "random_agents = 0: must be at least 1"),
    ({"processes": "0"}, "processes = 0: must be at least 1, or auto"),
    ({"seed": "-1"}, "seed = -1: must be at least 0"),
    ({"agent_steps": "401"}, "agent_steps = 401: must be a whole number of updates"),
    ({"task.games": "CartPole-v1"}, "task.games: a study's members are named by games"),
    ({"task.kind": "quadratic"}, "task.kind = quadratic: has no episodes to compare by"),
    ({"quetsion": "x"}, "quetsion: no such option; did you mean question?"),
    ({"games": "no_such_module:Maze-v0"}, "games: names the module no_such_module"),
]


@pytest.mark.parametrize(("options", "line"), WRONG, ids=[line for _, line in WRONG])
def test_what_cannot_be_is_one_line(
    options: dict[str, str], line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = words_of({**SMALL, **options})
    assert main(["study", *words, "--out", str(tmp_path / "out")]) == EXIT_USAGE
    (error,) = capsys.readouterr().err.splitlines()
    assert error.startswith(f"leap-rl: {line}")
    assert not (tmp_path / "out").exists()


def test_no_module_is_imported_that_is_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_mazes.py").write_text("raise SystemExit('was imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    file = tmp_path / "mazes.yaml"
    file.write_text("games: my_mazes:Maze-v0\nheld_out: my_mazes:Maze-v1\n")
    with pytest.raises(ValueError, match="names the module my_mazes"):
        leap_rl.study(file, out=tmp_path / "out")
    task = replace(asked().task, games=["my_mazes:Maze-v0"])
    study = StudyConfig(games=["my_mazes:Maze-v0"], held_out=["my_mazes:Maze-v1"], task=task)
    with pytest.raises(ValueError, match="names the module my_mazes"):
        leap_rl.study(study, out=tmp_path / "out")
    arms = str({"mine": {"agent.encoder": "my_mazes:Encoder"}})
    with pytest.raises(ValueError, match=r"arms\.mine: agent\.encoder: names the module my_mazes"):
        asked(arms=arms).arm("mine")
    assert not (tmp_path / "out").exists()


OF_ARMS = [
    ({"meta.pp": 1}, "arms.mine: meta.pp: no such option; did you mean meta.p?"),
    ({"meta.p": 3}, "arms.mine: meta.p = 3: must be one of"),
    ({"meta.meta_steps": 3}, "arms.mine: meta.meta_steps: is found, so that all arms"),
    ({"task.games": "CartPole-v1"}, "arms.mine: task.games: is the study's games; first_members"),
    ({"task.agent_steps": 890}, "arms.mine: task.agent_steps = 890: must be a whole number of"),
    ({"task.agent_steps": 1000}, "arms.mine: a meta-step has 2,000 agent steps, which do not"),
    (
        {"each_member": True, "meta.batch_size": 7},
        "arms.mine: a meta-step has 5,600 agent steps in 2 members' runs, which do not divide",
    ),
    ({"each_member": 3}, "arms.mine: each_member = 3: must be true or false"),
    ({"first_members": 0}, "arms.mine: first_members = 0: must be 1 to 2, the number of members"),
    ({"first_members": 3}, "arms.mine: first_members = 3: must be 1 to 2"),
    ({"first_members": True}, "arms.mine: first_members = True: must be 1 to 2"),
]


@pytest.mark.parametrize("own", [{}, {"each_member": True}])
def test_an_arm_may_learn_from_fewer_members_for_as_long(own: dict[str, Any]) -> None:
    study = asked(arms=str({"mine": {"first_members": 1, **own}, "leap": {}}), also_seen="true")
    cells = [cell for cell in cells_of(study, Path("out")) if cell.members is None and not cell.run]
    (of_one, of_all) = (cell.config.task.resolved_games for cell in cells)
    assert (of_one, of_all) == (tuple(POLES[:1]), tuple(POLES))
    assert len({total_agent_steps(study.arm(name)) for name in study.trained_arms}) == 1
    training = training_of(cells_of(study, Path("out")))
    assert training["mine"].games == tuple(POLES[:1]), "the other was not seen"


def test_an_arm_learns_from_what_its_new_agents_see() -> None:
    study = asked(arms=str({"mine": {"agent.normalize_observations": True}}))
    with pytest.raises(
        ValueError, match=r"^arms\.mine: agent\.normalize_observations = True: its new agents"
    ):
        cells_of(study, Path("out"))


@pytest.mark.parametrize(("options", "line"), OF_ARMS, ids=[line for _, line in OF_ARMS])
def test_an_arm_that_cannot_be_is_one_line(options: dict[str, Any], line: str) -> None:
    study = asked(arms=str({"mine": options}))
    with pytest.raises(ValueError, match=r"^arms\.mine: ") as raised:
        study.arm("mine")
    assert str(raised.value).startswith(line)
    assert "\n" not in str(raised.value)


def test_members_of_other_shapes_are_named_before_anything_is_computed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    words = words_of({**SMALL, "held_out": "Acrobot-v1"})
    assert main(["study", *words, "--out", str(out)]) == EXIT_USAGE
    (error,) = capsys.readouterr().err.splitlines()
    assert "Acrobot-v1 [6]" in error
    assert f"{POLES[0]} [4]" in error
    assert not out.exists()


@pytest.mark.parametrize("arm", ["domain_randomised", "nearest"])
def test_arms_that_share_whole_agents_name_the_members_that_differ_in_actions(
    arm: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--games", "MinAtar/Breakout-v1", "MinAtar/Freeway-v1", "--arms", arm]
    held_out = ["--held_out", "MinAtar/SpaceInvaders-v1"]  # the one with other actions
    assert main(["study", *words, *held_out, "--out", str(tmp_path / "out")]) == EXIT_USAGE
    (error,) = capsys.readouterr().err.splitlines()
    assert error.startswith(f"leap-rl: arms.{arm}: ")
    assert "MinAtar/SpaceInvaders-v1" in error
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("out", "line"),
    [
        ("s3://bucket/study", "out = s3://bucket/study: must be a folder on this machine"),
        ("here,there", "here,there: must have no comma"),
    ],
)
def test_a_folder_that_cannot_be_is_said(
    out: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["study", *words_of(SMALL), "--out", out]) == EXIT_USAGE
    (error,) = capsys.readouterr().err.splitlines()
    assert line in error


@pytest.mark.parametrize("name", ["config.yaml", "notes.txt"])
def test_a_folder_that_holds_something_else_is_left_alone(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text("mine")
    assert main(["study", *words_of(SMALL), "--out", str(tmp_path)]) == EXIT_USAGE
    (error,) = capsys.readouterr().err.splitlines()
    what = "a run" if name == "config.yaml" else "notes.txt, and no study"
    assert f"holds {what}; choose a folder of the study's own" in error
    assert [one.name for one in tmp_path.iterdir()] == [name]


def test_quick_halves_a_file_but_not_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "poles.yaml"
    members = f"games: {POLES}\nheld_out: ['{LONG}']\n"
    file.write_text(members + "runs: 6\ntask: {agent_steps: 40000}\n")
    quick = configure(take_out([str(file), "--quick", "--agents", "7"])[0])
    assert (quick.runs, quick.agents, quick.task.agent_steps) == (1, 7, 20_000)
    file.write_text(dump(quick.to_mapping()))
    assert configure(take_out([str(file)])[0]) == quick, "resumed, it is not halved again"
    assert configure(take_out(["--quick", str(file)])[0]) == quick


def test_a_librarys_quick_budget_is_in_its_own_batches(tmp_path: Path) -> None:
    pytest.importorskip("stable_baselines3")
    file, words = tmp_path / "poles.yaml", ["--quick", str(tmp_path / "poles.yaml")]
    study = f"games: {POLES}\nheld_out: ['{LONG}']\narms: [leap]\n"
    study += "agent: {algorithm: 'sb3:PPO', sb3: {n_steps: 128}}\n"
    for sizes, halved in (("agent_steps: 5632, num_envs: 4", 2560), ("agent_steps: 9216", 4608)):
        file.write_text(f"{study}task: {{{sizes}}}\n")
        quick = configure(take_out(words)[0])
        assert quick.task.agent_steps == halved
        assert cells_of(quick, tmp_path)


def test_an_encoder_of_ones_own_has_its_own_precision(tmp_path: Path) -> None:
    for precision in ("auto", "float32"):
        arms = str({"leap": {}, "odd": {"agent.encoder": "tests.learners.loops:odd"}})
        study = asked(arms=arms, agent__precision=precision)
        cells = cells_of(study, tmp_path, trusts_imports=True)
        found = {(cell.arm, cell.config.agent.precision) for cell in cells}
        usual = "float32_compiled" if precision == "auto" else precision
        assert found == {("random", usual), ("leap", usual), ("odd", "float32")}


def test_a_member_that_is_there_by_another_ones_module_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "import gymnasium\nfrom gymnasium.envs.classic_control import CartPoleEnv\n"
    source += "gymnasium.register('late/Pole-v0', CartPoleEnv, max_episode_steps=50)\n"
    (tmp_path / "late_poles.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    study = asked(games="late_poles:late/Pole-v0", held_out="late/Pole-v0@sutton_barto_reward=true")
    with pytest.raises(ValueError, match=r"name it too, as late_poles:late/Pole-v0@sutton"):
        cells_of(study, tmp_path, trusts_imports=True)
    monkeypatch.setitem(games._REGISTERED_BY, "MinAtar/Breakout-v1", "late_poles")
    games.check_names_module("MinAtar/Breakout-v1")  # which is ours whoever registers it


def test_arms_that_differ_in_their_mix_share_their_runs(tmp_path: Path) -> None:
    def runs_of(*arms: str) -> list[Path]:
        cells = cells_of(asked(arms=list(arms), runs="2"), tmp_path)
        return [cell.path for cell in cells if cell.members is None]

    assert runs_of("leap", "leap_mixed") == runs_of("leap_mixed", "leap")
    (lone, *_), (shared, *_) = runs_of("leap_mixed"), runs_of("leap")
    assert lone != shared
    shared.mkdir(parents=True)
    assert runs_of("leap_mixed")[0] == shared, "which is there already"
    cells = cells_of(asked(arms=["leap", "leap_mixed"], runs="2"), tmp_path)
    trained = [cell for cell in cells if cell.members is None]
    assert [(cell.arm, cell.run) for cell in trained] == [("leap", 0), ("leap", 1)]
    mixed = [cell for cell in cells if cell.arm == "leap_mixed"]
    assert [cell.after for cell in mixed] == trained
    for cell in mixed:
        assert isinstance(cell.config, EvaluateConfig)
        (init,) = cell.config.init
        assert init.startswith("leap_mixed=")
        assert init.endswith("@mix=0.5")
    assert len({cell.path for cell in cells}) == len(cells)
    assert training_of(cells)["leap_mixed"] == training_of(cells)["leap"]
    study = configure(take_out(words_of({**SMALL, "arms": "{half: {mix: 2}}"}))[0])
    with pytest.raises(ValueError, match=r"arms\.half: mix = 2: must be above 0 and at most 1"):
        cells_of(study, tmp_path)


@pytest.mark.parametrize("path", sorted(Path("studies").glob("*.yaml")), ids=lambda path: path.stem)
def test_the_studies_that_come_along_can_be(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, package in {"lander": "Box2D", "minigrid": "minigrid", "half": "mujoco"}.items():
        if path.stem.startswith(name):
            pytest.importorskip(package, reason="of the extra families")
    monkeypatch.syspath_prepend(Path("examples").absolute())
    study = StudyConfig.from_yaml(path, trust_imports=True)
    assert study.question.endswith("?")
    assert len(path.read_text().splitlines()) <= 45
    cells = cells_of(study, Path("runs/none"), trusts_imports=True)
    totals: Counter[tuple[str, int]] = Counter()  # nearest has a run for each member
    for cell in cells:
        if cell.members is None:
            totals[cell.arm, cell.run] += total_agent_steps(cell.config)
    assert len(set(totals.values())) == 1


def test_a_list_that_is_given_twice_is_refused(refused: Refused) -> None:
    words = ["study", "--games", POLES[0], "--arms", "leap", "--games", POLES[1]]
    assert "--games: is given twice; give one list" in refused(*words)
