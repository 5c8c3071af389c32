"""The same rows through every sink, and what the tracker promises about them."""

from __future__ import annotations

import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from leap_rl.tracking.config import TrackingConfig
from leap_rl.tracking.jsonl import JsonlSink, read_rows
from leap_rl.tracking.metrics import Axis, Row, by_game
from leap_rl.tracking.sink import Sink
from leap_rl.tracking.tracker import Tracker, open_tracker
from tests.tracking import tensorboard_file, wandb_file

OFFLINE = TrackingConfig(
    wandb="offline", wandb_project="a-project", wandb_group="seeds", wandb_tags=("x", "y")
)
RUN_CONFIG = {"seed": 7, "agent": {"learning_rate": 1e-4, "games": ["pong", "breakout"]}}
# Enough keys for a wandb record that does not fit into one 32 KiB block.
LONG_ROW: dict[str, float | int] = {f"return/game_{i}/mean": i / 7 for i in range(1500)}
ROWS: list[dict[str, float | int]] = [
    {"meta_step": 0, "agent_steps": 80_000_000, "meta/step_norm": 0.1, "return/pong/mean": -20.75},
    {"meta_step": 1, "agent_steps": 160_000_001, "meta/step_norm": 1e-8, "loss/pong/total": 3},
    {"meta_step": 2, "agent_steps": 240_000_001, **LONG_ROW},
]


def track(config: TrackingConfig, folder: Path, rows: list[dict[str, float | int]]) -> None:
    with open_tracker(config, run_folder=folder, run_config=RUN_CONFIG, kind="train") as tracker:
        for row in rows:
            tracker.log(row, axis="meta_step")
    wandb_file.end()


def test_the_same_rows_come_back_from_every_sink(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    track(OFFLINE, folder, ROWS)

    assert read_rows(folder / "metrics.jsonl") == ROWS

    from_tensorboard = tensorboard_file.rows(folder / "tensorboard", "meta_step")
    assert from_tensorboard == [pytest.approx(row, rel=2**-24) for row in ROWS]

    (file,) = wandb_file.files(folder)
    assert file.stat().st_size > wandb_file.BLOCK_BYTES
    assert wandb_file.rows(file) == ROWS


def test_wandb_is_told_the_config_the_names_and_the_axis(tmp_path: Path) -> None:
    track(replace(OFFLINE, tensorboard=False), tmp_path / "run", ROWS[:1])
    (file,) = wandb_file.files(tmp_path / "run")
    run, config = wandb_file.run(file)
    assert config == RUN_CONFIG
    assert (run.project, run.run_group, run.job_type) == ("a-project", "seeds", "train")
    assert sorted(run.tags) == ["x", "y"]
    metrics = [
        r.metric for r in wandb_file.records(file) if r.WhichOneof("record_type") == "metric"
    ]
    step_metric = {metric.name or metric.glob_name: metric.step_metric for metric in metrics}
    assert step_metric["*"] == "meta_step"
    assert "meta_step" in step_metric
    assert not (tmp_path / "run" / "tensorboard").exists()


def test_a_resume_continues_the_same_files_and_the_same_wandb_run(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    track(OFFLINE, folder, ROWS[:1])
    run_id = (folder / "wandb" / "run_id.txt").read_text().strip()
    track(OFFLINE, folder, ROWS[1:2])

    assert read_rows(folder / "metrics.jsonl") == ROWS[:2]
    steps = [row["meta_step"] for row in tensorboard_file.rows(folder / "tensorboard", "meta_step")]
    assert steps == [0, 1]
    first, second = wandb_file.files(folder)
    assert [wandb_file.run(file)[0].run_id for file in (first, second)] == [run_id, run_id]
    assert wandb_file.rows(second) == ROWS[:2]  # the whole run: it is uploaded over the first


def test_what_is_switched_off_is_not_imported(tmp_path: Path) -> None:
    program = f"""
import sys
from pathlib import Path
from leap_rl.tracking.config import TrackingConfig
from leap_rl.tracking.tracker import open_tracker

def loaded():
    heavy = {{"wandb", "tensorboardX", "torch", "ray", "rich"}}
    return sorted(heavy & {{name.split(".")[0] for name in sys.modules}})

def log(tensorboard):
    config = TrackingConfig(tensorboard=tensorboard)
    with open_tracker(
        config, run_folder=Path({str(tmp_path)!r}), run_config={{}}, kind="train"
    ) as tracker:
        tracker.log({{"meta_step": 0}}, axis="meta_step")

log(False)
assert loaded() == [], loaded()
log(True)
assert "tensorboardX" in loaded() and "wandb" not in loaded(), loaded()
"""
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


class Recorder(Sink):
    """A sink that notes what is asked of it, and may fail."""

    name = "recorder"

    def __init__(self, name: str, log: list[str], *, fails: bool = False) -> None:
        self.who, self.log, self.fails = name, log, fails

    def write(self, row: Row, axis: Axis) -> None:
        self.log.append(f"{self.who} wrote {row[axis]}")
        if self.fails:
            raise OSError("disk full")

    def fail(self, reason: str) -> None:
        self.log.append(f"{self.who} told of {reason}")
        if reason in self.log:
            raise RuntimeError("not even that")

    def close(self) -> None:
        self.log.append(f"{self.who} closed")
        if self.fails:
            raise OSError("disk full")


def test_every_sink_is_closed_even_when_one_raises(capsys: pytest.CaptureFixture[str]) -> None:
    log: list[str] = []
    tracker = Tracker([Recorder("a", log), Recorder("b", log, fails=True), Recorder("c", log)])
    tracker.close()
    assert log == ["a closed", "b closed", "c closed"]
    assert len(capsys.readouterr().err.splitlines()) == 1
    with pytest.raises(OSError, match="disk full"):
        Tracker([Recorder("a", log), Recorder("truth", log, fails=True)]).close()
    assert log[3:] == ["a closed", "truth closed"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])  # the second is no failure
def test_every_sink_hears_why_a_run_failed_and_the_error_is_raised_on(
    error: type[BaseException],
) -> None:
    log: list[str] = ["all is lost"]  # at which the recorder itself fails
    with (
        pytest.raises(error, match="all is\nlost"),
        Tracker([Recorder("a", log), Recorder("b", log)]),
    ):
        raise error("all is\nlost")
    told = ["a told of all is lost", "b told of all is lost"] if error is ValueError else []
    assert log[1:] == [*told, "a closed", "b closed"]


@pytest.mark.parametrize("fails", [True, False])
def test_wandb_sends_an_alert_and_marks_the_run_that_failed(tmp_path: Path, fails: bool) -> None:
    with (
        pytest.raises(ValueError, match="disk full") if fails else nullcontext(),
        open_tracker(OFFLINE, run_folder=tmp_path, run_config={}, kind="train"),
    ):
        if fails:
            raise ValueError("disk full")
    wandb_file.end()
    (file,) = wandb_file.files(tmp_path)
    records = {one.WhichOneof("record_type"): one for one in wandb_file.records(file)}
    assert records["exit"].exit.exit_code == int(fails)
    assert ("alert" in records) == fails
    if fails:
        alert = records["alert"].alert
        assert (alert.title, alert.text) == ("leap-rl train failed", "disk full")
        assert alert.level == "ERROR"


class Killed(BaseException):
    """A death, which nothing catches."""


def test_sinks_are_written_in_order_so_that_the_last_is_the_truth(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log: list[str] = []
    mirror, truth = Recorder("mirror", log), Recorder("truth", log)
    tracker = Tracker([mirror, truth])
    tracker.log({"meta_step": 3}, axis="meta_step")
    assert log == ["mirror wrote 3", "truth wrote 3"]

    def die(row: Row, axis: Axis) -> None:
        raise Killed

    monkeypatch.setattr(mirror, "write", die)
    with pytest.raises(Killed):
        tracker.log({"meta_step": 4}, axis="meta_step")
    assert log[2:] == []  # so a resume logs row 4 again


def test_a_mirror_that_fails_is_reported_once_and_left(capsys: pytest.CaptureFixture[str]) -> None:
    log: list[str] = []
    mirrors = [Recorder("one", log, fails=True), Recorder("other", log)]
    tracker = Tracker([*mirrors, Recorder("truth", log)])
    for step in (4, 5):
        tracker.log({"meta_step": step}, axis="meta_step")
    tracker.close()
    assert log == [
        *("one wrote 4", "one closed", "other wrote 4", "truth wrote 4"),
        *("other wrote 5", "truth wrote 5", "other closed", "truth closed"),
    ]
    assert capsys.readouterr().err == (
        "leap-rl: recorder has failed (disk full); the run continues without it, and "
        "metrics.jsonl has every row\n"
    )


def test_a_run_ends_when_its_rows_cannot_be_written() -> None:
    log: list[str] = []
    tracker = Tracker([Recorder("mirror", log), Recorder("truth", log, fails=True)])
    with pytest.raises(OSError, match="disk full"):
        tracker.log({"meta_step": 4}, axis="meta_step")


@pytest.mark.parametrize("mirror", ["tensorboard", "wandb"])
def test_a_mirror_that_cannot_be_opened_is_reported_and_left(
    mirror: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / mirror).write_text("where its folder would be")
    with open_tracker(OFFLINE, run_folder=tmp_path, run_config={}, kind="train") as tracker:
        tracker.log(ROWS[0], axis="meta_step")
        assert len(tracker._sinks) == 2
        assert isinstance(tracker._sinks[-1], JsonlSink)
    assert read_rows(tmp_path / "metrics.jsonl") == ROWS[:1]
    (line,) = capsys.readouterr().err.splitlines()
    assert line.lower().startswith(f"leap-rl: {mirror} has failed (")


def test_no_sink_sees_a_row_that_is_not_finite() -> None:
    log: list[str] = []
    tracker = Tracker([Recorder("mirror", log), Recorder("truth", log)])
    with pytest.raises(ValueError, match="loss/pong/total = nan"):
        tracker.log({"meta_step": 4, "loss/pong/total": float("nan")}, axis="meta_step")
    assert log == []


TWO_ROWS = [{"meta_step": 0, "meta/step_norm": 0.1}, {"meta_step": 1, "meta/step_norm": 1e-17}]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metrics.jsonl"


def write(path: Path, rows: list[dict[str, float | int]]) -> None:
    sink = JsonlSink(path)
    for row in rows:
        sink.write(row, "meta_step")
    sink.close()


def test_rows_are_appended_and_can_be_read_at_once(path: Path) -> None:
    assert read_rows(path) == []
    write(path, TWO_ROWS[:1])
    sink = JsonlSink(path)
    sink.write(TWO_ROWS[1], "meta_step")
    assert read_rows(path) == TWO_ROWS
    sink.close()
    assert path.read_text().count("\n") == 2


@pytest.mark.parametrize("rows", [TWO_ROWS, []])
@pytest.mark.parametrize(
    "torn",
    [
        b'{"meta_step": 2, "meta/st',  # no newline, no JSON
        b'{"meta_step": 2}',  # no newline, though the JSON is whole
        b'{"meta_step": 2, "meta\n',  # a newline, but no JSON
        b"\0\0\0\0\n",
        b"2\n",  # JSON, but not a row
    ],
)
def test_a_torn_last_line_is_not_read_and_is_cut_off(
    path: Path, torn: bytes, rows: list[dict[str, float | int]]
) -> None:
    write(path, rows)
    whole = path.read_bytes()
    path.write_bytes(whole + torn)
    assert read_rows(path) == rows
    JsonlSink(path).close()
    assert path.read_bytes() == whole
    write(path, [{"meta_step": 2}])
    assert read_rows(path) == [*rows, {"meta_step": 2}]


def test_damage_before_the_last_line_is_an_error_that_numbers_the_line(path: Path) -> None:
    path.write_bytes(b'{"meta_step": 0}\nxx\n{"meta_step": 2}\n')
    with pytest.raises(ValueError, match=r"line 2: not a JSON object"):
        read_rows(path)


def test_a_metric_of_games_is_found_by_their_whole_names() -> None:
    row = {
        "loss/a/total": 1.0,
        "loss/MinAtar/Breakout-v1/total": 3.0,
        "loss/a/validation": 9.0,
        "path/a/total": 9.0,
        "losses/a/total": 9.0,
        "loss/total": 9.0,
        "meta_step": 0,
    }
    assert by_game(row, "loss", "total") == {"a": 1.0, "MinAtar/Breakout-v1": 3.0}
