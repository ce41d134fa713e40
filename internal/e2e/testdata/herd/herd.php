<?php
// As herd.py, with php-memcached: a process is one client, so this one starts the others.

[, $address, $key, $clients, $seconds, $cost, $ttl] = $argv;
if ($clients > 1) {
    $all = [];
    for ($i = 0; $i < $clients; $i++) {
        $all[] = proc_open([PHP_BINARY, __FILE__, $address, $key, '1', $seconds, $cost, $ttl], [1 => STDOUT, 2 => STDERR], $pipes);
    }
    foreach ($all as $one) {
        proc_close($one);
    }
    exit;
}
$m = new Memcached();
[$host, $port] = explode(':', $address);
$m->addServer($host, (int)$port);
$m->setOption(Memcached::OPT_POLL_TIMEOUT, 120000);
$until = microtime(true) + $seconds;
$reads = [];
while (($before = microtime(true)) < $until) {
    if ($m->get($key) !== false) {
        $reads[] = sprintf('%.1f', (microtime(true) - $before) * 1000);
        usleep(50000);
        continue;
    }
    $begun = microtime(true);
    usleep((int)($cost * 1e6));
    $made = microtime(true);
    $m->set($key, "page $begun", (int)$ttl);
    fwrite(STDOUT, "made $begun $made\n");
}
fwrite(STDOUT, 'read ' . implode(' ', $reads) . "\n");
