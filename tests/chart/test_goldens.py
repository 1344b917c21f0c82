"""What the chart makes of the values in `ci/`, looked at without Helm and without a cluster."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from gpumanager import cli
from gpumanager.cli import agent, webhook
from gpumanager.cli.extender import read_address, read_policy
from gpumanager.settings import AgentSettings
from tests import ROOT
from tests.chart import goldens
from tests.chart.goldens import Object

pytestmark = pytest.mark.parametrize("case", goldens.WITH_RAW)

VARIABLES = {"$(POD_NAME)": "pod-1"}
CLUSTER_WIDE = {
    "DeviceClass",
    *("ClusterRole", "ClusterRoleBinding"),
    *("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"),
    *("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"),
}
UNPRIVILEGED = {"runtime-class"}
"""Cases in which nobody is privileged."""


def test_an_object_has_its_names_and_labels(case: str) -> None:
    for one in goldens.objects(case):
        metadata = one["metadata"]
        assert one["apiVersion"]
        assert {"name", "labels"} <= metadata.keys()
        assert ("namespace" in metadata) == (one["kind"] not in CLUSTER_WIDE), goldens.name_of(one)


def test_selectors_find_the_pods_they_are_for(case: str) -> None:
    pods = {
        name: goldens.template(one)["metadata"]["labels"]
        for name, one in goldens.workloads(case).items()
    }
    for owner, selector in _selectors(case):
        wanted = {k: v for k, v in selector.items() if k != "tencent.com/extender-role"}
        found = [name for name, labels in pods.items() if wanted.items() <= labels.items()]
        assert found == [owner]


def _selectors(case: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Parts and the labels by which somebody finds their pods."""
    for one in goldens.objects(case):
        spec = one.get("spec") or {}
        name = goldens.part(one)
        for key in ("selector", "podSelector"):
            if key in spec and one["kind"] != "Issuer":
                yield name, spec[key].get("matchLabels", spec[key])
        for rule in (*spec.get("ingress", ()), *spec.get("egress", ())):
            for peer in (*rule.get("from", ()), *rule.get("to", ())):
                if "podSelector" in peer:
                    labels = peer["podSelector"]["matchLabels"]
                    yield labels[goldens.COMPONENT], labels
        if one["kind"] in goldens.WORKLOADS:
            for spread in goldens.template(one)["spec"].get("topologySpreadConstraints", ()):
                yield name, spread["labelSelector"]["matchLabels"]


def test_ports_are_those_that_containers_have(case: str) -> None:
    ports = {
        name: {
            port["name"]: port["containerPort"] for port in goldens.container(one).get("ports", ())
        }
        for name, one in goldens.workloads(case).items()
    }
    for service in goldens.of_kind(case, "Service"):
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports[
            goldens.part(service)
        ].keys()
    for policy in goldens.of_kind(case, "NetworkPolicy"):
        rules = policy["spec"]["ingress"]
        named = {port["port"] for rule in rules for port in rule["ports"]}
        assert named <= ports[goldens.part(policy)].keys()
    for monitor in goldens.of_kind(case, "PodMonitor"):
        (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
        assert endpoint["port"] in ports[goldens.part(monitor)]
    for one in goldens.workloads(case).values():
        _probes_ask_a_port(goldens.container(one))


def _probes_ask_a_port(container: Object) -> None:
    names = {port["name"] for port in container.get("ports", ())}
    for probe in ("livenessProbe", "readinessProbe"):
        if "exec" in container[probe]:
            _a_probe_runs(container[probe]["exec"]["command"], container["args"])
        else:
            assert container[probe]["httpGet"]["port"] in names


def _a_probe_runs(command: list[str], arguments: list[str]) -> None:
    """It asks at the socket that the agent makes."""
    assert command[:2] == ["gpumanager", "probe"]
    params = _parsed("probe", command[1:])
    assert f"--probe-socket={params['path']}" in arguments


def test_arguments_are_flags_that_the_program_has(case: str) -> None:
    for name, arguments in goldens.commands(case).items():
        params = _parsed(name, arguments)
        if name == "agent":
            agent.take_log_flags(params)
            settings = agent.read_settings(params)
            _paths_of_the_agent_are_mounted(settings, goldens.workloads(case)["agent"])
        if name == "webhook":
            del params["level"], params["format"]
            webhook.read_settings(params)
        if name == "extender":
            read_address(params["address"])
            read_policy(params["policy"] or "", params["gpu_policy"] or "")


def _parsed(name: str, arguments: list[str]) -> dict[str, Any]:
    assert arguments[0] == name
    command = cli.gpumanager.get_command(click.Context(cli.gpumanager), name)
    assert command is not None
    words = [word.replace(*next(iter(VARIABLES.items()))) for word in arguments[1:]]
    return dict(command.make_context(name, words).params)


def _paths_of_the_agent_are_mounted(settings: AgentSettings, workload: Object) -> None:
    """What the agent shares with others lies below a mount of the host under its own path."""
    spec = goldens.template(workload)["spec"]
    sources = {one["name"]: one["hostPath"]["path"] for one in spec["volumes"] if "hostPath" in one}
    mounts = {
        Path(one["mountPath"]): Path(sources[one["name"]])
        for one in goldens.container(workload)["volumeMounts"]
        if one["name"] in sources
    }
    same = [
        settings.virtual_manager_path,
        settings.checkpoint_path,
        settings.volume_base,
        settings.device_plugin_path,
        settings.pod_resources_socket,
        Path((settings.container_runtime_endpoint or "").removeprefix("unix://")),
        settings.turns_path,
    ]
    for wanted in same:
        assert wanted is not None
        assert any(mounts.get(place) == place for place in (wanted, *wanted.parents)), wanted
    assert any(place in mounts for place in (settings.driver_root, *settings.driver_root.parents))


def test_every_mount_has_its_volume_and_every_volume_a_mount(case: str) -> None:
    for one in goldens.workloads(case).values():
        mounted = [mount["name"] for mount in goldens.container(one)["volumeMounts"]]
        assert sorted(mounted) == sorted(
            volume["name"] for volume in goldens.template(one)["spec"]["volumes"]
        )


def test_what_is_privileged_or_may_more_says_why(case: str) -> None:
    text = goldens.text(case)
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if re.fullmatch(r" *(privileged: true|hostPID: true|hostNetwork: true|runAsUser: 0)", line):
            assert lines[number - 1].strip().startswith("# "), line
    for added in re.findall(r"(?m)^ +add:\n((?: +- [A-Z_]+.*\n)+)", text):
        assert all(re.search(r"- [A-Z_]+ # \w+", line) for line in added.splitlines())


def test_only_the_agent_may_more_than_an_ordinary_pod(case: str) -> None:
    for name, one in goldens.workloads(case).items():
        spec, container = goldens.template(one)["spec"], goldens.container(one)
        own = container["securityContext"]
        assert own["readOnlyRootFilesystem"] is True
        if name == "agent":
            assert own.get("privileged", False) is (case not in UNPRIVILEGED)
            assert ("seccompProfile" in own) is (case in UNPRIVILEGED)
            continue
        assert not {"hostPID", "hostNetwork", "hostIPC"} & spec.keys()
        assert own["allowPrivilegeEscalation"] is False
        assert own["capabilities"] == {"drop": ["ALL"]}
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not [volume for volume in spec["volumes"] if "hostPath" in volume]


def test_mounts_of_the_host_that_change_are_followed(case: str) -> None:
    """A driver's container, or a runtime, mounts and unmounts below while the agent runs."""
    mounts = goldens.container(goldens.workloads(case)["agent"])["volumeMounts"]
    followed = {one["name"] for one in mounts if one.get("mountPropagation") == "HostToContainer"}

    assert {"runtime", "cgroups"} | (
        {"host", "driver"} & {one["name"] for one in mounts}
    ) == followed


def test_the_extenders_certificate_is_for_whom_kube_scheduler_calls(case: str) -> None:
    for configuration in goldens.of_kind(case, "ConfigMap"):
        if goldens.part(configuration) != "scheduler":
            continue
        text = configuration["data"]["scheduler.yaml"]
        entries = yaml.safe_load(text)["extenders"]
        (service,) = (
            one for one in goldens.of_kind(case, "Service") if goldens.part(one) == "extender"
        )
        metadata = service["metadata"]
        host = f"{metadata['name']}.{metadata['namespace']}.svc"
        (port,) = service["spec"]["ports"]
        url = f"https://{host}:{port['port']}/scheduler"
        assert {entry["urlPrefix"] for entry in entries} == {url}
        for certificate in goldens.of_kind(case, "Certificate"):
            if goldens.part(certificate) == "extender":
                assert host in certificate["spec"]["dnsNames"]


def test_kube_scheduler_is_told_what_the_docs_tell(case: str) -> None:
    page = (ROOT / "docs" / "extender.md").read_text()
    first, second = (block.split("```")[0] for block in page.split("```yaml\n")[1:3])
    documented, claims = yaml.safe_load(first), yaml.safe_load(second)
    told = documented["extenders"] + (claims if "--claims" in extender_arguments(case) else [])
    for configuration in goldens.of_kind(case, "ConfigMap"):
        if goldens.part(configuration) == "scheduler":
            ours = yaml.safe_load(configuration["data"]["scheduler.yaml"])
            assert ours["percentageOfNodesToScore"] == documented["percentageOfNodesToScore"]
            assert [one.keys() for one in ours["extenders"]] == [one.keys() for one in told]
            cluster = {"urlPrefix", "tlsConfig", "weight"}
            for one, other in zip(ours["extenders"], told, strict=True):
                assert {k: v for k, v in one.items() if k not in cluster} == {
                    k: v for k, v in other.items() if k not in cluster
                }


def extender_arguments(case: str) -> list[str]:
    return goldens.commands(case).get("extender", [])


def test_the_webhooks_are_those_of_the_docs(case: str) -> None:
    page = (ROOT / "docs" / "webhook.md").read_text()
    blocks = page.split("```yaml\n")[1:]
    documented = {
        (one["kind"], hook["name"]): hook
        for block in blocks
        for one in yaml.safe_load_all(block.split("```")[0])
        for hook in one.get("webhooks", ())
    }
    of_the_cluster = {"clientConfig", "failurePolicy", "namespaceSelector", "rules"}
    for one in goldens.of_kind(case, *{kind for kind, _ in documented}):
        for ours in one["webhooks"]:  # two where there are claims; what changes pods is alike
            known = (one["kind"], ours["name"])
            told = documented.get(known) or documented[known[0], "pods.gpu-manager.tencent.com"]
            same = told.keys() - of_the_cluster
            name = {} if known in documented else {"name": ours["name"]}
            assert {k: ours[k] for k in same} == {k: told[k] for k in same} | name
            assert ours["failurePolicy"] in {"Ignore", "Fail"}
            assert ours.keys() - of_the_cluster == same
