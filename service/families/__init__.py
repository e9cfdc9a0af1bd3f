"""Families over HTTP: their boards, posts, and owners' past."""
