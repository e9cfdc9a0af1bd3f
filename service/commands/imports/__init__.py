"""`rankcurve import`: post the lines of a CSV file to a leaderboard, as a stream that can be resumed.

    file ──import_lines──> batches of posts ──import_run──> the service ──> results in the order of the file
                             └── not a post ──> import_rejects                └──> the position in the resume file

The position in the resume file never passes a line whose outcome is unknown. Each post id is made of the file's
content, the mapping and the line. So an import can be stopped, killed and run again at any time, and every line counts
once.

`import_lines` uses no network, and `import_run` knows nothing of CSV. `importing` joins the two; begin there.
`import_notes` keeps the position, and warns before the same file is added a second time with another mapping.
"""
