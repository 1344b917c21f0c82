"""What an image is made of, as CycloneDX has it: Debian's packages, Python's, and ours."""

import json
import time
import uuid
from collections.abc import Iterable, Mapping
from email.parser import Parser
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from base import Package

NAME: Final = "gpu-manager"


def described(
    site: Path, packages: Iterable[Package], *, image: str, digest: str, epoch: int, release: str
) -> str:
    """The bill as JSON. site: the folder with Python's packages; release: Debian's codename."""
    parts = [of_debian(one, release) for one in packages]
    parts += [of_python(one) for one in sorted(site.glob("*.dist-info/METADATA"))]
    bill = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, digest)}",
        "version": 1,
        "metadata": {
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch)),
            "component": {
                "type": "container",
                "bom-ref": digest,
                "name": image.rpartition(":")[0],
                "version": image.rpartition(":")[2],
                "hashes": [{"alg": "SHA-256", "content": digest.removeprefix("sha256:")}],
            },
        },
        "components": parts,
        "dependencies": [{"ref": digest, "dependsOn": [one["bom-ref"] for one in parts]}],
    }
    return json.dumps(bill, indent=2) + "\n"


def of_debian(one: Package, release: str) -> Mapping[str, Any]:
    version = quote(one.version, safe="")
    purl = f"pkg:deb/debian/{quote(one.name)}@{version}?arch={one.architecture}&distro={release}"
    return {
        "type": "library",
        "bom-ref": purl,
        "name": one.name,
        "version": one.version,
        "purl": purl,
    }


def of_python(metadata: Path) -> Mapping[str, Any]:
    said = Parser().parsestr(metadata.read_text(errors="replace"), headersonly=True)
    name, version = str(said["Name"]), str(said["Version"])
    purl = f"pkg:pypi/{name.lower().replace('_', '-')}@{quote(version, safe='')}"
    if name == NAME:
        purl = f"pkg:generic/{NAME}@{quote(version, safe='')}"
    part: dict[str, Any] = {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "purl": purl,
    }
    if expression := said["License-Expression"]:
        part["licenses"] = [{"expression": str(expression)}]
    elif (text := said["License"]) and len(str(text).splitlines()) == 1:
        part["licenses"] = [{"license": {"name": str(text)}}]
    return part
