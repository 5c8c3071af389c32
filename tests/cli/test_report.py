"""A page on runs and evaluations, from what is on disk at any time."""

from __future__ import annotations

import shlex
import shutil
from html import unescape
from pathlib import Path

import pytest

from leap_rl.cli import EXIT_FAILED, EXIT_USAGE, main
from leap_rl.core.parsing import parse_options
from leap_rl.evaluation import comparison
from leap_rl.evaluation.meta_run import closed_slots, history_sentence, run_verdict
from leap_rl.evaluation.results import EvaluationResults
from leap_rl.evaluation.summary import Summary
from leap_rl.runs.config import TrainConfig
from leap_rl.runs.header import defining_options, read_run
from leap_rl.runs.report import command_of
from leap_rl.storage.locked_folder import RunFolderError
from leap_rl.storage.run_folder import RunFolder
from tests.commands import CATCH, LOCALLY, Refused, parsed

pytestmark = pytest.mark.usefixtures("coarse_plots")


@pytest.fixture(scope="module")
def evaluated(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("evaluations") / "eval"
    argv = ["--init", str(trained), "--games", "catch", "--seeds", "2", "--out", str(out)]
    assert main(["evaluate", *argv, *LOCALLY]) == 0
    return out


def test_a_report_tells_of_run_and_evaluation(
    trained: Path, evaluated: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "<p>mine@2" in (evaluated / "report" / "index.html").read_text()
    out = tmp_path / "pages" / "index.html"
    capsys.readouterr()
    assert main(["report", str(evaluated), str(trained), "--out", str(out)]) == 0
    assert str(out) in capsys.readouterr().out
    page = out.read_text()
    for said in (
        "Agent steps saved",
        "Intervals take at least 3 agents of each run and 5 of random.",
        "This holds for one initialization of mine@2, not for its method.",
        "Meta-trained for 2 of 2 meta-steps (finished).",
        "In validation, version 1 gains ",
        "4 tasks count; each was done in one go.",
        "6 tasks count; each was done in one go.",
        "mine --games GAME --seeds 5 --agent_steps 120 --open",
        "task.num_envs",
        "Machines",
        "2.13.0",
    ):
        assert said in page, said
    assert len(list(out.parent.rglob("*.png"))) >= 2
    tables = {path.relative_to(out.parent).as_posix() for path in out.parent.rglob("*.csv")}
    assert {"tables/agent_steps_saved.csv", "tables/config.csv", "1/tables/games.csv"} <= tables
    assert len(tables) == page.count("<table>")
    head, row = (out.parent / "tables" / "agent_steps_saved.csv").read_text().splitlines()
    assert head.startswith("initialization,game,trained on it,agent steps saved,")
    assert row.startswith("mine@2,catch,yes,")


def test_an_evaluation_is_summarized_once(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For its page, for wandb's tables and for what is printed."""
    computed: list[Summary] = []

    def summarize(evaluation: EvaluationResults) -> Summary:
        computed.append(original(evaluation))
        return computed[-1]

    original = comparison.summarize
    monkeypatch.setattr(comparison, "summarize", summarize)
    argv = ["--init", str(trained), "--games", "catch", "--seeds", "2", "--out", str(tmp_path)]
    assert main(["evaluate", *argv, *LOCALLY, "--tracking.wandb", "offline"]) == 0
    assert len(computed) == 1
    assert computed[0].verdict[0] in unescape((tmp_path / "report" / "index.html").read_text())


def test_it_is_made_while_a_run_is_under_way(trained: Path, tmp_path: Path) -> None:
    young, half = tmp_path / "young", tmp_path / "half"
    for run, latest, rows in ((young, 0, 0), (half, 1, 1)):
        shutil.copytree(trained, run)
        for number in range(latest + 1, 3):
            shutil.rmtree(RunFolder(run).checkpoint(number))
        (run / "checkpoints" / "latest").write_text(f"{latest:06d}\n")
        lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
        (run / "metrics.jsonl").write_text("".join(lines[:rows]))
        assert main(["report", str(run)]) == 0
    page = (young / "report" / "index.html").read_text()
    assert "No meta-step is done yet" in page
    assert "leap-rl resume" in page
    page = (half / "report" / "index.html").read_text()
    assert "Meta-trained for 1 of 2 meta-steps (under way, 50% done)." in page


def test_an_evaluation_without_a_finished_agent_says_so(evaluated: Path, tmp_path: Path) -> None:
    young = tmp_path / "young"
    shutil.copytree(evaluated, young)
    shutil.rmtree(RunFolder(young).checkpoint(1))
    (young / "checkpoints" / "latest").write_text("000000\n")
    assert main(["report", str(young)]) == 0
    assert "No agent is finished yet" in (young / "report" / "index.html").read_text()


def test_what_cannot_be_reported_is_one_line(
    trained: Path, tmp_path: Path, refused: Refused
) -> None:
    alone, damaged = tmp_path / "alone", tmp_path / "damaged"
    learn = ["learn", *CATCH[:2], "--task.games", "catch", *CATCH[4:], *LOCALLY]
    assert main([*learn, "--run_dir", str(alone)]) == 0
    shutil.copytree(trained, damaged)
    (damaged / "checkpoints/000001/state.json").write_text("{\n{}\n")
    for argv, status, expected in (
        ([tmp_path / "nowhere"], EXIT_USAGE, "no run is here"),
        ([alone], EXIT_USAGE, "is a run of leap-rl learn"),
        ([damaged], EXIT_USAGE, "checkpoints/000001/state.json: cannot be read"),
        ([trained, "--out", tmp_path], EXIT_USAGE, "is a folder; name a file"),
        ([trained, "--out", damaged / "config.yaml"], EXIT_USAGE, "must end in .html, such as"),
        ([trained, "--out", damaged / "config.yaml" / "x.html"], EXIT_FAILED, "config.yaml"),
    ):
        assert expected in refused("report", *argv, status=status)
    RunFolder(damaged).read_config()  # which no page was written over


@pytest.mark.parametrize("name", ["atari_paper", "pong_noframeskip", "omniglot_leap", "minatar"])
def test_the_command_of_a_config_makes_that_config(name: str) -> None:
    config = parsed(TrainConfig, "--config", name)
    program, command, *options = shlex.split(command_of(config))
    assert (program, command) == ("leap-rl", "train")
    again = parsed(TrainConfig, *options)
    assert defining_options(again) == defining_options(config)
    assert again.meta == config.meta


@pytest.mark.parametrize("inits", [["{run}"], ["{run}", "mine={run}@1,{run}@2"]])
def test_the_command_of_an_evaluation_makes_that_evaluation(
    inits: list[str], trained: Path, tmp_path: Path
) -> None:
    argv = ["evaluate", "--games", "catch", *LOCALLY, "--out"]
    named = [word for init in inits for word in ("--init", init.format(run=trained))]
    assert main([*argv, str(tmp_path / "eval"), *named, "--tracking.console", "quiet"]) == 0
    first = read_run(RunFolder(tmp_path / "eval"))
    program, *words = shlex.split(command_of(first.config))
    assert program == "leap-rl"
    assert main([*words, *LOCALLY, "--out", str(tmp_path / "again")]) == 0
    again = read_run(RunFolder(tmp_path / "again"))
    assert again.header.fingerprint == first.header.fingerprint


def test_a_fork_is_told_as_one(trained: Path, tmp_path: Path) -> None:
    argv = ["fork", str(trained), "--at", "1", "--seed", "7", "--run_dir", str(tmp_path / "fork")]
    assert main(argv) == 0
    assert main(["report", str(tmp_path / "fork")]) == 0
    page = (tmp_path / "fork" / "report" / "index.html").read_text()
    assert "A fork, whose options are under Config" in page
    assert "leap-rl fork mine --at 1" in page
    assert "leap-rl train" not in page


def test_commands_trust_what_a_config_imports() -> None:
    options = {"task.kind": "gymnasium", "task.games": ["corridor:Corridor-v0"]}
    config = parse_options(TrainConfig, options, trusts_imports=True)
    assert command_of(config).endswith(" --trust_imports")


def test_what_went_wrong_on_the_way_is_told(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.write_checkpoint(0, {}, {})
    slots = [
        {"game": "pong", "attempt": 3, "restarts": 1, "processor": "one"},
        {"game": "qbert", "attempt": 1, "restarts": 0, "processor": "two", "cut_off": True},
        {"game": "boxing", "attempt": 1, "restarts": 0, "dropped": "went wrong"},
    ]
    folder.write_checkpoint(1, {}, {"slots": slots})
    assert [slot["round"] for slot in closed_slots(folder)] == [0, 0, 0]
    assert history_sentence(closed_slots(folder)) == (
        "2 tasks count; 1 taken over by another trainer (2 more attempts, each from the newest "
        "snapshot), 1 restarted with another seed, 1 cut off, 1 dropped."
    )
    (folder.checkpoint(1) / "state.json").write_text("{")
    with pytest.raises(RunFolderError, match=r"000001/state\.json: cannot be read"):
        closed_slots(folder)


def test_a_verdict_says_what_it_does_not_know() -> None:
    rows = [
        {"meta_step": step, "path/a/energy": 10.0 - step, "path/b/energy": 5.0}
        for step in range(20)
    ]
    verdict = run_verdict(rows, 40)
    assert verdict[0] == "Meta-trained for 20 of 40 meta-steps (under way, 50% done)."
    assert verdict[1] == "Nothing here says whether the initialization helps: evaluate it."
    assert "fell in 1 of the 2 games" in verdict[2]
    of_a_fork = run_verdict(rows[10:], 20)
    assert of_a_fork[0] == "Meta-trained for 20 of 20 meta-steps (finished)."
