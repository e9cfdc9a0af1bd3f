"""Studies: programs that report the figures behind a decision. They promise nothing, so they have no bars."""
