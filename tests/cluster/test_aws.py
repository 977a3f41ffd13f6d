"""cluster.yaml on a make-believe AWS: what Ray would create, launch and terminate there."""

import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml
from moto import mock_aws
from ray.autoscaler._private.aws import utils as aws_utils
from ray.autoscaler._private.aws.node_provider import AWSNodeProvider
from ray.autoscaler._private.commands import _bootstrap_config
from ray.autoscaler.tags import (
    NODE_KIND_HEAD,
    NODE_KIND_WORKER,
    TAG_RAY_CLUSTER_NAME,
    TAG_RAY_NODE_KIND,
    TAG_RAY_USER_NODE_TYPE,
)

from oclgrid.platform.capacity import HEAD, autoscaled

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent.parent
PROFILE = "oclgrid-nodes"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home for the key that Ray makes, and nothing that could open a real account."""
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(folder))
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "made-up")
        (folder / ".ssh").mkdir()
        (folder / ".oclgrid").mkdir()
        for name in ("ray_token", "mlflow_credentials"):
            (folder / ".oclgrid" / name).touch()
        with mock_aws():
            aws_utils.resource_cache.cache_clear()
            aws_utils.client_cache.cache_clear()
            yield folder
        aws_utils.resource_cache.cache_clear()
        aws_utils.client_cache.cache_clear()


@pytest.fixture(scope="module")
def config(home: Path) -> dict[str, Any]:
    """cluster.yaml with its blanks filled in, as `ray up` completes it."""
    read = yaml.safe_load((ROOT / "cluster.yaml").read_text(encoding="utf-8"))
    iam = boto3.client("iam", region_name=read["provider"]["region"])
    iam.create_instance_profile(InstanceProfileName=PROFILE)
    image = boto3.client("ec2", region_name=read["provider"]["region"]).describe_images()
    for node in read["available_node_types"].values():
        node["node_config"]["ImageId"] = image["Images"][0]["ImageId"]
        node["node_config"]["IamInstanceProfile"] = {"Name": PROFILE}
    del read["metadata"]
    made: dict[str, Any] = _bootstrap_config(read, no_config_cache=True)
    return made


@pytest.fixture(scope="module")
def asked() -> list[dict[str, Any]]:
    """What was asked of AWS whenever instances were launched."""
    return []


@pytest.fixture(scope="module")
def provider(config: dict[str, Any], asked: list[dict[str, Any]]) -> AWSNodeProvider:
    """Ray's hand on AWS, with a head and three workers launched."""
    made = AWSNodeProvider(config["provider"], config["cluster_name"])
    events = made.ec2_fail_fast.meta.client.meta.events
    events.register(
        "provide-client-params.ec2.RunInstances", lambda params, **_: asked.append(params)
    )
    # One by one: of several at once, moto launches one.
    for name, kind in (("head", NODE_KIND_HEAD), *[("worker", NODE_KIND_WORKER)] * 3):
        tags = {TAG_RAY_NODE_KIND: kind, TAG_RAY_USER_NODE_TYPE: name}
        made.create_node(config["available_node_types"][name]["node_config"], tags, 1)
    return made


def instances(config: dict[str, Any], **tags: str) -> list[dict[str, Any]]:
    client = boto3.client("ec2", region_name=config["provider"]["region"])
    filters = [{"Name": f"tag:{name}", "Values": [value]} for name, value in tags.items()]
    found = client.describe_instances(Filters=filters)
    return [i for reservation in found["Reservations"] for i in reservation["Instances"]]


def test_what_nodes_have_is_looked_up_so_that_slots_are_known_before_any_is_there(
    config: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = config["available_node_types"]["worker"]
    assert (worker["resources"]["CPU"], worker["resources"]["GPU"]) == (4, 1)
    (tmp_path / "bootstrap.yaml").write_text(json.dumps(config))  # as Ray leaves it on the head
    monkeypatch.setenv("OCLGRID_CLUSTER_FILE", str(tmp_path / "bootstrap.yaml"))
    capacity = autoscaled([{HEAD: 1.0}])
    assert capacity.slots({"CPU": 1.0, "GPU": 0.25}) == 4 * config["max_workers"]


def test_from_outside_only_ssh_gets_in(config: dict[str, Any]) -> None:
    client = boto3.client("ec2", region_name=config["provider"]["region"])
    groups = {g for t in config["available_node_types"].values()
              for g in t["node_config"]["SecurityGroupIds"]}  # fmt: skip
    (group,) = client.describe_security_groups(GroupIds=list(groups))["SecurityGroups"]
    for rule in group["IpPermissions"]:
        if rule["IpRanges"] or rule["Ipv6Ranges"]:
            assert (rule["IpProtocol"], rule["FromPort"], rule["ToPort"]) == ("tcp", 22, 22)
        else:  # among themselves
            assert {pair["GroupId"] for pair in rule["UserIdGroupPairs"]} == groups


def test_the_key_that_opens_the_nodes_is_this_users_only(
    config: dict[str, Any], home: Path
) -> None:
    key = Path(config["auth"]["ssh_private_key"])
    assert key.is_relative_to(home)
    assert stat.S_IMODE(key.stat().st_mode) == 0o600


def test_the_head_is_on_demand_and_the_workers_are_spot_at_no_more_than_the_price(
    provider: AWSNodeProvider, asked: list[dict[str, Any]], config: dict[str, Any]
) -> None:
    head, worker, *_ = asked
    assert provider.cluster_name == config["cluster_name"]
    assert (head["InstanceType"], worker["InstanceType"]) == ("m7i.large", "g5.xlarge")
    assert "InstanceMarketOptions" not in head
    assert worker["InstanceMarketOptions"] == {
        "MarketType": "spot",
        "SpotOptions": {"MaxPrice": "0.50", "SpotInstanceType": "one-time"},
    }
    for sent in asked:
        assert sent["IamInstanceProfile"] == {"Name": PROFILE}
        assert sent["MetadataOptions"] == {"HttpTokens": "required"}
        assert all(disk["Ebs"]["Encrypted"] for disk in sent["BlockDeviceMappings"])


def test_nodes_are_known_by_their_tags_and_terminated_not_stopped(
    provider: AWSNodeProvider, config: dict[str, Any]
) -> None:
    cluster = {TAG_RAY_CLUSTER_NAME: config["cluster_name"]}
    assert len(instances(config, **cluster)) == 4
    workers = provider.non_terminated_nodes({TAG_RAY_USER_NODE_TYPE: "worker"})
    assert len(workers) == 3
    provider.terminate_nodes(workers)
    left = provider.non_terminated_nodes({})
    assert [provider.node_tags(node)[TAG_RAY_NODE_KIND] for node in left] == [NODE_KIND_HEAD]
    provider.terminate_node(left[0])
    assert provider.non_terminated_nodes({}) == []
    states = {instance["State"]["Name"] for instance in instances(config, **cluster)}
    assert states <= {"shutting-down", "terminated"}
