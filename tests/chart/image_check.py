"""What `make image-check` does: the Dockerfile, run to its end by buildah, and what came of it.

No registry is asked. The base that the Dockerfile names is made here under that name: Debian of its
release by mmdebstrap, and in /usr/local a Python of its version that lies on this machine. So it
shows that the Dockerfile's steps work and what they make, and nothing of the base's own faults.
Where that cannot be done it says so and ends well; an error with GPUMANAGER_IMAGE_REQUIRED=1.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import dockerfile
from dockerfile import Dockerfile

from tests.chart import base_image, image_contents
from tests.chart.buildah import buildah

ROOT: Final = dockerfile.ROOT
NAME: Final = "localhost/gpu-manager:check"
EXAMPLE: Final = "thirty-and-sixty.yaml"
COMMANDS: Final = (
    ("0", "agent", "--help"),
    ("65532:65532", "extender", "--help"),
    ("65532:65532", "webhook", "--help"),
    ("0", "simulate", f"/examples/{EXAMPLE}"),
)
"""By the users that the chart gives them; a simulated node makes mount namespaces."""
CAPABILITIES: Final = {"0": ("--cap-add", "CAP_SYS_ADMIN")}


def main() -> int:
    said = dockerfile.read(dockerfile.FILE.read_text())
    if why := obstacle(said):
        print(f"SKIPPED: the Dockerfile is not run: {why}", file=sys.stderr)
        return int("GPUMANAGER_IMAGE_REQUIRED" in os.environ)
    base_image.make(said)
    build()
    wrong = [*config_faults(said), *contents_faults(), *command_faults()]
    print("\n".join(wrong) or "the image is as it is to be")
    return bool(wrong)


def obstacle(said: Dockerfile) -> str | None:
    """Why it cannot be done on this machine."""
    if os.geteuid() != 0:
        return "it needs root"
    missing = [one for one in ("buildah", "mmdebstrap") if shutil.which(one) is None]
    if missing:
        return f"install {' and '.join(missing)}"
    if base_image.python(said) is None:
        return f"no Python {said.python}: name one in {base_image.VARIABLE}"
    return None


def build() -> None:
    """Of this checkout, by the real .dockerignore."""
    buildah("bud", "--isolation", "chroot", "--pull-never", "-t", NAME, str(ROOT))


def config_faults(said: Dockerfile) -> list[str]:
    """What the image says of itself otherwise than the Dockerfile."""
    found = json.loads(buildah("inspect", "--type", "image", NAME, printed=False))
    config = found["OCIv1"]["config"]
    wanted = said.config(path=base_image.PATH)
    return [f"{key} is {config.get(key)}" for key in wanted if config.get(key) != wanted[key]]


def contents_faults() -> list[str]:
    container = buildah("from", "--pull-never", NAME, printed=False)
    try:
        root = Path(buildah("mount", container, printed=False))
        print(f"{image_contents.size(root) / 1e6:.0f} MB beside the base")
        return image_contents.faults(root)
    finally:
        buildah("rm", container, printed=False)


def command_faults() -> list[str]:
    """Commands that end badly, each in a container of its own."""
    return [f"{' '.join(words)} failed as {user}" for user, *words in COMMANDS if run(user, words)]


def run(user: str, words: Sequence[str]) -> int:
    container = buildah("from", "--pull-never", NAME, printed=False)
    examples = f"{ROOT / 'examples'}:/examples:ro"
    who = ("--user", user, *CAPABILITIES.get(user, ()))
    try:
        buildah(
            *("run", "--isolation", "chroot", *who, "-v", examples),
            *(container, "--", "gpumanager", *words),
        )
    except subprocess.CalledProcessError as error:
        return error.returncode
    else:
        return 0
    finally:
        buildah("rm", container, printed=False)


if __name__ == "__main__":
    sys.exit(main())
