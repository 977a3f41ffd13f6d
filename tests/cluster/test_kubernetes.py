"""The Kubernetes manifests are what Kubernetes, KubeRay and careful people expect."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import ray
import yaml

from oclgrid.platform.capacity import HEAD, autoscaled
from oclgrid.platform.cli import _parser

ROOT = Path(__file__).parent.parent.parent
FOLDER = ROOT / "kubernetes"
VERSION = "1.31"
"""Of Kubernetes; what it accepts, newer ones do."""


def closed(required: str = "", **fields: Any) -> dict[str, Any]:
    """Return the schema of a mapping with these fields and no others."""
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": fields,
        "required": required.split(),
    }


TEXT, WHOLE, FLAG, ANY = {"type": "string"}, {"type": "integer"}, {"type": "boolean"}, {}
TEXTS = {"type": "object", "additionalProperties": TEXT}
CLUSTER = closed(
    "headGroupSpec",
    rayVersion=TEXT,
    authOptions=closed(mode={"enum": ["disabled", "token"]}, secretName=TEXT),
    enableInTreeAutoscaling=FLAG,
    autoscalerOptions=closed(
        version={"enum": ["v1", "v2"]},
        idleTimeoutSeconds=WHOLE,
        resources=ANY,
        securityContext=ANY,
    ),
    headGroupSpec=closed("template", rayStartParams=TEXTS, template=ANY),
    workerGroupSpecs={
        "type": "array",
        "items": closed(
            "groupName minReplicas maxReplicas template",
            groupName=TEXT,
            minReplicas=WHOLE,
            replicas=WHOLE,
            maxReplicas=WHOLE,
            rayStartParams=TEXTS,
            template=ANY,
        ),
    },
)
JOB = closed(
    entrypoint=TEXT,
    submissionMode={"enum": ["K8sJobMode", "HTTPMode", "InteractiveMode", "SidecarMode"]},
    backoffLimit=WHOLE,
    activeDeadlineSeconds=WHOLE,
    shutdownAfterJobFinishes=FLAG,
    ttlSecondsAfterFinished=WHOLE,
    rayClusterSpec=CLUSTER,
)
MODELS = {"RayCluster": CLUSTER, "RayJob": JOB}
"""The fields we use of KubeRay's resources (v1, KubeRay 1.6 and 1.7), as its CRDs define them."""


def documents() -> list[dict[str, Any]]:
    paths = sorted(FOLDER.glob("*.yaml"))
    return [d for path in paths for d in yaml.safe_load_all(path.read_text(encoding="utf-8"))]


DOCUMENTS = documents()


def one(kind: str, name: str = "") -> dict[str, Any]:
    (found,) = [
        d for d in DOCUMENTS if d["kind"] == kind and name in ("", d["metadata"].get("name"))
    ]
    return found


def templates() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the template of every pod."""
    for found in DOCUMENTS:
        spec = found.get("spec", {})
        spec = spec.get("rayClusterSpec", spec)
        if "template" in spec:
            yield f"{found['kind']} {found['metadata']['name']}", spec["template"]
        if "headGroupSpec" in spec:
            yield f"{found['kind']} head", spec["headGroupSpec"]["template"]
            for group in spec["workerGroupSpecs"]:
                yield f"{found['kind']} {group['groupName']}", group["template"]


TEMPLATES = dict(templates())


@pytest.mark.parametrize("found", DOCUMENTS, ids=lambda d: f"{d['kind']} {d['metadata']}"[:60])
def test_its_own_schema_accepts_it(found: dict[str, Any]) -> None:
    if found["kind"] in MODELS:
        assert found["apiVersion"] == "ray.io/v1"
        jsonschema.validate(found["spec"], MODELS[found["kind"]])
    else:
        kubernetes_validate.validate(found, VERSION, strict=True)


@pytest.mark.parametrize("name", TEMPLATES)
def test_pods_are_pods_that_are_nobody_and_say_what_they_need(name: str) -> None:
    template = TEMPLATES[name]
    metadata = {"name": "checked"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
    kubernetes_validate.validate(pod, VERSION, strict=True)
    spec = template["spec"]
    assert spec["securityContext"]["runAsNonRoot"]
    assert spec["securityContext"]["runAsUser"] > 0
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in spec["containers"] + spec.get("initContainers", []):
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert {"cpu", "memory"} <= container["resources"]["requests"].keys()
        assert "memory" in container["resources"]["limits"]
        mounts = {mount["name"] for mount in container["volumeMounts"]}
        claims = {c["metadata"]["name"] for c in one("StatefulSet")["spec"]["volumeClaimTemplates"]}
        assert mounts <= {v["name"] for v in spec["volumes"]} | claims


def test_a_schema_that_takes_a_typo_would_not_be_worth_much() -> None:
    broken = yaml.safe_load(yaml.safe_dump(one("RayCluster")["spec"]))
    broken["workerGroupSpecs"][0]["minReplica"] = 0
    with pytest.raises(jsonschema.ValidationError, match="minReplica"):
        jsonschema.validate(broken, CLUSTER)
    deployment = yaml.safe_load(yaml.safe_dump(one("Deployment")))
    deployment["spec"]["template"]["spec"]["containers"][0]["livenesProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(deployment, VERSION, strict=True)


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
def test_servers_say_when_they_have_started_are_ready_and_are_stuck(kind: str) -> None:
    for container in one(kind)["spec"]["template"]["spec"]["containers"]:
        assert {"startupProbe", "readinessProbe", "livenessProbe"} <= container.keys()


def test_a_job_has_the_cluster_that_stays_and_ends_with_it() -> None:
    job = one("RayJob")["spec"]
    assert job["rayClusterSpec"] == one("RayCluster")["spec"]
    assert job["shutdownAfterJobFinishes"]
    program, *arguments = job["entrypoint"].split()
    assert program == "oclgrid"
    assert _parser().parse_args(arguments).address == "auto"


def test_workers_come_from_zero_and_nothing_trains_on_the_head() -> None:
    cluster = one("RayCluster")["spec"]
    assert cluster["rayVersion"] == ray.__version__
    assert cluster["enableInTreeAutoscaling"]
    assert 0 < cluster["autoscalerOptions"]["idleTimeoutSeconds"] <= 1800
    assert cluster["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    (group,) = cluster["workerGroupSpecs"]
    assert group["minReplicas"] == group["replicas"] == 0


def test_drivers_are_told_of_the_workers_that_may_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cluster.yaml").write_text(
        one("ConfigMap", "oclgrid-growth")["data"]["cluster.yaml"]
    )
    monkeypatch.setenv("OCLGRID_CLUSTER_FILE", str(tmp_path / "cluster.yaml"))
    (known,) = autoscaled([{HEAD: 1.0}]).types
    (group,) = one("RayCluster")["spec"]["workerGroupSpecs"]
    limits = group["template"]["spec"]["containers"][0]["resources"]["limits"]
    assert known.most == group["maxReplicas"]
    assert known.resources == {"CPU": int(limits["cpu"]), "GPU": int(limits["nvidia.com/gpu"])}


def test_no_secret_is_contained_and_each_is_made_by_a_command_that_is_told() -> None:
    assert not [d for d in DOCUMENTS if d["kind"] == "Secret"]
    text = "".join(p.read_text(encoding="utf-8") for p in FOLDER.glob("*.yaml"))
    assert not re.search(
        r"(password|token|secret)\w*: +[\"']?[A-Za-z0-9+/]{16}", text, re.IGNORECASE
    )
    named = set(re.findall(r"secretName: ([\w-]+)|secretKeyRef: \{ name: ([\w-]+)", text))
    for name in {one or other for one, other in named}:
        assert f"create secret generic {name} " in text


def test_what_no_policy_allows_is_refused() -> None:
    policies = {d["metadata"]["name"]: d["spec"] for d in DOCUMENTS if d["kind"] == "NetworkPolicy"}
    assert policies.pop("closed") == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    for policy in policies.values():
        for rule in policy.get("ingress", []):
            assert all("podSelector" in source for source in rule["from"])  # pods, never addresses
    assert one("RayCluster")["spec"]["authOptions"]["mode"] == "token"
    assert {d["spec"].get("type", "ClusterIP") for d in DOCUMENTS if d["kind"] == "Service"} == {
        "ClusterIP"
    }


def test_pods_are_in_reach_of_the_policies_meant_for_them() -> None:
    labels = {t["metadata"]["labels"]["app"] for t in TEMPLATES.values()}
    text = (FOLDER / "store.yaml").read_text(encoding="utf-8")
    assert set(re.findall(r"matchLabels: \{ app: ([\w-]+) \}", text)) == labels


def test_datasets_are_fetched_by_a_command_that_exists() -> None:
    for template in TEMPLATES.values():
        for container in template["spec"].get("initContainers", []):
            words = re.search(r"oclgrid (data .*?) \|\|", container["command"][-1])
            assert words is not None
            options = _parser().parse_args(words[1].replace("$set", "cifar10").split())
            assert options.data == container["volumeMounts"][0]["mountPath"]


def test_the_tracking_server_is_started_with_options_that_exist() -> None:
    program, *arguments = one("Deployment")["spec"]["template"]["spec"]["containers"][0]["command"]
    options = _parser().parse_args(arguments)
    assert program == "oclgrid"
    assert options.database.startswith("postgresql+psycopg://oclgrid@")  # without its password


def test_the_image_holds_every_room_and_runs_as_nobody() -> None:
    text = (FOLDER / "Dockerfile").read_text(encoding="utf-8")
    copied = set(re.findall(r"^COPY (\w+) ", text, flags=re.MULTILINE))
    assert copied == {"platform", "search_spaces", "trainables"}
    assert text.index("USER 1000") > text.index("pip install")
    for name in re.findall(r"(\S+\.(?:toml|txt|md)|LICENSE)(?= )", text):
        assert (ROOT / name).is_file() or name.startswith("/src")
