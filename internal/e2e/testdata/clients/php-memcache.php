<?php
// Drives one address through php-memcache (PECL memcache).
// Usage: php php-memcache.php ADDRESS PREFIX

[, $address, $prefix] = $argv;
$m = new MemcachePool();
if ($address[0] === '/') {
    $m->addServer("unix://$address", 0, 0, false, 1, 120);
} else {
    [$host, $port] = explode(':', $address);
    $m->addServer($host, (int)$port, 0, false, 1, 120);
}

function same($got, $want, $what) {
    if ($got !== $want) {
        $show = fn($v) => is_string($v) && strlen($v) > 60 ? strlen($v) . ' bytes' : var_export($v, true);
        throw new Exception("$what: got {$show($got)}, want {$show($want)}");
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

check('set', fn($m, $k) => same($m->set($k, 'one'), true, 'set'));
check('get', function ($m, $k) {
    same($m->get($k), false, 'get of a missing key');
    $m->set($k, "a\r\nEND\r\n\0b");
    same($m->get($k), "a\r\nEND\r\n\0b", 'get');
});
check('multiget', function ($m, $k) {
    $want = [];
    for ($i = 0; $i < 100; $i++) {
        $want["$k:$i"] = str_repeat("v$i", $i);
    }
    foreach ($want as $key => $value) {
        same($m->set($key, $value), true, 'set');
    }
    $got = $m->get(array_merge(array_keys($want), ["$k:absent"]));
    ksort($got);
    ksort($want);
    same($got, $want, 'get of an array');
});
check('add', function ($m, $k) {
    same($m->add($k, 'one'), true, 'add');
    same($m->add($k, 'two'), false, 'second add');
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
    $flags = $cas = 0;
    same($m->get($k, $flags, $cas), 'one', 'gets');
    same($m->cas($k, 'two', 0, 0, $cas), true, 'cas');
    same($m->cas($k, 'three', 0, 0, $cas), false, 'cas with an old number');
    same($m->get($k), 'two', 'get');
});
check('delete', function ($m, $k) {
    same($m->delete($k), false, 'delete of a missing key');
    $m->set($k, 'one');
    same($m->delete($k), true, 'delete');
    same($m->get($k), false, 'get');
});
check('flags', function ($m, $k) {
    $m->set($k, 'one', 0x30000);
    $flags = 0;
    $m->get($k, $flags);
    same($flags & 0xf0000, 0x30000, 'user flags');
    $m->set($k, [1.5, true, null]);
    same($m->get($k), [1.5, true, null], 'an array, known by its flags');
});
check('expiry', function ($m, $k) {
    $m->set("$k:stays", 'one', 0, 3600);
    foreach ([2, 20, 60] as $ttl) { // the next if this process slept for so long
        $m->set($k, 'one', 0, $ttl);
        if (($before = $m->get($k)) !== false) {
            break;
        }
    }
    same($before, 'one', 'get before');
    for ($i = 0; $i < 1200 && $m->get($k) !== false; $i++) {
        usleep(100000);
    }
    same($m->get($k), false, 'get after 120 s');
    same($m->get("$k:stays"), 'one', 'get of another');
});
foreach (['0' => 0, '1' => 1, '100k' => 100 << 10, '1m' => 1 << 20] as $label => $size) {
    check("value-$label", function ($m, $k) use ($size) {
        $value = $size ? random_bytes($size) : '';
        same($m->set($k, $value), true, 'set');
        same($m->get($k), $value, 'get');
    });
}
