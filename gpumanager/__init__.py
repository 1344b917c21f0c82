"""A GPU sharing manager for Kubernetes nodes."""

__version__ = "2.0.0.dev0"
"""Here, and not asked of the package's metadata: to read that, the agent would load half of what
packaging takes, and keep it."""
