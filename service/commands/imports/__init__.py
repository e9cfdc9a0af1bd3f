"""`rankcurve import`: a CSV file into a leaderboard, streaming and resumable.

    file ──import_lines──> batches of posts ──import_run──> the service ──> results in the order of the file
                             └── not a post ──> import_rejects                └──> the position in the resume file

The position in the resume file never passes a line whose outcome is unknown. Each post id is made of the file's
content, the mapping and the line. So an import can be stopped, killed and run again at any time, and every line counts
once.

`import_lines` knows no network and `import_run` knows no CSV. Begin with `importing`, which joins them;
`import_options` holds the command line, and `import_notes` warns before the same file is added a second time under
another mapping.
"""
