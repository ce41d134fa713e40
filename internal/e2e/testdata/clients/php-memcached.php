<?php
// Drives one address through php-memcached (libmemcached).
// Usage: php php-memcached.php text|binary ADDRESS PREFIX

[, $protocol, $address, $prefix] = $argv;
$binary = $protocol === 'binary';
$m = new Memcached();
$m->setOption(Memcached::OPT_BINARY_PROTOCOL, $binary);
$m->setOption(Memcached::OPT_COMPRESSION, false);
foreach ([Memcached::OPT_CONNECT_TIMEOUT, Memcached::OPT_POLL_TIMEOUT] as $timeout) {
    $m->setOption($timeout, 120000);
}
if ($address[0] === '/') {
    $m->addServer($address, 0);
} else {
    preg_match('/^\[?(.*?)\]?:(\d+)$/', $address, $at);
    $m->addServer($at[1], (int)$at[2]);
}

function same($got, $want, $what) {
    if ($got !== $want) {
        $show = fn($v) => is_string($v) && strlen($v) > 60 ? strlen($v) . ' bytes' : var_export($v, true);
        throw new Exception("$what: got {$show($got)}, want {$show($want)} ({$GLOBALS['m']->getResultMessage()})");
    }
}

function check($name, $run) {
    try {
        $run($GLOBALS['m'], $GLOBALS['prefix'] . $name);
        echo "ok $name\n";
    } catch (Throwable $e) {
        echo "not ok $name: ", $e->getMessage(), "\n";
    }
}

function gone($m, $k) {
    for ($i = 0; $i < 1200; $i++) {
        if ($m->get($k) === false) {
            return same($m->getResultCode(), Memcached::RES_NOTFOUND, 'code of a miss');
        }
        usleep(100000);
    }
    throw new Exception('still there after 120 s');
}

check('set', fn($m, $k) => same($m->set($k, 'one'), true, 'set'));
check('get', function ($m, $k) {
    same($m->get($k), false, 'get of a missing key');
    same($m->getResultCode(), Memcached::RES_NOTFOUND, 'code of a miss');
    $m->set($k, "a\r\nEND\r\n\0b");
    same($m->get($k), "a\r\nEND\r\n\0b", 'get');
});
check('multiget', function ($m, $k) use ($binary) {
    $want = [];
    for ($i = 0; $i < ($binary ? 1000 : 100); $i++) {
        $want["$k:$i"] = str_repeat("v$i", $i % 100);
    }
    foreach ($want as $key => $value) {
        same($m->set($key, $value), true, 'set');
    }
    $got = $m->getMulti(array_merge(array_keys($want), ["$k:absent"]));
    ksort($got);
    ksort($want);
    same($got, $want, 'getMulti');
});
check('add', function ($m, $k) use ($binary) {
    same($m->add($k, 'one'), true, 'add');
    same($m->add($k, 'two'), false, 'second add');
    same($m->getResultCode(), $binary ? Memcached::RES_DATA_EXISTS : Memcached::RES_NOTSTORED, 'code of the second add');
    same($m->get($k), 'one', 'get');
});
check('replace', function ($m, $k) {
    same($m->replace($k, 'one'), false, 'replace of a missing key');
    $m->set($k, 'one');
    same($m->replace($k, 'two'), true, 'replace');
    same($m->get($k), 'two', 'get');
});
check('append', function ($m, $k) {
    same($m->append($k, 'x'), false, 'append to a missing key');
    $m->set($k, 'one');
    same($m->append($k, ' two'), true, 'append');
    same($m->get($k), 'one two', 'get');
});
check('prepend', function ($m, $k) {
    same($m->prepend($k, 'x'), false, 'prepend to a missing key');
    $m->set($k, 'one');
    same($m->prepend($k, 'two '), true, 'prepend');
    same($m->get($k), 'two one', 'get');
});
check('incr', function ($m, $k) {
    same($m->increment($k, 1), false, 'increment of a missing key');
    $m->set($k, '9');
    same($m->increment($k, 3), 12, 'increment');
});
check('decr', function ($m, $k) {
    same($m->decrement($k, 1), false, 'decrement of a missing key');
    $m->set($k, '12');
    same($m->decrement($k, 5), 7, 'decrement');
    same($m->decrement($k, 50), 0, 'decrement below zero');
});
check('cas', function ($m, $k) {
    $m->set($k, 'one');
    $got = $m->get($k, null, Memcached::GET_EXTENDED);
    same($m->cas($got['cas'], $k, 'two'), true, 'cas');
    same($m->cas($got['cas'], $k, 'three'), false, 'cas with an old number');
    same($m->getResultCode(), Memcached::RES_DATA_EXISTS, 'code of the old number');
    same($m->get($k), 'two', 'get');
});
check('touch', function ($m, $k) {
    same($m->touch($k, 100), false, 'touch of a missing key');
    $m->set($k, 'one');
    same($m->touch($k, 1), true, 'touch');
    gone($m, $k);
});
check('delete', function ($m, $k) {
    same($m->delete($k), false, 'delete of a missing key');
    $m->set($k, 'one');
    same($m->delete($k), true, 'delete');
    same($m->get($k), false, 'get');
});
check('flags', function ($m, $k) {
    $m->setOption(Memcached::OPT_USER_FLAGS, 0x1234);
    $m->set($k, 'one');
    $m->setOption(Memcached::OPT_USER_FLAGS, -1);
    same($m->get($k, null, Memcached::GET_EXTENDED)['flags'], 0x1234, 'user flags');
    $m->set($k, [1.5, true, null]);
    same($m->get($k), [1.5, true, null], 'an array, known by its flags');
});
check('expiry', function ($m, $k) {
    $m->set("$k:stays", 'one', 3600);
    foreach ([2, 20, 60] as $ttl) { // the next if this process slept for so long
        $m->set($k, 'one', $ttl);
        if (($before = $m->get($k)) !== false) {
            break;
        }
    }
    same($before, 'one', 'get before');
    gone($m, $k);
    same($m->get("$k:stays"), 'one', 'get of another');
});
foreach (['0' => 0, '1' => 1, '100k' => 100 << 10, '1m' => 1 << 20] as $label => $size) {
    check("value-$label", function ($m, $k) use ($size) {
        $value = $size ? random_bytes($size) : '';
        same($m->set($k, $value), true, 'set');
        same($m->get($k), $value, 'get');
    });
}
