"""Bring a finished study into the docs: `docs/results/NAME.md` and what it shows, in `NAME/`.

    .venv/bin/python tools/results_page.py runs/sides --name minatar_sides

The page has the question, the command, the answer, two figures and every table of the study's own
page; beside it lie `estimates.json` and each table as a CSV. `docs/results/distance.svg` is drawn
again from the studies that are there. It reads the files that `leap-rl study RUN --report` wrote,
and computes nothing.
"""

from __future__ import annotations

import argparse
import csv
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from leap_rl.core import plain_yaml
from leap_rl.evaluation.plots import IntervalPanel, draw
from leap_rl.evaluation.statistics import IntervalEstimate

RESULTS: Final = Path(__file__).parents[1] / "docs" / "results"

FIGURES: Final = {
    "saved": "Agent steps saved by each arm in each member, with 95 % intervals",
    "curves": "Mean return by agent steps, and the level at half of the random agents' gain",
}

DISTANCES: Final = {
    "the same games": ("minatar_left_out", "seen"),
    "mirror images of what was seen": ("minatar_sides", "all"),
    "an unseen order of the actions": ("minatar_permutations", "all"),
    "an unseen gravity, and wind": ("lander_gravity", "all"),
    "unseen gravities, PPO": ("lander_gravity_ppo", "all"),
    "unseen layouts": ("minigrid_layouts", "all"),
    "unseen target speeds": ("half_cheetah", "all"),
    "an unseen turn of the screen": ("minatar_turn", "all"),
    "another game": ("minatar_left_out", "new"),
}
"""What new agents learn, from near to far of what was learned from: the study, and its members."""
SHARE: Final = "agent_steps_saved_share"
ARMS: Final = ("leap", "reptile", "pretraining", "pretraining_resets", "domain_randomised")
"""Arms that have the same color in any figure."""


def options() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("study", type=Path, help="the study's folder")
    parser.add_argument("--name", required=True, help="of its file in studies/, without .yaml")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the pages")
    return parser


def main() -> None:
    """Write the page."""
    given = options().parse_args()
    beside = given.results / given.name
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    shutil.copyfile(given.study / "estimates.json", beside / "estimates.json")
    for figure in FIGURES:
        shutil.copyfile(given.study / "figures" / f"{figure}.svg", beside / f"{figure}.svg")
    for table in (given.study / "tables").glob("*.csv"):
        shutil.copyfile(table, beside / table.name)
    (given.results / f"{given.name}.md").write_text(page(beside), encoding="utf-8")
    draw_distances(given.results)


def draw_distances(results: Path) -> None:
    """Draw what each arm saves, as a share of the most that can be, by distance."""
    shares: dict[str, dict[str, IntervalEstimate]] = {}
    for place, (study, members) in DISTANCES.items():
        if (path := results / study / "estimates.json").exists():
            rows: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["rows"]
            found = [row for row in rows if (row["measure"], row["member"]) == (SHARE, members)]
            few = " (one run each)" if any(row["runs"] == 1 for row in found) else ""
            shares[place + few] = {
                row["arm"]: IntervalEstimate(*(row[end] for end in ("estimate", "low", "high")))
                for row in found
                if None not in row.values()
            }
    ends = [0.0, 1.0]
    ends += (end for rows in shares.values() for share in rows.values() for end in share)
    span = min(ends), max(ends)
    label = "agent steps saved,\nas a share of the most"
    panels = [
        IntervalPanel(rows, label, mark=0.0, title=place, span=span)
        for place, rows in shares.items()
        if rows
    ]
    if panels:
        draw(panels, results / "distance", columns=2, names=ARMS, formats=["svg"])


def page(beside: Path) -> str:
    """Return the page of what lies in the folder `beside` it."""
    name = beside.name
    document = json.loads((beside / "estimates.json").read_text(encoding="utf-8"))
    config = (beside / "config.csv").read_text(encoding="utf-8").splitlines()
    options = " --quick" if "quick,true" in config else fewer_runs(name, config)
    path = ""
    if any(":" in member["name"] for member in document["members"]):
        path, options = "export PYTHONPATH=examples\n", f"{options} --trust_imports"
    parts = [
        f"# {document['question']}",
        f"The study is `studies/{name}.yaml`; predictions, if any were made, stand there:",
        f"```bash\n{path}leap-rl study studies/{name}.yaml{options} --out runs/{name}\n```",
        "\n".join(f"* {sentence}" for sentence in document["answer"]),
        *(f"![{says}]({name}/{figure}.svg)" for figure, says in FIGURES.items()),
        *tables(beside),
    ]
    return "\n\n".join(parts) + "\n"


def fewer_runs(name: str, config: list[str]) -> str:
    """Return the option that asks for the runs that there are, where the study's file has more."""
    study = RESULTS.parents[1] / "studies" / f"{name}.yaml"
    made = next((line.split(",")[1] for line in config if line.startswith("runs,")), None)
    asked = plain_yaml.load(study.read_text("utf-8")).get("runs") if study.exists() else None
    return "" if None in (made, asked) or made == str(asked) else f" --runs {made}"


def tables(beside: Path) -> Iterator[str]:
    """Yield the tables as Markdown, each with its title; without columns that say nothing."""
    for path in sorted(beside.glob("*.csv")):
        if path.stem == "config":
            continue  # the study's file says it, and the CSV every default
        with path.open(encoding="utf-8", newline="") as file:
            columns = list(zip(*csv.reader(file), strict=True))
        head, *rows = zip(*(column for column in columns if {*column[1:]} != {"–"}), strict=True)
        lines = [head, ["---"] * len(head), *rows]
        title = path.stem.replace("_", " ").capitalize()
        spelled = (" | ".join(cell.replace("|", "\\|") for cell in line) for line in lines)
        yield f"## {title}\n\n" + "\n".join(f"| {line} |" for line in spelled)


if __name__ == "__main__":
    main()
