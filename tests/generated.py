"""Check that the generated gRPC messages are what their .proto files say; part of `make lint`."""

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROTOS = (
    "gpumanager/deviceplugin/api/deviceplugin_v1beta1.proto",
    "gpumanager/dra/api/dra_v1.proto",
    "gpumanager/dra/api/drahealth_v1.proto",
    "gpumanager/dra/api/pluginregistration_v1.proto",
    "gpumanager/kubelet/api/podresources_v1.proto",
    "gpumanager/kubelet/api/pods_v1alpha1.proto",
    "gpumanager/runtime/api/runtime_v1.proto",
    "gpumanager/legacy/api/vcuda.proto",
)


def stale(proto: str, out: Path) -> list[str]:
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I.", f"--python_out={out}"]
    subprocess.run([*command, f"--pyi_out={out}", proto], cwd=ROOT, check=True)
    stem = proto.removesuffix(".proto") + "_pb2"
    made = (f"{stem}.py", f"{stem}.pyi")
    return [name for name in made if (out / name).read_text() != (ROOT / name).read_text()]


def main() -> int:
    with tempfile.TemporaryDirectory() as out:
        wrong = [name for proto in PROTOS for name in stale(proto, Path(out))]
    for name in wrong:
        sys.stderr.write(f"{name}: not what its .proto gives; generate it anew with grpc_tools\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
