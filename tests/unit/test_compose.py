"""What deploy/compose.yaml promises can be read off it: loopback only, no secrets, orderly stops, real settings."""

import re
from typing import Any

import pytest
import yaml
from documented import ROOT

from facetline.streams.settings import Settings

TEXT = (ROOT / "deploy" / "compose.yaml").read_text(encoding="utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load(TEXT)
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
LASTING = [name for name in SERVICES if name != "topics"]
OURS = [name for name, service in SERVICES.items() if "build" in service]
# docs/operate.md: "a stop timeout of more than `grace_s` + 30 s"
STOP_MARGIN_S = 30


def test_ports_are_published_on_loopback_only():
    """Every published port is bound to 127.0.0.1."""
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]

    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_no_secret_is_in_the_file():
    """Whatever looks like a password is asked for from outside and has no default; no url carries one."""
    values = re.findall(r"^ +\w*(?:PASSWORD|SECRET|TOKEN|KEY)\w*: (.+)$", TEXT, re.MULTILINE)

    assert values
    assert all(re.fullmatch(r"\$\{\w+:\?[^}]+\}", value) for value in values)
    assert not re.search(r"//[^/\s]*:[^/\s]*@", TEXT)


@pytest.mark.parametrize("name", LASTING)
def test_services_come_back_and_stop_in_order(name: str):
    """What runs on restarts unless it was stopped, is checked, and what it keeps is in a named volume."""
    service = SERVICES[name]
    volumes = [each for each in service["volumes"] if not each.endswith(":ro")]

    assert service["restart"] == "unless-stopped"
    assert service["healthcheck"]["test"]
    assert service["stop_grace_period"]
    assert all(each.partition(":")[0] in COMPOSE["volumes"] for each in volumes)


@pytest.mark.parametrize("name", ["worker", "serve"])
def test_our_processes_get_the_time_that_a_stop_takes(name: str):
    """Docker waits longer for a worker or server than its own grace period and margin."""
    service = SERVICES[name]
    grace_s = float(service["environment"]["FACETLINE_GRACE_S"])

    assert float(service["stop_grace_period"].removesuffix("s")) > grace_s + STOP_MARGIN_S


def test_there_are_two_workers_and_a_server_when_asked_for():
    """`up` starts two workers; the server, which needs a token first, waits for its profile."""
    started = {name for name, service in SERVICES.items() if "profiles" not in service}

    assert SERVICES["worker"]["deploy"]["replicas"] == 2
    assert started == set(SERVICES) - {"serve"}


@pytest.mark.parametrize("name", OURS)
def test_settings_are_the_products(name: str):
    """Each variable is a setting that the product knows; it reads no others and would refuse a misspelt one."""
    names = {each.removeprefix("FACETLINE_").partition("__")[0].lower() for each in SERVICES[name]["environment"]}

    assert names - {"pgpassword"} <= set(Settings.model_fields)


@pytest.mark.parametrize("name", OURS)
def test_our_containers_have_no_rights_to_lose(name: str):
    """They write nowhere but to memory, have no capability, and can gain none."""
    service = SERVICES[name]

    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]


def test_health_is_asked_where_workers_answer():
    """The checks of the image and of the compose file go to the worker's default address."""
    address = Settings.model_fields["worker_http"].default
    dockerfile = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")

    assert f"http://{address}/readyz" in " ".join(SERVICES["worker"]["healthcheck"]["test"])
    assert f"http://{address}/livez" in dockerfile
    assert "USER 10001" in dockerfile
