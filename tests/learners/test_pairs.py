"""The table of environments and learners in docs/environments.md, walked cell by cell."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from leap_rl.cli import main
from leap_rl.training.runtime.ray.environment import LOCAL as LOCAL_CLUSTER
from leap_rl.training.runtime.ray.environment import make_ray_runtime
from tests.envs.own_vectors import WALKS
from tests.tasks.image_sets import write_idx
from tests.tasks.omniglot_images import write_folder

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "environments.md").read_text()
LOCAL = ["--runtime.kind", "local", "--tracking.tensorboard", "false"]
GAMES = ["--task.agent_steps", "40", "--task.num_envs", "4", "--task.unroll_length", "5"]
TASKS = {
    "`atari`": ["--task.games", '["pong"]', *GAMES],
    "`atari` with `life_loss_ends`": [
        *("--task.games", '["breakout"]', "--task.atari.preset", "noframeskip", *GAMES),
    ],
    "`gymnasium`, discrete actions": [
        *("--task.kind", "gymnasium", "--task.games", '["CartPole-v1"]', *GAMES),
    ],
    "`gymnasium`, continuous actions": [
        *("--task.kind", "gymnasium", "--task.games", '["Pendulum-v1"]', *GAMES),
    ],
    "`gymnasium`, MinAtar": [
        *("--task.kind", "gymnasium", "--task.games", '["MinAtar/Breakout-v1"]', *GAMES),
    ],
    "a `VectorEnv` in `SAME_STEP`": [
        *("--task.kind", "gymnasium", "--task.games", f'["{WALKS}@mode=SAME_STEP,truncates=3"]'),
        *("--trust_imports", *GAMES),
    ],
    "a `VectorEnv` in `NEXT_STEP`": [
        *("--task.kind", "gymnasium", *GAMES, "--task.games"),
        '["CartPole-v1@vectorization_mode=vector_entry_point"]',
    ],
    "`catch`": ["--task.kind", "catch", "--task.games", '["catch"]', *GAMES],
    "`catch` with `agent.share: agent`": [
        *("--task.kind", "catch", "--task.games", "all", "--agent.share", "agent", *GAMES),
    ],
    "`catch` with `task.mix_games`": [
        *("--task.kind", "catch", "--task.games", "all", "--task.mix_games", "true", *GAMES),
    ],
    "`omniglot`": ["--task.kind", "omniglot", "--task.games", '["Greek"]'],
    "`images`": ["--task.kind", "images", "--task.games", '["mnist"]'],
    "`quadratic`": ["--task.kind", "quadratic", "--task.games", '["bowl_0"]', *GAMES],
}
LEARNERS = {
    "`a2c`": ["--agent.algorithm", "a2c"],
    "`rllib:PPO`": [
        *("--agent.algorithm", "rllib:PPO"),
        *("--agent.rllib.minibatch_size", "10", "--agent.rllib.num_epochs", "1"),
    ],
    "`sb3:PPO`": ["--agent.algorithm", "sb3:PPO", "--agent.sb3", '{"n_steps": 5, "n_epochs": 1}'],
    "`sb3:A2C`": ["--agent.algorithm", "sb3:A2C"],
    "`sb3:DQN`": [
        *("--agent.algorithm", "sb3:DQN"),
        *("--agent.sb3", '{"train_freq": 1, "learning_starts": 8, "batch_size": 8}'),
    ],
    "`sb3:SAC`": [
        *("--agent.algorithm", "sb3:SAC"),
        *("--agent.sb3", '{"learning_starts": 8, "batch_size": 8}'),
    ],
    "your own": ["--agent.algorithm", "leap_reinforce:Reinforce", "--trust_imports"],
    "a loop": ["--agent.algorithm", "ppo_loop:learn", "--trust_imports"],
    "`classifier`": ["--agent.algorithm", "classifier"],
    "`gradient_descent`": ["--agent.algorithm", "gradient_descent"],
}


def table() -> dict[tuple[str, str], str]:
    """Return what each cell says: runs, or the name of a refusal."""
    lines = PAGE.partition("## Who learns what")[2].splitlines()
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in lines
        if line.startswith("|") and not line.startswith("|---")
    ]
    head, *body = rows[: 1 + len(TASKS)]
    return {
        (row[0], learner): cell
        for row in body
        for learner, cell in zip(head[1:], row[1:], strict=True)
    }


def refusals() -> dict[str, str]:
    """Return the words of each refusal as a pattern; capitals stand for names."""
    listed = re.findall(r"^\* \*\*(\w+)\*\*: `(.+)`$", PAGE, re.MULTILINE)
    names = re.compile(r"\b[A-Z]{4,}\b")
    return {name: names.sub(r"[\\w:]+", re.escape(words)) for name, words in listed}


def test_the_table_has_every_pair() -> None:
    assert set(table()) == {(task, learner) for task in TASKS for learner in LEARNERS}


@pytest.mark.parametrize(("pair", "says"), table().items(), ids=lambda one: str(one))
def test_a_pair_runs_or_is_refused_in_these_words(
    pair: tuple[str, str],
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    make_ray_runtime(trainers=1, address=LOCAL_CLUSTER)  # what Ray must find when it is imported
    if "sb3" in pair[1]:
        pytest.importorskip("stable_baselines3")
    for folder in ("examples", "examples/reinforce"):
        monkeypatch.syspath_prepend(ROOT / folder)
    words = [*TASKS[pair[0]], *LEARNERS[pair[1]], *LOCAL, "--run_dir", str(tmp_path / "run")]
    if pair[0] == "`omniglot`":
        write_folder(tmp_path / "images" / "images_background", {"Greek": 20, "Latin": 20})
        words += ["--task.data", str(tmp_path / "images"), "--task.omniglot.updates", "2"]
    if pair[0] == "`images`":
        write_idx(tmp_path / "images" / "mnist")
        words += ["--task.data", str(tmp_path / "images"), "--task.images.updates", "2"]
    status, error = main(["learn", *words]), capsys.readouterr().err
    if says == "runs":
        assert status == 0, error
        assert list((tmp_path / "run" / "agents").glob("000_*.safetensors"))
    else:
        assert status == 2
        assert re.search(refusals()[says], error), error
