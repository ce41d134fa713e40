"""Counts under locks, through pymemcache: add takes one, delete gives it back.

Usage: lock.py ADDRESS SESSION...

Prints a line for each try: what came of it, the session, the number that it
wrote there (0: it did not come so far), and when it began, had read and had
ended. Ends on SIGTERM.
"""

import random
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
client = Client((host, int(port)), default_noreply=False, connect_timeout=120, timeout=120)


def locked(session):
    for _ in range(60):
        if client.add("lock." + session, b"1", expire=15):
            return True
        time.sleep(random.uniform(0.005, 0.05))
    return False


while not end:
    session = random.choice(sys.argv[2:])
    began = read = time.monotonic_ns()
    n, held, what = 0, False, "error"
    try:
        held = locked(session)
        if held:
            last = client.get(session)
            read = time.monotonic_ns()
            n = int(last or 0) + 1
            if client.set(session, b"%d" % n):
                what = "ok"
    except Exception as e:
        print(repr(e), file=sys.stderr, flush=True)
    finally:
        ended = time.monotonic_ns()
        if held:
            try:
                client.delete("lock." + session)
            except Exception as e:
                print(repr(e), file=sys.stderr, flush=True)
    print(what, session, n, began, read, ended, flush=True)
    time.sleep(random.uniform(0, 0.04))
