"""The kubelet's side of claims: its DRA manager, over the driver's real sockets.

    claims    claims and their devices as values; the checkpoint
    drivers   plugins and their instances: which one is called, when its ResourceSlices are deleted
    api       what the API server is asked and told
    manager   all of it together: prepare, unprepare, CDI devices, health in the status of pods

Follows pkg/kubelet/cm/dra and pkg/kubelet/pluginmanager of Kubernetes 1.36.2 and 1.37.2. Kept:
that one claim is prepared once for all its pods and containers, and who is refused; that what is
prepared survives the kubelet. Not kept: `dra_health_state` (health is unknown after a restart until
a driver reports it again), health that a driver does not advertise or says how long it holds, what
plugins are told that no kubelet can use, sockets in folders below `plugins_registry`.
"""
