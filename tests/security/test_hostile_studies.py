"""Study files and folders of strangers: one line, at once, and nothing written outside."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from leap_rl.cli import EXIT_FAILED, main
from leap_rl.core import plain_yaml
from leap_rl.storage.checksummed_file import CHECKSUM, checksum
from leap_rl.studies.config import StudyConfig
from leap_rl.studies.folder import StudyFolder
from leap_rl.studies.progress import clock_of
from tests.commands import Refused, contents

pytestmark = pytest.mark.usefixtures("without_plots")

STUDY = "games: [CartPole-v1]\nheld_out: [leap_rl/CartPole-v1@gravity=20.0]\n"

DIGITS = "1" + "0" * 399


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("runs: 1000000000", "runs = 1000000000: must be at least 1 and at most 1,000"),
        ("agents: 1000000000", "agents = 1000000000: must be at least 1 and at most 1,000"),
        ("random_agents: 1001", "random_agents = 1001: must be at least 1 and at most 1,000"),
        ("arms: {1: {meta.p: 1}}", "arms = 1: a name has letters"),
        ("arms: {null: {meta.p: 1}}", "arms = None: a name has letters"),
        ("arms: {true: {meta.p: 1}}", "arms = True: a name has letters"),
        ("task: {num_envs: 4}\ntask.num_envs: 8", "task.num_envs: is there twice"),
        ("arms: {mine: {meta.p: 1, meta: {p: 2}}}", "arms.mine: meta.p: is there twice"),
        (f"agent: {{lr: {DIGITS}}}", "line 3: a number has 400 digits"),
        (f"arms: {{mine: {{agent.lr: -{DIGITS}}}}}", "line 3: a number has 401 digits"),
        ('question: "a\\0b"', r"line 3: a text holds the control character '\x00'"),
        ('arms: {"\\e[2J": {meta.p: 1}}', r"line 3: a text holds the control character '\x1b'"),
    ],
    ids=lambda text: text[:40],
)
def test_a_study_file_that_lies_is_one_line(
    text: str, says: str, tmp_path: Path, refused: Refused
) -> None:
    file = tmp_path / "study.yaml"
    file.write_text(f"{STUDY}{text}\n")
    started = time.monotonic()
    line = refused("study", file, "--out", tmp_path / "out", "--plan")
    assert says in line
    assert len(line) < 500
    assert time.monotonic() - started < 10
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("number", ["0x" + "f" * 20, "0b" + "1" * 20, "1:" * 10 + "1"])
def test_whole_numbers_have_no_more_digits_than_64_bits(number: str) -> None:
    with pytest.raises(plain_yaml.NotPlainError, match=r"a number has 2. digits"):
        plain_yaml.load(f"seed: {number}")


def test_what_only_looks_like_a_long_number_is_a_text() -> None:
    digest = "0b" + "5a" * 31
    text = f"a: {digest}\nb: '{DIGITS}'\nc: {2**64 - 1}\nd: a\tb\u00e9\U0001f3ae\n"
    assert plain_yaml.load(text) == {"a": digest, "b": DIGITS, "c": 2**64 - 1, "d": "a\tbé🎮"}


@pytest.mark.parametrize("seconds", [1e20, float("inf")])
def test_a_time_without_end_has_words(seconds: float) -> None:
    assert clock_of(seconds) == "999999999 days, 23:59:59"


# -- folders --------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A study's folder, of which nothing is computed yet, beside one that no command may change."""
    (tmp_path / "study.yaml").write_text(f"{STUDY}arms: [leap]\nquick: true\n")
    study = StudyFolder.at(tmp_path / "study")
    with study.lock():
        study.write(StudyConfig.from_yaml(tmp_path / "study.yaml"))
    (study.path / "runs").mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "precious").write_text("precious\n")
    return study.path


NAMES = ["study.yaml", "estimates.json", "index.html", ".lock", "runs", "runs/leap-0-a8732b56"]


@pytest.mark.parametrize("words", [(), ("--report",), ("--plan",)], ids=str)
@pytest.mark.parametrize("name", [*NAMES, "tables", "tables/members.csv"])
def test_a_link_out_of_a_studys_folder_is_refused(
    name: str, words: tuple[str, ...], folder: Path, refused: Refused
) -> None:
    outside, link = folder.with_name("outside"), folder / name
    link.parent.mkdir(exist_ok=True)
    if link.exists():
        link.rename(outside / "target")  # so that only its place is wrong
    link.symlink_to(outside / "target")
    before = contents(outside)
    assert f"{link}: is a symbolic link" in refused("study", folder, *words)
    assert contents(outside) == before


@pytest.mark.parametrize("name", NAMES)
def test_a_pipe_in_a_studys_folder_is_told_and_not_waited_for(
    name: str, folder: Path, refused: Refused, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe = folder / name
    whole = pipe.read_text() if pipe.is_file() else None
    if pipe.is_dir():
        pipe.rmdir()
    pipe.unlink(missing_ok=True)
    os.mkfifo(pipe)
    says = f"{pipe}: is no file (a pipe, a socket or a device)"
    assert says in refused("study", folder, "--report")
    assert main(["verify", str(folder)]) == EXIT_FAILED
    assert says in capsys.readouterr().out
    assert whole is None or not pipe.is_file()


def test_a_folder_that_holds_no_study_is_not_searched_for_links(tmp_path: Path) -> None:
    (tmp_path / "bin").symlink_to("usr")
    (tmp_path / "lost+found").mkdir(mode=0o000)
    folder = StudyFolder.at(tmp_path)
    assert folder.read() is None
    with pytest.raises(ValueError, match="holds bin, and no study; choose a folder"):
        folder.check()
    assert StudyFolder.at(__file__).read() is None


def test_a_link_hides_nothing_else_that_is_wrong(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "study.yaml").write_text("changed: true\n")
    (folder / "notes").symlink_to("/tmp")
    (folder / "runs" / "leap-0-a8732b56").mkdir()
    assert main(["verify", str(folder)]) == EXIT_FAILED
    said = capsys.readouterr().out
    for says in ("notes: is a symbolic link", "study.yaml: is not as", "leap-0-a8732b56: no run"):
        assert says in said


def test_links_of_wandb_in_a_cell_are_its_runs_to_judge(folder: Path) -> None:
    cell = folder / "runs" / "leap-0-a8732b56" / "wandb"
    (cell / "run-1").mkdir(parents=True)
    (cell / "latest-run").symlink_to("run-1")
    assert StudyFolder.at(folder).read() is not None


@pytest.fixture
def _deep(tmp_path: Path) -> Iterator[None]:
    """Removes what `deepen` made, which pytest would recurse into."""
    yield
    subprocess.run(["rm", "-rf", *map(str, tmp_path.iterdir())], check=True)


def deepen(folder: Path, *names: str, levels: int, content: bytes = b"") -> None:
    """Make folders within one another, each with a study in it where there is content."""
    here = os.open(folder, os.O_RDONLY)
    for _ in range(levels):
        for name in names:
            with suppress(FileExistsError):
                os.mkdir(name, dir_fd=here)
            above, here = here, os.open(name, os.O_RDONLY, dir_fd=here)
            os.close(above)
        if content:
            with open(os.open("study.yaml", os.O_CREAT | os.O_WRONLY, dir_fd=here), "wb") as file:
                file.write(content)
    os.close(here)


@pytest.mark.usefixtures("_deep")
def test_studies_within_studies_are_not_descended_into(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    deepen(folder, "runs", "a", levels=540, content=(folder / "study.yaml").read_bytes())
    assert main(["verify", str(folder)]) == EXIT_FAILED
    assert f"{folder}/runs/a: no run is here" in capsys.readouterr().out


@pytest.mark.usefixtures("_deep")
def test_a_run_of_a_thousand_folders_within_one_another_is_one_line(
    run: Path, refused: Refused, capsys: pytest.CaptureFixture[str]
) -> None:
    deepen(run, "a", levels=1100)
    for command in ("resume", "report", "watch"):
        assert "/a/a: is nested more than 32 deep" in refused(command, run)
    assert main(["verify", str(run)]) == EXIT_FAILED
    assert "/a/a: is nested more than 32 deep" in capsys.readouterr().out


ANSWER: dict[str, Any] = {"answer": ["so"], "best_start": "runs/a/i.safetensors", "rows": []}


@pytest.mark.parametrize(
    "change",
    [
        {"best_start": "/etc/passwd"},
        {"best_start": "runs/../../theirs"},
        {"best_start": ""},
        {"best_start": "a\0b"},
        {"best_start": 1},
        {"answer": None},
        {"answer": [1]},
        {"rows": 1},
        {"rows": [None]},
        {CHECKSUM: "0" * 64},
        {CHECKSUM: None},
    ],
    ids=str,
)
def test_estimates_that_lie_are_one_line(change: dict[str, Any], folder: Path) -> None:
    file, study = folder / "estimates.json", StudyFolder.at(folder)
    file.write_text(json.dumps({**ANSWER, CHECKSUM: checksum(ANSWER)}))
    assert study.read_estimates() == ANSWER
    lies = {**ANSWER, **change}
    file.write_text(json.dumps({CHECKSUM: checksum(lies), **lies}))
    with pytest.raises(ValueError, match=r"estimates.json: cannot be read \(.*carry the study out"):
        study.read_estimates()
