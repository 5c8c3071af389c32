"""What `leap-rl verify` finds: nothing in a whole run, and each damage in a line with the file."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from leap_rl.cli import EXIT_FAILED, EXIT_USAGE, main
from leap_rl.storage.run_folder import RunFolder
from tests.commands import Refused, contents

TRAIN = ["train", "--config", "debug", "--runtime.kind", "local", "--tracking.console", "quiet"]
TRAIN += ["--task.agent_steps", "40", "--meta.meta_steps", "3"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run."""
    run = tmp_path_factory.mktemp("verify") / "run"
    assert main([*TRAIN, "--run_dir", str(run)]) == 0
    return run


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "run"))


def test_nothing_is_wrong_with_a_whole_run(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = contents(run)
    assert main(["verify", str(run)]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    files = sum(content is not None for content in before.values())
    assert line.endswith(f"{files} files, nothing is wrong")
    assert contents(run) == before


@pytest.mark.parametrize("lost", ["newest", "pointer"])
def test_nothing_is_wrong_after_a_lost_checkpoint_was_made_again(
    lost: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its row too is the new one, which took other times."""
    if lost == "newest":
        (run / "checkpoints/000003/state.json").write_bytes(b"")
    else:  # one that was written late, by a driver that another has taken over from
        (run / "checkpoints/latest").write_bytes(b"000001\n")
    assert main(["resume", str(run)]) == 0
    capsys.readouterr()
    assert main(["verify", str(run)]) == 0, capsys.readouterr().out


def test_every_byte_of_a_run_counts(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One bit of each file, of a letter where it has any, is found, and said of that file."""
    found = set()
    last = {path.name: path for path in sorted(run.rglob("*")) if path.is_file()}
    for path in last.values():  # one of each kind
        if path.name in (".lock", ".server"):
            continue
        whole = path.read_bytes()
        damaged = bytearray(whole)
        middle = len(whole) // 2  # the last digit of a long fraction may say nothing
        letters = (at for at in range(middle, len(whole)) if whole[at : at + 1].isalpha())
        damaged[next(letters, middle)] ^= 1
        path.write_bytes(damaged)
        before = contents(run)
        assert main(["verify", str(run)]) in (EXIT_FAILED, EXIT_USAGE), path
        *lines, verdict = capsys.readouterr().out.splitlines()
        assert verdict.endswith("wrong")
        assert any(path.name in line and str(path.parent) in line for line in lines), (path, lines)
        assert contents(run) == before
        path.write_bytes(whole)
        found.add(path.suffix)
    assert found >= {".yaml", ".json", ".safetensors", ".parquet", ".jsonl", ""}
    assert main(["verify", str(run)]) == 0


@pytest.mark.parametrize(
    "name",
    [
        "config.yaml",
        "checkpoints/latest",
        "checkpoints/000001/state.json",
        "checkpoints/000003/initialization.safetensors",
        "checkpoints/000002/outer_optimizer.safetensors",
        "curves/000001.parquet",
    ],
)
def test_a_file_that_is_missing_is_named(
    name: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run / name).unlink()
    assert main(["verify", str(run)]) == EXIT_FAILED
    assert Path(name).name in capsys.readouterr().out.splitlines()[0]


def test_the_files_of_another_run_are_named(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"
    assert main([*TRAIN, "--seed", "9", "--run_dir", str(other)]) == 0
    capsys.readouterr()
    shutil.rmtree(run / "checkpoints/000002")
    shutil.copytree(other / "checkpoints/000002", run / "checkpoints/000002")
    assert main(["verify", str(run)]) == EXIT_FAILED
    lines = capsys.readouterr().out.splitlines()
    assert f"{run}/checkpoints/000002: belongs to another run" in lines
    assert any("its row of meta-step 1 is not that of" in line for line in lines)


def test_a_row_that_is_there_twice_is_told(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = run / "metrics.jsonl"
    path.write_text(path.read_text() + path.read_text().splitlines()[0] + "\n")
    assert main(["verify", str(run)]) == EXIT_FAILED
    assert "has 1 rows twice" in capsys.readouterr().out


def test_a_row_that_is_missing_is_told(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = run / "metrics.jsonl"
    rows = path.read_text().splitlines(keepends=True)
    path.write_text("".join(rows[:-1]))  # as a kill leaves it: the next resume logs it
    assert main(["verify", str(run)]) == 0
    path.write_text("".join(rows[1:]))
    assert main(["verify", str(run)]) == EXIT_FAILED
    assert f"{path}: lacks the row of meta-step 0" in capsys.readouterr().out
    path.unlink()
    assert main(["resume", str(run)]) == main(["verify", str(run)]) == 0
    assert path.read_text() == "".join(rows)


def test_old_checkpoints_keep_their_records_and_not_their_parameters(
    tmp_path: Path, refused: Refused
) -> None:
    run = tmp_path / "run"
    argv = [*TRAIN, "--run_dir", str(run), "--runtime.keep_checkpoints", "1"]
    argv += ["--validation.every_meta_steps", "1", "--validation.games", '["bowl_3"]']
    assert main(argv) == 0
    folder = RunFolder(run)
    best = folder.best()
    assert best is not None
    whole = {number for number in range(4) if not folder.is_thinned_out(number)}
    assert whole == {0, best, 3}
    assert main(["verify", str(run)]) == 0
    (gone, *_) = {1, 2} - {best}
    line = refused("fork", run, "--at", gone, "--run_dir", tmp_path / "fork")
    assert "were removed (runtime.keep_checkpoints)" in line
    # The rows of all are still there to be logged again, and the run goes on.
    (run / "metrics.jsonl").unlink()
    assert main(["resume", str(run), "--meta.meta_steps", "4"]) == 0
    assert len((run / "metrics.jsonl").read_text().splitlines()) == 4
    assert folder.is_thinned_out(3) or folder.best() == 3
    assert not folder.is_thinned_out(4)


def test_a_link_to_itself_is_one_of_the_lines(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run / "loop").symlink_to("loop")
    assert main(["verify", str(run)]) == EXIT_FAILED
    *_, line, verdict = capsys.readouterr().out.splitlines()
    assert "loop: is a symbolic link" in line
    assert verdict.endswith("1 thing is wrong")


def test_a_run_that_no_resume_could_read_is_not_begun(tmp_path: Path, refused: Refused) -> None:
    line = refused(*TRAIN, "--run_dir", tmp_path / "r\x1bx")
    assert "config.yaml: cannot be written: " in line
    assert "a text holds the control character" in line
