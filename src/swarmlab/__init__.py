"""swarmlab: failover and placement in swarms of Petals servers, on real swarms and in simulation."""

__version__ = "0.1.0"
