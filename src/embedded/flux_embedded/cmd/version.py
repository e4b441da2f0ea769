"""``flux version``."""

import os

#: the release of the host whose commands these follow
HOST_VERSION = "0.88.0"


def main(argv):
    print(f"commands:    \t\t{HOST_VERSION}")
    print(f"libflux-core:\t\t{HOST_VERSION}")
    if os.environ.get("FLUX_URI"):
        from flux_embedded.cmd.lib.client import connect
        from flux_embedded.cmd.lib.errors import NoInstance

        try:
            broker = connect().rpc("attr.get", {"name": "version"})["value"]
            print(f"broker:  \t\t{broker}")
            print(f"FLUX_URI:\t\t{os.environ['FLUX_URI']}")
        except (OSError, NoInstance):
            pass
    print("build-options:\t\t+embedded (flux-scheduler)")
    return 0
