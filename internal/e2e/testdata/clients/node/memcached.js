// Drives one address through the npm package memcached.
// Usage: node memcached.js ADDRESS PREFIX

const assert = require('node:assert');
const crypto = require('node:crypto');
const { promisify } = require('node:util');
const Memcached = require('memcached');

const [address, prefix] = process.argv.slice(2);
const client = new Memcached(address, { maxValue: 4 << 20, timeout: 120000, retries: 0 });
const c = {};
for (const op of ['get', 'gets', 'getMulti', 'set', 'add', 'replace', 'append', 'prepend', 'cas', 'incr', 'decr', 'touch', 'del']) {
  c[op] = promisify(client[op]).bind(client);
}

// A storage command that the server refuses is an error to this client.
async function refused(what, answer) {
  const got = await answer.catch((e) => e);
  assert.ok(got === false || got instanceof Error, `${what}: got ${got}`);
}

async function gone(key) {
  for (let i = 0; i < 1200; i++) {
    if ((await c.get(key)) === undefined) return;
    await new Promise((wake) => setTimeout(wake, 100));
  }
  assert.fail('still there after 120 s');
}

const checks = {
  async set(k) {
    assert.strictEqual(await c.set(k, 'one', 0), true);
  },
  async get(k) {
    assert.strictEqual(await c.get(k), undefined, 'get of a missing key');
    await c.set(k, 'one two', 0);
    assert.strictEqual(await c.get(k), 'one two');
  },
  async multiget(k) {
    const want = {};
    for (let i = 0; i < 100; i++) {
      want[`${k}:${i}`] = `v${i}`.repeat(i + 1);
      assert.strictEqual(await c.set(`${k}:${i}`, want[`${k}:${i}`], 0), true);
    }
    assert.deepEqual(await c.getMulti([...Object.keys(want), `${k}:absent`]), want);
  },
  async add(k) {
    assert.strictEqual(await c.add(k, 'one', 0), true);
    await refused('second add', c.add(k, 'two', 0));
    assert.strictEqual(await c.get(k), 'one');
  },
  async replace(k) {
    await refused('replace of a missing key', c.replace(k, 'one', 0));
    await c.set(k, 'one', 0);
    assert.strictEqual(await c.replace(k, 'two', 0), true);
    assert.strictEqual(await c.get(k), 'two');
  },
  async append(k) {
    await refused('append to a missing key', c.append(k, 'x'));
    await c.set(k, 'one', 0);
    assert.strictEqual(await c.append(k, ' two'), true);
    assert.strictEqual(await c.get(k), 'one two');
  },
  async prepend(k) {
    await refused('prepend to a missing key', c.prepend(k, 'x'));
    await c.set(k, 'one', 0);
    assert.strictEqual(await c.prepend(k, 'two '), true);
    assert.strictEqual(await c.get(k), 'two one');
  },
  async incr(k) {
    assert.strictEqual(await c.incr(k, 1), false, 'incr of a missing key');
    await c.set(k, '9', 0);
    assert.strictEqual(await c.incr(k, 3), 12);
  },
  async decr(k) {
    assert.strictEqual(await c.decr(k, 1), false, 'decr of a missing key');
    await c.set(k, '12', 0);
    assert.strictEqual(await c.decr(k, 5), 7);
  },
  async cas(k) {
    await c.set(k, 'one', 0);
    const seen = await c.gets(k);
    assert.strictEqual(seen[k], 'one');
    assert.strictEqual(await c.cas(k, 'two', seen.cas, 0), true);
    await refused('cas with an old number', c.cas(k, 'three', seen.cas, 0));
    assert.strictEqual(await c.get(k), 'two');
  },
  async touch(k) {
    await refused('touch of a missing key', c.touch(k, 100));
    await c.set(k, 'one', 0);
    assert.strictEqual(await c.touch(k, 1), true);
    await gone(k);
  },
  async delete(k) {
    await refused('delete of a missing key', c.del(k));
    await c.set(k, 'one', 0);
    assert.strictEqual(await c.del(k), true);
    assert.strictEqual(await c.get(k), undefined);
  },
  // This client says in the flags what type a value has.
  async flags(k) {
    await c.set(k, { list: [1.5, true, null] }, 0);
    assert.deepStrictEqual(await c.get(k), { list: [1.5, true, null] });
  },
  async expiry(k) {
    await c.set(`${k}:stays`, 'one', 3600);
    let before;
    for (const ttl of [2, 20, 60]) { // the next if this process slept for so long
      await c.set(k, 'one', ttl);
      if ((before = await c.get(k)) !== undefined) break;
    }
    assert.strictEqual(before, 'one');
    await gone(k);
    assert.strictEqual(await c.get(`${k}:stays`), 'one');
  },
};
for (const [label, size] of [['0', 0], ['1', 1], ['100k', 100 << 10], ['1m', 1 << 20]]) {
  checks[`value-${label}`] = async (k) => {
    const value = crypto.randomBytes(size);
    assert.strictEqual(await c.set(k, value, 0), true);
    const got = await c.get(k);
    assert.ok(value.equals(got), `value of ${size} bytes came back as ${got && got.length}`);
  };
}

(async () => {
  for (const [name, run] of Object.entries(checks)) {
    try {
      await run(prefix + name);
      console.log(`ok ${name}`);
    } catch (e) {
      console.log(`not ok ${name}: ${String(e.message || e).split('\n')[0]}`);
    }
  }
  client.end();
})();
