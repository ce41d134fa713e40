// Counts with gets and cas through the npm package memcached.
// Usage: node cas.js ADDRESS SESSION…
//
// Prints a line for each try: what came of it, the session, the number that it
// wrote there (0: it did not come so far), and when it began, had read and had
// ended. Ends on SIGTERM. This client gives the same answer (false) when a cas
// came too late and when it failed, so both are errors here; a get that misses
// gives undefined.

const { promisify } = require('node:util');
const Memcached = require('memcached');

const [address, ...sessions] = process.argv.slice(2);
const client = new Memcached(address, { timeout: 120000, retries: 0, failures: 1e9, retry: 20 });
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
      if (seen !== false) {
        n = seen === undefined ? 1 : Number(seen[session]) + 1;
        const done = seen === undefined ? await add(session, String(n), 0) : await cas(session, String(n), seen.cas, 0);
        if (done) what = 'ok';
      }
    } catch (e) {
      console.error(String(e.message || e));
    }
    console.log(what, session, n, began.toString(), read.toString(), process.hrtime.bigint().toString());
    await pause(Math.random() * 40);
  }
  process.exit(0); // a client that has met errors would stay
})();
