// Drives one address through spymemcached.
// Usage: java -cp spymemcached.jar Spymemcached.java TEXT|BINARY HOST:PORT PREFIX

import java.net.InetSocketAddress;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import net.spy.memcached.CASResponse;
import net.spy.memcached.CASValue;
import net.spy.memcached.CachedData;
import net.spy.memcached.ConnectionFactoryBuilder;
import net.spy.memcached.MemcachedClient;
import net.spy.memcached.transcoders.Transcoder;

public class Spymemcached {
    interface Check {
        void run(String key) throws Exception;
    }

    // Bytes as they are, so that the flags are ours to choose.
    static class Plain implements Transcoder<CachedData> {
        public boolean asyncDecode(CachedData d) { return false; }
        public CachedData encode(CachedData d) { return d; }
        public CachedData decode(CachedData d) { return d; }
        public int getMaxSize() { return 4 << 20; }
    }

    static String prefix;

    static void check(String name, Check c) {
        try {
            c.run(prefix + name);
            System.out.println("ok " + name);
        } catch (Throwable e) {
            System.out.println("not ok " + name + ": " + e);
        }
    }

    static void same(Object got, Object want, String what) {
        if (got == null ? want != null : !got.equals(want)) {
            throw new AssertionError(what + ": got " + got + ", want " + want);
        }
    }

    static void gone(MemcachedClient c, String key) throws Exception {
        for (int i = 0; i < 1200; i++) {
            if (c.get(key) == null) return;
            Thread.sleep(100);
        }
        throw new AssertionError("still there after 120 s");
    }

    public static void main(String[] args) throws Exception {
        ConnectionFactoryBuilder.Protocol protocol = ConnectionFactoryBuilder.Protocol.valueOf(args[0]);
        boolean binary = protocol == ConnectionFactoryBuilder.Protocol.BINARY;
        String address = args[1];
        prefix = args[2];
        int colon = address.lastIndexOf(':');
        String host = address.substring(0, colon).replace("[", "").replace("]", "");
        InetSocketAddress at = new InetSocketAddress(host, Integer.parseInt(address.substring(colon + 1)));
        final MemcachedClient c = new MemcachedClient(
            new ConnectionFactoryBuilder().setProtocol(protocol).setOpTimeout(120000).setDaemon(true).build(), List.of(at));

        check("set", k -> same(c.set(k, 0, "one").get(), true, "set"));
        check("get", k -> {
            same(c.get(k), null, "get of a missing key");
            c.set(k, 0, "a\r\nEND\r\n\0b").get();
            same(c.get(k), "a\r\nEND\r\n\0b", "get");
        });
        check("multiget", k -> {
            Map<String, Object> want = new HashMap<>();
            for (int i = 0; i < (binary ? 1000 : 100); i++) {
                want.put(k + ":" + i, ("v" + i).repeat(i % 100));
                same(c.set(k + ":" + i, 0, ("v" + i).repeat(i % 100)).get(), true, "set");
            }
            Collection<String> keys = new java.util.ArrayList<>(want.keySet());
            keys.add(k + ":absent");
            same(c.getBulk(keys), want, "getBulk");
        });
        check("add", k -> {
            same(c.add(k, 0, "one").get(), true, "add");
            same(c.add(k, 0, "two").get(), false, "second add");
            same(c.get(k), "one", "get");
        });
        check("replace", k -> {
            same(c.replace(k, 0, "one").get(), false, "replace of a missing key");
            c.set(k, 0, "one").get();
            same(c.replace(k, 0, "two").get(), true, "replace");
            same(c.get(k), "two", "get");
        });
        check("append", k -> {
            same(c.append(k, "x").get(), false, "append to a missing key");
            c.set(k, 0, "one").get();
            same(c.append(k, " two").get(), true, "append");
            same(c.get(k), "one two", "get");
        });
        check("prepend", k -> {
            same(c.prepend(k, "x").get(), false, "prepend to a missing key");
            c.set(k, 0, "one").get();
            same(c.prepend(k, "two ").get(), true, "prepend");
            same(c.get(k), "two one", "get");
        });
        check("incr", k -> {
            same(c.incr(k, 1), -1L, "incr of a missing key");
            c.set(k, 0, "9").get();
            same(c.incr(k, 3), 12L, "incr");
        });
        check("decr", k -> {
            same(c.decr(k, 1), -1L, "decr of a missing key");
            c.set(k, 0, "12").get();
            same(c.decr(k, 5), 7L, "decr");
            same(c.decr(k, 50), 0L, "decr below zero");
        });
        check("cas", k -> {
            c.set(k, 0, "one").get();
            CASValue<Object> seen = c.gets(k);
            same(seen.getValue(), "one", "gets");
            same(c.cas(k, seen.getCas(), "two"), CASResponse.OK, "cas");
            same(c.cas(k, seen.getCas(), "three"), CASResponse.EXISTS, "cas with an old number");
            same(c.cas(k + ":absent", seen.getCas(), "x"), CASResponse.NOT_FOUND, "cas of a missing key");
            same(c.get(k), "two", "get");
        });
        check("touch", k -> {
            same(c.touch(k, 100).get(), false, "touch of a missing key");
            c.set(k, 0, "one").get();
            same(c.touch(k, 1).get(), true, "touch");
            gone(c, k);
        });
        check("delete", k -> {
            same(c.delete(k).get(), false, "delete of a missing key");
            c.set(k, 0, "one").get();
            same(c.delete(k).get(), true, "delete");
            same(c.get(k), null, "get");
        });
        check("flags", k -> {
            Plain plain = new Plain();
            c.set(k, 0, new CachedData(0x1234, "one".getBytes(), 1024), plain).get();
            same(c.get(k, plain).getFlags(), 0x1234, "flags");
            c.set(k, 0, 42L).get();
            same(c.get(k), 42L, "a long, known by its flags");
        });
        check("expiry", k -> {
            c.set(k + ":stays", 3600, "one").get();
            Object before = null;
            for (int ttl : new int[] {2, 20, 60}) { // the next if this process slept for so long
                c.set(k, ttl, "one").get();
                if ((before = c.get(k)) != null) break;
            }
            same(before, "one", "get before");
            gone(c, k);
            same(c.get(k + ":stays"), "one", "get of another");
        });
        int[] sizes = {0, 1, 100 << 10, 1 << 20};
        String[] labels = {"0", "1", "100k", "1m"};
        for (int i = 0; i < sizes.length; i++) {
            final byte[] value = new byte[sizes[i]];
            new Random().nextBytes(value);
            check("value-" + labels[i], k -> {
                Plain plain = new Plain();
                same(c.set(k, 0, new CachedData(0, value, 4 << 20), plain).get(), true, "set");
                byte[] got = c.get(k, plain).getData();
                same(Arrays.equals(got, value), true, "value of " + value.length + " bytes came back as " + got.length);
            });
        }
        c.shutdown();
        System.exit(0);
    }
}
