"""Simulated claims: kube-scheduler's allocator for slices of our driver, and the claim controller.

tests/contracts/claims holds it to kube-scheduler. Slices of other drivers are not looked at.
"""
