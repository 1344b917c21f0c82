"""A kubelet as a device plugin knows it: the real gRPC on real sockets, the real one's version.

    devices   its device manager as values: what is healthy, who holds what, what is picked; the
              checkpoint
    pods      its list of pods, and whether the node has room for one more
    plugins   its side of the device plugin API: registration and one endpoint per resource
    services  its `/pods`, PodResources and Pods API
    dra       its side of claims
    kubelet   all of it together: admission, container start, restarts

Habits kept (measured with kubelets 1.20 and 1.36): one pod is admitted at a time; it is listed
before our first call; a container's resources come in any order; each is asked for its preference
with all free IDs and then allocated; an init container's IDs are given to the next container again;
an error of Allocate fails the pod for good, one of PreStartContainer is tried again; the restart of
the kubelet deletes every socket in the directory; looking at PodResources `List` forgets IDs that
are being given out while a pod has just ended.
"""
