"""The cluster files are what Ray, AWS and people expect."""

import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import botocore.session
import pytest
import yaml
from botocore.validate import ParamValidator
from ray.autoscaler._private.util import prepare_config, validate_config

from oclgrid.platform.cli import main

ROOT = Path(__file__).parent.parent.parent
SECRET = re.compile(r"(password|secret|token|key)$", re.IGNORECASE)


def read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))
    return found


def entries(node: object) -> Iterator[tuple[str, object]]:
    """Yield every key of nested mappings with its value."""
    if isinstance(node, dict):
        for key, value in node.items():
            yield key, value
            yield from entries(value)
    elif isinstance(node, list):
        for value in node:
            yield from entries(value)


def commands(config: dict[str, Any]) -> str:
    return "\n".join(c for key, v in config.items() if key.endswith("commands") for c in v)


@pytest.mark.parametrize("name", ["cluster.yaml", "cluster-local.yaml"])
def test_rays_own_schema_accepts_it(name: str) -> None:
    validate_config(prepare_config(read(name)))


@pytest.mark.parametrize("name", ["cluster.yaml", "cluster-local.yaml"])
def test_no_secret_stands_in_it_and_nothing_listens_to_strangers(name: str) -> None:
    config = read(name)
    kept = [v for k, v in entries(config) if SECRET.search(k) and not isinstance(v, bool)]
    assert kept
    assert all(str(value).startswith("~/") for value in kept), kept  # files, not what is in them
    started = commands(config)
    assert "0.0.0.0" not in started
    assert started.count("ray start") == started.count("RAY_AUTH_MODE=token") == 2
    assert "--dashboard-host=127.0.0.1" in started


@pytest.mark.parametrize("name", ["cluster.yaml", "cluster-local.yaml"])
def test_what_goes_to_the_nodes_is_what_is_installed_there(name: str) -> None:
    """Ray reads every mounted file at each `ray up`: no environment, no store, no history."""
    inside = {m.partition("/")[2]: where for m, where in read(name)["file_mounts"].items()}
    sent = {where for where in inside.values() if not where.startswith("~/")}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    rooms = {p.partition("/")[0] for p in project["tool"]["setuptools"]["package-dir"].values()}
    files = {"pyproject.toml", "constraints.txt", "Makefile", project["project"]["readme"]}
    assert sent == rooms | files | set(project["project"]["license-files"])
    assert all(inside[f"oclgrid/{part}"] == part for part in sent)


@pytest.mark.parametrize("name", ["cluster.yaml", "cluster-local.yaml"])
def test_no_command_ends_its_own_shell(name: str) -> None:
    """What `pkill -f` looks for stands on the command line of the shell that runs it."""
    for command in commands(read(name)).splitlines():
        for pattern in re.findall(r"pkill -f '([^']*)'", command):
            assert not re.search(pattern, command)


def test_aws_knows_every_field_of_its_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray's schema lets any typo in node_config pass."""
    monkeypatch.setitem(os.environ, "AWS_EC2_METADATA_DISABLED", "true")
    shape = botocore.session.get_session().get_service_model("ec2").operation_model("RunInstances")
    for node in read("cluster.yaml")["available_node_types"].values():
        asked = {**node["node_config"], "MinCount": 1, "MaxCount": 1}
        assert ParamValidator().validate(asked, shape.input_shape).generate_report() == ""


def test_workers_are_on_the_spot_market_come_from_zero_and_go_when_idle() -> None:
    config = read("cluster.yaml")
    worker = config["available_node_types"]["worker"]
    assert worker["node_config"]["InstanceMarketOptions"]["MarketType"] == "spot"
    assert worker["min_workers"] == 0
    assert 0 < config["idle_timeout_minutes"] <= 30
    head = config["available_node_types"][config["head_node_type"]]
    assert "InstanceMarketOptions" not in head["node_config"]
    assert head["resources"] == {"CPU": 0}


@pytest.mark.parametrize("name", ["cluster.yaml", "cluster-local.yaml"])
def test_every_variable_is_at_the_top_and_used(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    top, rest = text.split("cluster_name:")
    defined = set(re.findall(r"&(\w+)", top))
    assert defined == set(re.findall(r"\*(\w+)", rest))
    assert "REPLACE-ME" not in rest


@pytest.mark.parametrize(
    ("name", "reason"),
    [("cluster.yaml", "end with `ray down"), ("Makefile", "no cluster file"), ("none", "none")],
)
def test_down_is_for_machines_of_ones_own(
    name: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["down", str(ROOT / name)]) == 2
    said = capsys.readouterr().err
    assert reason in said
    assert len(said.splitlines()) == 1
