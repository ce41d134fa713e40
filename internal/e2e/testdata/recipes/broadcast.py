"""Tells all frontends how many watch: writes one value every period.

Usage: broadcast.py ADDRESS PERIOD KEY...

Prints a line for each write: what came of it, the key, the number that it wrote,
and when it began and had ended. Ends on SIGTERM.
"""

import signal
import sys
import time

from pymemcache.client.base import Client

end = False


def stop(signum, frame):
    global end
    end = True


signal.signal(signal.SIGTERM, stop)
host, port = sys.argv[1].rsplit(":", 1)
period, keys = float(sys.argv[2]), sys.argv[3:]
client = Client((host, int(port)), default_noreply=False, connect_timeout=120, timeout=120)
n = 0
while not end:
    n += 1
    for key in keys:
        began = time.monotonic_ns()
        try:
            what = "ok" if client.set(key, b"%d" % n) else "error"
        except Exception as e:
            print(repr(e), file=sys.stderr, flush=True)
            what = "error"
        print(what, key, n, began, time.monotonic_ns(), flush=True)
    time.sleep(period)
