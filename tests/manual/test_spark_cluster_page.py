"""The page on clusters: its commands have their flags, its manifest is well formed."""

import shlex

import yaml

from tests.support.docs.flags import flags_of, unknown_flags
from tests.support.docs.pages import named, text_of


def test_the_stateful_set_for_kubernetes_is_well_formed() -> None:
    """Flags exist, names refer to each other, and the grace is long enough for an end in order."""
    service, stateful = yaml.safe_load_all(text_of(named("owners Kubernetes StatefulSet")))
    spec = stateful["spec"]
    assert spec["serviceName"] == service["metadata"]["name"]
    labels = spec["template"]["metadata"]["labels"]
    assert labels == spec["selector"]["matchLabels"] == service["spec"]["selector"]
    pod = spec["template"]["spec"]
    nsqd, owner = pod["containers"]
    assert owner["command"] == ["nsqclient", "spark", "ingest"]
    assert unknown_flags(owner["args"], flags_of("spark", "ingest")) == []
    assert unknown_flags(nsqd["args"], flags_of("nsqd")) == []
    claims = {claim["metadata"]["name"] for claim in spec["volumeClaimTemplates"]}
    assert {mount["name"] for mount in nsqd["volumeMounts"]} == claims
    for container in (nsqd, owner):
        assert "POD_NAME" in {one["name"] for one in container["env"]}
    # The name by which nsqd is found is the one by which it is owned.
    host = next(arg for arg in nsqd["args"] if "broadcast" in arg).partition("=")[2]
    assert f"--nsqd-tcp-address={host}:4150" in owner["args"]
    assert {4150, 4151} == {port["port"] for port in service["spec"]["ports"]}
    assert pod["terminationGracePeriodSeconds"] > 30


def test_the_command_for_a_spark_job_has_its_flags() -> None:
    """The tests with Spark run it on a cluster."""
    [command] = named("nsqclient spark ingest --master")[0].commands
    assert unknown_flags(shlex.split(command), flags_of("spark", "ingest")) == []
