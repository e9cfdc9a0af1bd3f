"""Pools and leases over HTTP."""
