"""The kubelet's checkpoint file, in the shape of kubelets from 1.20 on.

`DeviceIDs` is keyed by NUMA node, "-1" without topology. The checksum of the real one is a hash
over Go's way of printing structs, which only the kubelet itself checks; here it is a CRC.
"""

import base64
import json
import zlib
from pathlib import Path

from gpumanager.sim.kubelet.devices import DeviceBooks


def checkpoint_text(books: DeviceBooks) -> str:
    entries = [
        {
            "PodUID": row.pod_uid,
            "ContainerName": row.container,
            "ResourceName": row.resource,
            "DeviceIDs": {"-1": sorted(row.ids)},
            "AllocResp": base64.b64encode(row.response).decode(),
        }
        for row in books.holdings
    ]
    registered = {name: sorted(ids) for name, ids in books.registered.items()}
    content = {"PodDeviceEntries": entries or None, "RegisteredDevices": registered}
    checksum = zlib.crc32(json.dumps(content, sort_keys=True).encode())
    return json.dumps({"Data": content, "Checksum": checksum})


def write_checkpoint(books: DeviceBooks, path: Path) -> None:
    """Atomically, as the real one does."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(checkpoint_text(books))
    temporary.replace(path)
