"""The benchmarks, each of which measures a promise of the project together with a baseline in the same run.

A *bar* is the limit that a figure must keep so that the promise holds. benchmarks/README.md explains how to run each
benchmark and what it promises. `studies` holds programs without bars. The modules that are not benchmarks are tools:

- starting what is measured: `servers`, `hello`, `redis_shell`, `proxies`, `bare_loop`;
- sending requests: `client` (few, with logic), `load` (many, by wrk), `paced` (at a rate), `ledger` (with retries);
- filling: `boards` (by HTTP), `bulk` (millions of rows, without HTTP), `curve_boards`, `plain_curves`;
- the command line and what is printed: `options`, `report`, and `plots` for the pictures of docs/curve.md.
"""
