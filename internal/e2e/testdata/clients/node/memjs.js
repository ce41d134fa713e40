// Drives one address through the npm package memjs, which speaks the binary protocol.
// Usage: node memjs.js ADDRESS PREFIX

const assert = require('node:assert');
const crypto = require('node:crypto');
const memjs = require('memjs');

const [address, prefix] = process.argv.slice(2);
const c = memjs.Client.create(address, { timeout: 120, conntimeout: 120, retries: 1 });
const get = async (k) => { const { value } = await c.get(k); return value && value.toString(); };

async function gone(key) {
  for (let i = 0; i < 1200; i++) {
    if ((await get(key)) === null) return;
    await new Promise((wake) => setTimeout(wake, 100));
  }
  assert.fail('still there after 120 s');
}

const checks = {
  async set(k) {
    assert.strictEqual(await c.set(k, 'one', {}), true);
  },
  async get(k) {
    assert.strictEqual(await get(k), null, 'get of a missing key');
    await c.set(k, 'a\r\nEND\r\n', {});
    assert.strictEqual(await get(k), 'a\r\nEND\r\n');
  },
  // It has none: many gets at once go in one pipeline.
  async multiget(k) {
    const keys = Array.from({ length: 1000 }, (_, i) => `${k}:${i}`);
    await Promise.all(keys.map((key, i) => c.set(key, `v${i}`, {})));
    const got = await Promise.all([...keys, `${k}:absent`].map(get));
    assert.deepStrictEqual(got, [...keys.map((_, i) => `v${i}`), null]);
  },
  async add(k) {
    assert.strictEqual(await c.add(k, 'one', {}), true);
    assert.strictEqual(await c.add(k, 'two', {}), false, 'second add');
    assert.strictEqual(await get(k), 'one');
  },
  async replace(k) {
    assert.strictEqual(await c.replace(k, 'one', {}), false, 'replace of a missing key');
    await c.set(k, 'one', {});
    assert.strictEqual(await c.replace(k, 'two', {}), true);
    assert.strictEqual(await get(k), 'two');
  },
  async append(k) {
    await assert.rejects(c.append(k, 'x'), /not stored/, 'append to a missing key');
    await c.set(k, 'one', {});
    assert.strictEqual(await c.append(k, ' two'), true);
    assert.strictEqual(await get(k), 'one two');
  },
  async incr(k) {
    const made = await c.increment(k, 1, { initial: 41, expires: 100 });
    assert.deepStrictEqual([made.success, made.value], [true, 41], 'a new counter');
    assert.strictEqual((await c.increment(k, 3, {})).value, 44);
  },
  async decr(k) {
    await c.set(k, '12', {});
    assert.strictEqual((await c.decrement(k, 5, {})).value, 7);
    assert.strictEqual((await c.decrement(k, 50, {})).value, 0, 'below zero');
  },
  async touch(k) {
    assert.strictEqual(await c.touch(k, 100), false, 'touch of a missing key');
    await c.set(k, 'one', {});
    assert.strictEqual(await c.touch(k, 1), true);
    await gone(k);
  },
  async delete(k) {
    assert.strictEqual(await c.delete(k), false, 'delete of a missing key');
    await c.set(k, 'one', {});
    assert.strictEqual(await c.delete(k), true);
    assert.strictEqual(await get(k), null);
  },
  async expiry(k) {
    await c.set(`${k}:stays`, 'one', { expires: 3600 });
    let before;
    for (const expires of [2, 20, 60]) { // the next if this process slept for so long
      await c.set(k, 'one', { expires });
      if ((before = await get(k)) !== null) break;
    }
    assert.strictEqual(before, 'one');
    await gone(k);
    assert.strictEqual(await get(`${k}:stays`), 'one');
  },
};
for (const [label, size] of [['0', 0], ['1', 1], ['100k', 100 << 10], ['1m', 1 << 20]]) {
  checks[`value-${label}`] = async (k) => {
    const value = crypto.randomBytes(size);
    assert.strictEqual(await c.set(k, value, {}), true);
    const got = (await c.get(k)).value;
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
  c.close();
})();
