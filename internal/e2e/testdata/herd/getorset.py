# Threads of a Django application that all ask get_or_set for one key which is
# missing. Prints "stored" for each add that was, and the value that each thread got.
# Usage: python3 getorset.py ADDRESS KEY THREADS
import sys
import threading
import time

import django
from django.conf import settings

address, key, clients = sys.argv[1:4]
settings.configure(CACHES={'default': {'BACKEND': 'django.core.cache.backends.memcached.PyMemcacheCache', 'LOCATION': address}})
django.setup()

from django.core.cache import caches  # noqa: E402

printing = threading.Lock()
start = threading.Barrier(int(clients))


def make():
    time.sleep(0.1)
    return threading.current_thread().name


def live():
    cache = caches['default']  # one for each thread
    plain = cache.add

    def add(*args, **kwargs):
        stored = plain(*args, **kwargs)
        if stored:
            with printing:
                print('stored', flush=True)
        return stored

    cache.add = add
    start.wait()
    value = cache.get_or_set(key, make)
    with printing:
        print('value', value, flush=True)


threads = [threading.Thread(target=live, name=f't{n}') for n in range(int(clients))]
for t in threads:
    t.start()
for t in threads:
    t.join()
