"""What README and docs tell people to do works, or at least is spelled right."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import runpy
import shlex
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.system.__main__ import BENCHES as MEASURED
from leap_rl.cli import COMMANDS
from leap_rl.cli.bench import BENCHES, bench_parser
from leap_rl.cli.evaluate import SHORT, take_inits
from leap_rl.cli.export import options as export_options
from leap_rl.cli.fork import take_at
from leap_rl.cli.plan import PlanConfig
from leap_rl.cli.play import PlayConfig
from leap_rl.cli.push import options as push_options
from leap_rl.cli.report import options as report_options
from leap_rl.cli.study import FLAGS, take_out
from leap_rl.core.parsing import TRUST_IMPORTS, config_parser, find, parse
from leap_rl.runs.config import COMMANDS as RUNS
from leap_rl.studies.config import StudyConfig, configure
from leap_rl.training.runtime.ray.environment import LOCAL, make_ray_runtime

OTHERS = ("study", "resume", "fork", "report", "bench", "plan", "play", "export", "push")
OWN_PARSERS = {"report": report_options, "export": export_options, "push": push_options}
ROOT = Path(__file__).parents[1]
DOCUMENTS = [
    *sorted(set(ROOT.glob("*.md")) - {ROOT / "CHANGELOG.md"}),  # which may name what is gone
    ROOT / "benchmarks" / "README.md",
    *sorted((ROOT / "docs").glob("**/*.md")),
]

EXAMPLES = ("mazes.yaml", "carts.yaml")
"""Files that the reader is to have written: the blocks of YAML, in the order of the pages."""

OWN_CODE = ROOT / "docs" / "your_own_code.md"

FENCED = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)

LANGUAGES = {"bash", "python", "bibtex", "yaml", ""}
"""Of fenced blocks. One that names none shows what a program prints."""

PROGRAMS = (
    "leap-rl",
    ".venv/bin/leap-rl",
    ".venv/bin/python",
    ".venv/bin/pre-commit",
    "make",
    "launch/submit",
)

SCRIPTS = ("launch/check-compose", "launch/make-token", "launch/ray/start-node")

FOREIGN = (
    *("aws", "docker", "export", "gcloud", "helm", "kubectl", "mkdir"),
    *("pip", "printf", "prometheus", "ssh"),
)
"""Programs that are not here; that the files which they are given are there is all one can say."""

CLICK = ("ray", "wandb")


def all_blocks() -> list[tuple[str, str]]:
    """The fenced blocks of all documents, each with its language."""
    found: list[tuple[str, str]] = []
    for document in DOCUMENTS:
        found += FENCED.findall(document.read_text())
    return found


def blocks(language: str) -> list[str]:
    return [text for own, text in all_blocks() if own == language]


def inline_code() -> list[str]:
    """What stands between backticks in running text."""
    found: list[str] = []
    for document in DOCUMENTS:
        text = FENCED.sub("", document.read_text())
        found += (" ".join(code.split()) for code in re.findall(r"`([^`]+)`", text))
    return found


def shell_lines() -> list[list[str]]:
    """The commands in blocks of bash, in what programs print, and in running text, each once."""
    lines = [line for block in blocks("bash") for line in block.splitlines()]
    printed = [line.strip() for block in blocks("") for line in block.splitlines()]
    lines += [line for line in (*printed, *inline_code()) if line.split()[:1] and is_command(line)]
    return [list(words) for words in dict.fromkeys(map(words_of, lines)) if words]


WRITTEN = dict(zip(EXAMPLES, blocks("yaml"), strict=True))


def words_of(line: str) -> tuple[str, ...]:
    return tuple(shlex.split(line, comments=True))


def is_command(line: str) -> bool:
    return line.split()[0] in PROGRAMS and len(line.split()) > 1


@pytest.mark.parametrize("words", shell_lines(), ids=" ".join)
def test_every_command_is_spelled_right(
    words: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(ROOT / "examples")
    if words[0] in (*SCRIPTS, *FOREIGN, *CLICK):
        check_launch(words)
        if words[:2] != ["docker", "run"] or "--entrypoint" in words:
            return
        words = words[words.index("leap-rl") :]
    words = [word.removeprefix("/opt/leap_rl/") for word in words]  # where the image has them
    if words[0] == "launch/submit":
        if "--help" in words:
            return
        given = runpy.run_path(words[0])["options"]().parse_args(words[1:])
        words = ["leap-rl", given.command, *given.rest]
    program, command, *rest = (word for word in words if word != TRUST_IMPORTS)
    trusts = TRUST_IMPORTS in words
    for name, example in WRITTEN.items():
        if name in rest:
            (tmp_path / name).write_text(example)
            rest[rest.index(name)] = str(tmp_path / name)
    if program == "make":
        subprocess.run(["make", "--dry-run", command, *rest], check=True, capture_output=True)
        return
    if program == ".venv/bin/python":
        module, *rest = rest if command == "-m" else [command]
        if module == "pytest":
            assert (ROOT / rest[-1]).exists()
        elif "--help" in rest:
            assert import_module(module).options()
        elif module == "benchmarks.system":
            name, *rest = rest
            parse_bench(MEASURED[name], rest)
        elif module == "benchmarks.chaos":
            given, others = import_module(module).options().parse_known_args(rest)
            others += ["--config", given.config]
            parse(config_parser(RUNS["train"], program="test"), RUNS["train"], others)
        elif command == "-m":
            import_module(module).options().parse_args(rest)
        else:
            if command.startswith("examples/"):
                make_ray_runtime(trainers=1, address=LOCAL)  # some import Ray
            runpy.run_path(command)["options"]().parse_args(rest)
        return
    if program == ".venv/bin/pre-commit":
        words = [sys.executable, "-m", "pre_commit", command, *rest, "--help"]
        subprocess.run(words, check=True, capture_output=True)
        return
    assert program in ("leap-rl", ".venv/bin/leap-rl")
    assert command in COMMANDS
    rest = [word for word in rest if word != "--print_config"]
    if not rest or "--help" in rest or command not in (*RUNS, *OTHERS):
        return  # without options the command as such is spoken of
    if command == "bench":
        name, *rest = rest
        assert name in BENCHES
        if not rest:
            return  # and so is the measurement
        parse_bench(BENCHES[name], rest)
        return
    if command == "play":
        parse(config_parser(PlayConfig, program="test"), PlayConfig, rest[1:])
        return
    if command == "plan":
        parser = bench_parser(PlanConfig, program="test")
        parse(parser, PlanConfig, rest, trusts_imports=trusts)
        return
    if command == "fork":
        rest = [rest[0], *take_at(rest[1:])[1]]
    if command in OWN_PARSERS:
        OWN_PARSERS[command]().parse_args(rest)
        return
    if command == "study":
        rest = [word for word in rest if word not in FLAGS]
        if not rest[0].startswith("runs/"):  # a study that was begun
            # Mazes are the reader's: importing them is as far as it gets.
            theirs = pytest.raises(ValueError, match="my_games")
            with theirs if "mazes" in rest[0] else contextlib.nullcontext():
                assert configure(take_out(rest)[0], trusts_imports=trusts).arms
        return
    if command == "evaluate":
        rest = [word for word in rest if word != "--open"]
        inits, rest = take_inits(rest)
        assert inits
        rest += ["--init", str(inits)]
    if command in ("resume", "fork"):
        command, rest = "train", rest[1:]
    config = RUNS[command]
    parse(config_parser(config, program="test"), config, rest, trusts_imports=trusts)


def parse_bench(config: type[Any], words: list[str]) -> None:
    parse(bench_parser(config, program="test"), config, words)


def check_launch(words: list[str]) -> None:
    """Check a command that launches, as far as that goes without a cloud."""
    program, *rest = words
    if program in SCRIPTS:
        assert os.access(program, os.X_OK)
    for word in rest:
        variable, _, name = word.rpartition("=")
        name = name.removeprefix("/opt/leap_rl/")
        if variable == "CONFIG":
            assert find(name)
        if name.startswith(("launch/", "leap_rl/")) or name.endswith((".yaml", ".md")):
            # What launch/make-token names is what it writes.
            assert Path(name).exists() or program == "launch/make-token", word
    if program == "ray":
        make_ray_runtime(trainers=1, address=LOCAL)  # what Ray must find when it is imported
    if program in CLICK:
        module = {"ray": "ray.scripts.scripts", "wandb": "wandb.cli.cli"}[program]
        command: Any = import_module(module).cli
        rest = ["." if word.startswith("runs/") else word for word in rest]  # a run to be made
        while hasattr(command, "commands"):
            command, *rest = command.commands[rest[0]], *rest[1:]
        with command.make_context(" ".join(words), list(rest)):
            pass


def known_options() -> set[str]:
    """The options of all commands, and of the scripts in benchmarks."""
    parsers: list[argparse.ArgumentParser] = [
        bench_parser(config, program="test") for config in (*BENCHES.values(), *MEASURED.values())
    ]
    parsers += [
        config_parser(config, program="test")
        for config in (*RUNS.values(), PlanConfig, PlayConfig, StudyConfig)
    ]
    parsers += [options() for options in OWN_PARSERS.values()]
    benchmarks = ROOT / "benchmarks"
    for script in sorted([*benchmarks.glob("*.py"), *benchmarks.glob("paper/*.py")]):
        module = ".".join(script.relative_to(ROOT).with_suffix("").parts)
        if script.name != "__init__.py":
            parsers.append(import_module(module).options())
    return {
        option for one in parsers for action in one._actions for option in action.option_strings
    }


def test_every_option_that_is_spoken_of_exists() -> None:
    known = known_options() | {"--version", "--at", "--once", *FLAGS, *SHORT, TRUST_IMPORTS}
    known |= {"--threads"}  # of peers that run in environments of their own
    ours = [words for code in inline_code() if (words := code.split())]
    ours = [words for words in ours if words[0].startswith("--") or words[0] in PROGRAMS]
    spoken = {word for words in ours for word in words if word.startswith("--")}
    assert {"--runtime.env_processes", "--isa", "--env_processes"} <= spoken
    assert spoken <= known, spoken - known


def test_no_command_escapes_in_a_block_that_is_not_read() -> None:
    found = all_blocks()
    fences = sum(document.read_text().count("```") for document in DOCUMENTS)
    assert 2 * len(found) == fences
    assert {language for language, _ in found} <= LANGUAGES


def test_the_examples_are_short() -> None:
    assert len(WRITTEN["mazes.yaml"].splitlines()) <= 11
    assert len(WRITTEN["carts.yaml"].splitlines()) <= 25


def test_there_are_commands_to_check() -> None:
    assert len(shell_lines()) >= 8


def squeezed(text: str) -> str:
    """The lines, wherever they are indented."""
    return "\n".join(line.strip() for line in text.splitlines())


@pytest.mark.parametrize(
    "code",
    [text for _, text in FENCED.findall(OWN_CODE.read_text())]
    + [code for code in blocks("python") if "theta0 = torch" not in code],
)
def test_other_examples_are_excerpts_of_scripts(code: str) -> None:
    scripts = [squeezed(path.read_text()) for path in sorted(ROOT.glob("examples/*.py"))]
    # tests/test_examples.py runs the commands.
    if not code.startswith((".venv/bin/", "export ", "leap-rl", "pip ")):
        assert any(squeezed(code) in script for script in scripts)


@pytest.mark.parametrize("code", [code for code in blocks("python") if "theta0 = torch" in code])
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
