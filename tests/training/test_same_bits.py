"""The initialization is a function of the defining config and the seed: not of the runtime, of the
number of trainers, of the order in which they finish, nor of a stop and a resume."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from safetensors.numpy import load_file

from leap_rl.cli import EXIT_FAILED, EXIT_INTERRUPTED, main
from leap_rl.core.seeding import Purpose, derive_seed
from leap_rl.learners.registry import make_learner
from leap_rl.learners.task import TaskSpec
from leap_rl.runs.config import TrainConfig
from leap_rl.storage.run_folder import INITIALIZATION, RunFolder
from leap_rl.training.messages import Abandon, Complete, Counted
from leap_rl.training.rounds.meta_training import draw_games, task_seed
from leap_rl.training.rounds.plan import DroppedSlot, FilledSlot
from leap_rl.training.runtime.ray.environment import LOCAL, make_ray_runtime
from leap_rl.training.server.parameter_server import ParameterServer
from leap_rl.training.server.slots import SlotFiles
from tests.commands import parsed, start, wait_until
from tests.commands import undisturbed as undisturbed_run
from tests.end_to_end.whole_runs import initializations

BOWLS = ["--config", "debug", "--task.agent_steps", "400"]

# Bowls that take long enough for two trainers to share them and for a Ctrl-C to find one at work.
LONG_BOWLS = ["--config", "debug", "--task.agent_steps", "4000"]

# Games that no config of ours names, one of them twice in a batch.
ATARI = [
    *["--task.games", '["bowling", "tutankham"]', "--meta.batch_size", "3"],
    *["--meta.meta_steps", "3", "--task.num_envs", "2", "--task.agent_steps", "80"],
]

CONFIGS = {"bowls": BOWLS, "long bowls": LONG_BOWLS, "atari": ATARI}
for method in ("reptile", "fomaml", "pretraining"):  # test_finetune.py has the last one's loop
    CONFIGS[method] = [*BOWLS[:2], "--meta.method", method, "--meta.meta_steps", "2"]


def ten_line_loop(config: TrainConfig) -> torch.Tensor:
    """Meta-training with no server, trainer or runtime: the paper's algorithm 1."""
    torch.set_deterministic_debug_mode("error")  # the other way imports torch's compiler
    torch.set_flush_denormal(True)
    tasks = make_learner(task=config.task, agent=config.agent)
    theta = tasks.random_initialization(derive_seed(config.seed, Purpose.INITIALIZATION))
    name, rate = config.meta.outer
    optimizer = torch.optim.Adam if name == "adam" else torch.optim.SGD
    outer = optimizer([theta], lr=rate, foreach=False)
    games, batch = config.task.resolved_games, config.meta.batch_size
    for step in range(config.meta.meta_steps):
        total = torch.zeros_like(theta, dtype=torch.float64)
        for slot, game in enumerate(draw_games(config.seed, step, games, batch)):
            task = tasks(TaskSpec(game=game, seed=task_seed(config.seed, step, slot)))
            method = config.meta.build()
            path = method.start(theta)
            task.start(theta)
            while not task.done:
                task.advance(path.visit)
            end = task.end_point(with_grad=method.end_batches > 0)
            path.finish(end.theta, end.loss, end.grad)
            total += path.gradient()
        theta.grad = (total / batch).float()
        outer.step()
    return theta


Undisturbed = tuple[list[str], Path]
"""The options of a config, and its run on the local runtime."""


@pytest.fixture(scope="module")
def local_run(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Undisturbed]:
    """Runs each config once, whichever tests ask for it in whatever order."""

    @cache
    def run(name: str) -> Undisturbed:
        folder = tmp_path_factory.mktemp(name) / "local"
        return CONFIGS[name], undisturbed_run(folder, *CONFIGS[name]).path

    return run


@pytest.fixture
def undisturbed(
    request: pytest.FixtureRequest, local_run: Callable[[str], Undisturbed]
) -> Undisturbed:
    return local_run(request.param)


@pytest.mark.parametrize("undisturbed", ["bowls", "atari", "reptile", "fomaml"], indirect=True)
def test_the_run_equals_a_ten_line_loop(undisturbed: Undisturbed) -> None:
    options, run = undisturbed
    config = parsed(TrainConfig, *options)
    named = load_file(RunFolder(run).checkpoint(config.meta.meta_steps) / INITIALIZATION)
    layout = make_learner(task=config.task, agent=config.agent).shared_layout()
    packed = layout.pack({name: torch.from_numpy(array) for name, array in named.items()})
    np.testing.assert_array_equal(packed.numpy(), ten_line_loop(config).numpy())
    assert len(set(initializations(run))) == config.meta.meta_steps + 1


# Signals to a process are in tests/cli/test_stop.py, and a resume to the same bits on Ray is below.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("undisturbed", "runtime"),
    [(name, runtime) for name in ("long bowls", "atari") for runtime in ("ray", "local")],
    indirect=["undisturbed"],
)
def test_ctrl_c_and_resume_give_the_same_bits(
    undisturbed: Undisturbed, runtime: str, tmp_path: Path
) -> None:
    options, run = undisturbed
    process = start(
        *["train", *options, "--run_dir", "run", "--runtime.kind", runtime], cwd=tmp_path
    )
    folder = RunFolder(tmp_path / "run")
    # From here on it is in meta-step 1, the second one, with all of its slots still to be filled.
    wait_until(folder.slot(1, 0).with_suffix(".lease").exists, process)
    os.killpg(process.pid, signal.SIGINT)
    output, errors = process.communicate(timeout=170)
    assert process.returncode == EXIT_INTERRUPTED, output + errors
    assert "resume run" in errors
    assert "Traceback" not in output + errors
    assert folder.latest() == 1

    # Here and by fewer trainers; below it is the other way round.
    assert main(["resume", str(tmp_path / "run"), "--runtime.kind", "local"]) == 0
    assert initializations(tmp_path / "run") == initializations(run)
    rows = (tmp_path / "run/metrics.jsonl").read_text().splitlines()
    assert [yaml.safe_load(row)["meta_step"] for row in rows] == [0, 1, 2]


@pytest.fixture(scope="module")
def one_cluster() -> Iterator[None]:
    """A cluster that the runs of this process share: starting one takes a while.

    It comes after the tests that start others in processes of their own.
    """
    make_ray_runtime(trainers=3, address=LOCAL)
    from leap_rl.training.runtime.ray.runtime import cluster

    with cluster(None, 3):
        yield


@pytest.mark.slow
@pytest.mark.usefixtures("one_cluster")
def test_a_task_that_diverges_on_ray_stops_the_run_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # A rate at which gradient descent on a bowl diverges within a few hundred updates.
    words = [*BOWLS[:2], "--agent.lr", "10", "--runtime.trainers", "1"]
    assert main(["train", *words, "--run_dir", str(tmp_path / "run")]) == EXIT_FAILED
    last = capsys.readouterr().err.splitlines()[-1]
    assert re.match(
        r"leap-rl: bowl_\d \(slot \d of round 0, task seed \d+\) went wrong at update \d+: "
        r".*(loss|grad|theta)",
        last,
    ), last


@pytest.mark.usefixtures("one_cluster")
@pytest.mark.parametrize(
    ("undisturbed", "trainers"),
    [
        pytest.param("long bowls", 1, marks=pytest.mark.slow),
        pytest.param("long bowls", 2, marks=pytest.mark.slow),  # below on three, after a resume
        ("atari", 2),
        # Leap's way to the server, with one contribution for another.
        pytest.param("reptile", 1, marks=pytest.mark.slow),
        pytest.param("fomaml", 1, marks=pytest.mark.slow),
        ("pretraining", 1),  # whose agents travel
    ],
    indirect=["undisturbed"],
)
def test_ray_gives_the_same_bits(
    undisturbed: Undisturbed,
    trainers: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    options, run = undisturbed
    with_trainers = ["--run_dir", str(tmp_path / "run"), "--runtime.trainers", str(trainers)]
    assert main(["train", *options, *with_trainers]) == 0
    folder, last = RunFolder(tmp_path / "run"), parsed(TrainConfig, *options).meta.meta_steps
    assert initializations(folder.path) == initializations(run)
    assert len(set(initializations(run))) == last + 1
    output = capsys.readouterr().out
    assert f"run/checkpoints/{last:06}/initialization.safetensors" in output
    slots = [slot for number in range(last) for slot in folder.read_state(number + 1)["slots"]]
    assert {slot["trainer"] for slot in slots} == {f"trainer-{i}" for i in range(trainers)}
    assert {slot["attempt"] for slot in slots} == {1}


@pytest.mark.usefixtures("one_cluster")
@pytest.mark.parametrize("undisturbed", ["bowls"], indirect=True)
def test_a_resume_with_more_trainers_gives_the_same_bits(
    undisturbed: Undisturbed, tmp_path: Path
) -> None:
    options, run = undisturbed
    complete = ParameterServer.complete
    counted: list[object] = []

    def stop(self: ParameterServer, message: Complete) -> Counted | Abandon:
        answer = complete(self, message)
        counted.append(message)
        if len(counted) == 6:  # in the second meta-step, two of whose four slots are complete
            raise KeyboardInterrupt
        return answer

    folder = tmp_path / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ParameterServer, "complete", stop)
        argv = ["train", *options, "--run_dir", str(folder), "--runtime.kind", "local"]
        assert main(argv) == EXIT_INTERRUPTED
    ray = ["--runtime.kind", "ray", "--runtime.trainers", "3"]
    assert main(["resume", str(folder), *ray]) == 0
    assert initializations(folder) == initializations(run)
    slots = RunFolder(folder).read_state(3)["slots"]
    assert {slot["trainer"] for slot in slots} <= {f"trainer-{i}" for i in range(3)}


@pytest.mark.parametrize("undisturbed", ["bowls"], indirect=True)
def test_another_seed_gives_other_bits(undisturbed: Undisturbed, tmp_path: Path) -> None:
    options, run = undisturbed
    other = [*options, "--seed", "1", "--meta.meta_steps", "1", "--runtime.kind", "local"]
    assert main(["train", *other, "--run_dir", str(tmp_path / "run")]) == 0
    for before, after in zip(
        initializations(run)[:2], initializations(tmp_path / "run"), strict=True
    ):
        assert before != after


@pytest.mark.parametrize("undisturbed", ["bowls"], indirect=True)
def test_contributions_are_not_zero_and_all_differ(
    undisturbed: Undisturbed, tmp_path: Path
) -> None:
    options, _ = undisturbed
    with pytest.MonkeyPatch.context() as patch:
        kept: list[bytes] = []
        write = SlotFiles.write_result

        def keep(files: SlotFiles, slot: FilledSlot | DroppedSlot) -> None:
            assert isinstance(slot, FilledSlot)
            kept.append(np.asarray(slot.contribution).tobytes())
            write(files, slot)

        patch.setattr(SlotFiles, "write_result", keep)
        short = [*options, "--meta.meta_steps", "1", "--runtime.kind", "local"]
        assert main(["train", *short, "--run_dir", str(tmp_path / "run")]) == 0
    assert len(set(kept)) == len(kept) == parsed(TrainConfig, *options).meta.batch_size
    assert all(any(contribution) for contribution in kept)
