"""The command of an experiment: its messages and files, however it ends."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.harness import experiment, image_options
from tests.tasks.omniglot_images import write_zip

ROOT = Path(__file__).parents[2]

SCRIPT = """
import os, subprocess, sys
from functools import partial
from pathlib import Path
from benchmarks.harness import experiment
from benchmarks.harness import image_options

def work(cell, out):
    if cell["number"]:
        child = subprocess.Popen(["sleep", "600"])
        (out / "pids").write_text(f"{os.getpid()} {child.pid}\\n")
        try:
            child.wait()
        except BaseException:
            child.kill()
            raise
    return {}

if __name__ == "__main__":
    given = image_options.parser(__doc__, out="out").parse_args()
    sys.exit(experiment.run(
        given,
        cells_of=lambda given: [{"number": number} for number in range(3)],
        work=partial(work, out=given.out),
        report=lambda given, results: None,
    ))
"""


def parsed(out: Path, *words: str) -> argparse.Namespace:
    return image_options.parser(None, out="runs/x").parse_args(
        ["--data", "d", "--out", str(out), *words]
    )


def runs(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


@pytest.mark.parametrize(
    ("stop", "who"),
    [(signal.SIGINT, "command"), (signal.SIGTERM, "worker")],
)
def test_a_stopped_command_leaves_no_process_and_says_how_to_continue(
    stop: signal.Signals, who: str, tmp_path: Path
) -> None:
    script, out, pids = tmp_path / "script.py", tmp_path / "out", tmp_path / "out" / "pids"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), "--data", "none", "--out", str(out)]
    started = subprocess.Popen(
        [*command, "--processes", "1"],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        while not (pids.exists() and pids.read_text().endswith("\n")):
            assert started.poll() is None
            time.sleep(0.02)
        worker = int(pids.read_text().split()[0])
        os.kill({"command": started.pid, "worker": worker}[who], stop)  # that process alone
        _, said = started.communicate(timeout=60)
    finally:
        if started.poll() is None:
            os.killpg(started.pid, signal.SIGKILL)
    assert started.returncode == experiment.EXIT_INTERRUPTED
    assert said == f"stopped; {out} keeps what is done: the same command continues\n"
    assert not any(runs(int(pid)) for pid in pids.read_text().split())
    assert (out / "cells.jsonl").read_text().count("\n") == 1


def test_finished_cells_of_other_images_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder, alphabet in (("ours", "Latin"), ("others", "Greek")):
        (tmp_path / folder).mkdir()
        write_zip(tmp_path / folder / "images_background.zip", {alphabet: 1})

    def run(data: str) -> int:
        given = parsed(tmp_path / "out", "--data", str(tmp_path / data))
        return experiment.run(
            given,
            cells_of=lambda _: [],
            work=dict,
            report=lambda *_: None,
            check=image_options.check_images,
        )

    assert run("ours") == 0
    assert run("ours") == 0
    assert run("none: what is finished needs none") == 0
    capsys.readouterr()
    assert run("others") == experiment.EXIT_USAGE
    said = capsys.readouterr().err
    assert f"--data {tmp_path / 'others'}: holds other images" in said
    assert said.count("\n") == 1
