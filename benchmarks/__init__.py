"""The bars of the project as programs: each measures one of them and its baseline in the same run, and prints both."""
