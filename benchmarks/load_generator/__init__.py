"""Load for memcached from this machine: an open loop, so that no stall of the server stays hidden."""
