"""A pytest plugin: property tests of a slower build try fewer examples, none of them too slow:
`--hypothesis-profile=few`."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "few", max_examples=15, deadline=None, suppress_health_check=list(HealthCheck)
)
