# Clients that read one page and make it anew when it is missing, with pymemcache.
# Usage: python3 herd.py ADDRESS KEY CLIENTS SECONDS COST TTL
# Prints "made FROM TO" for each page that was made, in Unix seconds, and "read MS ..." for the reads of each client.
import sys
import threading
import time

from pymemcache.client.base import Client

address, key = sys.argv[1:3]
clients, ttl = int(sys.argv[3]), int(sys.argv[6])
seconds, cost = float(sys.argv[4]), float(sys.argv[5])
host, port = address.rsplit(':', 1)
printing = threading.Lock()


def say(*words):
    with printing:
        print(*words, flush=True)


def live(number):
    c = Client((host, int(port)), no_delay=True, timeout=120)
    until = time.time() + seconds
    reads = []
    while time.time() < until:
        before = time.time()
        if c.get(key) is not None:
            reads.append(f'{(time.time() - before) * 1000:.2f}')
            time.sleep(0.05)
            continue
        begun = time.time()
        time.sleep(cost)
        made = time.time()  # before others can see it
        c.set(key, f'page {begun}', expire=ttl, noreply=False)
        say('made', begun, made)
    say('read', *reads)


threads = [threading.Thread(target=live, args=(n,)) for n in range(clients)]
for t in threads:
    t.start()
for t in threads:
    t.join()
