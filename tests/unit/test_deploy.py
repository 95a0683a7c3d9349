"""What `deploy/` hands to operators, held against the product: metrics that exist, settings that exist, valid forms.

Method: the names in dashboards, alerts, units and manifests are taken out of the files and looked up in the catalogues;
forms are checked by their own tools where these are installed (promtool, systemd-analyze) and by Kubernetes' schemas.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from facetline.streams.monitor.metrics import CATALOGUE
from facetline.streams.serve.metrics import SERVED
from facetline.streams.settings import Settings

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
DASHBOARD = DEPLOY / "grafana" / "facetline.json"
ALERTS = DEPLOY / "prometheus" / "alerts.yaml"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
MANIFESTS = sorted(path for path in (DEPLOY / "kubernetes").glob("*.yaml") if path.name != "kustomization.yaml")
KUBERNETES = ("1.31", "1.34")
SUFFIXES = {"histogram": ("_bucket", "_sum", "_count"), "gauge": ("",), "counter": ("",)}
METRICS = {
    metric.name + suffix: metric
    for metric in (*CATALOGUE.values(), *SERVED.values())
    for suffix in SUFFIXES[metric.kind]
}
OF_PROMETHEUS = {"le", "job", "instance"}
STOP_S = 30
"""What stopping takes beside `grace_s`: docs/operate.md."""


def panels() -> list[dict[str, Any]]:
    """The dashboard's panels that show something."""
    return [each for each in json.loads(DASHBOARD.read_text())["panels"] if each["type"] != "row"]


def expressions() -> Iterator[tuple[str, str]]:
    """Where an expression stands, and the expression."""
    for panel in panels():
        for target in panel["targets"]:
            yield panel["title"], target["expr"]
    for group in yaml.safe_load(ALERTS.read_text())["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"]


@pytest.mark.parametrize(("where", "expression"), list(expressions()))
def test_expressions_use_metrics_and_labels_that_exist(where: str, expression: str):
    """Each metric of a panel or an alert is exported, and each label it is grouped by is one of its labels."""
    named = re.findall(r"\bfacetline_\w+", expression)
    grouped = {label.strip() for labels in re.findall(r"\bby \(([^)]*)\)", expression) for label in labels.split(",")}
    matched = set(re.findall(r"[{,]\s*(\w+)\s*[=!]", expression))

    assert [name for name in named if name not in METRICS] == [], where
    assert named or "up{" in expression
    labels = {label for name in named for label in METRICS[name].labels}
    assert grouped | matched <= labels | OF_PROMETHEUS, where


@pytest.mark.parametrize(("where", "expression"), list(expressions()))
def test_counters_are_shown_by_their_growth(where: str, expression: str):
    """A counter's value says nothing by itself: it starts over with its process."""
    counters = [name for name in re.findall(r"\bfacetline_\w+", expression) if METRICS[name].kind != "gauge"]

    assert all(re.search(rf"\b(rate|increase)\({name}\b", expression) for name in counters), where


def test_the_dashboard_has_a_place_for_each_panel():
    """Panels have ids of their own and do not overlap, and each says in words what its numbers are."""
    every = json.loads(DASHBOARD.read_text())["panels"]
    places = [
        (x, y)
        for each in every
        for at in [each["gridPos"]]
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]

    assert len({each["id"] for each in every}) == len(every)
    assert len(set(places)) == len(places)
    assert max(x for x, _ in places) < 24
    assert all(target["legendFormat"] for panel in panels() for target in panel["targets"])


def test_alerts_say_what_to_do():
    """Each alert has a severity, one line for the phone, and the first thing to do."""
    rules = [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]

    assert len({rule["alert"] for rule in rules}) == len(rules) > 10
    for rule in rules:
        assert rule["labels"]["severity"] in {"critical", "warning"}
        assert set(rule["annotations"]) == {"summary", "description"}


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (Debian: prometheus)")
@pytest.mark.parametrize("words", [["rules", "alerts.yaml"], ["config", "prometheus.yaml"]], ids=lambda words: words[0])
def test_prometheus_takes_the_rules(words: list[str]):
    """Prometheus' own tool reads the rules and the configuration."""
    ended = subprocess.run(
        ["promtool", "check", *words], cwd=ALERTS.parent, capture_output=True, text=True, check=False
    )

    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_units_start_what_there_is(unit: Path):
    """A unit starts a command of ours, gives it time to stop, and sets only settings that exist."""
    found = read_unit(unit)
    service = found["Service"]
    command = service["ExecStart"][0].split()

    assert command[0].endswith("/bin/facetline")
    assert command[1] in {"worker", "serve"}
    assert int(service["TimeoutStopSec"][0]) > Settings.model_fields["grace_s"].default + STOP_S
    settings = [text.partition("=")[0] for text in service["Environment"]]
    assert [name for name in settings if name.removeprefix("FACETLINE_").lower() not in Settings.model_fields] == []


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_systemd_takes_the_units(unit: Path, tmp_path: Path):
    """Systemd's own tool finds nothing but the command, which this machine has elsewhere."""
    here = shutil.which("true") or "/bin/true"
    copy = tmp_path / unit.name
    copy.write_text(unit.read_text().replace("/opt/facetline/bin/facetline", here))
    ended = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True, check=False)

    assert unit.name not in ended.stderr
    assert "Unknown" not in ended.stderr


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_manifests_fit_kubernetes_schemas(path: Path, version: str):
    """Each object is valid in an old and in a new release, with no field that Kubernetes does not know."""
    for each in yaml.safe_load_all(path.read_text()):
        kubernetes_validate.validate(each, version, strict=True)


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_pods_run_as_nobody_special(path: Path):
    """Containers have no root, no writable file system, a memory limit, settings that exist, and time to stop."""
    for each in yaml.safe_load_all(path.read_text()):
        pod = each.get("spec", {}).get("template", {}).get("spec")
        if pod is None:
            continue
        assert pod["securityContext"]["runAsNonRoot"] is True
        for container in pod["containers"]:
            assert container["securityContext"]["readOnlyRootFilesystem"] is True
            assert "memory" in container["resources"]["limits"]
            names = [variable["name"] for variable in container["env"]]
            tops = [name.removeprefix("FACETLINE_").partition("__")[0].lower() for name in names]
            assert [name for name in tops if name not in Settings.model_fields] == []
            if each["kind"] == "Deployment":
                assert pod["terminationGracePeriodSeconds"] > Settings.model_fields["grace_s"].default + STOP_S
                assert container["livenessProbe"]["httpGet"]["path"] == "/livez"


def test_kustomize_names_every_manifest():
    """What is applied is what lies there, and the configuration is the compose file's."""
    folder = DEPLOY / "kubernetes"
    found = yaml.safe_load((folder / "kustomization.yaml").read_text())

    assert set(found["resources"]) == {path.name for path in MANIFESTS}
    assert (folder / "facetline.toml").read_text() == (DEPLOY / "facetline.toml").read_text()


def read_unit(path: Path) -> dict[str, dict[str, list[str]]]:
    """Return a unit's sections; a key may stand several times."""
    found: dict[str, dict[str, list[str]]] = {}
    section: dict[str, list[str]] = {}
    for line in path.read_text().splitlines():
        if line.startswith("["):
            section = found.setdefault(line.strip("[]"), {})
        elif "=" in line and not line.startswith("#"):
            name, _, value = line.partition("=")
            section.setdefault(name, []).append(value)
    return found
