"""The site has no broken link, loads nothing from elsewhere, and says what the code says."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from graphlib import CycleError
from pathlib import Path
from typing import Any

import pytest
import yaml

import leap_rl
from leap_rl import __version__
from leap_rl.cli import COMMANDS
from leap_rl.cli.bench import BENCHES
from leap_rl.cli.plan import PlanConfig
from leap_rl.cli.play import PlayConfig
from leap_rl.core.parsing import config_parser
from leap_rl.runs.config import COMMANDS as RUNS
from leap_rl.studies.config import StudyConfig

ROOT = Path(__file__).parents[1]
CONFIGS = {**RUNS, "plan": PlanConfig, "play": PlayConfig, "study": StudyConfig}

OPENED = re.compile(r"<(?:link|script|img|iframe|source|video|audio|object)\b[^>]*>")
ELSEWHERE = re.compile(r"""(?:\b(?:src|href|data)=|url\(|@import\s*)["']?(?:https?:)?//""")


def run(*words: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", *words]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    built = run("mkdocs", "build", "--strict", "--site-dir", str(folder))
    assert built.returncode == 0, built.stderr
    return folder


def test_every_page_is_in_the_site(site: Path) -> None:
    # Tables that a page has.
    tables = {table for of in ("paper", "results") for table in (ROOT / "docs" / of).glob("*/*.md")}
    for page in set((ROOT / "docs").glob("**/*.md")) - tables:
        built = site / page.relative_to(ROOT / "docs").with_suffix(".html")
        assert built.exists() or page.stem == "README", page
    for page in ("CONTRIBUTING", "SECURITY", "CHANGELOG", "benchmarks/index"):
        assert (site / "repository" / f"{page}.html").exists()


def test_the_reference_has_every_public_name(site: Path) -> None:
    page = (site / "api.html").read_text()
    described = {"__version__", "LearnConfig", "EvaluateConfig", "StudyConfig", "pretrained"}
    for name in {*leap_rl.__all__} - described:
        assert f'id="leap_rl.{name}"' in page, name
    assert 'id="leap_rl.sharing.pretrained.load"' in page
    assert "Called in turn, in this process, after each meta-step" in page, "of train's callbacks"


def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    opened = 0
    for page in site.glob("**/*.html"):
        tags = OPENED.findall(page.read_text())
        opened += len(tags)
        assert not [tag for tag in tags if ELSEWHERE.search(tag)], page
    assert opened > 100
    for sheet in (*site.glob("**/*.css"), *site.glob("**/*.svg")):
        assert not ELSEWHERE.search(sheet.read_text()), sheet


def test_links_out_of_docs_lead_to_what_came_along(site: Path) -> None:
    assert 'href="repository/benchmarks/index.html"' in (site / "performance.html").read_text()
    assert 'href="repository/configs/atari_paper.yaml"' in (site / "methods.html").read_text()
    assert 'href="../security.html"' in (site / "repository/CONTRIBUTING.html").read_text()
    copied = site / "repository/configs/atari_paper.yaml"
    assert copied.read_bytes() == (ROOT / "configs/atari_paper.yaml").read_bytes()


def test_broken_links_and_anchors_fail_the_build(tmp_path: Path) -> None:
    broken = ["no_such.md", "metrics.md#no-such", "../no_such.py", "../configs", "/games.html"]
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text("# The front page\n")
    (tmp_path / "docs" / "links.md").write_text("".join(f"[x]({link})\n" for link in broken))
    (tmp_path / "docs" / "metrics.md").write_text("# Metrics\n")
    # Our settings, over a site of two pages.
    settings = (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[0]
    settings = settings.replace("tools/site_hook.py", str(ROOT / "tools/site_hook.py"))
    (tmp_path / "mkdocs.yml").write_text(settings)
    built = run("mkdocs", "build", cwd=tmp_path)
    assert built.returncode == 1, built.stderr
    for link in broken:
        assert re.search(rf"WARNING.*'{re.escape(link)}'", built.stderr), (link, built.stderr)


# -- the page of all options ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def page() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "tools/configuration_page.py"))


def test_the_page_of_options_is_what_the_code_says(page: dict[str, Any]) -> None:
    kept = (ROOT / "docs/configuration.md").read_text()
    assert kept == page["page"](), "an option has changed: make docs writes the page again"


def test_the_rooms_are_those_of_the_imports() -> None:
    tool = runpy.run_path(str(ROOT / "tools/architecture_page.py"))
    kept = (ROOT / "docs/architecture.md").read_text()
    assert kept == tool["page"](), "an import has changed: make docs draws the rooms again"
    named = set(re.findall(r"`((?:\w+/)*\w+\.py)`", kept)) - {"benchmarks/chaos.py"}
    found = {str(path.relative_to(ROOT / "leap_rl")) for path in (ROOT / "leap_rl").rglob("*.py")}
    names = found | {name.rpartition("/")[2] for name in found}
    assert named <= names, named - names


def test_a_circle_among_rooms_is_told() -> None:
    tool = runpy.run_path(str(ROOT / "tools/architecture_page.py"))
    assert tool["levels"]({"a": {"b"}, "b": set(), "c": {"a"}}) == [["c"], ["a"], ["b"]]
    with pytest.raises(CycleError):
        tool["levels"]({"a": {"b"}, "b": {"a"}, "c": set()})


def test_the_page_has_every_option_and_its_explanation(page: dict[str, Any]) -> None:
    text = (ROOT / "docs/configuration.md").read_text()
    sections = dict(re.findall(r"^###? (.+)\n\n((?:(?!^##).*\n)*)", text, re.MULTILINE))
    for name, config in CONFIGS.items():
        for action in config_parser(config, program="test")._actions:
            own = action.dest if "." in action.dest else f"{name}: {action.dest}"
            if name == "plan" and own not in sections:
                own = f"train: {action.dest}"
            if not hasattr(action, "_typehint") or "resolved" in action.dest:
                continue
            assert len(sections[own].split()) > 5, own
    for name, config in BENCHES.items():
        listed = re.findall(r"^\* `(\w+)`: .+", sections[f"bench {name}"], re.MULTILINE)
        simple = {one.dest for one in config_parser(config, program="test")._actions}
        simple = {one for one in simple if "." not in one} - {"help", "config", "print_config"}
        assert set(listed) == simple - {"agent", "atari", "gymnasium"}
    assert set(COMMANDS) <= sections.keys()


def test_what_may_change_on_resume_is_marked(page: dict[str, Any]) -> None:
    text = (ROOT / "docs/configuration.md").read_text()
    marked = set(re.findall(r"^### (.+)\n\n.*, \*operational\*\.$", text, re.MULTILINE))
    assert {"meta.meta_steps", "runtime.trainers", "tracking.wandb", "task.data"} <= marked
    assert not {"meta.meta_lr", "task.games", "agent.lr", "train: seed"} & marked


# -- files that others read ----------------------------------------------------------------------


def test_the_citation_is_valid_and_of_this_version() -> None:
    schema = ["--builtin-schema", "vendor.citation-file-format"]
    checked = run("check_jsonschema", *schema, "CITATION.cff")
    assert checked.returncode == 0, checked.stdout
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == __version__
    (paper,) = citation["references"]
    assert f"title     = {{{paper['title']}}}" in (ROOT / "README.md").read_text()


def test_the_newest_version_has_its_changes() -> None:
    versions = re.findall(r"^## \[(.+?)\] - ", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert versions[0] == __version__


def test_the_hooks_before_a_commit_are_those_of_make_lint() -> None:
    assert run("pre_commit", "validate-config").returncode == 0
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    hooks = [hook for repository in config["repos"] for hook in repository["hooks"]]
    assert {repository["repo"] for repository in config["repos"]} == {"local"}
    assert {hook["language"] for hook in hooks} == {"system"}  # nothing is fetched
    lint = (ROOT / "Makefile").read_text().partition("\nlint: setup\n")[2].partition("\n\n")[0]
    tools = {line.split()[0].replace("$(BIN)", ".venv/bin") for line in lint.splitlines()}
    assert {hook["entry"].split()[0] for hook in hooks} == tools
