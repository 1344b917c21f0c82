"""The chart under a real helm: what it renders, what it refuses, what it says afterwards."""

import base64
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from tests.chart import generate, goldens, helm_program
from tests.chart.helm_program import helm, rendered

pytestmark = pytest.mark.skipif(helm_program.found() is None, reason=helm_program.MISSING)

REFUSED = {
    "agent.port=x": "/agent/port",
    "agent.prot=1": "'prot' not allowed",
    "agent.reservedMemory=much": "/agent/reservedMemory",
    "nothing=1": "'nothing' not allowed",
    "extender.replicas=0": "/extender/replicas",
    "extender.tls.source=nobody": "/extender/tls/source",
    "driver.root=usr": "/driver/root",
    "driver.root=/run/nvidia/": "/driver/root",
    "image.digest=sha256:12": "/image/digest",
    "kubelet.root=var": "/kubelet/root",
    "scheduler.name=default-scheduler": "/scheduler/name",
    "webhook.defaultMemory=much": "/webhook/defaultMemory",
    "webhook.defaultMemory=2GB": "/webhook/defaultMemory",
    "webhook.defaultMemory=128MiB": "/webhook/defaultMemory",
    "webhook.failurePolicy=Retry": "/webhook/failurePolicy",
    "extender.policy=foo": "/extender/policy",
    "logFormat=xml": "/logFormat",
    "quota.configMap=kube-system/gpuquota": "/quota/configMap",
    "extender.gpuPolicy=topology": "/extender/gpuPolicy",
    "agent.gpuPolicy=packbin": "/agent/gpuPolicy",
    "agent.reservedMemory=1G": "/agent/reservedMemory",
    "agent.resources.limits.memory=1GiB": "/agent/resources/limits/memory",
    "agent.maxUnavailable=0%": "/agent/maxUnavailable",
    "agent.nodeLabels.rack=a b": "/agent/nodeLabels/rack",
    "agent.address=everywhere": "/agent/address",
    "openshift=yes": "/openshift",
    "agent.tolerations[0].kye=a": "'kye' not allowed",
    "agent.extraArgs[0]=sample-period=5s": "/agent/extraArgs/0",
    "agent.resources.request.cpu=1": "'request' not allowed",
}


@pytest.mark.parametrize("case", goldens.CASES)
def test_helm_finds_nothing_to_complain_of(case: str) -> None:
    done = helm("lint", "--strict", ".", "--values", f"ci/{case}-values.yaml")

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("case", goldens.CASES)
def test_a_golden_is_what_helm_renders(case: str) -> None:
    assert goldens.golden(case).read_text() == generate.golden_text(case), "run `make chart`"


def test_the_raw_yaml_is_what_helm_renders() -> None:
    assert goldens.RAW.read_text() == generate.raw_text(), "run `make chart`"


@pytest.mark.parametrize(("value", "said"), REFUSED.items())
def test_a_value_that_cannot_be_is_refused_by_name(value: str, said: str) -> None:
    done = helm("template", "gpu-manager", ".", "--set", value)

    assert done.returncode != 0
    assert said in done.stderr


IMPOSSIBLE = {
    ("agent.privileged=false", helm_program.KUBERNETES): "needs agent.runtimeClassName",
    ("extender.policy=binpack\\,binpack=0.5", helm_program.KUBERNETES): "names a policy twice",
    ("agent.interface=claims", "1.35.0"): "needs Kubernetes 1.36",
    ("agent.interface=both", "1.33.4+k3s1"): "needs Kubernetes 1.36",
    ("webhook.claims=always", "1.35.0"): "needs Kubernetes 1.36",
    ("agent.devicePluginCdi=true", "1.28.9"): "needs Kubernetes 1.29",
}


@pytest.mark.parametrize(("value", "version", "said"), [(*k, v) for k, v in IMPOSSIBLE.items()])
def test_values_that_cannot_be_together_are_refused_with_the_cause(
    value: str, version: str, said: str
) -> None:
    done = helm("template", "gpu-manager", ".", "--kube-version", version, "--set", value)

    assert done.returncode != 0
    assert said in done.stderr


def test_the_agent_needs_no_privilege_where_nvidias_runtime_is_the_default() -> None:
    variable = "agent.extraEnv[0].name=NVIDIA_VISIBLE_DEVICES,agent.extraEnv[0].value=all"

    assert "privileged: false" in rendered("--set", f"agent.privileged=false,{variable}")


@pytest.mark.parametrize(
    ("action", "may_signal", "may_freeze"),
    [("report", False, False), ("pause", False, True), ("end", True, False)],
)
def test_the_agent_may_signal_and_freeze_others_only_where_it_is_to(
    action: str, *, may_signal: bool, may_freeze: bool
) -> None:
    unprivileged = "agent.privileged=false,agent.runtimeClassName=nvidia"

    made = rendered("--set", f"{unprivileged},agent.onBypass={action}")

    assert ("- KILL " in made) is may_signal
    assert ("mountPath: /sys/fs/cgroup, readOnly: false" in made) is may_freeze


def test_turns_need_the_hosts_directory_and_may_have_real_time() -> None:
    made = rendered("--values", "ci/runtime-class-values.yaml")
    (agent,) = (one for one in yaml.safe_load_all(made) if one and one["kind"] == "DaemonSet")
    container = goldens.container(agent)

    assert "SYS_NICE" in container["securityContext"]["capabilities"]["add"]
    assert "turns" in [one["name"] for one in container["volumeMounts"]]


def test_openshift_is_recognized_by_its_api() -> None:
    found = rendered("--api-versions", "security.openshift.io/v1")

    assert "system:openshift:scc:privileged" in found
    assert "runAsUser: 65532" not in found
    assert "system:openshift:scc" not in rendered()
    never = ("--api-versions", "security.openshift.io/v1", "--set", "openshift=never")
    assert "runAsUser: 65532" in rendered(*never)


def test_an_older_cluster_gets_what_it_knows() -> None:
    older = list(yaml.safe_load_all(rendered(kubernetes="1.27.3")))
    hooks = [hook for one in older if one for hook in one.get("webhooks", ())]
    (role,) = (
        one
        for one in older
        if one and one["kind"] == "ClusterRole" and one["metadata"]["name"].endswith("-agent")
    )

    assert [hook for hook in hooks if "matchConditions" in hook] == []
    assert len(hooks) == 2
    assert ["nodes/proxy", "nodes/metrics"] in [one["resources"] for one in role["rules"]]


def test_kube_scheduler_is_of_the_clusters_version_whoever_made_it() -> None:
    made = rendered(kubernetes="1.33.4+k3s1")

    assert "image: registry.k8s.io/kube-scheduler:v1.33.4\n" in made


def test_the_extenders_certificate_is_for_its_service() -> None:
    made, _ = _secrets()
    certificate = x509.load_pem_x509_certificate(base64.b64decode(made["data"]["tls.crt"]))
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value

    assert {"gpu-manager-extender.kube-system.svc", "localhost"} <= {
        *names.get_values_for_type(x509.DNSName)
    }
    assert [str(one) for one in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]


def test_kube_schedulers_certificate_is_signed_by_whom_the_extender_believes() -> None:
    _, made = _secrets()
    authority, certificate = (
        x509.load_pem_x509_certificate(base64.b64decode(made["data"][name]))
        for name in ("ca.crt", "tls.crt")
    )
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    uses = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value

    certificate.verify_directly_issued_by(authority)
    assert names.get_values_for_type(x509.DNSName) == ["gpu-manager-kube-scheduler"]
    assert ExtendedKeyUsageOID.CLIENT_AUTH in uses


def _secrets() -> tuple[Any, Any]:
    """The extender's, and what kube-scheduler shows."""
    made = [one for one in yaml.safe_load_all(rendered()) if one and one["kind"] == "Secret"]
    first, second = sorted(made, key=lambda one: str(one["metadata"]["name"]), reverse=True)
    return first, second


NO_CLIENTS = (
    "scheduler.enabled=false",
    "extender.clientCertificate.required=never",
    "extender.tls.source=none",
)


@pytest.mark.parametrize("value", NO_CLIENTS)
def test_nobody_needs_a_certificate_where_that_is_said(value: str) -> None:
    assert "--client-ca-file" not in rendered("--set", value)
    assert "extender-client" not in rendered("--set", value)


def test_the_clusters_own_scheduler_may_have_to_show_a_certificate(tmp_path: Path) -> None:
    words = ("--set", "scheduler.enabled=false,extender.clientCertificate.required=always")

    assert "--client-ca-file" in rendered(*words)
    assert "certFile: /etc/kubernetes/gpu-manager/client/tls.crt" in _notes(tmp_path, *words)


def test_policies_are_for_clusters_that_know_them() -> None:
    assert "ValidatingAdmissionPolicy\n" in rendered(kubernetes="1.30.0")
    assert "ValidatingAdmissionPolicy" not in rendered(kubernetes="1.29.9")
    assert "ValidatingAdmissionPolicy" not in rendered("--set", "admissionPolicies.enabled=false")


NOTES = {
    "default": 'sets the scheduler "gpu-scheduler" for pods with GPUs',
    "cluster-scheduler": "urlPrefix: https://gpu-manager-extender.kube-system.svc:3456/scheduler",
    "driver-container": "gpumanager doctor --driver-root=/run/nvidia/driver",
    "everything": "keeps Prometheus from the extender",
    "minimal": "Check a node:",
    "openshift": "kubectl label node NODE tencent.com/gpu=true",
}


BRACES = "{{ $labels.pod }} and {{pod}}"
RULES = {
    "groups": [
        {
            "name": "g",
            "rules": [
                {"alert": "A", "annotations": {"summary": BRACES, "runbook_url": "runbooks/A.md"}}
            ],
        }
    ]
}


def test_dashboards_and_rules_are_installed_as_they_are(tmp_path: Path) -> None:
    chart = tmp_path / "gpu-manager"
    shutil.copytree(helm_program.CHART, chart)
    for folder in ("dashboards", "rules"):
        (chart / folder).mkdir(exist_ok=True)
    dashboard = json.dumps({"title": "One", "legendFormat": BRACES}, indent=1)
    (chart / "dashboards" / "one-more.json").write_text(dashboard)
    (chart / "rules" / "one-more.yaml").write_text("# Why.\n" + yaml.safe_dump(RULES))

    made = rendered("--values", "ci/everything-values.yaml", chart=chart)

    found = {goldens.name_of(one): one for one in yaml.safe_load_all(made) if one}
    shown = found["ConfigMap gpus-dashboard-one-more"]
    assert shown["data"]["one-more.json"].strip() == dashboard
    assert shown["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert found["PrometheusRule gpus-one-more"]["spec"] == RULES
    of_files = [one for one in found.values() if one["kind"] in {"ConfigMap", "PrometheusRule"}]
    files = [*chart.glob("dashboards/*.json"), *chart.glob("rules/*.yaml")]
    assert len(of_files) == len(files) + len(["kube-scheduler's configuration"])


def test_runbooks_are_where_a_value_says(tmp_path: Path) -> None:
    chart = tmp_path / "gpu-manager"
    shutil.copytree(helm_program.CHART, chart)
    (chart / "rules").mkdir(exist_ok=True)
    (chart / "rules" / "one-more.yaml").write_text(yaml.safe_dump(RULES))
    address = "https://docs.example.com/"

    made = rendered(
        *("--set", "monitoring.rules.enabled=true"),
        *("--set", f"monitoring.rules.runbooks={address}"),
        chart=chart,
    )

    assert f"runbook_url: {address}runbooks/A.md\n" in made


SAID = """{{ define "said" }}%s{{ end -}}
apiVersion: v1
kind: ConfigMap
metadata: {name: said}
data:
  said: |
    {{- include "said" . | nindent 4 }}
"""
"""Notes as an object: helm shows them after an installation only."""


@pytest.mark.parametrize(("case", "said"), NOTES.items())
def test_who_has_installed_it_is_told_what_is_next(case: str, said: str, tmp_path: Path) -> None:
    assert said in _notes(tmp_path, "--values", f"ci/{case}-values.yaml")


def test_the_notes_name_the_test_where_there_is_one(tmp_path: Path) -> None:
    claims = ("--set", "agent.interface=claims")

    assert "helm test gpu-manager --namespace kube-system" in _notes(tmp_path / "resources")
    assert "helm test" not in _notes(tmp_path / "claims", *claims)


ELSEWHERE = {
    "agent.stateDirectory": "/srv/gpu-manager",
    "containerRuntime.socket": "/run/crio/crio.sock",
    "driver.deviceDirectory": "/run/nvidia/dev",
    "kubelet.root": "/var/lib/k0s/kubelet",
}


def test_the_doctor_is_told_to_look_where_the_agent_does(tmp_path: Path) -> None:
    words = [word for pair in ELSEWHERE.items() for word in ("--set", "=".join(pair))]
    objects = [one for one in yaml.safe_load_all(rendered(*words)) if one]
    (agent,) = (one for one in objects if one["kind"] == "DaemonSet")
    arguments = set(goldens.container(agent)["args"])

    told = _notes(tmp_path, *words).partition("gpumanager doctor ")[2].splitlines()[0].split()

    assert set(told) <= arguments
    places = {one for one in arguments if "=/" in one or "unix:" in one}
    assert places - {"--probe-socket=/tmp/probe.sock"} == set(told)


def _notes(directory: Path, *words: str) -> str:
    chart = directory / "gpu-manager"
    shutil.copytree(helm_program.CHART, chart)
    notes = (chart / "templates" / "NOTES.txt").read_text()
    (chart / "templates" / "said.yaml").write_text(SAID % notes)
    made = rendered(*words, "--show-only", "templates/said.yaml", chart=chart)
    said: str = yaml.safe_load(made)["data"]["said"]
    return said


def test_dashboards_bring_the_recording_rules_they_need() -> None:
    words = ("--set", "monitoring.dashboards.enabled=true")
    operator = ("--api-versions", "monitoring.coreos.com/v1/PrometheusRule")

    assert "kind: PrometheusRule" not in rendered(*words)
    (rules,) = (
        one
        for one in yaml.safe_load_all(rendered(*words, *operator))
        if one and one["kind"] == "PrometheusRule"
    )
    assert rules["metadata"]["name"] == "gpu-manager-recording"
    assert all("record" in rule for group in rules["spec"]["groups"] for rule in group["rules"])
