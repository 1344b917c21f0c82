"""Simulated claims: kube-scheduler's allocator for slices of our driver, and the claim controller.

What is not simulated is refused by name: other drivers, counters, binding conditions, derived
attributes. tests/contracts/claims holds it to kube-scheduler.
"""
