"""The kubelet's side of claims: its DRA manager, over the driver's real sockets.

    claims    which claims are prepared, for whom and with which devices, as values; the checkpoint
    health    what drivers say of their devices, as values
    registry  the sockets in `plugins_registry`: who a plugin is, and that it is taken
    drivers   instances of drivers: which one is called, when its ResourceSlices are deleted
    api       what the API server is asked and told
    manager   all of it together: prepare, unprepare, CDI devices, health in the status of pods

Follows pkg/kubelet/cm/dra and pkg/kubelet/pluginmanager of Kubernetes 1.36.2 and 1.37.2. Kept:
who is refused, in which words; that one claim is prepared once for all its pods and containers;
that what is prepared survives the kubelet. Not kept: `dra_health_state` (health is unknown after a
restart until a driver says it again), sockets in folders below `plugins_registry`.
"""
