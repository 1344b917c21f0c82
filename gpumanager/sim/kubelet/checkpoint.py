"""The kubelet's checkpoint file, in the shape of kubelets from 1.20 on.

`DeviceIDs` is keyed by NUMA node; a device that names none is below "-1" today, and below "0" in
1.20. The checksum of the real one is a hash
over Go's way of printing structs, which only the kubelet itself checks; here it is a CRC.
"""

import base64
import json
import zlib
from pathlib import Path

from gpumanager.sim.kubelet.devices import DeviceBooks
from gpumanager.sim.kubelet.versions import KubeletVersion


def write_checkpoint(books: DeviceBooks, version: KubeletVersion, path: Path) -> None:
    """Write the file atomically, as the real one does."""
    entries = []
    for row in books.holdings:
        by_node: dict[str, list[str]] = {}
        for device_id in sorted(row.ids):
            for node in books.nodes_of(row.resource, device_id) or (version.node_of_none,):
                by_node.setdefault(str(node), []).append(device_id)
        entries.append(
            {
                "PodUID": row.pod_uid,
                "ContainerName": row.container,
                "ResourceName": row.resource,
                "DeviceIDs": by_node,
                "AllocResp": base64.b64encode(row.response).decode(),
            }
        )
    registered = {name: sorted(ids) for name, ids in books.healthy.items()}
    content = {"PodDeviceEntries": entries or None, "RegisteredDevices": registered}
    checksum = zlib.crc32(json.dumps(content, sort_keys=True).encode())
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(json.dumps({"Data": content, "Checksum": checksum}))
    temporary.replace(path)
