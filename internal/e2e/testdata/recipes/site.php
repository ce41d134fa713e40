<?php
// A site with sessions, for `php -S`: each visit counts one up and shows the number.
// The address of memcached is in the environment, as RINGSIDE.

foreach ([
    'session.save_handler' => 'memcached',
    'session.save_path' => getenv('RINGSIDE'),
    'session.gc_probability' => '0',
    'memcached.sess_binary_protocol' => '0', // Ringside speaks text
    'memcached.sess_locking' => '1',
    'memcached.sess_lock_wait_min' => '5',
    'memcached.sess_lock_wait_max' => '50',
    'memcached.sess_lock_retries' => '200',
    'memcached.sess_lock_expire' => '60', // longer than all requests of a visit may take
] as $name => $value) {
    if (ini_set($name, $value) === false) {
        throw new Exception("no setting $name");
    }
}
set_error_handler(function ($number, $message) {
    throw new ErrorException($message);
});
$n = 0;
try {
    session_start();
    $n = ($_SESSION['n'] ?? 0) + 1;
    $_SESSION['n'] = $n;
    session_write_close();
    echo "ok $n";
} catch (Throwable $e) {
    http_response_code(500);
    echo "error $n {$e->getMessage()}";
    if (session_status() === PHP_SESSION_ACTIVE) {
        session_abort();
    }
}
