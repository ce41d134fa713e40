#!/usr/bin/python3
"""Measures PHP sessions while one of three servers is killed, again and again.

Usage: kills.py [RINGSIDE [KILLS]]; defaults: bin/ringside, 10. It takes 14 s for each kill.
It needs php-cli, php-memcached and memcached, and starts everything on free ports of 127.0.0.1.
"""
import collections, os, signal, socket, subprocess, sys, tempfile, time

PROCESSES, SESSIONS, DOWN, EVERY = 15, 60, 4, 13
SETTINGS = ["memcached.sess_locking=1", "memcached.sess_lock_expire=15", "memcached.sess_lock_wait_min=5",
            "memcached.sess_lock_wait_max=50", "memcached.sess_lock_retries=400"]
VISIT = r"""<?php
[, $seconds, $sessions, $path] = $argv;
ini_set('session.save_handler', 'memcached'); ini_set('session.save_path', $path);
ini_set('session.use_cookies', '0'); ini_set('session.cache_limiter', ''); ini_set('session.gc_probability', '0');
set_error_handler(function ($n, $m) { throw new ErrorException($m); });
$end = microtime(true) + $seconds;
while (microtime(true) < $end) {
  $t0 = microtime(true); $t1 = 0; $what = 'ok'; $why = '';
  try {
    session_id('sess' . random_int(1, (int)$sessions)); session_start(); $t1 = microtime(true);
    $_SESSION['n'] = ($_SESSION['n'] ?? 0) + 1;
    usleep(random_int(0, 5000));
    session_write_close();
  } catch (Throwable $e) {
    $what = 'error'; $why = $e->getMessage();
    if (session_status() === PHP_SESSION_ACTIVE) session_abort();
  }
  printf("%s %.3f %s\n", $what, ($t1 ?: microtime(true)) - $t0, $why);
  usleep(random_int(0, 40000));
}
"""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def main():
    ringside = sys.argv[1] if len(sys.argv) > 1 else "bin/ringside"
    kills = int(sys.argv[2]) if len(sys.argv) > 2 else 10
    directory = tempfile.mkdtemp()
    ports, proxy, running = [free_port() for _ in range(3)], free_port(), []

    def start(command, output=subprocess.DEVNULL):
        running.append(subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT))
        return running[-1]

    def memcached(port):
        return start(["memcached", "-u", "nobody", "-U", "0", "-l", "127.0.0.1", "-p", str(port)])

    try:
        servers = [memcached(p) for p in ports]
        with open(directory + "/visit.php", "w") as f:
            f.write(VISIT)
        with open(directory + "/ringside.yaml", "w") as f:
            f.write("listen: 127.0.0.1:%d\nroutes:\n  - {pool: main, preset: sessions, replicas_on: server}\n"
                    "pools:\n  main: {distribution: consistent-php, servers: [%s]}\n"
                    % (proxy, ", ".join("127.0.0.1:%d" % p for p in ports)))
        start([ringside, "serve", "-c", directory + "/ringside.yaml"], open(directory + "/ringside.log", "w"))
        time.sleep(4)
        settings = [x for s in SETTINGS for x in ("-d", s)]
        files = [directory + "/out.%d" % i for i in range(PROCESSES)]
        visitors = [start(["php", *settings, directory + "/visit.php", str(6 + EVERY * kills), str(SESSIONS),
                           "127.0.0.1:%d" % proxy], open(name, "w")) for name in files]
        time.sleep(3)
        for k in range(kills):
            servers[k % 3].kill()
            servers[k % 3].wait()
            time.sleep(DOWN)
            servers[k % 3] = memcached(ports[k % 3])
            time.sleep(EVERY - DOWN)
        for v in visitors:
            v.wait()
    finally:
        for p in running:
            if p.poll() is None:
                p.send_signal(signal.SIGKILL)
                p.wait()
    times, errors = [], collections.Counter()
    for name in files:
        for line in open(name):
            what, seconds, why = line.rstrip("\n").split(" ", 2)
            times.append(float(seconds))
            if what != "ok":
                errors[why] += 1
    times.sort()
    print("visits %d, errors %d" % (len(times), sum(errors.values())))
    for why, n in errors.most_common(8):
        print("  %d %s" % (n, why))
    print("session_start in seconds: p50 %.4f, p99.9 %.3f, maximum %.2f"
          % (times[len(times) // 2], times[len(times) * 999 // 1000], times[-1]))
    print("log: " + directory + "/ringside.log")


main()
