"""A study from the question to the answer, on disk and by the command, whatever stops it."""

from __future__ import annotations

import errno
import hashlib
import html
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest

import leap_rl
from leap_rl.cli import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_USAGE, main
from leap_rl.core.machine import descendants
from leap_rl.evaluation.comparison import summarize
from leap_rl.evaluation.results import read_evaluation
from leap_rl.runs.header import read_run
from leap_rl.storage.checksummed_file import CHECKSUM, checksum
from leap_rl.storage.run_folder import RunFolder
from leap_rl.studies import diagnosis
from leap_rl.studies import study as study_module
from leap_rl.studies.cells import Cell, cells_of
from leap_rl.studies.config import StudyConfig
from leap_rl.studies.folder import StudyFolder
from leap_rl.studies.page import _commands
from leap_rl.studies.results import read_results
from leap_rl.studies.study import changes
from tests.commands import make_older
from tests.envs.own_games import WALK

FILE = """\
question: Does it help with other gravity?
games: [leap_rl/CartPole-v1@gravity=5.0, CartPole-v1]
held_out: leap_rl/CartPole-v1@gravity=20.0
arms: [leap]
runs: 1
agents: 2
random_agents: 3
meta: {meta_steps: 2}
task: {agent_steps: 1600, num_envs: 4}
tracking: {tensorboard: false}
"""
CELLS = 4


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("file") / "poles.yaml"
    path.write_text(FILE)
    return path


@pytest.fixture(scope="module")
def straight(file: Path, tmp_path_factory: pytest.TempPathFactory) -> StudyFolder:
    """The study, undisturbed."""
    folder = StudyFolder(tmp_path_factory.mktemp("straight") / "study")
    assert main(["study", str(file), "--out", str(folder.path)]) == 0
    return folder


def study_of(file: Path) -> StudyConfig:
    return StudyConfig.from_yaml(file)


def digests(folder: StudyFolder) -> dict[str, str]:
    """What was computed: initializations, rewards and episodes of all cells."""
    paths = [
        *folder.path.glob("runs/*/checkpoints/*/*.safetensors"),
        *folder.path.glob("runs/*-held_out-*/curves/*.parquet"),
    ]
    return {
        path.relative_to(folder.path).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in paths
    }


def test_the_page_trusts_the_modules_of_its_members(tmp_path: Path) -> None:
    (tmp_path / "walks.yaml").write_text(
        f"games: ['{WALK}@terminates=5']\nheld_out: ['{WALK}@terminates=7']\narms: [leap]\n"
    )
    study = StudyConfig.from_yaml(tmp_path / "walks.yaml", trust_imports=True)
    cells = cells_of(study, tmp_path / "out", trusts_imports=True)
    (command,) = _commands(StudyFolder(tmp_path / "out"), cells, None)["This study"]
    assert command.endswith("out --trust_imports")


def test_the_page_has_question_answer_costs_and_commands(straight: StudyFolder) -> None:
    page = straight.page.read_text()
    assert "<h1>Does it help with other gravity?</h1>" in page
    assert "6,400" in page  # agent steps of a meta-training run
    assert f"leap-rl study {straight.path}" in page
    tables = {path.stem for path in (straight.path / "tables").glob("*.csv")}
    assert {"arms_and_what_they_cost", "members", "cells", "config"} <= tables
    costs = (straight.path / "tables" / "arms_and_what_they_cost.csv").read_text().splitlines()
    assert costs[0] == "arm,what it is,agent steps of a meta-training run,runs"
    assert costs[1].startswith("random,nothing is trained,0,0")
    assert costs[2].endswith(',"6,400",1')
    document = json.loads(straight.estimates.read_text())
    assert document["answer"][0].startswith("leap")
    assert all(sentence in html.unescape(page) for sentence in document["answer"])
    assert document["question"] == "Does it help with other gravity?"
    assert document["budget_agent_steps"] == 1600
    members = [(member["name"], member["seen"]) for member in document["members"]]
    assert members == [("leap_rl/CartPole-v1@gravity=20.0", False)]
    assert {row["arm"] for row in document["rows"]} == {"leap"}
    assert "final_return" in {row["measure"] for row in document["rows"]}


@pytest.mark.parametrize(
    ("moved", "says"),
    [
        (0.01, "leap's start moved by 1.0% of its norm, so it is hardly more"),
        (0.5, None),
        (2.5, "leap's start moved by 2.5 times its norm, far beyond what weights"),
    ],
)
@pytest.mark.parametrize("conclusion", ["open", "hurts", "helps", "cannot tell"])
def test_how_far_a_start_moved_is_said_where_it_does_not_help(
    straight: StudyFolder,
    moved: float,
    says: str | None,
    conclusion: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    study = straight.read()
    assert study is not None
    cells = cells_of(study, straight.path)
    monkeypatch.setattr(diagnosis, "_moved", lambda cell: moved)
    monkeypatch.setattr(diagnosis, "conclusion_of", lambda saved: conclusion)
    monkeypatch.setattr(diagnosis, "in_words", lambda *_: ["features: few"])
    summary = summarize(read_results(study, cells))
    sentences = diagnosis.diagnose(cells, summary).sentences
    found = [sentence for sentence in sentences if "start moved by" in sentence]
    assert diagnosis.diagnose(cells, replace(summary, comparisons=())).sentences == []
    # Where new games are told, these are judged; what features are in the others is not said.
    (one,) = summary.comparisons
    kept = summary.comparisons[0].over["all"]._replace(games=study.held_out_members)
    nothing = kept._replace(games=())
    for over, told in (
        ({"all": kept}, True),
        ({"all": nothing, "new": kept}, True),
        ({"all": kept, "new": kept._replace(games=("another",))}, False),
        ({"all": kept, "new": nothing}, True),  # which cannot be measured
    ):
        elsewhere = replace(one, over=over)
        of_new = diagnosis.diagnose(cells, replace(summary, comparisons=(elsewhere,))).sentences
        of_features = 1 if told and conclusion in ("open", "hurts") else 0
        assert of_new.count("features: few") == of_features
        assert [sentence for sentence in of_new if "start moved by" in sentence] == found
    if conclusion not in ("open", "hurts") or says is None:
        assert found == []
    else:
        assert len(found) == len(study.trained_arms)
        assert any(sentence.startswith(says) for sentence in found)


def test_each_cell_is_an_ordinary_run_named_by_its_fingerprint(
    straight: StudyFolder, file: Path
) -> None:
    cells = cells_of(study_of(file), straight.path)
    assert sorted(cell.name for cell in cells) == sorted(os.listdir(straight.path / "runs"))
    for cell in cells:
        run = read_run(cell.folder)
        assert cell.finished
        if cell.members is None or cell.arm == "random":
            assert run.header.fingerprint.startswith(cell.name.rpartition("-")[2])
    assert main(["report", str(cells[-1].path)]) == 0


def test_new_agents_are_those_of_the_cells(straight: StudyFolder, file: Path) -> None:
    study = study_of(file)
    cells = cells_of(study, straight.path)
    found = read_results(study, cells)
    assert found.initializations == ("random", "leap")
    assert found.runs == {"random": ["random"], "leap": ["leap-0"]}
    assert found.games == study.evaluated
    assert (found.agents_per_game, found.agent_steps) == (2, 1600)
    agents = [(c.initialization, c.run, c.seed) for c in found.curves]
    assert agents == [
        *(("random", 0, seed) for seed in range(3)),
        *(("leap", 0, seed) for seed in range(2)),
    ]
    for cell in (cell for cell in cells if cell.members is not None):
        theirs = read_evaluation(cell.folder).curves
        first = 2 * cell.run if cell.arm == "random" else 0
        ours = {
            curve.seed - first: curve
            for curve in found.curves
            if curve.initialization == cell.arm
            and (cell.arm != "random" or curve.seed // 2 == cell.run)
        }
        assert sorted(ours) == [curve.seed for curve in theirs]
        for curve in theirs:
            assert np.array_equal(ours[curve.seed].returns, curve.returns)
            assert np.array_equal(ours[curve.seed].agent_steps, curve.agent_steps)
    # Random starts in several cells are different ones.
    returns = [curve.returns.tolist() for curve in found.of("random", found.games[0])]
    assert len({str(each) for each in returns}) == 3


def test_called_again_it_computes_nothing(
    straight: StudyFolder, file: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.stat().st_mtime_ns for path in straight.path.glob("runs/*/checkpoints/*")}
    assert main(["study", str(file), "--out", str(straight.path)]) == 0
    captured = capfd.readouterr()
    assert captured.err.splitlines() == [
        f"leap-rl: {CELLS} of {CELLS} cells; 14,400 of 14,400 agent steps (100%)"
    ]
    assert f"report  {straight.page}" in captured.out
    for words in (["--report"], []):  # the folder is a study too
        assert main(["study", str(straight.path), *words]) == 0
    after = {path: path.stat().st_mtime_ns for path in straight.path.glob("runs/*/checkpoints/*")}
    assert after == before


def test_cells_of_an_older_leap_rl_that_had_fewer_options_are_found_by_what_they_hold(
    straight: StudyFolder, tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = StudyFolder(Path(shutil.copytree(straight.path, tmp_path / "older")))
    for number, path in enumerate(sorted(older.path.glob("runs/*"))):
        make_older(RunFolder(path), "agent.normalize_observations", "meta.stabilizer")
        path.rename(path.with_name(f"{path.name.rpartition('-')[0]}-0000000{number}"))

    def found(**options: object) -> list[str]:
        study = StudyConfig.from_yaml(file, options)
        return [c.arm for c in cells_of(study, older.path) if c.finished]

    before = sorted(older.path.rglob("runs/*/checkpoints/*"))
    assert main(["study", str(older.path), "--report"]) == 0
    for name in ("rows", "members", "answer"):
        documents = (json.loads(each.estimates.read_text()) for each in (older, straight))
        ours, theirs = (document[name] for document in documents)
        assert ours == theirs
    assert main(["study", str(file), "--out", str(older.path)]) == 0
    assert sorted(older.path.rglob("runs/*/checkpoints/*")) == before, "something was computed"
    # What a run holds counts as it stands there, what it lacks as its default.
    assert found(**{"agent.entropy_coefficient": 0.5}) == []
    assert found(**{"agent.normalize_observations": True}) == []
    assert found(**{"meta.stabilizer": False}) == ["random", "random"]
    monkeypatch.setattr("leap_rl.runs.resumption.NEW_BITS", frozenset({"meta.stabilizer"}))
    assert found() == ["random", "random"]


def test_from_python_it_is_an_object(
    straight: StudyFolder, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = leap_rl.study(file, out=straight.path, quiet=True)
    rows = study.estimates()
    assert {"arm", "member", "measure", "estimate", "low", "high"} <= set(rows.columns)
    assert set(rows["arm"]) == {"leap"}
    assert study.page == straight.page
    assert study.verdict.startswith("leap")
    assert study.best.name == "initialization.safetensors"
    assert study.best.parent.name == "000002"
    assert study.best.exists()
    assert leap_rl.load_encoder(study.best)
    assert study.config.runs == 1
    assert leap_rl.Study(straight.path).best == study.best
    monkeypatch.setattr(StudyFolder, "read_estimates", lambda folder: {"best_start": None})
    with pytest.raises(ValueError, match="in all members, or random's are missing; carry it out"):
        _ = study.best
    with pytest.raises(ValueError, match="holds no study"):
        leap_rl.Study(straight.path / "runs")


def test_what_was_changed_is_said_a_line_a_group(straight: StudyFolder, file: Path) -> None:
    def lines(**options: object) -> list[str]:
        named = {name.replace("__", "."): value for name, value in options.items()}
        after = StudyConfig.from_yaml(file, named)
        return list(changes(study_of(file), after, cells_of(after, straight.path)))

    assert lines() == []
    assert lines(processes=7, question="why?") == []
    assert lines(agent_steps=800, runs=3) == [
        "the study was changed: runs = 3 (was 1), agent_steps = 800 (was None)",
        "random, evaluations: 0 of 2 kept, 2 to compute",
        "leap, meta-training runs: 1 of 3 kept, 2 to compute",
        "leap, evaluations: 0 of 3 kept, 3 to compute",
    ]
    assert lines(arms=["reptile"])[1:] == [
        "random, evaluations: 2 of 2 kept",
        "reptile, meta-training runs: 0 of 1 kept, 1 to compute",
        "reptile, evaluations: 0 of 1 kept, 1 to compute",
        "leap: is asked for no more; what was computed of it stays in runs",
    ]


Process = subprocess.Popen[str]


def start(file: Path, out: Path, *options: str) -> Process:
    return subprocess.Popen(
        [sys.executable, "-m", "leap_rl", "study", str(file), "--out", str(out), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_until(condition: Callable[[], object], process: Process) -> None:
    while not condition():
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)


def have_ended(processes: list[int]) -> bool:
    """Whether processes end within seconds; one that nobody has waited for yet has ended."""
    until_s = time.monotonic() + 30.0
    alive = list(processes)
    while alive and time.monotonic() < until_s:
        time.sleep(0.05)
        alive = [one for one in alive if psutil.pid_exists(one) and not is_zombie(one)]
    return not alive


def is_zombie(process: int) -> bool:
    try:
        return psutil.Process(process).status() == psutil.STATUS_ZOMBIE
    except psutil.Error:
        return True


def some_cell(folder: StudyFolder, pattern: str) -> bool:
    return any(folder.path.glob(f"runs/{pattern}"))


TRAINING = "leap-*/checkpoints/000001"
WHEN = [
    pytest.param("*/checkpoints/000000", marks=pytest.mark.slow, id="a cell is being made"),
    pytest.param(TRAINING, id="meta-training"),
    pytest.param("leap-*-held_out-*/checkpoints/000000", marks=pytest.mark.slow, id="new agents"),
]


@pytest.mark.parametrize("pattern", WHEN)
def test_killed_at_any_moment_it_resumes_to_the_same_bits(
    pattern: str, straight: StudyFolder, file: Path, tmp_path: Path
) -> None:
    folder = StudyFolder(tmp_path / "study")
    process = start(file, folder.path)
    wait_until(lambda: some_cell(folder, pattern), process)
    children = descendants(process.pid)
    assert children
    process.kill()
    if pattern == TRAINING:  # as when the machine's memory is full
        for child in children:
            os.kill(child, signal.SIGKILL)
    process.communicate()
    # Called again at once: processes of the killed study may be at work yet.
    assert main(["study", str(file), "--out", str(folder.path)]) == 0
    assert have_ended(children)
    assert digests(folder) == digests(straight)


@pytest.mark.slow
def test_on_ray_cells_share_trainers_and_whatever_is_killed_the_bits_are_the_same(
    straight: StudyFolder, file: Path, tmp_path: Path
) -> None:
    def trainers(of: int) -> list[int]:
        lines = {child: Path(f"/proc/{child}/cmdline") for child in descendants(of)}
        return [c for c, line in lines.items() if line.exists() and "SharedTr" in line.read_text()]

    folder = StudyFolder(tmp_path / "study")
    options = ["--runtime.kind", "ray", "--runtime.trainers", "2", "--processes", "3"]
    process = start(file, folder.path, *options)
    wait_until(lambda: some_cell(folder, "leap-*/slots/000000/*.lease"), process)
    victim, _ = trainers(process.pid)
    os.kill(victim, signal.SIGKILL)
    wait_until(lambda: len({*trainers(process.pid)} - {victim}) == 2, process)
    wait_until(lambda: some_cell(folder, TRAINING), process)
    children = descendants(process.pid)
    process.kill()
    process.communicate()
    process = start(file, folder.path, *options)
    _, err = process.communicate()
    assert process.returncode == 0, err
    assert "2 trainers were busy for " in err
    assert have_ended(children)
    assert digests(folder) == digests(straight)
    states = [json.loads(path.read_text()) for path in folder.path.glob("runs/*/*/*/state.json")]
    served = {slot["trainer"] for state in states for slot in state.get("slots", ())}
    assert served == {"trainer-0", "trainer-1"}


def test_a_study_that_is_interrupted_leaves_nothing_running_and_says_how_to_resume(
    straight: StudyFolder, file: Path, tmp_path: Path
) -> None:
    folder = StudyFolder(tmp_path / "study")
    process = start(file, folder.path)
    wait_until(lambda: some_cell(folder, "*/checkpoints/000001"), process)
    children = descendants(process.pid)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert process.returncode == EXIT_INTERRUPTED
    *_, line = err.splitlines()
    assert line == f"stopped; continue with: python -m leap_rl study {folder.path}"
    assert "Traceback" not in err
    assert have_ended(children)
    assert main(["study", str(folder.path)]) == 0
    assert digests(folder) == digests(straight)


def test_a_study_whose_folder_moves_stops_and_goes_on_there(
    straight: StudyFolder, file: Path, tmp_path: Path
) -> None:
    folder, moved = (StudyFolder(tmp_path / name) for name in ("study", "moved"))
    process = start(file, folder.path)
    wait_until(lambda: some_cell(folder, "*/checkpoints/000001"), process)
    children = descendants(process.pid)
    folder.path.rename(moved.path)
    _, err = process.communicate()
    assert process.returncode == EXIT_FAILED
    *_, line = err.splitlines()
    assert line.startswith(f"leap-rl: {folder.path / '.lock'}: is gone, or another one; a study's")
    assert "Traceback" not in err
    assert have_ended(children)
    assert not (folder.path / "runs").exists()
    assert main(["study", str(moved.path)]) == 0
    assert digests(moved) == digests(straight)


def test_a_cell_that_fails_is_named_and_computed_when_it_can_be(
    straight: StudyFolder, file: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = StudyFolder(tmp_path / "study")
    cells = cells_of(study_of(file), folder.path)
    (first,) = (cell for cell in cells if (cell.arm, cell.members) == ("leap", None))
    first.path.parent.mkdir(parents=True)
    folder.write(study_of(file))
    first.path.write_text("in the way")
    assert main(["study", str(file), "--out", str(folder.path)]) == EXIT_FAILED
    *_, line = capfd.readouterr().err.splitlines()
    assert line.startswith(f"leap-rl: {first.name}: ")
    assert str(first.path) in line
    assert line.endswith(f"`python -m leap_rl study {folder.path}` computes what is missing")
    assert [cell.name for cell in cells if not cell.finished] == [
        cell.name for cell in cells if cell.arm == "leap"
    ]
    assert "2 of 4 cells are not finished yet" in folder.page.read_text()
    first.path.unlink()
    assert main(["study", str(file), "--out", str(folder.path)]) == 0
    assert digests(folder) == digests(straight)


def test_a_quick_study_says_that_it_proves_little(
    straight: StudyFolder, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "study"
    shutil.copytree(straight.path, copy)
    quick = tmp_path / "quick.yaml"  # which makes smaller what a file leaves open
    quick.write_text(f"{file.read_text()}\nquick: true\n")
    assert main(["study", str(quick), "--out", str(copy), "--report"]) == 0
    answer = json.loads((copy / "estimates.json").read_text())["answer"]
    assert answer[0].startswith("leap")
    assert answer[1].startswith("This is a quick study of 1 meta-training run an arm, of ")
    assert "it proves little" in html.unescape((copy / "index.html").read_text())


def test_a_damaged_file_can_be_removed_and_a_torn_one_stands_in_nobodys_way(
    straight: StudyFolder, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = StudyFolder(tmp_path / "study")
    shutil.copytree(straight.path, folder.path)
    again = ["study", str(file), "--out", str(folder.path)]
    with folder.file.open("a") as stream:
        stream.write("!")
    assert main(again) == EXIT_USAGE
    (line,) = capsys.readouterr().err.splitlines()
    assert "remove it, and carry out the study's own file again: finished cells are kept" in line
    torn = folder.path / ".study.yaml.0123456789abcdef.tmp"
    folder.file.rename(torn)
    os.utime(torn, (0, 0))
    shutil.rmtree(folder.path / "tables")
    assert main(again) == 0
    assert f"{CELLS} of {CELLS} cells" in capsys.readouterr().err.splitlines()[0]
    assert not torn.exists()
    folder.file.unlink()
    (folder.path / "runs" / "train-20261126-113900").mkdir()
    assert main(again) == EXIT_USAGE
    assert "holds runs, and no study" in capsys.readouterr().err


def test_what_the_page_no_longer_has_is_removed_and_other_files_stay(
    straight: StudyFolder, tmp_path: Path
) -> None:
    folder = StudyFolder(tmp_path / "study")
    shutil.copytree(straight.path, folder.path)
    document = json.loads(folder.estimates.read_text())
    del document[CHECKSUM]
    assert "tables/agent_steps_saved.csv" in document["files"]
    names = ("tables/gone.csv", "tables/mine.csv", "runs/own.csv")
    gone, *others = (folder.path / name for name in names)
    for path in (gone, *others):
        path.write_text("1")
    document["files"] += [names[0], names[2], "tables/../runs/own.csv", 1]
    document[CHECKSUM] = checksum(document)
    folder.estimates.write_text(json.dumps(document))
    assert main(["study", str(folder.path), "--report"]) == 0
    assert not gone.exists()
    assert all(path.exists() for path in others)
    assert json.loads(folder.estimates.read_text())["files"] == document["files"][:-4]


def test_a_page_that_cannot_be_written_hides_no_cell_that_failed(
    file: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = StudyFolder(tmp_path / "study")
    for cell in cells_of(study_of(file), folder.path):
        cell.path.parent.mkdir(parents=True, exist_ok=True)
        cell.path.write_text("in the way")
    folder.write(study_of(file))

    def write_page(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder.page))

    monkeypatch.setattr(study_module, "write_page", write_page)
    assert main(["study", str(file), "--out", str(folder.path)]) == EXIT_FAILED
    line = capfd.readouterr().err.splitlines()[-1]
    assert line.endswith(f"`python -m leap_rl study {folder.path}` computes what is missing")


def test_two_studies_do_not_work_in_one_folder(
    straight: StudyFolder, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with straight.lock():
        assert main(["study", str(file), "--out", str(straight.path)]) == EXIT_USAGE
    (line,) = capsys.readouterr().err.splitlines()
    assert f"process {os.getpid()} on " in line
    assert line.endswith("works on this study; wait for it, stop it, or choose another folder")


def test_a_plan_counts_and_computes_nothing(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "study"
    assert main(["study", str(file), "--out", str(out), "--plan"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "leap: meta-training 1 cells 6,400 agent steps" in text
    assert "random: new agents, held_out 2 cells 4,800 agent steps" in text
    assert f"all {CELLS} cells 14,400 agent steps" in text
    assert (
        "measured for seconds in leap_rl/CartPole-v1@gravity=5.0, CartPole-v1; others used" in text
    )
    assert not out.exists()


def test_a_finished_study_plans_by_its_own_speed(
    straight: StudyFolder, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["study", str(file), "--out", str(straight.path), "--plan"]) == 0
    (trained,) = (c for c in cells_of(study_of(file), straight.path) if c.members is None)
    speed = trained.agent_steps / sum(row["time/working_s"] for row in trained.folder.rows())
    said = f"{speed:,.0f} agent steps a second of a trainer, that of the finished cells"
    assert said in capsys.readouterr().out


def test_a_study_has_the_same_cells_on_another_processor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []

    def note(study: StudyConfig, cells: Sequence[Cell], *_: object, **__: object) -> object:
        asked.append([cell.name for cell in cells])
        return [], None

    monkeypatch.setattr("leap_rl.studies.study.compute", note)
    words = ["study", "--games", "pong", "--held_out", "breakout", "--arms", "leap"]
    for units in (True, False):
        monkeypatch.setattr(
            "leap_rl.learners.hardware.has_bfloat16_units", lambda units=units: units
        )
        assert main([*words, "--out", str(tmp_path / "study")]) == 0
    assert asked[0] == asked[1]
    assert main([*words, "--out", str(tmp_path / "begun_there")]) == 0
    assert asked[2] != asked[1]
