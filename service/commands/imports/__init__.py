"""`rankcurve import`: post the lines of a CSV file to a leaderboard, as a stream that can be resumed.

    file ──import_lines──> batches of posts ──importing──> the service ──> results in the order of the file
                             └── not a post ──> the rejects                  └──> the position in the resume file

The position in the resume file never passes a line whose outcome is unknown. Each post id is made of the file's
content, the mapping and the line. So an import can be stopped, killed and run again at any time, and every line counts
once.

`import_lines` uses no network. `importing` sends its posts; begin there. `import_files` keeps the position and the
rejects, and warns before the same file is added a second time with another mapping.
"""
