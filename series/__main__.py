"""Run `python -m series`, and end it in one sentence when it is interrupted, even before its modules are there."""

from __future__ import annotations

import signal
import sys


def _interrupt(number: int, _: object) -> None:
    raise KeyboardInterrupt(number)


if __name__ == '__main__':
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # `nohup` has it ignored.
        if signal.getsignal(each) != signal.SIG_IGN:
            signal.signal(each, _interrupt)
    try:
        from series.cli import main

        sys.exit(main())
    except KeyboardInterrupt as interrupted:
        print('error: Interrupted. Run the same command again.', file=sys.stderr)
        sys.exit(128 + interrupted.args[0])
