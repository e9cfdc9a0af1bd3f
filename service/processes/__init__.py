"""The processes of one node."""
