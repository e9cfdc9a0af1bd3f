"""Studies: programs that report figures behind a decision and promise nothing, so they have no bars."""
