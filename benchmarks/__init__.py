"""The benchmarks. Each benchmark measures a promise of the project and a baseline in one run.

A *bar* is the limit that a figure must keep so that the promise holds.

benchmarks/README.md says how to run a benchmark and what it promises. A module is a benchmark if `python -m benchmarks`
lists it under `--only`. `studies` holds programs without bars. The other modules are tools:

- starting what is measured: `servers`, `front_end`, `hello`, `redis_shell`, `slow_proxy`, `stepped_clock`;
- sending requests: `client` (few, with logic), `load` (many, by wrk), `paced` (at a rate), `ledger` (with retries);
- filling: `boards` (by HTTP), `bulk` and `lease_fill` (millions of rows, without HTTP), `curve_boards`, `lease_world`;
- baselines: `bare_loop` with `bare_sqlite` and `bare_asyncpg`, `plain_curves`;
- the command line and what is printed: `options`, `report`, and `plots` for the pictures of docs/curve.md.
"""
