"""`paceline` and `python -m paceline`. Imports nothing heavy before Ctrl-C is quiet."""

from __future__ import annotations

import os
import signal


def main() -> None:
    """Be the `paceline` command."""
    # A KeyboardInterrupt inside an import ends in a traceback, or in an ImportError if a compiled module caught it.
    before = signal.signal(signal.SIGINT, lambda *_: os._exit(128 + signal.SIGINT))
    from paceline.cli.main import main as command

    signal.signal(signal.SIGINT, before)
    command()


if __name__ == "__main__":
    main()
