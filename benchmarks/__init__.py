"""The benchmarks. Each measures one promise of the project and its baseline in the same run, and prints both."""
