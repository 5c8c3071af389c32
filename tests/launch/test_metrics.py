"""The files for Prometheus and Grafana: they are valid, and every series in them exists."""

from __future__ import annotations

import json
import re
from typing import Any

import jsonschema
import promql_parser as promql
import pytest
import yaml

from leap_rl.tracking.prometheus import SERIES
from tests.launch.manifests import ROOT, SCHEMAS, keys, misspelled

DASHBOARD: dict[str, Any] = json.loads((ROOT / "launch/metrics/grafana.json").read_text())
CONFIG: dict[str, Any] = yaml.safe_load((ROOT / "launch/metrics/prometheus.yml").read_text())
PAGE = (ROOT / "docs/launch/prometheus.md").read_text()
METRICS = (ROOT / "docs/metrics.md").read_text()

LABELS = {f"ray_{series.name}": {"run", *series.labels} for series in SERIES}
COUNTERS = {f"ray_{series.name}" for series in SERIES if series.kind == "counter"}


def panels() -> list[dict[str, Any]]:
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def queries() -> list[tuple[str, str, str]]:
    """The title, the expression and the legend of each query."""
    return [
        (panel["title"], target["expr"], target["legendFormat"])
        for panel in panels()
        for target in panel["targets"]
    ]


def parsed(expression: str) -> promql.Expr:
    """Parse a query as Prometheus gets it, with Grafana's variables filled in."""
    return promql.parse(expression.replace("$__rate_interval", "1m").replace("$run", ".*"))


def nodes(expression: promql.Expr) -> list[Any]:
    """A query's parts."""
    found: list[Any] = []
    promql.walk(expression, found.append)
    return found


def explained() -> list[tuple[str, set[str]]]:
    """The name and labels of each series, as the page has them."""
    rows = re.findall(r"^\| `(ray_[a-z_]+)(?:\{([a-z]+)\})?` \|", PAGE, re.MULTILINE)
    return [(name, {"run", *filter(None, [label])}) for name, label in rows]


def test_names_follow_the_conventions() -> None:
    assert len({series.name for series in SERIES}) == len(SERIES)
    for series in SERIES:
        assert re.fullmatch("leap_rl_[a-z_]+", series.name)
        assert series.name.endswith("_total") == (series.kind == "counter"), series.name
        if series.row is not None:  # of a quantity that has a base unit, the name ends with it
            assert series.name.endswith("_seconds") == series.row.endswith("_s"), series.name
        assert series.meaning.isascii(), series.name  # or Ray refuses it
        assert series.row is None or f"| `{series.row}` |" in METRICS


def test_the_page_explains_exactly_the_existing_series() -> None:
    assert sorted(explained()) == sorted(LABELS.items())


@pytest.mark.parametrize(("title", "expression", "legend"), queries())
def test_every_query_uses_existing_names_and_labels(
    title: str, expression: str, legend: str
) -> None:
    names = set()
    for node in nodes(parsed(expression)):
        if isinstance(node, promql.VectorSelector):
            names.add(node.name)
            assert node.name in LABELS, f"{title}: {node.name}"
            assert {matcher.name for matcher in node.matchers.matchers} == {"run"}, title
        elif isinstance(node, promql.AggregateExpr):
            assert node.modifier is not None, title
            by = set(node.modifier.labels)
            # A server that took another's place is another series, so each query joins them.
            assert "run" in by, title
            (name,) = {one.name for one in nodes(node) if isinstance(one, promql.VectorSelector)}
            assert by <= LABELS[name], title
            assert (str(node.op) == "sum") == (name in COUNTERS), title
        elif isinstance(node, promql.MatrixSelector):
            assert node.vector_selector.name in COUNTERS, f"{title}: a rate of a gauge"
    assert names, title
    spoken = set(re.findall(r"\{\{(\w+)\}\}", legend))
    assert spoken == set.union(*(LABELS[name] for name in names)), title


def test_every_series_has_a_panel() -> None:
    shown = {
        node.name
        for _, expression, _ in queries()
        for node in nodes(parsed(expression))
        if isinstance(node, promql.VectorSelector)
    }
    assert shown == set(LABELS)


def test_the_dashboard_is_whole() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    source, run = DASHBOARD["templating"]["list"]
    assert (source["name"], source["type"]) == ("datasource", "datasource")
    name, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", run["definition"]).groups()  # type: ignore[union-attr]
    assert label in LABELS[name]
    assert run["query"]["query"] == run["definition"]
    for panel in panels():
        assert panel["description"], panel["title"]
        for one in (panel, *panel["targets"]):
            assert one["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


def check_config(config: dict[str, Any]) -> None:
    schema = json.loads((SCHEMAS / "prometheus.json").read_text())
    jsonschema.validate(config, schema, jsonschema.Draft7Validator)


def test_prometheus_understands_its_config() -> None:
    check_config(CONFIG)
    for place in keys(CONFIG):
        with pytest.raises(jsonschema.ValidationError):
            check_config(misspelled(CONFIG, place))


def test_prometheus_reads_rays_own_list_of_pages_and_keeps_our_series() -> None:
    (job,) = CONFIG["scrape_configs"]
    (source,) = job["file_sd_configs"]
    assert source["files"] == ["/tmp/ray/prom_metrics_service_discovery.json"]
    (keep,) = job["metric_relabel_configs"]
    assert (keep["source_labels"], keep["action"]) == (["__name__"], "keep")
    assert all(re.fullmatch(keep["regex"], name) for name in LABELS)
    assert not re.fullmatch(keep["regex"], "ray_node_cpu_utilization")


def test_one_module_alone_knows_how_ray_takes_metrics() -> None:
    imported = re.compile(r"(from|import) ray\.util(\.metrics| import .*metrics)")
    files = (ROOT / "leap_rl").glob("**/*.py")
    (path,) = (path for path in files if imported.search(path.read_text()))
    assert path == ROOT / "leap_rl/training/runtime/ray/metrics.py"
