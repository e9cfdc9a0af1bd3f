"""The HTTP service and the command line: wire on one side, records on the other; nothing below imports this package."""
