"""The sweep over the outer rate: valid, and run as wandb's agent runs it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import wandb
import yaml
from wandb.sdk.launch.sweeps.utils import create_sweep_command, create_sweep_command_args
from wandb.sdk.lib.config_util import save_config_file_from_dict

from leap_rl.cli import main
from leap_rl.runs.config import TrainConfig
from leap_rl.runs.process import Request, _environment
from leap_rl.storage.run_folder import RunFolder
from tests.commands import parsed
from tests.tracking import wandb_file
from tests.tracking.wandb_server import serve

ROOT = Path(__file__).parents[2]
SWEEP: dict[str, Any] = yaml.safe_load((ROOT / "launch/sweep.yaml").read_text())
SMALL = ["--config", "debug", "--task.agent_steps", "40"]
SMALL += ["--meta.meta_steps", "1", "--runtime.kind", "local", "--tracking.tensorboard", "false"]


def words_of(meta_lr: float) -> list[str]:
    """The command line that wandb's agent makes of the sweep, as it does."""
    command = {"args": {"meta.meta_lr": {"value": meta_lr}}, "program": SWEEP["program"]}
    replaced = {**create_sweep_command_args(command), "env": ["/usr/bin/env"]}
    replaced["program"] = [command["program"]]
    words: list[str] = []
    for word in create_sweep_command(SWEEP["command"]):
        known = word.startswith("${") and word.endswith("}")
        words += replaced[word[2:-1]] if known else [word]
    return words


def test_the_sweep_is_valid() -> None:
    schema = json.loads((ROOT / "tests/launch/schemas/wandb_sweep.json").read_text())
    jsonschema.validate(SWEEP, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**SWEEP, "methods": "grid"}, schema)
    assert f"| `{SWEEP['metric']['name']}` |" in (ROOT / "docs/metrics.md").read_text()
    assert list(SWEEP["parameters"]) == ["meta.meta_lr"]


@pytest.mark.parametrize("meta_lr", [*SWEEP["parameters"]["meta.meta_lr"]["values"], 3.16e-05])
def test_the_agents_command_is_one_of_ours(meta_lr: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    env, program, command, *rest = words_of(meta_lr)
    assert (env, program, command) == ("/usr/bin/env", "leap-rl", "train")
    config = parsed(TrainConfig, *rest)
    assert config.meta.meta_lr == meta_lr
    assert config.run_dir is None  # so that each run makes a folder of its own
    assert config.tracking.wandb == "online"
    assert config.validation.every_meta_steps is not None  # or there is no metric
    assert config.validation.every_meta_steps < config.meta.meta_steps


def test_each_run_of_a_sweep_has_its_folder_and_the_id_that_the_agent_gave_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("WANDB_API_KEY", wandb_file.KEY)
    monkeypatch.setenv("WANDB_SWEEP_ID", "sweep123")
    monkeypatch.setenv("WANDB_PROJECT", "of-the-sweep")
    monkeypatch.setenv("WANDB_ENTITY", "me")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path / "agent"))
    folders: dict[str, Path] = {}
    with serve() as server:
        monkeypatch.setenv("WANDB_BASE_URL", server.url)
        for run_id, meta_lr in (("aaaa1111", 0.1), ("bbbb2222", 3.16e-05)):
            parameters = tmp_path / "agent" / f"config-{run_id}.yaml"
            save_config_file_from_dict(str(parameters), {"meta.meta_lr": {"value": meta_lr}})
            monkeypatch.setenv("WANDB_RUN_ID", run_id)
            monkeypatch.setenv("WANDB_SWEEP_PARAM_PATH", str(parameters))
            (argument,) = [word for word in words_of(meta_lr) if "meta_lr" in word]
            assert main(["train", *SMALL, "--tracking.wandb", "online", argument]) == 0
            wandb.teardown()
            (folder,) = set((tmp_path / "runs").iterdir()) - set(folders.values())
            folders[run_id] = folder
            assert RunFolder(folder).read_config()["meta"]["meta_lr"] == meta_lr
        # Resumed by hand, in the environment of another run's agent.
        again = ["--meta.meta_steps", "2"]
        assert main(["resume", str(folders["aaaa1111"]), *again]) == 0
        wandb.teardown()
    assert {key: len(rows) for key, rows in server.histories.items()} == {
        "aaaa1111": 2,
        "bbbb2222": 1,
    }
    made = [asked for name, asked in server.operations if name == "UpsertBucket" and asked["sweep"]]
    assert {(asked["name"], asked["sweep"], asked["project"]) for asked in made} == {
        ("aaaa1111", "sweep123", "of-the-sweep"),
        ("bbbb2222", "sweep123", "of-the-sweep"),
    }
    assert {asked["displayName"] for asked in made} >= {path.name for path in folders.values()}
    assert "wandb" not in capsys.readouterr().err


def test_the_id_that_the_agent_gave_is_for_one_run_of_a_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = ("WANDB_RUN_ID", "WANDB_SWEEP_ID")
    given = dict(zip(names, ("cccc3333", "sweep123"), strict=True))
    for name, value in given.items():
        monkeypatch.setenv(name, value)

    def seen(place: str = "trained", **options: Any) -> dict[str, str]:
        request = Request(action="make", command="train", place=place, **options)
        return {name: value for name, value in _environment(request).items() if name in names}

    assert seen(stops_with=1) == {}, "a study's cells are runs of their own"
    assert seen() == given
    assert seen("evaluated") == {}
    assert seen() == given, "whose driver died"
    monkeypatch.setenv("WANDB_RUN_ID", "dddd4444")
    assert seen("other")["WANDB_RUN_ID"] == "dddd4444"
