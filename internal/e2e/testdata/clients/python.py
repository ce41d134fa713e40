"""Drives one address through a Python client.

Usage: python.py pymemcache|pylibmc|pylibmc-binary|memcache|bmemcached ADDRESS PREFIX

The clients differ in names more than in substance: each class below
says how its client spells the operations, then one list of checks runs.
"""

import os
import sys
import time


def host_port(address):
    host, port = address.rsplit(":", 1)
    return host.strip("[]"), int(port)


class Pymemcache:
    numeric_flags = True

    def __init__(self, address):
        from pymemcache.client.base import Client

        where = address if address[0] == "/" else host_port(address)
        self.c = Client(where, default_noreply=False, connect_timeout=120, timeout=120)
        self.set, self.get, self.get_multi = self.c.set, self.c.get, self.c.get_many
        self.add, self.replace, self.delete = self.c.add, self.c.replace, self.c.delete
        self.append, self.prepend, self.touch = self.c.append, self.c.prepend, self.c.touch
        self.incr, self.decr, self.gets = self.c.incr, self.c.decr, self.c.gets

    def cas(self, key, value, token):
        return self.c.cas(key, value, token)

    def set_flags(self, key, flags):
        self.c.set(key, b"one", flags=flags)

    def get_flags(self, key):
        seen = []

        class Serde:
            def deserialize(self, key, value, flags):
                seen.append(flags)
                return value

        self.c.serde, kept = Serde(), self.c.serde
        self.c.get(key)
        self.c.serde = kept
        return seen[0]


class Pylibmc:
    numeric_flags = False

    def __init__(self, address, binary=False):
        import pylibmc

        self.missing = pylibmc.NotFound
        self.c = pylibmc.Client([address], binary=binary, behaviors={"cas": True, "connect_timeout": 120000, "_poll_timeout": 120000})
        self.set, self.get, self.get_multi = self.c.set, self.c.get, self.c.get_multi
        self.add, self.delete = self.c.add, self.c.delete
        self.append, self.prepend, self.touch = self.c.append, self.c.prepend, self.c.touch
        self.gets = self.c.gets

    def replace(self, key, value):
        try:
            return self.c.replace(key, value)
        except self.missing:  # so the binary protocol says
            return False

    def incr(self, key, by):
        try:
            return self.c.incr(key, by)
        except self.missing:
            return None

    def decr(self, key, by):
        try:
            return self.c.decr(key, by)
        except self.missing:
            return None

    def cas(self, key, value, token):
        return self.c.cas(key, value, token)


class Bmemcached:
    numeric_flags = False

    def __init__(self, address):
        import bmemcached

        self.c = bmemcached.Client([address], socket_timeout=120)
        self.set, self.get, self.get_multi = self.c.set, self.c.get, self.c.get_multi
        self.add, self.replace = self.c.add, self.c.replace
        self.gets = self.c.gets

    # It calls a delete of a missing key a success; ask the server's own word.
    def delete(self, key):
        there = self.c.get(key) is not None
        return self.c.delete(key) and there

    # It makes a counter that is not there, with a default, and has no way not to.
    def incr(self, key, by):
        return self.c.incr(key, by, default=77) if self.c.get(key) is not None else self.made(key, self.c.incr)

    def decr(self, key, by):
        return self.c.decr(key, by, default=77) if self.c.get(key) is not None else self.made(key, self.c.decr)

    def made(self, key, count):
        same(count(key, 1, default=77), 77, "a new counter")
        accepted(self.c.delete(key), "delete of the new counter")

    def cas(self, key, value, token):
        return self.c.cas(key, value, token)


class Memcache:
    numeric_flags = False

    def __init__(self, address):
        import memcache

        where = "unix:" + address if address[0] == "/" else "inet:" + address
        if address[0] == "[":
            where = "inet6:" + address
        self.c = memcache.Client([where], socket_timeout=120, cache_cas=True, server_max_value_length=4 << 20)
        self.set, self.get, self.get_multi = self.c.set, self.c.get, self.c.get_multi
        self.add, self.replace = self.c.add, self.c.replace
        self.append, self.prepend, self.touch = self.c.append, self.c.prepend, self.c.touch
        self.incr, self.decr = self.c.incr, self.c.decr

    def delete(self, key):
        # This client calls a delete of a missing key a success; ask the
        # server's own word.
        there = self.c.get(key) is not None
        return bool(self.c.delete(key)) and there

    # This client keeps the cas numbers itself, and forgets one it has used.
    def gets(self, key):
        value = self.c.gets(key)
        return value, dict(self.c.cas_ids)

    def cas(self, key, value, token):
        self.c.cas_ids = dict(token)
        return self.c.cas(key, value)


def same(got, want, what):
    if got != want:
        show = lambda v: "%d bytes" % len(v) if isinstance(v, bytes) and len(v) > 60 else repr(v)
        raise AssertionError("%s: got %s, want %s" % (what, show(got), show(want)))


def refused(answer, what):
    same(bool(answer), False, what)


def accepted(answer, what):
    same(bool(answer), True, what)


def gone(c, k):
    for _ in range(1200):
        if c.get(k) is None:
            return
        time.sleep(0.1)
    raise AssertionError("still there after 120 s")


def check_set(c, k):
    accepted(c.set(k, b"one"), "set")


def check_get(c, k):
    same(c.get(k), None, "get of a missing key")
    c.set(k, b"a\r\nEND\r\n\0b")
    same(c.get(k), b"a\r\nEND\r\n\0b", "get")


def check_multiget(c, k):
    want = {"%s:%d" % (k, i): b"v%d" % i * (i % 100) for i in range(1000 if c.binary else 100)}
    for key, value in want.items():
        accepted(c.set(key, value), "set")
    same(c.get_multi(list(want) + [k + ":absent"]), want, "multi-get")


def check_add(c, k):
    accepted(c.add(k, b"one"), "add")
    refused(c.add(k, b"two"), "second add")
    same(c.get(k), b"one", "get")


def check_replace(c, k):
    refused(c.replace(k, b"one"), "replace of a missing key")
    c.set(k, b"one")
    accepted(c.replace(k, b"two"), "replace")
    same(c.get(k), b"two", "get")


def check_append(c, k):
    refused(c.append(k, b"x"), "append to a missing key")
    c.set(k, b"one")
    accepted(c.append(k, b" two"), "append")
    same(c.get(k), b"one two", "get")


def check_prepend(c, k):
    refused(c.prepend(k, b"x"), "prepend to a missing key")
    c.set(k, b"one")
    accepted(c.prepend(k, b"two "), "prepend")
    same(c.get(k), b"two one", "get")


def check_incr(c, k):
    same(c.incr(k, 1), None, "incr of a missing key")
    c.set(k, b"9")
    same(c.incr(k, 3), 12, "incr")


def check_decr(c, k):
    same(c.decr(k, 1), None, "decr of a missing key")
    c.set(k, b"12")
    same(c.decr(k, 5), 7, "decr")
    same(c.decr(k, 50), 0, "decr below zero")


def check_cas(c, k):
    c.set(k, b"one")
    value, token = c.gets(k)
    same(value, b"one", "gets")
    accepted(c.cas(k, b"two", token), "cas")
    refused(c.cas(k, b"three", token), "cas with an old number")
    same(c.get(k), b"two", "get")


def check_touch(c, k):
    refused(c.touch(k, 100), "touch of a missing key")
    c.set(k, b"one")
    accepted(c.touch(k, 1), "touch")
    gone(c, k)


def check_delete(c, k):
    refused(c.delete(k), "delete of a missing key")
    c.set(k, b"one")
    accepted(c.delete(k), "delete")
    same(c.get(k), None, "get")


def check_flags(c, k):
    if c.numeric_flags:
        c.set_flags(k, 0x1234)
        same(c.get_flags(k), 0x1234, "flags")
        return
    # These two say in the flags what type a value has.
    c.set(k, 42)
    same((c.get(k), type(c.get(k))), (42, int), "an integer")
    c.set(k, [1.5, True, None])
    same(c.get(k), [1.5, True, None], "a list")


def check_expiry(c, k):
    c.set(k + ":stays", b"one", 3600)
    for ttl in 2, 20, 60:  # the next if this process slept for so long
        c.set(k, b"one", ttl)
        before = c.get(k)
        if before is not None:
            break
    same(before, b"one", "get before")
    gone(c, k)
    same(c.get(k + ":stays"), b"one", "get of another")


def check_value(size):
    def run(c, k):
        value = os.urandom(size)
        accepted(c.set(k, value), "set")
        same(c.get(k), value, "get")

    return run


CHECKS = {
    "set": check_set,
    "get": check_get,
    "multiget": check_multiget,
    "add": check_add,
    "replace": check_replace,
    "append": check_append,
    "prepend": check_prepend,
    "incr": check_incr,
    "decr": check_decr,
    "cas": check_cas,
    "touch": check_touch,
    "delete": check_delete,
    "flags": check_flags,
    "expiry": check_expiry,
    "value-0": check_value(0),
    "value-1": check_value(1),
    "value-100k": check_value(100 << 10),
    "value-1m": check_value(1 << 20),
}


LACKS = {"bmemcached": ("append", "prepend", "touch")}  # it has no such methods


def main():
    name, address, prefix = sys.argv[1:]
    c = {
        "pymemcache": Pymemcache,
        "pylibmc": Pylibmc,
        "pylibmc-binary": lambda address: Pylibmc(address, binary=True),
        "memcache": Memcache,
        "bmemcached": Bmemcached,
    }[name](address)
    c.binary = name in ("pylibmc-binary", "bmemcached")
    for name, run in CHECKS.items():
        if name in LACKS.get(sys.argv[1], ()):
            continue
        try:
            run(c, prefix + name)
            print("ok", name)
        except Exception as e:
            print("not ok %s: %s: %s" % (name, type(e).__name__, e))


main()
