<?php
// Counts in PHP sessions, kept by php-memcached with its locks.
// Usage: php session.php text|binary ADDRESS SESSION…
//
// Prints a line for each try: what came of it, the session, the number that it
// wrote there (0: it did not come so far), and when it began, had read and had
// ended. Ends on SIGTERM.

[, $protocol, $address] = $argv;
$sessions = array_slice($argv, 3);
foreach ([
    'session.save_handler' => 'memcached',
    'session.save_path' => $address,
    'session.use_cookies' => '0',
    'session.cache_limiter' => '',
    'session.gc_probability' => '0',
    'memcached.sess_binary_protocol' => $protocol === 'binary' ? '1' : '0',
    'memcached.sess_locking' => '1',
    'memcached.sess_lock_wait_min' => '5',
    'memcached.sess_lock_wait_max' => '50',
    'memcached.sess_lock_retries' => '60',
    'memcached.sess_lock_expire' => '15', // longer than all requests of a holder may take
] as $name => $value) {
    if (ini_set($name, $value) === false) {
        fwrite(STDERR, "no setting $name\n");
        exit(1);
    }
}
set_error_handler(function ($number, $message) {
    throw new ErrorException($message);
});
// Blocked and asked for, not handled: PHP drops a handler's call when an
// exception is on its way just then.
pcntl_sigprocmask(SIG_BLOCK, [SIGTERM]);

while (pcntl_sigtimedwait([SIGTERM], $info, 0) !== SIGTERM) {
    $session = $sessions[array_rand($sessions)];
    $n = 0;
    $began = $read = hrtime(true);
    try {
        session_id($session);
        session_start();
        $read = hrtime(true);
        $n = ($_SESSION['n'] ?? 0) + 1;
        $_SESSION['n'] = $n;
        usleep(random_int(0, 3000));
        session_write_close();
        $what = 'ok';
    } catch (Throwable $e) {
        $what = 'error';
        fwrite(STDERR, $e->getMessage() . "\n");
        if (session_status() === PHP_SESSION_ACTIVE) {
            session_abort();
        }
    }
    fwrite(STDOUT, "$what $session $n $began $read " . hrtime(true) . "\n");
    usleep(random_int(0, 40000));
}
