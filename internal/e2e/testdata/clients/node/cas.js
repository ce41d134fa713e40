// Counts with gets and cas through the npm package memcached.
// Usage: node cas.js ADDRESS SESSION…
//
// Prints a line for each try: what came of it, the session, the number that it
// wrote there (0: it did not come so far), and when it began, had read and had
// ended. A cas that came too late is "late". Ends on SIGTERM.

const { promisify } = require('node:util');
const Memcached = require('memcached');

const [address, ...sessions] = process.argv.slice(2);
const client = new Memcached(address, { timeout: 30000, retries: 0, failures: 1e9 });
const call = (op) => promisify(client[op]).bind(client);
const [gets, add, cas] = ['gets', 'add', 'cas'].map(call);
const pause = (ms) => new Promise((wake) => setTimeout(wake, ms));

let end = false;
process.on('SIGTERM', () => { end = true; });

(async () => {
  while (!end) {
    const session = sessions[Math.floor(Math.random() * sessions.length)];
    const began = process.hrtime.bigint();
    let read = began;
    let n = 0;
    let what = 'error';
    try {
      const seen = await gets(session);
      read = process.hrtime.bigint();
      n = seen === undefined ? 1 : Number(seen[session]) + 1;
      const done = seen === undefined ? await add(session, String(n), 0) : await cas(session, String(n), seen.cas, 0);
      what = done ? 'ok' : 'late';
    } catch (e) {
      const text = String(e.message || e);
      what = /NOT_STORED|not stored/.test(text) ? 'late' : 'error';
      if (what === 'error') console.error(text);
    }
    console.log(what, session, n, began.toString(), read.toString(), process.hrtime.bigint().toString());
    await pause(Math.random() * 10);
  }
  client.end();
})();
