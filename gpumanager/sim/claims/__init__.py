"""Simulated claims: kube-scheduler's allocator, its loop, and the claim controller.

Held to the real allocator of Kubernetes 1.37 by tests/contracts/claims. Not simulated: binding
conditions, derived attributes, compatibility groups, list attributes, node-allocatable resources
(the simulated API server refuses objects with them), DeviceTaintRule, pod groups.
"""
