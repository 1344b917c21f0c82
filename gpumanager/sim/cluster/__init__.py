"""A simulated API server: pods, nodes and events over real HTTP, with watches and outages."""
