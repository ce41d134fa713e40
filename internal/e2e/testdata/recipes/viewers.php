<?php
// A frontend that shows how many watch.
// Usage: php viewers.php ADDRESS KEY…
//
// Prints a line for each read: ok, miss or error, the key, the number that it read,
// and when it began and had ended. Ends on SIGTERM.

[, $address] = $argv;
$keys = array_slice($argv, 2);
preg_match('/^(.*):(\d+)$/', $address, $at);
$m = new Memcached();
$m->addServer($at[1], (int)$at[2]);
$m->setOption(Memcached::OPT_RECV_TIMEOUT, 120000000);
$m->setOption(Memcached::OPT_POLL_TIMEOUT, 120000);
pcntl_sigprocmask(SIG_BLOCK, [SIGTERM]); // asked for below
while (pcntl_sigtimedwait([SIGTERM], $info, 0) !== SIGTERM) {
    foreach ($keys as $key) {
        $began = hrtime(true);
        $n = $m->get($key);
        $code = $m->getResultCode();
        $what = $code === Memcached::RES_SUCCESS ? 'ok' : ($code === Memcached::RES_NOTFOUND ? 'miss' : 'error');
        fwrite(STDOUT, "$what $key " . (int)$n . " $began " . hrtime(true) . "\n");
    }
    usleep(5000);
}
