"""What README and docs tell people to do works, or at least is spelled right."""

from __future__ import annotations

import contextlib
import io
import re
import runpy
import shlex
import subprocess
from pathlib import Path

import pytest
import torch

from leap_rl.cli import COMMANDS
from leap_rl.cli.bench import BENCHES, bench_parser, join_list, take_json
from leap_rl.cli.parser import config_parser, parse
from leap_rl.cli.plan import PlanConfig
from leap_rl.config import COMMANDS as CONFIGS

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]


def blocks(language: str) -> list[str]:
    found: list[str] = []
    for document in DOCUMENTS:
        found += re.findall(rf"```{language}\n(.*?)```", document.read_text(), re.DOTALL)
    return found


def shell_lines() -> list[list[str]]:
    lines = [line for block in blocks("bash") for line in block.splitlines()]
    return [words for line in lines if (words := shlex.split(line, comments=True))]


@pytest.mark.parametrize("words", shell_lines(), ids=" ".join)
def test_every_command_is_spelled_right(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    program, command, *rest = words
    if program == "make":
        subprocess.run(["make", "--dry-run", command], check=True, capture_output=True)
        return
    if program == ".venv/bin/python":
        runpy.run_path(command)["options"]().parse_args(rest)
        return
    assert program == "leap-rl"
    assert command in COMMANDS
    if "--help" in rest or command not in (*CONFIGS, "resume", "bench", "plan"):
        return
    if command == "bench":
        name, *rest = rest
        rest = join_list(take_json(rest)[0], "--trainers")
        parse(bench_parser(name), BENCHES[name], rest)
        return
    if command == "plan":
        parse(config_parser(PlanConfig, program="test"), PlanConfig, take_json(rest)[0])
        return
    if command == "resume":
        command, rest = "train", rest[1:]
    config = CONFIGS[command]
    parse(config_parser(config, program="test"), config, rest)


def test_there_are_commands_to_check() -> None:
    assert len(shell_lines()) >= 8


@pytest.mark.parametrize("code", blocks("python"))
def test_python_examples_run(code: str) -> None:
    output = io.StringIO()
    names: dict[str, object] = {}
    with contextlib.redirect_stdout(output):
        exec(code, names)
    theta0 = names["theta0"]
    assert isinstance(theta0, torch.Tensor)
    # The example's claim: the initialization ends between the two targets.
    torch.testing.assert_close(theta0, torch.tensor([0.5, 0.5]), atol=0.05, rtol=0.0)
    assert output.getvalue().startswith("tensor(")


def test_links_lead_somewhere() -> None:
    for document in DOCUMENTS:
        for target in re.findall(r"\]\((?!https?://)([^)#]+)", document.read_text()):
            assert (document.parent / target).exists(), f"{document}: {target}"
