"""The command `rankcurve` starts in this module. A wheel has the module at its top level, beside the packages.

If a folder of PYTHONPATH has another package `service`, Python would import that one instead of ours. So the command
starts in a module whose name no other project uses.
"""

import sys
from pathlib import Path


def main() -> None:
    """Import `service` from the folder that this module was installed with, and run the command line."""
    here = Path(__file__).parent
    # A wheel puts this module beside the packages. An editable install leaves it where it is in the source tree.
    folder = here if (here / "service").is_dir() else here.parents[1]
    sys.path.insert(0, str(folder))
    from service import own_packages

    sys.path.pop(0)
    own_packages.install_finder()
    from service import cli

    cli.main()


if __name__ == "__main__":
    main()
