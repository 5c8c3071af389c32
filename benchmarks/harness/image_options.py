"""Options that the experiments on images share."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.harness.cells import Cell
from benchmarks.harness.experiment import add_processes, positive
from leap_rl.tasks.images.data import Omniglot, read_omniglot
from leap_rl.tasks.images.sets import Folder


def parser(description: str | None, *, out: str) -> argparse.ArgumentParser:
    """Return a parser with the options of every experiment on images.

    Args:
        description: The script's docstring.
        out: The default of the folder for cells, tables and figures.
    """
    options = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--data", required=True, help="folder of images, as task.data")
    options.add_argument(
        "--out", type=Path, default=Path(out), help="folder of cells, tables and plots"
    )
    add_processes(options)
    return options


def add_training(options: argparse.ArgumentParser, *, published_meta_steps: int) -> None:
    """Add the options of experiments that meta-train, all but the number of alphabets."""
    paper = f"the paper's are {published_meta_steps}"
    options.add_argument("--repeats", type=positive, default=3, help="splits, each with a seed")
    options.add_argument("--meta_steps", type=positive, default=100, help=paper)
    options.add_argument("--updates", type=positive, default=100, help="of a task")
    options.add_argument("--held_out", type=positive, default=2, help="alphabets")
    options.add_argument("--share", choices=("all_but_last", "all"), default="all_but_last")
    options.add_argument("--precision", choices=("float32", "bfloat16"), default="float32")


def training(cell: Cell, data: str) -> dict[str, Any]:
    """Return the options of `leap-rl train` for a cell of such an experiment, by name."""
    return {
        "seed": cell["repeat"],
        "meta.batch_size": cell["pretraining"],
        "task.kind": "omniglot",
        "task.data": data,
        "task.omniglot.updates": cell["updates"],
        "agent.classifier.share": cell["share"],
        "agent.classifier.precision": cell["precision"],
        "task.omniglot.split": cell["repeat"],
        "task.omniglot.held_out": cell["held_out"],
        "task.omniglot.pretraining": cell["pretraining"],
    }


def check_images(
    given: argparse.Namespace, read: Callable[[str], Omniglot | Folder] = read_omniglot
) -> None:
    """Refuse images that differ from those of the finished cells; without images, check nothing.

    Raises:
        ValueError: There are others.
    """
    if not Path(given.data).expanduser().exists():
        return  # a missing cell raises the error
    data, out, kept = given.data, given.out, given.out / "images.sha256"
    found = read(data).sha256
    if not kept.exists():
        out.mkdir(parents=True, exist_ok=True)
        kept.write_text(f"{found}\n")
    elif kept.read_text().strip() != found:
        raise ValueError(
            f"--data {data}: holds other images (SHA-256 {found}) than those that {out} is made "
            f"of ({kept.read_text().strip()}); name those, or another folder by --out"
        )
