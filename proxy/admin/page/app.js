// Ringside's page. No framework, no innerHTML: every word that comes from
// outside goes in as text, and keys go through shown() before that.
(() => {
'use strict';
const $ = id => document.getElementById(id), doc = document, root = doc.documentElement;
const BE = backend();
const query = new URLSearchParams(location.search);
const NS = 'http://www.w3.org/2000/svg';
function el(tag, props, ...kids) {
  const n = doc.createElement(tag);
  for (const k in props) k === 'class' ? n.className = props[k] : k === 'style' ? n.style.cssText = props[k] : k in n && k !== 'list' ? n[k] = props[k] : n.setAttribute(k, props[k]);
  n.append(...kids.filter(x => x != null)); return n;
}
function svg(tag, props, ...kids) { const n = doc.createElementNS(NS, tag); for (const k in props) k === 'style' ? n.style.cssText = props[k] : n.setAttribute(k, props[k]); n.append(...kids); return n; }
function text(n, s) { if (n.textContent !== s) n.textContent = s; }
const css = name => getComputedStyle(root).getPropertyValue(name).trim();
let colours = {};
function C(name) { return colours[name] || (colours[name] = css('--' + name)); }

// ---- numbers, each with its unit
const NB = '\u202f', group = new Intl.NumberFormat('en-US', {maximumFractionDigits: 0});
function count(v) { return v == null ? '–' : v >= 1e6 ? (v / 1e6).toFixed(1).replace('.0', '') + NB + 'M' : v >= 1e5 ? (v / 1e3).toFixed(0) + NB + 'k' : group.format(v); }
function split(s, u) { return [s, u]; }
function dur(us) { return us == null ? ['–', ''] : us < 1000 ? split(us.toFixed(0), 'µs') : us < 1e4 ? split((us / 1e3).toFixed(1), 'ms') : us < 1e6 ? split((us / 1e3).toFixed(0), 'ms') : split((us / 1e6).toFixed(1), 's'); }
function bytes(b) { if (b == null) return ['–', '']; let i = 0; while (b >= 1000 && i < 5) { b /= 1024; i++; } return split(i === 0 || b >= 100 ? b.toFixed(0) : b.toFixed(1), ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'][i]); }
function share(f, d = 1) { return f == null ? ['–', ''] : split((100 * f).toFixed(f > .9995 ? 0 : d), '%'); }
function rate(v) { return v == null ? ['–', ''] : split(v > 0 && v < 10 ? v.toFixed(1) : count(v), '/s'); }
const flat = p => p[1] ? p[0] + NB + p[1] : p[0];
function put(n, p) { // a number and, smaller, its unit
  const s = flat(p); if (n._s === s) return; n._s = s;
  n.textContent = p[0]; if (p[1]) n.append(el('span', {class: 'u'}, p[1]));
}
function ago(ms) { const s = Math.max(0, Math.round(ms / 1000)); return s < 90 ? s + NB + 's' : s < 5400 ? Math.round(s / 60) + NB + 'min' : s < 172800 ? Math.round(s / 3600) + NB + 'h' : Math.round(s / 86400) + NB + 'd'; }
const plural = (n, what) => `${count(n)} ${what}${n === 1 ? '' : 's'}`;
function clock(t) { return new Date(t).toISOString().slice(11, 19); }

// ---- keys are bytes that any client may have chosen
const strict = new TextDecoder('utf-8', {fatal: true});
const odd = /[\p{Cc}\p{Cf}\p{Co}\p{Cn}\p{Cs}\p{Zl}\p{Zp}\p{Mn}\p{Me}]/u;
function shown(b64) {
  const bs = typeof b64 === 'string' ? Uint8Array.from(atob(b64), c => c.charCodeAt(0)) : b64, f = doc.createDocumentFragment();
  let run = '', i = 0;
  const flush = () => { if (run) f.append(run); run = ''; };
  while (i < bs.length) {
    const n = bs[i] < 0x80 ? 1 : bs[i] >= 0xf0 ? 4 : bs[i] >= 0xe0 ? 3 : bs[i] >= 0xc2 ? 2 : 0; let c = '';
    if (n) try { c = strict.decode(bs.subarray(i, i + n)); } catch { c = ''; }
    if (c && !odd.test(c)) { run += c; i += n; continue; }
    flush(); const m = c ? n : 1;
    f.append(el('span', {class: 'x'}, Array.from(bs.subarray(i, i + m), x => '\\x' + x.toString(16).padStart(2, '0')).join(''))); i += m;
  }
  flush(); return f;
}
const enc = s => new TextEncoder().encode(s), plain = s => shown(enc(s)).textContent;

// ---- what has come so far
const MIN = 60000, BRIDGE = 5000, KEPT = 15 * MIN, SPARK = 3 * MIN, SILENT = 8000; // a longer gap than BRIDGE between what is known stays open; a stream has an event each second, so one without any for SILENT is broken
const S = {want: query.get('pool') || '', topo: null, hello: {}, ring: null, link: 'loading', heard: Date.now(), tried: 0, silence: SILENT, look: null, hover: -1, slab: -1};
function forget() { Object.assign(S, {late: null, roll: null, T: [], ticks: [], events: []}); forgetServers(); }
function forgetServers() { Object.assign(S, {tick: null, mem: null, slabs: null, hot: null, why: null, routes: null, rates: [], ev: [], used: [], stKey: ''}); }
forget();
function shortener(names = {}) { // replaces names of servers by their short names, the longest first: a name may begin with another one
  const all = Object.keys(names).sort((a, b) => b.length - a.length); if (!all.length) return s => s;
  const any = new RegExp(all.map(s => s.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')).join('|'), 'g'); return s => s && s.replace(any, x => names[x]);
}
const short = s => S.topo ? S.topo.short(s) : s;
const dirty = new Set(); let raf = 0, paused = false, batching = false;
function mark(...what) {
  for (const w of what) dirty.add(w); if (doc.hidden && !batching && !paused && dirty.delete('health')) parts.health.draw(); // a hidden tab draws no frames, but its title and icon are visible
  if (!raf && !batching && !paused) raf = requestAnimationFrame(render);
}
const seen = new Set(), ASIDE = 4000; // what is out of sight is drawn too, for print and for pictures of the whole page, but less often
const parts = {};
function render() {
  raf = 0; const t0 = performance.now();
  for (const w of [...dirty]) { const p = parts[w]; if (p && (!p.box || seen.has(p.box) || t0 - (p.at || -1e9) > ASIDE)) { dirty.delete(w); p.at = t0; p.draw(); } }
  const ms = performance.now() - t0; render.n = (render.n || 0) + 1; render.sum = (render.sum || 0) + ms; render.max = Math.max(render.max || 0, ms);
}
window.RINGSIDE_TIMES = () => ({frames: render.n, mean: render.sum / render.n, max: render.max});
const watcher = new IntersectionObserver(list => { for (const e of list) e.isIntersecting ? seen.add(e.target.id) : seen.delete(e.target.id); mark(); }, {rootMargin: '200px'});

const on = {
  hello(d) { forget(); S.hello = d; legend(d.words.legend); mark('about'); }, // what follows is the whole picture again
  late(d) { S.late = d; mark('health'); },
  topo(d) {
    S.want = d.pool; // a stream that begins again stays with it
    const namesIn = t => t.servers.map(s => s.name).join('\n'); if (S.topo && (S.topo.gen !== d.gen || namesIn(S.topo) !== namesIn(d))) forgetServers(); // other servers, other columns
    const first = !S.topo; for (const s of d.servers) s.brief = d.brief && d.brief[s.name] || s.name; d.short = shortener(d.brief);
    S.topo = d; S.slab = -1; S.hover = -1; S.ringPaint = null; if (first && d.pools.length > 1 && (pinned || query.has('pool'))) keepLink();
    BE.ring(d.gen).then(r => { if (S.topo !== d) return; S.ring = r; S.ringPaint = null; text($('ringwhat'), r.n ? `${count(r.n)} ${r.n === 1 ? r.kind.replace(/ies$/, 'y').replace(/s$/, '') : r.kind}` : ''); mark('ring'); }).catch(() => {});
    if (S.look) look($('key').value);
    setupServers(); mark('topo', 'ring', 'events', 'health');
  },
  past(d) { remember(d.moment, d.rates); },
  tick(d) {
    if (!S.topo || d.s.st.length !== S.topo.servers.length) return; // of a table that is no more
    S.tick = d; S.late = null; remember(d, d.s.rps);
    const key = d.s.st.join(); if (key !== S.stKey) { S.stKey = key; S.ringPaint = null; mark('ring', 'look'); }
    S.silence = SILENT; mark('health', 'resizes', 'figures', 'servers', 'charts');
  },
  mem(d) { if (!S.topo || d.used.length !== S.topo.servers.length) return; S.mem = d; const t = S.tick ? S.tick.t : Date.now(), add = (a, v) => { a.push({t, span: 5000, v}); drop(a, t - SPARK); }; add(S.ev, sum(d.ev)); add(S.used, sum(d.used)); mark('figures', 'servers'); },
  slabs(d) { if (!S.topo || d.servers.length !== S.topo.servers.length) return; S.slabs = d; mark('slabs'); },
  hot(d) { S.hot = d; mark('hot'); },
  why(d) { S.why = d; mark('why'); },
  routes(d) { S.routes = d; $('guards').hidden = doc.querySelector('nav [href="#guards"]').hidden = !d; mark('guards'); },
  roll(d) { S.roll = d; $('ringsides').hidden = $('which').hidden = !d; if (d) text($('which'), d.of > 1 ? `${plain(d.me)}, 1 of ${count(d.of)} instances` : plain(d.me)); mark('roll'); },
  event(d) { const e = sentence(d); if (e) { S.events.unshift(e); if (S.events.length > 256) { const i = S.events.findLastIndex(x => x.minor); S.events.splice(i > 0 ? i : 256, 1); } mark('events', 'charts'); } },
};
function drop(a, before) { let n = 0; while (n < a.length && a[n].t < before) n++; a.splice(0, n); }
function remember(d, rps) { // what happened in one moment, which the charts show
  const last = S.T[S.T.length - 1]; if (last >= d.t) return;
  S.T.push(d.t); S.ticks.push(d); let n = 0; while (S.T[n] < d.t - KEPT) n++; S.T.splice(0, n); S.ticks.splice(0, n);
  if (rps) { S.rates.push({t: d.t, span: d.span, v: rps}); drop(S.rates, d.t - SPARK); }
}
function link(state, why, silent) {
  S.link = state; S.lostWhy = why || ''; S.silent = silent; doc.body.dataset.link = state; $('again').hidden = state !== 'lost';
  text($('linktext'), state === 'lost' ? 'no connection' : state === 'live' ? 'live' : 'connecting');
  mark('health');
}

// ---- canvas
function surface(c) {
  const r = devicePixelRatio || 1, w = c.clientWidth, h = c.clientHeight;
  if (!w || !h) return null;
  if (c.width !== Math.round(w * r) || c.height !== Math.round(h * r)) { c.width = Math.round(w * r); c.height = Math.round(h * r); }
  const g = c.getContext('2d'); g.setTransform(r, 0, 0, r, 0, 0); g.clearRect(0, 0, w, h); return {g, w, h, r};
}
function pencil(g, list, at, x, y) { // a line through what is known; returns where its pieces begin and end
  let piece = null, last = 0; const pieces = []; g.beginPath();
  for (const p of list) {
    const v = at(p); if (v == null) continue;
    if (piece && p.t - p.span - last <= BRIDGE) g.lineTo(x(p.t), y(v)); else { pieces.push(piece = [p.t, p.t]); g.moveTo(x(p.t), y(v)); g.lineTo(x(p.t) + .01, y(v)); }
    piece[1] = last = p.t;
  }
  g.lineJoin = g.lineCap = 'round'; g.stroke(); return pieces;
}
function spark(c, list, at, colour) { // the last minutes
  const s = surface(c); if (!s || !list.length || list[list.length - 1].t - list[0].t < 4 * BRIDGE) return; // a shorter line looks like a fault
  const {g, w, h} = s, end = list[list.length - 1].t, top = Math.max(...list.map(p => at(p) || 0), 1e-9) * 1.3, x = t => w - 1 - (end - t) / SPARK * (w - 2), y = v => h - 1.5 - (h - 4) * v / top;
  g.save(); g.beginPath(); g.rect(0, 0, w, h); g.clip(); g.strokeStyle = colour; g.lineWidth = 1.25; const pieces = pencil(g, list, at, x, y);
  g.globalAlpha = .13; g.fillStyle = colour;
  for (const [from, to] of pieces) { const of = list.filter(p => p.t >= from && p.t <= to && at(p) != null); g.beginPath(); g.moveTo(x(from), h); for (const p of of) g.lineTo(x(p.t), y(at(p))); g.lineTo(x(to), h); g.fill(); }
  g.restore();
}
const few = () => S.topo && S.topo.servers.length <= 8;
const hue = i => few() ? C('s' + i % 8) : C('s0');

// ---- states: a word, which is that of ringside server list, a shape and a colour, never a colour alone
const SHAPES = { // path, and whether it is filled
  unknown: ['M7 2.2a4.8 4.8 0 1 0 .01 0z', false], up: ['M7 2.2a4.8 4.8 0 1 0 .01 0z', true], suspect: ['M7 1.5 13 12.5H1z', false], down: ['M3 3 11 11M11 3 3 11', false],
  leaving: ['M2 7h9M8 4l3 3-3 3', false], out: ['M3 3 11 11M11 3 3 11', false], drained: ['M7 1.8 12.2 7 7 12.2 1.8 7z', false], return: ['M12 7H3M6 4 3 7l3 3', false], joins: ['M7 2v10M2 7h10', false],
};
const word = s => S.hello.words && S.hello.words.states[s] || {};
const stateOf = s => [s, word(s).tone || 'warn', ...(SHAPES[s] || ['M7 2a5 5 0 1 0 5 5', false])];
function glyph(n, s) { const p = n.firstChild; p.setAttribute('d', s[2]); p.setAttribute('fill', s[3] ? 'currentColor' : 'none'); }
const mkGlyph = () => svg('svg', {viewBox: '0 0 14 14', 'aria-hidden': 'true'}, svg('path', {fill: 'none', stroke: 'currentColor', 'stroke-width': '1.8', 'stroke-linecap': 'round', 'stroke-linejoin': 'round'}));
const away = st => word(st).away, moved = st => word(st).moved, back = st => word(st).back;
const namesOf = l => l.length < 2 ? l.join('') : l.slice(0, -1).join(', ') + ' and ' + l[l.length - 1];

// ---- health, in one sentence
parts.topo = {draw() {
  const t = S.topo; if (!t) return; text($('poolwhat'), t.distribution + ', ' + t.failover); text($('trafficwhat'), (t.pools.length > 1 ? 'of all pools; ' : '') + 'dashed lines are events');
  const p = $('pool'); if (p._list !== t.pools.join('\n')) { p._list = t.pools.join('\n'); p.replaceChildren(...t.pools.map(x => el('option', {value: x}, x))); } p.value = t.pool; markPools();
  $('ringlegend').replaceChildren(...(few() ? t.servers.map((s, i) => { const dot = el('i'); dot.style.background = hue(i); return el('li', {title: s.name}, dot, s.brief); }) : [el('li', {}, el('span', {class: 'dim'}, 'Point at a server to see its arcs.'))]));
}};
const SIGNS = {good: '', warn: '\u25b3 ', bad: '\u2717 ', lost: '? ', wait: ''}; // before a name, where there is no room for a picture
function markPools() { // the menu marks each pool that is not well
  const k = S.tick; if (!k || !k.pools) return; const of = new Map(k.pools.map(p => [p.pool, p]));
  for (const o of $('pool').options) { const p = of.get(o.value), l = p ? p.level : 'good'; text(o, SIGNS[l] + o.value); o.title = p ? p.title : ''; o.className = 'st-' + l; }
}
const ICONS = {good: '', wait: '', warn: '#e69f00', bad: '#d55e00', lost: '#888'};
function dressTab(level, title) { // the title and the icon of the browser's tab
  const want = `${SIGNS[level]}${level === 'good' || level === 'wait' ? '' : title + ' · '}Ringside`; if (doc.title !== want) doc.title = want;
  const icon = $('icon'); if (icon._level === level) return; icon._level = level; icon._plain = icon._plain || icon.href; const c = encodeURIComponent(ICONS[level]);
  icon.href = c ? `data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Ccircle cx='8' cy='8' r='5.5' fill='none' stroke='%231f6fbf' stroke-width='3'/%3E%3Ccircle cx='11' cy='5' r='5' fill='${c}'/%3E%3C/svg%3E` : icon._plain;
}
parts.health = {draw() {
  const k = S.tick, box = $('health'), h = box.querySelector('h1'), p = box.querySelector('p'), path = box.querySelector('path'); let {level, title: a, text: b} = S.late || k && k.health || {level: 'wait', title: 'Looking…', text: 'Waiting for the first figures.'};
  if (!S.late && k && !rateOf(k) && !k.cl && level === 'good') b += ` Point one at ${S.hello.listen[0]}${S.hello.faults ? ', or try: ringside drill' : '.'}`;
  if (S.link === 'lost') { level = 'lost'; a = 'No connection to Ringside'; b = (S.silent ? `It has sent nothing for more than ${ago(SILENT)}: it hangs, or the network fails. ` : S.lostWhy ? S.lostWhy + ' ' : '') + (k ? `What you see is ${ago(Date.now() - S.heard)} old, from ${clock(k.t)} UTC. ` : '') + 'The page tries again until it is connected. Ringside may still serve its clients.'; }
  const other = S.link !== 'lost' && k && S.topo && k.worst !== S.topo.pool && level !== 'good' && k.worst; $('show').hidden = !other; if (other) text($('show'), 'Show pool ' + plain(other));
  a = short(a); b = short(b); dressTab(level, a); markPools(); box.dataset.level = level; text(h, a || '\u00a0'); text(p, b || '\u00a0');
  path.setAttribute('d', {good: 'M16 3a13 13 0 1 0 .01 0zM10 16.5l4.3 4.3L22.5 12', warn: 'M16 3a13 13 0 1 0 .01 0zM16 9.5v8M16 22.4v.1', bad: 'M16 4 29.5 27.5H2.5zM16 13v6.5M16 23.6v.1', lost: 'M16 26v.1M11.4 21.3a6.6 6.6 0 0 1 9.2 0M7 16.8a13 13 0 0 1 6-3.4M19 13.4a13 13 0 0 1 6 3.4M4 4l24 24', wait: 'M16 3a13 13 0 1 0 .01 0zM16 9v7.5l4.5 3'}[level]);
}};
parts.resizes = {draw() { // changes of servers, with their progress
  const list = S.tick && S.tick.resizes || [], box = $('resizes'); box.hidden = !list.length;
  while (box.children.length > list.length) box.lastChild.remove(); while (box.children.length < list.length) box.append(el('li', {}, mkGlyph(), el('p', {}, el('b'), el('span'))));
  list.forEach((r, i) => {
    const row = box.children[i], [name, said] = row.lastChild.children; row.className = r.level;
    glyph(row.firstChild, stateOf({good: 'leaving', warn: 'suspect', bad: 'down'}[r.level])); row.firstChild.setAttribute('class', 'st-' + r.level);
    text(name, 'Pool ' + plain(r.pool) + ':'); text(said, ' ' + short(r.text));
  });
}};
const rateOf = k => k.rps, hitOf = k => k.hit;

// ---- figures
const asked = m => m.used.filter((x, i) => x != null || !S.topo || !S.topo.servers[i] || !S.topo.servers[i].joins); // without new servers that Ringside does not know yet
const FIGS = [
  ['Requests', k => rate(rateOf(k)), k => `${flat(bytes(k.bi))}/s in, ${flat(bytes(k.bo))}/s out`, rateOf, 's0'],
  ['Hit rate', k => share(hitOf(k)), k => `of ${count(k.keys[0] + k.keys[1] + k.keys[2])} keys/s`, hitOf, 'hit'],
  ['Latency p99', k => dur(k.lat[2]), k => `p50 ${flat(dur(k.lat[0]))}, p90 ${flat(dur(k.lat[1]))}`, k => k.lat[2] == null ? null : Math.max(0, Math.log10(k.lat[2] / 50)), 's3'],
  ['Failed', k => rate(k.oc.fail), k => k.inf ? `${count(k.inf)} in flight` : 'nothing in flight', k => k.oc.fail, 'fail', k => k.oc.fail > 50 ? 'bad' : k.oc.fail >= 1 ? 'warn' : ''],
  ['Memory', () => { const m = S.mem; return m ? bytes(sum(m.used)) : ['–', '']; }, () => { const m = S.mem; return m ? `of ${flat(bytes(sum(m.limit)))}, ${asked(m).includes(null) ? m.used.filter(x => x != null).length + ' of ' + asked(m).length + ' servers' : count(sum(m.items)) + ' items'}` : ''; }, 'used', 'used'],
  ['Evictions', () => S.mem ? rate(sum(S.mem.ev)) : ['–', ''], () => S.mem ? sum(S.mem.ev) ? `${flat(rate(sum(S.mem.unf)))} of them never read` : 'nothing is evicted' : '', 'ev', 's1'],
  ['Clients', k => [count(k.cl), ''], k => `Ringside ${(100 * k.cpu).toFixed(0)}${NB}% of a core`, k => k.cl, 's7'],
];
const sum = a => (a || []).reduce((x, y) => x + (y || 0), 0);
const figs = FIGS.map(f => { const b = el('b', {}, '–'), s = el('small', {}, '\u00a0'), c = el('canvas', {'aria-hidden': 'true'}), d = el('div', {class: 'fig'}, el('label', {}, f[0]), b, s, c); $('figures').append(d); return {f, b, s, c, d}; });
parts.figures = {box: 'figures', draw() {
  const k = S.tick; if (!k) return;
  for (const {f, b, s, c, d} of figs) {
    const v = f[1](k), all = S.topo && S.topo.pools.length > 1 && typeof f[3] === 'function' && f !== FIGS[6]; // memory and evictions are those of the pool
    put(b, all ? [v[0], v[1] + ', all pools'] : v); text(s, f[2](k)); if (f[5]) d.dataset.level = f[5](k);
    if (typeof f[3] === 'string') spark(c, S[f[3]], p => p.v, C(f[4])); else spark(c, S.ticks.filter(x => x.t >= k.t - SPARK), f[3], C(f[4]));
  }
}};

// ---- the ring
const TAU = Math.PI * 2, turn = h => h / 4294967296 * TAU - Math.PI / 2;
function standIns() { // for a server that is away: who answers at each of its points
  const R = S.ring, st = S.tick ? S.tick.s.st : []; return i => { if (S.topo.failover !== 'rehash') return -1; let j = i; for (let n = 0; n < 64; n++) { j = (j + 1) % R.points.length; if (!away(st[R.owners[j]])) return R.owners[j]; } return -1; };
}
function hatch(g, colour) {
  const c = doc.createElement('canvas'); c.width = c.height = 6; const x = c.getContext('2d'); x.strokeStyle = colour; x.lineWidth = 1.1; x.beginPath(); x.moveTo(-1, 7); x.lineTo(7, -1); x.moveTo(-1, 1); x.lineTo(1, -1); x.moveTo(5, 7); x.lineTo(7, 5); x.stroke(); return g.createPattern(c, 'repeat');
}
function paintRing(w, h, r) { // all that a look-up does not change: painted once for each change of state
  const R = S.ring, st = S.tick ? S.tick.s.st : [], c = doc.createElement('canvas'); c.width = w * r; c.height = h * r; const g = c.getContext('2d'); g.scale(r, r);
  const many = !few(), n = S.topo.servers.length, p = {c, cx: w / 2, cy: h / 2, ro: Math.min(w, h) / 2 - 18, w, h}; p.ri = p.ro - 30; p.mid = (p.ro + p.ri) / 2;
  p.band = (g, a, b, r0, r1, fill, alpha = 1) => { g.globalAlpha = alpha; g.fillStyle = fill; g.beginPath(); g.arc(p.cx, p.cy, r1, a, b); g.arc(p.cx, p.cy, r0, b, a, true); g.fill(); g.globalAlpha = 1; };
  p.tint = o => many ? C('s0') : hue(o); const strength = o => (many ? .42 + .5 * ((o * 37) % 11) / 11 : .92) * (back(st[o]) ? .55 : 1);
  if (R.kind === 'points') {
    const P = R.points, N = P.length; p.of = Array.from({length: n}, () => []); p.from = i => turn(i ? P[i - 1] : P[N - 1] - 4294967296); p.stand = standIns();
    for (let i = 0; i < N; i++) p.of[R.owners[i]].push(i);
    p.arc = (g, i, alpha) => { const o = R.owners[i], a = p.from(i), b = turn(P[i]); if (!away(st[o])) return p.band(g, a, b, p.ri, p.ro, p.tint(o), alpha); const s = moved(st[o]) ? p.stand(i) : -1; if (s >= 0) p.band(g, a, b, p.ri, p.mid, p.tint(s), alpha); p.band(g, a, b, p.mid + 1, p.ro, many ? C('bad') : p.hatch || (p.hatch = hatch(g, C('dim')))); };
    for (let i = 0; i < N; i++) p.arc(g, i, strength(R.owners[i]));
    if (!many) { g.strokeStyle = C('panel'); g.lineWidth = .7; g.globalAlpha = .75; g.beginPath(); for (let i = 0; i < N; i++) { const a = turn(P[i]), x = Math.cos(a), y = Math.sin(a); g.moveTo(p.cx + x * p.ri, p.cy + y * p.ri); g.lineTo(p.cx + x * p.ro, p.cy + y * p.ro); } g.stroke(); g.globalAlpha = 1; }
  } else {
    const gap = R.n < 60 ? .012 : .002; p.of = Array.from({length: n}, () => []); R.owners.forEach((o, i) => p.of[o].push(i));
    p.arc = (g, i, alpha) => { const o = R.owners[i]; p.band(g, turn(i / R.n * 4294967296) + gap, turn((i + 1) / R.n * 4294967296) - gap, p.ri, p.ro, away(st[o]) ? hatch(g, C('mid')) : many && alpha === 1 ? C('s1') : p.tint(o), alpha); };
    for (let i = 0; i < R.n; i++) p.arc(g, i, strength(R.owners[i]));
  }
  return p;
}
parts.ring = {box: 'ring', draw() {
  const cv = $('ringcanvas'), s = surface(cv); if (!s || !S.ring || !S.topo || !has(S.ring.owners)) return; const {g, w, h, r} = s;
  if (!S.ringPaint || S.ringPaint.w !== w || S.ringPaint.h !== h) S.ringPaint = paintRing(w, h, r);
  const p = S.ringPaint, {c, cx, cy, ro, ri} = p, chosen = S.hover >= 0 ? [S.hover] : here() ? here().order.slice(0, here().copiesWanted || 1) : [];
  g.globalAlpha = chosen.length ? few() ? .24 : .45 : 1; g.drawImage(c, 0, 0, w, h); g.globalAlpha = 1;
  for (const o of chosen) if (few() || S.ring.kind !== 'points') for (const i of p.of[o] || []) p.arc(g, i, 1);
    else { g.strokeStyle = C('s1'); g.lineWidth = 1.3; g.beginPath(); for (const i of p.of[o]) { const m = (p.from(i) + turn(S.ring.points[i])) / 2, x = Math.cos(m), y = Math.sin(m); g.moveTo(cx + x * (ri - 6), cy + y * (ri - 6)); g.lineTo(cx + x * (ro + 3), cy + y * (ro + 3)); } g.stroke(); }
  if (S.ring.kind !== 'points' && S.ring.n <= 24) { g.fillStyle = C('dim'); g.font = '600 12px Inter, system-ui, sans-serif'; g.textAlign = 'center'; g.textBaseline = 'middle'; for (let i = 0; i < S.ring.n; i++) { const m = turn((i + .5) / S.ring.n * 4294967296); g.fillText(i, cx + Math.cos(m) * (ri - 12), cy + Math.sin(m) * (ri - 12)); } }
  const L = here(), t = S.topo, R = S.ring, own = t.servers.filter(s => !s.joins).length; g.textAlign = 'center'; g.textBaseline = 'alphabetic'; if (few() && S.tick) [...$('ringlegend').children].forEach((li, i) => li.classList.toggle('out', away(S.tick.s.st[i])));
  const line = (txt, y, font, colour) => { g.font = font; g.fillStyle = colour; let v = txt; while (v.length > 4 && g.measureText(v).width > ri * 1.5) v = v.slice(0, -2) + '…'; g.fillText(v, cx, y); };
  const sans = 'Inter, system-ui, sans-serif', who = S.hover >= 0 ? S.hover : -1;
  if (who >= 0) { const x = t.servers[who]; line(x.brief, cy - 2, '650 22px ' + sans, few() ? hue(who) : C('ink')); line(`${flat(share(x.share))} of the keys`, cy + 18, '12px ' + sans, C('mid')); }
  else if (L && L.order.length) {
    const st = S.tick ? S.tick.s.st : [], live = stands(L, st), o = live == null ? L.order[0] : live; line(plain(L.typed), cy - 26, '12px ' + css('--mono'), C('mid'));
    line(t.servers[o].brief, cy, '650 22px ' + sans, few() ? hue(o) : C('ink')); line(o !== L.order[0] ? `for ${brief(t.servers[L.order[0]].brief)}, which is ${stateOf(st[L.order[0]])[0]}` : L.keep > 1 ? `and a replica on ${namesOf(L.order.slice(1, L.copiesWanted).map(i => t.servers[i].brief))}` : `hash ${L.hash}`, cy + 20, '12px ' + sans, C('mid'));
    const a = R.kind === 'points' ? turn(L.place) : turn((L.index + .5) / (L.of || 1) * 4294967296); if (R.n) { g.save(); g.translate(cx, cy); g.rotate(a);
    g.fillStyle = C('ink'); g.beginPath(); g.moveTo(ro + 2, 0); g.lineTo(ro + 13, -6); g.lineTo(ro + 13, 6); g.closePath(); g.fill(); g.strokeStyle = C('ink'); g.lineWidth = 1.6; g.beginPath(); g.moveTo(R.kind === 'points' ? ri - 9 : ri + 3, 0); g.lineTo(ro + 4, 0); g.stroke(); g.restore(); }
    if (R.kind === 'buckets' && L.hops) { const at = k => turn((L.hops[k] + .5) / R.n * 4294967296); g.strokeStyle = C('mid'); g.fillStyle = C('mid'); g.lineWidth = 1.3; const hops = L.hops.length - 1, from = Math.max(1, hops - 5); for (let i = from; i <= hops; i++) { const r = ri - 30 - (hops - i) * 7, p = at(i - 1), q = at(i); g.beginPath(); g.arc(cx, cy, r, p, q); g.stroke(); g.save(); g.translate(cx + Math.cos(q) * r, cy + Math.sin(q) * r); g.rotate(q + Math.PI / 2); g.beginPath(); g.moveTo(2, 0); g.lineTo(-6, -3.5); g.lineTo(-6, 3.5); g.fill(); g.restore(); g.beginPath(); g.arc(cx + Math.cos(p) * r, cy + Math.sin(p) * r, 2, 0, TAU); g.fill(); } }
  } else { line(R.n ? count(R.n) : String(own), cy + 2, '620 22px ' + sans, C('ink')); line({points: `points of ${plural(own, 'server')}`, buckets: 'buckets, in the order of the list', entries: 'entries, hash modulo ' + R.n, scores: 'servers: the highest score wins'}[R.kind], cy + 22, '12px ' + sans, C('dim')); }
  drawStrip();
  names(cv, L, S.tick ? S.tick.s.st : []);
}};
function names(cv, L, st) { // what the pictures show, for who can't see them
  const t = S.topo, say = (n, s) => { if (n.getAttribute('aria-label') !== s) n.setAttribute('aria-label', s); }, most = 12, key = L && L.order && L.order.length ? plain(L.typed) : '';
  say(cv, 'The ring: ' + t.servers.slice(0, most).map((x, i) => `${x.name} ${flat(share(x.share))} of the keys${st[i] && st[i] !== 'up' ? ', ' + stateOf(st[i])[0] : ''}`).join('; ') + (t.servers.length > most ? `; and ${t.servers.length - most} more` : ''));
  say($('strip'), key ? `Servers of ${key}, in the order of failover: ${L.order.slice(0, Math.max(L.keep, 3)).map((o, i) => `${i + 1} ${t.servers[o].name}`).join(', ')}` : 'The servers’ shares of the keys, side by side');
}
const has = list => list.every(i => i < S.topo.servers.length); // not so while a reload removes servers: the ring and what was looked up arrive before or after the list of servers
const here = () => S.look && S.look.pool === S.topo.pool && has(S.look.order) ? S.look : null; // what was looked up, unless it is in another pool
const brief = name => name.length > 16 ? name.slice(0, 15) + '…' : name; // where another name has to stand beside it
const stands = (L, st) => L.keep > 1 || S.topo.failover === 'rehash' && (!away(st[L.order[0]]) || moved(st[L.order[0]])) ? L.order.find(o => !away(st[o])) : undefined;
function drawStrip() { // the piece of the ring around the key, magnified
  const s = surface($('strip')); if (!s) return; const {g, w} = s, L = here(), R = S.ring, t = S.topo, st = S.tick ? S.tick.s.st : [];
  if (!L || !L.order.length) { // nothing asked: the shares, one after the other
    let x = 0; g.font = '12px Inter, system-ui, sans-serif'; g.textBaseline = 'middle'; t.servers.forEach((v, i) => { const b = v.share * w; g.globalAlpha = few() ? .92 : .3 + .5 * ((i * 37) % 11) / 11; g.fillStyle = away(st[i]) ? hatch(g, C('mid')) : hue(i); g.fillRect(x, 20, Math.max(.5, b - (few() ? 2 : 0)), 16); g.globalAlpha = 1; if (few()) { g.fillStyle = C('mid'); g.textAlign = 'left'; g.fillText(flat(share(v.share)), x, 46); } x += b; });
    if (!few()) { const s = t.servers.map(v => v.share); g.fillStyle = C('dim'); g.textAlign = 'left'; g.fillText(`shares from ${flat(share(Math.min(...s), 2))} to ${flat(share(Math.max(...s), 2))}`, 0, 46); } return;
  }
  const y0 = 20, hh = 16; g.font = '12px Inter, system-ui, sans-serif'; g.textBaseline = 'middle';
  if (R.kind !== 'points') {
    if (!R.n) { g.fillStyle = C('mid'); g.fillText(`${L.hits} ${L.point || ''}`, 0, y0 + 8); return; } const n = R.n, bw = w / n; for (let i = 0; i < n; i++) { g.globalAlpha = i === L.index ? 1 : .25; g.fillStyle = away(st[R.owners[i]]) ? hatch(g, C('mid')) : few() ? hue(R.owners[i]) : i === L.index ? C('s1') : C('s0'); g.fillRect(i * bw + (n < 80 ? 1 : 0), y0, Math.max(1, bw - (n < 80 ? 2 : 0)), hh); } g.globalAlpha = 1;
    const x = (L.index + .5) * bw; g.fillStyle = C('ink'); g.beginPath(); g.moveTo(x, y0 - 2); g.lineTo(x - 5, y0 - 10); g.lineTo(x + 5, y0 - 10); g.fill(); g.textAlign = x < 70 ? 'left' : x > w - 70 ? 'right' : 'center'; g.fillStyle = C('mid'); g.fillText(`${L.hits} ${L.index} of ${L.of}`, Math.min(w, Math.max(0, x)), y0 + hh + 11); return;
  }
  const full = 4294967296, rel = v => (v - L.place + full) % full, ends = L.hit.map(i => rel(R.points[i])), shown_ = ends.slice(0, Math.max(L.keep, Math.min(3, ends.length))), reach = Math.max(shown_[shown_.length - 1], shown_[0] * 2.2) * 1.12, pad = reach * .16, span = reach + pad, X = v => (v + pad) / span * w;
  let i0 = L.hit[0]; const P = R.points, N = P.length; let j = i0; while (rel(P[(j - 1 + N) % N]) > full - pad * 1.2 && i0 - j < 400) j--; // back to the left edge
  for (let k = j; k < j + 800; k++) {
    const i = (k + N) % N, to = k < i0 ? rel(P[i]) - full : rel(P[i]), p = P[(i - 1 + N) % N], from = k <= i0 ? rel(p) - full : rel(p), o = R.owners[i]; if (from > reach) break;
    const x0 = Math.max(0, X(from)), x1 = Math.min(w, X(to)); if (x1 <= 0) continue;
    g.fillStyle = away(st[o]) ? hatch(g, C('hatch')) : few() ? hue(o) : L.order.indexOf(o) === 0 ? C('s1') : C('s0'); g.globalAlpha = k === i0 ? 1 : few() ? .34 : .3; g.fillRect(x0, y0, Math.max(.5, x1 - x0 - 1), hh); g.globalAlpha = 1;
    if (to <= reach) { g.fillStyle = C('ink'); g.globalAlpha = .55; g.fillRect(X(to) - 1, y0 - 2, 1.5, hh + 4); g.globalAlpha = 1; }
  }
  const x = X(0), xe = X(shown_[0]); g.fillStyle = C('ink'); g.beginPath(); g.moveTo(x, y0 - 1); g.lineTo(x - 5, y0 - 10); g.lineTo(x + 5, y0 - 10); g.fill();
  if (xe - x > 16) { g.strokeStyle = C('ink'); g.lineWidth = 1.4; g.beginPath(); g.moveTo(x + 7, y0 - 7); g.lineTo(xe - 1, y0 - 7); g.stroke(); g.beginPath(); g.moveTo(xe, y0 - 7); g.lineTo(xe - 5, y0 - 10.5); g.lineTo(xe - 5, y0 - 3.5); g.fill(); }
  const tags = shown_.map((v, k) => { const label = `${k + 1} ${t.servers[L.order[k]].brief}`, tw = g.measureText(label).width; return {px: X(v), label, tw, x: Math.max(0, Math.min(w - tw, X(v) - tw / 2)), k}; });
  for (let k = tags.length - 2; k >= 0; k--) tags[k].x = Math.max(0, Math.min(tags[k].x, tags[k + 1].x - tags[k].tw - 10));
  for (let k = 1; k < tags.length; k++) tags[k].x = Math.max(tags[k].x, tags[k - 1].x + tags[k - 1].tw + 10);
  for (const q of tags) { g.fillStyle = q.k < L.keep ? C('ink') : C('dim'); g.textAlign = 'left'; g.fillText(q.label, q.x, y0 + hh + 16); g.strokeStyle = C('dim'); g.lineWidth = 1; g.beginPath(); g.moveTo(q.px, y0 + hh + 2); g.lineTo(Math.max(q.x + 3, Math.min(q.x + q.tw - 3, q.px)), y0 + hh + 9); g.stroke(); }
}
parts.look = {draw() {
  const L = S.look, t = S.topo, box = $('reason'); if (!t) return; const N = i => el('b', {}, t.servers[i].name), B = s => el('b', {}, s), K = s => el('code', {}, s), st = S.tick ? S.tick.s.st : [];
  if (!L) { box.replaceChildren('A key hashes to a place on the ring and belongs to a point there. Type one, or pick one of the hot keys below.'); return; }
  const k = el('code', {class: 'k'}); k.append(shown(enc(L.typed)));
  if (L.error) { box.replaceChildren(k, ': ' + L.error + '.'); return; }
  if (L.pool !== t.pool) { box.replaceChildren(k, ' goes to pool ', B(L.pool), L.match || L.prefix ? ` by the route ${plain(L.match || L.prefix)}` : '', ', to its server ', B(L.owner || 'none'), '.'); return; }
  if (!here()) return; const out = [k, ' hashes to ', K(L.hash)], o = L.order[0]; if (o == null) { box.replaceChildren(k, ' belongs to no server.'); return; }
  if (L.hits === 'point') out.push(S.ring && S.ring.before ? '. The point before it is ' : '. The next point clockwise is ', K(L.point), `, number ${count(L.index)} of ${count(L.of)}: it is `, B(L.owner), '’s.');
  else if (L.hops) out.push(`. The jumps go ${L.hops.slice(-6).join(' → ')} and stop before ${L.of}: bucket ${L.index} is `, B(L.owner), '’s.');
  else if (L.of) out.push(`, ${L.hits} ${L.index} of ${L.of}: `, B(L.owner), '.');
  else out.push(`. The ${L.hits || 'rule'}${L.point ? ' ' + L.point : ''} gives it to `, B(L.owner), '.');
  if (L.replicas) out.push(` The route${L.match || L.prefix ? ' ' + plain(L.match || L.prefix) : ''} keeps ${L.replicas.length} replicas: `, B(L.replicas[0].server), ' is the primary, ', ...L.replicas.slice(1).flatMap((m, i) => [i ? ' and ' : '', B(m.server)]), L.replicas.length > 2 ? ' have the others.' : ' has the other.');
  const others = (L.substitutes || []).map(m => (m.pool === t.pool ? '' : m.pool + '/') + m.server), state = st[o];
  if (away(state)) { const s = stands(L, st); out.push(` ${t.servers[o].name} is ${stateOf(state)[0]}, so now `, s != null ? N(s) : B(others[0] && t.failover === 'gutter' && moved(state) ? others[0] : 'no server'), ' replies.', s == null && others.length && !moved(state) ? ' If it goes out, others take over.' : ''); }
  else if (back(state) && others.length) out.push(' It is rejoining: keys that it does not have yet are read from ', B(others[0]), '.');
  else if (others.length) out.push(' If it is out, ', B(others[0]), ' serves its keys', ...(others.length > 1 ? [', then ', others[1]] : []), '.');
  else if (!L.replicas) out.push(' If it is out, it has no substitute server: its keys miss or fail.');
  box.replaceChildren(...out);
}};
function look(key) { $('key').value = key; if (!key) { S.look = null; mark('ring', 'look'); return; } BE.route(key).then(r => { if ($('key').value !== key) return; S.look = r; mark('ring', 'look'); }).catch(e => { text($('reason'), e.message); }); }
$('look').addEventListener('submit', e => { e.preventDefault(); look($('key').value); });
let typing; $('key').addEventListener('input', () => { clearTimeout(typing); typing = setTimeout(() => look($('key').value), 80); });
$('ringcanvas').addEventListener('pointermove', e => { const p = S.ringPaint, R = S.ring; if (!p) return; const x = e.offsetX - p.cx, y = e.offsetY - p.cy, d = Math.hypot(x, y); let o = -1; if (d > p.ri - 4 && d < p.ro + 4) { const h = (Math.atan2(y, x) + Math.PI / 2 + TAU) % TAU / TAU * 4294967296; if (R.kind === 'points') { let lo = 0, hi = R.points.length; while (lo < hi) { const m = lo + hi >> 1; R.points[m] < h ? lo = m + 1 : hi = m; } o = R.owners[lo % R.points.length]; } else o = R.n ? R.owners[Math.floor(h / 4294967296 * R.n)] : -1; } hover(o); });
$('ringcanvas').addEventListener('pointerleave', () => hover(-1));
function hover(o) { if (o === S.hover) return; S.hover = o; mark('ring'); }

// ---- servers
const COLS = [['State', 'state', 'keep a-state'], ['Server', 'name', 'keep a-name'], ['Requests', 'rps', 'n a-rps'], ['Hits', 'hit', 'n a-hit'], ['p50', 'p50', 'n wide more'], ['p99', 'p99', 'n a-p99'], ['Queue', 'q', 'n wide'], ['Conns', 'cn', 'n wide'], ['Memory', 'mem', 'a-mem'], ['Evicted', 'ev', 'n wide more'], ['Items', 'items', 'n wide more'], ['', '', 'keep a-dots']];
let rows = [], sort = {by: '', dir: 1}, order = [], filter = '', body, head;
const VROW = 46;
function setupServers() {
  const n = S.topo.servers.length, box = $('stable'); rows = [];
  head = el('div', {class: 'srow shead', role: 'row'}, ...COLS.map(([name, by, cls]) => { const b = el('span', {class: cls + (by ? '' : ''), role: 'columnheader', 'aria-sort': 'none'}, by ? el('button', {type: 'button'}, name) : ''); if (by) b.firstChild.onclick = () => { sort = {by, dir: sort.by === by ? -sort.dir : by === 'name' || by === 'state' ? 1 : -1}; mark('servers'); }; b._by = by; if (by === 'rps') b.title = 'Requests of clients; Ringside’s own are not among them'; return b; }));
  body = el('div', {class: 'sbody' + (n > 12 ? ' many' : ''), role: 'rowgroup', tabIndex: n > 12 ? 0 : -1}); box.replaceChildren(head, body); if (n > 12) { body.append(el('div')); body.addEventListener('scroll', () => mark('servers'), {passive: true}); }
  $('sfilter').hidden = n <= 12; text($('serverswhat'), n > 12 ? '' : ''); $('sgrid').className = 'sgrid' + (n > 12 ? ' on' : ''); if (n > 12) $('sgrid').replaceChildren(...S.topo.servers.map((s, i) => { const x = el('i', {title: s.name}); x.onpointerenter = () => hover(i); x.onpointerleave = () => hover(-1); x.onclick = () => { $('sfilter').value = filter = s.name; mark('servers'); }; return x; }));
}
$('sfilter').addEventListener('input', e => { filter = e.target.value; mark('servers'); });
function newRow() {
  const gl = mkGlyph(), c = el('canvas', {'aria-hidden': 'true'}), r = {i: -1};
  r.st = el('b'); r.since = el('small'); r.name = el('b'); r.addr = el('small'); r.rps = el('span'); r.hit = el('span', {class: 'n a-hit', role: 'cell'}); r.p50 = el('span', {class: 'n wide more', role: 'cell'}); r.p99 = el('span', {class: 'n a-p99', role: 'cell'}); r.q = el('span', {class: 'n wide', role: 'cell'}); r.cn = el('span', {class: 'n wide', role: 'cell'}); r.mem = el('span'); r.bar = el('i'); r.ev = el('span', {class: 'n wide more', role: 'cell'}); r.items = el('span', {class: 'n wide more', role: 'cell'}); r.c = c; r.gl = gl;
  r.dots = el('button', {class: 'dots', type: 'button', 'aria-haspopup': 'menu'}, '⋯'); r.dots.onclick = e => menu(r.i, e.currentTarget); r.dot = el('i');
  r.n = el('div', {class: 'srow', role: 'row'}, r.stbox = el('span', {class: 'state keep a-state', role: 'cell'}, gl, el('span', {class: 'two'}, r.st, r.since)), el('span', {class: 'two keep a-name', role: 'cell'}, r.name, r.addr), el('span', {class: 'spark n a-rps', role: 'cell'}, c, r.rps), r.hit, r.p50, r.p99, r.q, r.cn, el('span', {class: 'memcell a-mem', role: 'cell'}, r.mem, el('span', {class: 'bar'}, r.bar)), r.ev, r.items, el('span', {class: 'keep a-dots', role: 'cell'}, r.dots));
  r.n.onpointerenter = () => hover(r.i); r.n.onpointerleave = r.dots.onblur = () => hover(-1); r.dots.onfocus = () => { if (r.dots.matches(':focus-visible')) hover(r.i); }; return r;
}
parts.servers = {box: 'servers', draw() {
  const t = S.topo, k = S.tick, m = S.mem; if (!t || !k || !body) return; const n = t.servers.length, s = k.s;
  const val = {state: i => s.st[i] === 'up' ? 9 : 0, name: i => t.servers[i].name, rps: i => s.rps[i], hit: i => m ? m.hit[i] : 0, p50: i => s.p50[i], p99: i => s.p99[i], q: i => s.q[i], cn: i => s.cn[i], mem: i => m && m.used[i] / m.limit[i], ev: i => m && m.ev[i], items: i => m && m.items[i]}[sort.by];
  order = t.servers.map((_, i) => i); if (filter) { const f = filter.toLowerCase(); order = order.filter(i => (t.servers[i].name + ' ' + t.servers[i].addr + ' ' + s.st[i]).toLowerCase().includes(f)); }
  if (val) order.sort((a, b) => { const x = val(a), y = val(b); return sort.dir * (typeof x === 'string' ? x.localeCompare(y) : (x || 0) - (y || 0)) || a - b; }); else if (n > 12 || innerWidth < 600) order.sort((a, b) => (s.st[a] === 'up') - (s.st[b] === 'up') || a - b);
  for (const h of head.children) h.setAttribute('aria-sort', h._by && h._by === sort.by ? sort.dir > 0 ? 'ascending' : 'descending' : 'none');
  const many = n > 12 && body.clientHeight > 0 && getComputedStyle(body).height !== 'auto', from = many ? Math.max(0, Math.floor(body.scrollTop / VROW) - 2) : 0, to = many ? Math.min(order.length, from + 14) : Math.min(order.length, 40);
  if (many) body.firstChild.style.height = order.length * VROW + 'px';
  const want = to - from; while (rows.length < want) { const r = newRow(); rows.push(r); body.append(r.n); }
  rows.forEach((r, j) => {
    if (j >= want) { r.n.hidden = true; r.n.style.display = 'none'; return; } r.n.style.display = ''; const i = order[from + j], x = t.servers[i], g = stateOf(s.st[i]), gone = away(s.st[i]);
    if (many) { r.n.classList.add('abs'); r.n.style.top = (from + j) * VROW + 'px'; } r.i = i; r.n.classList.toggle('gone', gone); glyph(r.gl, g); r.gl.setAttribute('class', 'st-' + g[1]); r.st.className = g[1] === 'good' ? '' : 'st-' + g[1];
    text(r.st, g[0]); text(r.since, 'for ' + ago(k.t - s.since[i])); text(r.name, x.brief); text(r.addr, x.joins ? s.st[i] === 'joins' && s.why[i] || 'new' : flat(share(x.share)) + (few() ? ' of keys' : '')); r.name.title = x.name; r.addr.title = x.addr; r.n.title = s.why[i] || '';
    put(r.rps, rate(s.rps[i])); r.rps.title = `and ${flat(rate(s.own[i]))} of Ringside’s own: pings, view records, repairs`; spark(r.c, S.rates, p => p.v[i], gone ? C('s7') : hue(i)); put(r.hit, gone && !s.rps[i] ? ['–', ''] : share(m ? m.hit[i] : null)); put(r.p50, dur(s.rps[i] ? s.p50[i] : null)); put(r.p99, dur(s.rps[i] ? s.p99[i] : null)); text(r.q, String(s.q[i])); text(r.cn, String(s.cn[i]));
    if (m && m.used[i] != null) { const f = m.used[i] / m.limit[i]; const lim = bytes(m.limit[i]); text(r.mem, `${(lim[0] * f).toFixed(1)} of ${flat(lim)}`); r.bar.style.width = (100 * f).toFixed(1) + '%'; put(r.ev, rate(m.ev[i])); text(r.items, count(m.items[i])); } else { text(r.mem, m && !x.joins ? 'no answer' : '–'); r.bar.style.width = '0'; put(r.ev, ['–', '']); text(r.items, '–'); }
    r.dots.setAttribute('aria-label', 'Actions for ' + x.name);
  });
  if (n > 12) { const top = Math.max(...s.rps, 1), kids = $('sgrid').children; for (let i = 0; i < n; i++) { const g = stateOf(s.st[i])[1], c = g === 'good' ? 'h' + Math.min(4, Math.floor(5 * s.rps[i] / top)) : g; if (kids[i]._c !== c) kids[i].className = kids[i]._c = c; } }
  const count_ = x => s.st.filter(st => st === x).length, joins = count_('joins'); text($('serverswhat'), `${count_('up')} of ${n - joins} up${joins ? `, ${joins} new` : ''}`);
}};

// ---- what an operator may do
const menuBox = $('menu');
function menu(i, at) {
  const s = S.topo.servers[i], st = S.tick.s.st[i], can = S.hello.control && !s.joins, item = (label, f, always) => { const b = el('button', {type: 'button', role: 'menuitem', disabled: !can && !always, title: can || always ? '' : s.joins ? 'It is new, and not in use yet' : 'Control is off for this page: see admin.control'}, label); b.onclick = () => { close(); f(); }; return b; };
  const close = () => { menuBox.hidden = true; at.focus(); }; const says = q => q.replaceAll('{server}', () => s.name).replaceAll('{share}', flat(share(s.share))).replaceAll('{rps}', count(S.tick.s.rps[i])), go = what => () => { const q = S.topo.orders[what], title = says(q.title); ask(title, says(q.text), says(q.yes), () => BE.order(s.name, what).catch(e => tell(title, e.message))); };
  const k = S.tick.s, next = k.next[i] || '', about = el('p', {id: 'menuwhy'}, el('b', {}, s.name), s.name === s.addr ? '' : ' ' + s.addr, el('br'), `${stateOf(st)[0]} for ${ago(S.tick.t - k.since[i])}${k.why[i] ? ': ' + k.why[i] : ''}`);
  if (next) about.append(el('br'), next[0].toUpperCase() + next.slice(1));
  const list = el('div', {role: 'menu', 'aria-label': 'Actions for ' + s.name, 'aria-describedby': 'menuwhy'});
  menuBox.replaceChildren(about, list); list.append(
    S.tick.s.ord[i] ? item('Restore…', go('restore')) : item('Drain…', go('drain')), item('Take down…', go('down')), el('hr'), ...(S.hello.faults ? [item('Make it hang for 10 s…', go('hang'))] : []),
    item('Copy its address', () => navigator.clipboard && navigator.clipboard.writeText(s.addr), true));
  const r = at.getBoundingClientRect(); menuBox.hidden = false; menuBox.style.left = Math.max(8, r.right + scrollX - menuBox.offsetWidth) + 'px'; menuBox.style.top = r.bottom + scrollY + 4 + 'px'; (menuBox.querySelector('button:enabled') || at).focus();
  menuBox.onkeydown = e => { const l = [...menuBox.querySelectorAll('button:enabled')], p = l.indexOf(doc.activeElement); if (e.key === 'Escape') close(); else if (e.key === 'ArrowDown') l[(p + 1) % l.length].focus(); else if (e.key === 'ArrowUp') l[(p + l.length - 1) % l.length].focus(); else return; e.preventDefault(); };
}
doc.addEventListener('pointerdown', e => { if (!menuBox.hidden && !menuBox.contains(e.target)) menuBox.hidden = true; });
function tell(title, words) { ask(title, words, '', () => {}); }
function ask(title, words, yes, f) { const d = $('ask'); d.querySelector('.danger').hidden = !yes; text(d.querySelector('[value=no]'), yes ? 'Cancel' : 'Close'); text(d.querySelector('h2'), title); text(d.querySelector('p'), words); const b = d.querySelector('.danger'); text(b, yes); d.onclose = () => { if (d.returnValue === 'yes') f(); }; d.returnValue = 'no'; d.showModal(); }

// ---- traffic over time
const of = (...ops) => k => ops.reduce((a, o) => a + (k.ops[o] || 0), 0), KNOWN = of('get', 'gets', 'gat', 'gats', 'set', 'cas', 'replace', 'append', 'prepend', 'add', 'incr', 'decr', 'delete');
const CH = [
  {name: 'Requests by command', unit: rate, stack: true, set: [['get', 'hit', of('get', 'gets', 'gat', 'gats')], ['set', 'stored', of('set', 'cas', 'replace', 'append', 'prepend')], ['add', 's3', of('add')], ['incr', 's4', of('incr', 'decr')], ['delete', 's7', of('delete')], ['other', 's5', k => Math.max(0, rateOf(k) - KNOWN(k))]]},
  {name: 'Outcomes', unit: rate, stack: true, set: [['hit', 'hit', k => k.oc.hit], ['miss', 'miss', k => k.oc.miss], ['stored', 'stored', k => k.oc.stored], ['done', 'ok', k => k.oc.ok], ['rejected', 'refused', k => k.oc.refused], ['failed', 'fail', k => k.oc.fail]]},
  {name: 'Latency', unit: dur, log: true, set: [['p50', 's4', k => k.lat[0]], ['p90', 's0', k => k.lat[1]], ['p99', 's3', k => k.lat[2]]]},
];
let hoverT = 0, pinned = Date.parse(query.get('at') || '') || 0, span = query.get('minutes') === '15' ? 15 * MIN : 3 * MIN;
if (pinned && Date.now() - pinned > 3 * MIN) span = KEPT;
const moment = t => new Date(t).toISOString().slice(0, 19) + 'Z';
function keepLink() { // the address shows the same again
  const q = new URLSearchParams(location.search), say = (k, v) => v ? q.set(k, v) : q.delete(k);
  say('pool', S.topo && S.topo.pools.length > 1 ? S.topo.pool : ''); say('minutes', span === KEPT ? '15' : ''); say('at', pinned ? moment(pinned) : ''); history.replaceState(null, '', '?' + q.toString().replaceAll('%3A', ':') + location.hash);
}
function pin(t) { pinned = t; if (t && S.tick && S.tick.t - t > span) setSpan(KEPT); keepLink(); mark('charts', 'events'); }
function setSpan(ms) { span = ms; for (const b of $('span').children) b.setAttribute('aria-pressed', b.value * MIN === span); keepLink(); mark('topo', 'charts'); }
for (const b of $('span').children) { b.onclick = () => setSpan(b.value * MIN); b.setAttribute('aria-pressed', b.value * MIN === span); }
$('unpin').onclick = () => pin(0);
for (const ch of CH) {
  ch.c = el('canvas', {role: 'img', 'aria-label': ch.name + ' over time'}); ch.leg = el('div', {class: 'leg' + (ch.set.length === 3 ? ' three' : '')}); ch.vals = ch.set.map(([n, c]) => { const b = el('b', {}, '–'), i = el('i'); i.dataset.c = c; ch.leg.append(el('span', {}, i, n, b)); return [b, i]; });
  ch.box = el('div', {class: 'chart'}, el('h3', {}, ch.name, ch.at = el('span', {class: 'dim'})), ch.c, ch.leg); $('charts').append(ch.box);
  const under = e => { const w = ch.c.clientWidth - PADL; return S.T.length ? S.T[S.T.length - 1] - (w - (e.offsetX - PADL)) / w * span : 0; };
  ch.c.addEventListener('pointermove', e => { hoverT = under(e); mark('charts'); }); ch.c.addEventListener('click', e => pin(under(e))); ch.c.addEventListener('pointerleave', () => { hoverT = 0; mark('charts'); });
}
const PADL = 48;
function nice(v) { const p = 10 ** Math.floor(Math.log10(v || 1)), f = v / p; return (f <= 1 ? 1 : f <= 1.5 ? 1.5 : f <= 2 ? 2 : f <= 3 ? 3 : f <= 5 ? 5 : f <= 7.5 ? 7.5 : 10) * p; }
parts.charts = {box: 'traffic', draw() {
  const T = S.T, K = S.ticks; if (!T.length) return; const end = T[T.length - 1]; const want = hoverT || pinned, begin = end - span; let at = T.length - 1; if (want) { let best = 1e18; T.forEach((t, i) => { const d = Math.abs(t - want); if (d < best) { best = d; at = i; } }); if (best > BRIDGE + (K[at].span || 0)) at = -1; }
  let a0 = T.findIndex(t => t >= begin); a0 = Math.max(0, a0 - 1); const TT = T.slice(a0), KK = K.slice(a0), breaks = TT.map((t, i) => !i || t - KK[i].span - TT[i - 1] > BRIDGE);
  $('pinned').hidden = !pinned; if (pinned) text($('pinnedat'), clock(pinned) + ' UTC' + (pinned < end - KEPT ? ', which is not kept any more' : ''));
  for (const ch of CH) {
    const s = surface(ch.c); if (!s) continue; const {g, w, h} = s, pw = w - PADL, ph = h - 20, y0 = 6; g.font = '12px Inter, system-ui, sans-serif'; g.textBaseline = 'middle'; const x = t => PADL + pw * (1 - (end - t) / span);
    let top, y, ticks;
    if (ch.log) { const lo = 2, hi = 6.35; y = v => y0 + ph * (1 - (Math.log10(Math.max(v, 100)) - lo) / (hi - lo)); ticks = [100, 1000, 1e4, 1e5, 1e6]; }
    else { top = nice(Math.max(10, ...KK.map(k => ch.set.reduce((a, f) => a + (f[2](k) || 0), 0)))); if (ch.top && top < ch.top && top > ch.top * .45) top = ch.top; ch.top = top; y = v => y0 + ph * (1 - v / top); ticks = [0, top / 2, top]; }
    g.textAlign = 'right'; for (const v of ticks) { const yy = Math.round(y(v)) + .5; g.strokeStyle = C('line'); g.lineWidth = 1; g.beginPath(); g.moveTo(PADL, yy); g.lineTo(w, yy); g.stroke(); g.fillStyle = C('dim'); g.fillText(ch.log ? flat(v < 1000 ? [v, 'µs'] : v < 1e6 ? [v / 1000, 'ms'] : [1, 's']) : count(v), PADL - 5, yy); }
    g.textAlign = 'center'; for (let m = 0; m <= 3; m++) { g.fillStyle = C('dim'); const xx = PADL + pw * m / 3; g.textAlign = m === 0 ? 'left' : m === 3 ? 'right' : 'center'; g.fillText(m === 3 ? 'now' : `−${(3 - m) * span / 3 / MIN} min`, xx, h - 6); }
    g.save(); g.beginPath(); g.rect(PADL, 0, pw, h - 14); g.clip();
    for (const e of S.events) if (e.mark && end - e.t < span) { const xx = Math.round(x(e.t)) + .5; g.strokeStyle = C(e.level); g.globalAlpha = .65; g.setLineDash([2, 3]); g.beginPath(); g.moveTo(xx, 2); g.lineTo(xx, y0 + ph); g.stroke(); g.setLineDash([]); g.globalAlpha = 1; }
    if (ch.stack) {
      let base = KK.map(() => 0);
      for (const [, col, f] of ch.set) { const up = KK.map((k, i) => base[i] + (f(k) || 0)); g.fillStyle = C(col); g.globalAlpha = .88; for (let i = 0; i < TT.length;) { const a = i++; while (i < TT.length && !breaks[i]) i++; g.beginPath(); g.moveTo(x(TT[a] - Math.min(KK[a].span, BRIDGE)), y(up[a])); for (let j = a; j < i; j++) g.lineTo(x(TT[j]), y(up[j])); for (let j = i - 1; j >= a; j--) g.lineTo(x(TT[j]), y(base[j])); g.lineTo(x(TT[a] - Math.min(KK[a].span, BRIDGE)), y(base[a])); g.fill(); } base = up; }
      g.globalAlpha = 1;
    } else for (const [, col, f] of ch.set) { g.strokeStyle = C(col); g.lineWidth = 1.5; pencil(g, KK, f, x, y); }
    if (want) { const xx = Math.round(x(at < 0 ? want : T[at])) + .5; g.strokeStyle = C('ink'); g.globalAlpha = .5; g.beginPath(); g.moveTo(xx, 0); g.lineTo(xx, y0 + ph); g.stroke(); g.globalAlpha = 1; }
    g.restore(); const k = K[at]; text(ch.at, want ? clock(at < 0 ? want : T[at]) : ''); ch.vals.forEach(([b, i], j) => { text(b, k ? flat(ch.unit(ch.set[j][2](k))) : '–'); i.style.background = `var(--${ch.set[j][1]})`; });
  }
}};

// ---- events, in the words that ringside top has too
function sentence(d) {
  const e = d.told; if (!e.text || e.only && (!S.topo || e.only !== S.topo.failover)) return null;
  return {t: d.t, level: e.tone, kind: e.kind, txt: e.text, sub: e.more || '', mark: e.mark, minor: e.minor};
}
// Slow commands and invalidated tags come in crowds: those in a row are one line, and the list stays one of what happened.
function crowds(l) {
  const out = []; for (const e of l) { const last = out[out.length - 1]; if (e.minor && last && last.minor && last.kind === e.kind) last.n++; else out.push(e.minor ? {...e, n: 1} : e); }
  return out.map(e => e.n > 1 ? {...e, txt: `${e.txt}, and ${e.n - 1} such before`} : e);
}
function evRow(e) { const g = mkGlyph(); glyph(g, stateOf(e.kind)); g.setAttribute('class', 'st-' + e.level); return el('li', pinned && Math.abs(pinned - e.t) < 1000 ? {'aria-current': 'true'} : {}, el('time', {dateTime: moment(e.t)}, el('button', {type: 'button', title: 'Show this time in the charts', onclick: () => pin(e.t)}, clock(e.t))), g, el('p', {}, short(e.txt), e.sub ? el('small', {}, ' · ' + short(e.sub)) : null)); }
parts.events = {draw() { const l = S.events; if (S.link === 'loading') return; const most = l.filter(x => !x.minor); $('recent').replaceChildren(...(most.length ? most.slice(0, 3).map(evRow) : [el('li', {class: 'none', style: 'display:block'}, 'No events since Ringside started.')])); $('log').replaceChildren(...(l.length ? crowds(l).map(evRow) : [el('li', {class: 'none', style: 'display:block'}, 'No events yet. Ejections, rejoins, overrides and reloads are listed here.')])); }};

// ---- memory by size of item
doc.body.append(svg('svg', {width: 0, height: 0, style: 'position:absolute', 'aria-hidden': 'true'}, svg('defs', {}, svg('pattern', {id: 'hatch', width: 5, height: 5, patternUnits: 'userSpaceOnUse', patternTransform: 'rotate(45)'}, svg('rect', {width: 5, height: 5, style: 'fill:var(--panel)'}), svg('line', {x1: 0, y1: 0, x2: 0, y2: 5, style: 'stroke:var(--hatch);stroke-width:1'})))));
function classes(list, page) { // of one server or of several, by size of chunk
  const by = new Map(); for (const s of list) for (const c of s || []) { const a = by.get(c[0]) || {size: c[0], held: 0, used: 0, over: 0, items: 0, ev: 0, unf: 0, age: 0}; a.held += c[1] * page; a.used += c[5]; a.over += Math.max(0, c[3] * c[0] - c[5]); a.items += c[6]; a.age = Math.max(a.age, c[7]); a.ev += c[8]; a.unf += c[9]; by.set(c[0], a); }
  return [...by.values()].sort((a, b) => a.size - b.size).filter(c => c.held > 0);
}
const sizeText = b => b < 1000 ? b + NB + 'B' : (b / 1024).toFixed(b < 10240 ? 1 : 0) + NB + 'KiB';
function slabChart(n, cl, sizes, top, big) {
  const w = n.clientWidth || 600, h = n.clientHeight || 200, l = big ? 44 : 0, b = big ? 22 : 2, t = big ? 24 : 6, pw = w - l, ph = h - t - b, out = [], y = v => t + ph * (1 - v / top), bw = pw / Math.max(1, sizes.length), wide = Math.min(46, Math.max(2, bw * .74));
  n.setAttribute('viewBox', `0 0 ${w} ${h}`);
  if (big) for (const v of [0, top / 2, top]) out.push(svg('line', {class: 'grid', x1: l, x2: w, y1: y(v), y2: y(v)}), svg('text', {x: l - 6, y: y(v) + 4, 'text-anchor': 'end'}, flat(bytes(v))));
  else out.push(svg('line', {class: 'grid', x1: 0, x2: w, y1: y(0), y2: y(0)}));
  const pos = new Map(sizes.map((s, i) => [s, i])), every = Math.max(1, Math.ceil(46 / bw)); let evx = -99;
  for (const c of cl) {
    const x = l + pos.get(c.size) * bw + (bw - wide) / 2, used = c.used, over = c.over, g = svg('g', {});
    g.append(svg('rect', {class: 'held', x: x + .5, width: wide - 1, y: y(c.held) + .5, height: Math.max(0, y(0) - y(c.held) - .5)}), svg('rect', {class: 'over', x, width: wide, y: y(used + over), height: Math.max(0, y(0) - y(used + over))}), svg('rect', {class: 'used', x, width: wide, y: y(used), height: Math.max(0, y(0) - y(used))}));
    if (c.ev >= .5) { const ty = y(c.held) - 3, m = x + wide / 2; g.append(svg('path', {class: 'ev', d: big ? `M${m - 5} ${ty - 8}h10l-5 7z` : `M${m - 3} ${ty - 4}h6l-3 4z`})); if (big && m - evx > 44) { g.append(svg('text', {class: 'evt', x: m, y: ty - 12, 'text-anchor': 'middle'}, flat(rate(c.ev)))); evx = m; } }
    if (big) { const tip = svg('rect', {class: 'hitbox', x: l + pos.get(c.size) * bw, width: bw, y: t - 20, height: ph + 20, tabindex: -1}); tip.append(svg('title', {}, `Items up to ${sizeText(c.size)}\n${flat(bytes(c.held))} held: ${flat(bytes(c.used))} data, ${flat(bytes(c.over))} rounded up, ${flat(bytes(Math.max(0, c.held - c.used - c.over)))} free\n${count(c.items)} items, the oldest ${ago(c.age * 1000)}\n${flat(rate(c.ev))} evicted, ${flat(rate(c.unf))} never read`)); g.append(tip); }
    out.push(g);
  }
  if (big) sizes.forEach((s, i) => { if (i % every === 0) out.push(svg('text', {x: Math.min(w, l + (i + .5) * bw + (l + (i + .5) * bw + 22 > w ? 22 : 0)), y: h - 5, 'text-anchor': l + (i + .5) * bw + 22 > w ? 'end' : 'middle'}, sizeText(s))); });
  n.replaceChildren(...out);
}
let slabBtns = [];
parts.slabs = {box: 'memory', draw() {
  const d = S.slabs, t = S.topo; if (!d || !t) return; const list = d.servers.map((s, i) => [i, s]).filter(x => x[1]).slice(0, t.servers.length > 8 ? 5 : 8), all = classes([d.sum], d.page), sizes = all.map(c => c.size), big = S.slab >= 0 && d.servers[S.slab] ? classes([d.servers[S.slab]], d.page) : all;
  const per = list.map(([i, s]) => [i, classes([s], d.page)]), peak = Math.max(...per.flatMap(p => p[1].map(c => c.held)), d.page), fig = $('slabbig'), tot = big.reduce((a, c) => [a[0] + c.held, a[1] + c.used, a[2] + c.over, a[3] + c.ev], [0, 0, 0, 0]), cap = fig.querySelector('figcaption');
  const own = S.mem ? asked(S.mem).length : t.servers.length, told = S.mem ? S.mem.used.filter(x => x != null).length : own, nServ = S.slab < 0 ? told < own ? `${told} of ${own} servers` : told > 1 ? `All ${told} servers` : 'The server' : t.servers[S.slab].name;
  cap.replaceChildren(el('b', {}, nServ), big.length ? `${flat(bytes(tot[0]))} held, ${flat(share(tot[1] / tot[0], 0))} of it data` : 'nothing is stored yet', tot[3] >= .5 ? el('span', {class: 'st-bad'}, flat(rate(tot[3])) + ' evicted') : '');
  const top = Math.max(d.page * 2, nice(Math.max(...big.map(c => c.held), 1) / d.page) * d.page); slabChart(fig.querySelector('svg'), big, sizes, top, true); fig.querySelector('svg').setAttribute('aria-label', `${nServ}: memory by size of item` + (big.length ? `. ${flat(bytes(tot[0]))} held, ${flat(share(tot[1] / tot[0], 0))} of it data; most for items of up to ${big.toSorted((a, b) => b.held - a.held).slice(0, 3).map(c => sizeText(c.size)).join(', ')}${tot[3] >= .5 ? `; evicted: ${big.filter(c => c.ev >= .5).map(c => `${flat(rate(c.ev))} of up to ${sizeText(c.size)}`).join(', ')}` : ''}` : ''));
  const box = $('slabsmall'), want = [[-1, all], ...per]; while (slabBtns.length < want.length) { const b = el('button', {type: 'button'}, el('figcaption'), svg('svg', {'aria-hidden': 'true'})); b.onclick = () => { S.slab = b._i; mark('slabs'); }; slabBtns.push(b); box.append(b); } slabBtns.forEach((b, j) => { b.hidden = j >= want.length; });
  want.forEach(([i, cl], j) => { const b = slabBtns[j]; b._i = i; b.setAttribute('aria-pressed', S.slab === i); const f = cl.reduce((a, c) => [a[0] + c.held, a[1] + c.used], [0, 0]), ev = cl.reduce((a, c) => a + c.ev, 0); b.firstChild.replaceChildren(el('b', {}, i < 0 ? 'Sum' : t.servers[i].brief), `${flat(bytes(f[0]))}`, ev >= .5 ? el('span', {class: 'st-bad'}, '▾ ' + flat(rate(ev))) : ''); slabChart(b.lastChild, cl, sizes, i < 0 ? Math.max(...all.map(c => c.held), d.page) : peak, false); });
  const w = d.warnings, u = $('slabwarn'), g = (kind, lvl) => { const x = mkGlyph(); glyph(x, stateOf(kind)); x.setAttribute('class', 'st-' + lvl); return x; };
  u.replaceChildren(...(w.length ? w.slice(0, 3).map(x => el('li', {}, g('suspect', 'warn'), el('p', {}, el('b', {}, short(x.server)), ' ' + x.text + ' ', x.command ? el('code', {}, x.command) : null))) : big.length ? [el('li', {class: 'good'}, g('up', 'good'), el('p', {}, 'No class evicts while others have memory to spare.'))] : []));
}};
$('slabkey').append(...[['data', 'background:var(--used)'], ['rounded up to the class', 'background:var(--over)'], ['held, free', 'background:repeating-linear-gradient(45deg,var(--hatch) 0 1px,transparent 1px 4px);box-shadow:inset 0 0 0 1px var(--hatch)'], ['evicts', 'background:var(--bad);clip-path:polygon(0 15%,100% 15%,50% 90%)']].map(([n, s]) => el('span', {}, el('i', {style: s}), n)));

// ---- hot keys and prefixes
const bytesOf = b64 => Uint8Array.from(atob(b64), c => c.charCodeAt(0));
const barCell = () => el('td', {}, el('span', {class: 'inbar'}, el('span', {class: 'bar'}, el('i')), el('span')));
function keyCell() {
  const b = el('button', {class: 'k', type: 'button', title: 'Find its server'});
  b.onclick = () => { if (b._plain == null) return; look(b._plain); $('ring').scrollIntoView(); $('key').focus({preventScroll: true}); };
  return el('td', {}, b);
}
function setKey(b, k) { if (b._k === k) return; b._k = k; b.replaceChildren(shown(k)); try { b._plain = strict.decode(bytesOf(k)); } catch { b._plain = null; } b.disabled = b._plain == null; }
function fill(tb, list, none, make, draw) { // as many rows as there are; without any one that says so
  if (!list.length) { tb.replaceChildren(el('tr', {}, el('td', {colSpan: tb.parentNode.tHead.rows[0].cells.length, class: 'none'}, none))); return; }
  if (tb.querySelector('.none')) tb.replaceChildren(); while (tb.rows.length < list.length) tb.append(make()); while (tb.rows.length > list.length) tb.lastChild.remove();
  list.forEach((x, i) => draw(x, tb.rows[i]));
}
parts.hot = {box: 'keys', draw() {
  const d = S.hot, t = S.topo; if (!d || !t) return; const st = S.tick ? S.tick.s.st : [], top = Math.max(1e-9, ...d.keys.map(k => k.rps)), none = 'No key has been requested yet.';
  text($('hotwhat'), d.keys.length ? `the last ${count(d.win)}${NB}s, ${d.one_in > 1 ? `one request in ${count(d.one_in)} counted` : 'every request counted'}` : '');
  fill($('hot').tBodies[0], d.keys.slice(0, 12), none, () => { const c = el('span', {class: 'chip'}, el('i'), el('span')); return el('tr', {}, keyCell(), barCell(), el('td', {class: 'n opt'}), el('td', {class: 'n'}), el('td', {class: 'n opt'}), el('td', {class: 'opt'}, c)); }, (k, r) => {
    const c = r.cells, bar = c[1].firstChild, chip = c[5].firstChild, o = k.server; setKey(c[0].firstChild, k.key); r.title = `± ${flat(rate(k.off))}`;
    bar.firstChild.firstChild.style.width = (100 * k.rps / top).toFixed(1) + '%'; put(bar.lastChild, rate(k.rps)); put(c[2], share(k.share)); put(c[3], k.hit == null ? ['–', ''] : share(k.hit, k.hit < .995 ? 1 : 0)); put(c[4], [flat(bytes(k.bps)), '/s']);
    const s = o == null ? null : t.servers[o], stand = s && moved(st[o]) && k.substitute != null ? t.servers[k.substitute] : null; chip.firstChild.style.background = s ? hue(stand ? k.substitute : o) : 'none'; chip.className = 'chip' + (s && away(st[o]) ? ' out' : '');
    text(chip.lastChild, !s ? '–' : '\u200e' + ( stand ? `${brief(s.brief)} → ${stand.brief}` : k.replicas > 1 ? `${s.brief} +${k.replicas - 1}` : s.brief) + '\u200e'); chip.title = stand ? `${s.name} → ${stand.name}` : s ? s.name : '';
  });
  text($('prefixwhat'), d.prefixes.length ? 'up to the first colon' : '');
  fill($('prefix').tBodies[0], d.prefixes.slice(0, 12), 'Nothing yet.', () => el('tr', {}, el('td', {class: 'k'}), el('td', {class: 'n'}), barCell(), el('td', {class: 'n'})), (p, r) => {
    const c = r.cells, b = c[2].firstChild, i = b.firstChild.firstChild; if (c[0]._k !== p.key) { c[0]._k = p.key; c[0].replaceChildren(p.key ? shown(p.key) : '(other)'); }
    put(c[1], rate(p.rps)); i.style.width = 100 * (p.hit || 0) + '%'; i.style.background = 'var(--hit)'; b.firstChild.style.background = p.hit == null ? '' : 'var(--miss)'; b.firstChild.style.visibility = p.hit == null ? 'hidden' : ''; put(b.lastChild, p.hit == null ? ['no reads', ''] : share(p.hit)); put(c[3], [flat(bytes(p.bps)), '/s']);
  });
}};

// ---- why keys miss, and what the values cost
const label = (b64, other) => b64 ? shown(b64) : other, ms = v => v == null ? ['–', ''] : dur(1000 * v), work = s => s == null ? ['–', ''] : [flat(s < 3600 ? dur(1e6 * s) : split((s / 3600).toFixed(1), 'h')), '/s'];
const MOSTROUTES = 12; // in a table: those of which there is most
const busiest = (l, by) => l.length > MOSTROUTES ? [...l].sort((a, b) => by(b) - by(a)).slice(0, MOSTROUTES) : l, ofAll = l => l.length > MOSTROUTES ? `; ${MOSTROUTES} of ${count(l.length)} routes` : '';
parts.why = {box: 'why', draw() {
  const d = S.why; if (!d) return; const none = d.off ? 'Miss reasons are off: see admin.misses.' : 'No key has missed yet.', rows = d.routes.filter(r => Object.keys(r.why).length || r.saved != null), saved = sum(d.routes.map(r => r.saved || 0));
  text($('whywhat'), d.off ? '' : `the last ${ago(1000 * d.reach)}, ${d.chosen < 1 ? `one key in ${count(1 / d.chosen)}` : 'all keys'}${ofAll(rows)}`);
  text($('worthwhat'), rows.some(r => r.saved != null) ? `hits save ${flat(work(saved))}` : 'from a miss to the set that follows');
  fill($('whys').tBodies[0], busiest(rows, r => r.miss), none, () => el('tr', {}, el('td', {class: 'k'}), el('td', {class: 'n'}), el('td', {}, el('span', {class: 'whys'}, el('span', {class: 'bar'}), el('span'))), el('td', {class: 'n opt'})), (r, row) => {
    const c = row.cells, bar = c[2].firstChild.firstChild, means = S.hello.words.reasons.filter(x => r.why[x.name]).sort((a, b) => r.why[b.name] - r.why[a.name]), list = means.map(x => x.name), key = JSON.stringify(r.why);
    if (c[0]._k !== r.name) { c[0]._k = r.name; c[0].replaceChildren(label(r.name, '(all other keys)')); }
    put(c[1], rate(r.miss)); put(c[3], r.p50_ms == null ? ['–', ''] : [`${flat(ms(r.p50_ms))}, p99 ${flat(ms(r.p99_ms))}`, '']);
    if (row._key === key) return; row._key = key; row.title = means.map(x => `${x.name}: ${x.means}`).join('\n');
    bar.replaceChildren(...list.map(x => { const i = el('i', {class: 'w-' + x}); i.style.width = 100 * r.why[x] + '%'; return i; })); text(bar.nextSibling, list.map(x => `${x} ${flat(share(r.why[x], 0))}`).join(', ') || 'none lately');
  });
  fill($('worth').tBodies[0], d.prefixes.filter(p => p.p50_ms != null || p.miss > 0).slice(0, 12), none, () => el('tr', {}, el('td', {class: 'k'}), el('td', {class: 'n'}), el('td', {class: 'n'}), el('td', {class: 'n'})), (p, row) => {
    const c = row.cells; if (c[0]._k !== p.name) { c[0]._k = p.name; c[0].replaceChildren(label(p.name, '(other)')); }
    put(c[1], work(p.cost)); put(c[2], p.p50_ms == null ? ['–', ''] : [`${flat(ms(p.p50_ms))}, p99 ${flat(ms(p.p99_ms))}`, '']); put(c[3], work(p.saved)); row.title = p.cost_off ? `may be too high by ${flat(work(p.cost_off))}` : '';
  });
}};

// ---- what guards and tags do, and what copies are missing
parts.guards = {box: 'guards', draw() {
  const d = S.routes; if (!d || !has(d.lacks.map(l => l.server))) return; const cells = n => () => el('tr', {}, el('td', {class: 'k'}), ...Array.from({length: n}, () => el('td', {class: 'n'}))), r2 = v => d.win ? rate(v) : ['–', ''], v = d.invalidations;
  const route = (c, r) => { if (c._k === r.route) return; c._k = r.route; c.replaceChildren(label(r.route, '(all other keys)')); };
  $('guardbox').hidden = !d.guards.length; $('tagbox').hidden = !d.tags.length; $('nearbox').hidden = !d.near.length; $('copybox').hidden = !d.replicas;
  text($('guardwhat'), `${plural(sum(d.guards.map(g => g.ever)), 'rebuild')} saved since the start${ofAll(d.guards)}`);
  fill($('guard').tBodies[0], busiest(d.guards, g => g.leases + g.saved + g.old), '', cells(4), (g, row) => {
    const c = row.cells; c[3].className = 'n opt'; route(c[0], g); put(c[1], r2(g.leases)); put(c[2], r2(g.saved + g.old)); text(c[3], count(g.waiting)); put(c[4], g.p50_ms == null ? ['–', ''] : [`${flat(ms(g.p50_ms))}, p99 ${flat(ms(g.p99_ms))}`, '']);
    row.title = `leases granted ${flat(r2(g.leases))}, of which stored ${flat(r2(g.stored))}\nwaited and got the value ${flat(r2(g.saved))}, waited until the timeout ${flat(r2(g.late))}\ngot the old value ${flat(r2(g.old))}\nsets after the lease ended ${flat(r2(g.refused))}`;
  });
  text($('tagwhat'), `${plural(v.ever, 'invalidation')} by this instance${v.rate ? `, now ${flat(rate(v.rate))}` : ''}${v.p99_ms != null ? `, p99 ${flat(ms(v.p99_ms))}` : ''}${v.bad ? `; ${count(v.bad)} not received by all servers` : ''}${ofAll(d.tags)}`);
  fill($('tags').tBodies[0], busiest(d.tags, x => x.hits), '', cells(3), (t, row) => {
    const c = row.cells; c[3].className = 'n opt'; route(c[0], t); put(c[1], r2(t.hits)); put(c[2], r2(t.invalid)); put(c[3], r2(t.late_sets));
    row.title = `the tags of ${count(t.known)} keys are known${t.broken ? `\n${count(t.broken)} values could not be parsed: a client stores them without Ringside` : ''}`;
  });
  text($('nearwhat'), `${flat(rate(sum(d.near.map(n => n.hits))))} served without a request to a server${ofAll(d.near)}`);
  fill($('near').tBodies[0], busiest(d.near, n => n.hits), '', cells(4), (n, row) => {
    const c = row.cells; c[3].className = 'n opt'; route(c[0], n); put(c[1], r2(n.hits)); put(c[2], share(n.share)); put(c[3], ms(n.age_ms)); put(c[4], bytes(n.bytes));
    row.title = `served from the near cache ${flat(r2(n.hits))}, a server was asked ${flat(r2(n.asked))}\n${plural(n.values, 'value')} in the near cache; average age when served: ${flat(ms(n.age_ms))}`;
  });
  if (!d.replicas) return; const w = d.replicas;
  text($('copywhat'), `repaired ${flat(r2(w.repaired))}, resynced ${flat(r2(w.refilled))}${w.dropped ? `, dropped ${flat(r2(w.dropped))}` : ''}`);
  $('lacks').replaceChildren(...(d.lacks.length ? d.lacks : [null]).map(l => { const g = mkGlyph(), is = stateOf(l ? 'warm' : 'up'); glyph(g, is); g.setAttribute('class', 'st-' + is[1]); return el('li', {class: l ? '' : 'good'}, g, el('p', {}, l ? el('b', {}, S.topo.servers[l.server].brief) : 'No server lacks replicas, as far as this instance knows.', l && ' ' + l.text + '.')); }));
}};

// ---- which instances there are
parts.roll = {box: 'ringsides', draw() {
  const d = S.roll; if (!d) return; const T = s => plain(s);
  text($('rollwhat'), d.text + (d.of > d.list.length ? ` ${count(d.list.length)} of them are listed.` : '') + (d.bad ? ` ${plural(d.bad, 'entry').replace(/ys$/, 'ies')} could not be read.` : ''));
  fill($('roll').tBodies[0], d.list, '', () => el('tr', {}, el('td', {class: 'k'}), el('td'), el('td', {class: 'k opt'}), el('td'), el('td')), (r, row, i) => {
    const c = row.cells; row.className = r.other || r.other_placement ? 'differs' : ''; text(c[0], T(r.name) + (r === d.list[0] ? ' (this one)' : '')); text(c[1], T(r.version)); text(c[2], r.config); text(c[3], r.suspects ? T(short(r.suspects)) : 'none');
    text(c[4], r.text || 'yes');
  });
}};

// ---- traces: a row for each key, a letter for each event
function legend(list) { $('tkey').replaceChildren(...list.map(x => el('span', {}, el('span', {class: 'pairl'}, ...[...x.name].map(l => el('span', {class: 'l l-' + l}, l))), x.means))); }
const MOSTROWS = 12, traces = new Map(), others = new Set(); let tseen = 0, tdrop = 0, tsaid = '';
const lockOf = k64 => { const raw = atob(k64); return raw.startsWith('lock:') ? btoa(raw.slice(5)) : k64; }; // a lock stands in the row of what it locks
function traceIn(d) {
  tdrop += d.dropped;
  for (const e of d.rows) {
    const k = lockOf(e.key); tseen += e.n; let r = traces.get(k);
    if (!r) { if (traces.size >= MOSTROWS) { if (others.size < 10000) others.add(k); continue; } r = {k, q: [], sec: -1, at: [], clients: new Set()}; traces.set(k, r); }
    r.q.push(e); if (r.q.length > 400) r.q.splice(0, 200); r.at.push([e.t, e.n]); if (r.clients.size < 1000) r.clients.add(e.c); r.seen = e.t;
  }
  mark('trace');
}
parts.trace = {box: 'trace', draw() {
  const box = $('rows');
  for (const r of traces.values()) {
    if (!r.box) { r.flow = el('div', {class: 'flow'}); r.rate = el('span', {class: 'rate'}); const k = el('span', {class: 'k'}); k.append(shown(r.k)); r.box = el('div', {class: 'trow'}, k, r.flow, r.rate); box.append(r.box); }
    for (const {t, l, n, us, op, out, why, x} of r.q) {
      const sec = Math.floor(t / 1000); if (sec !== r.sec) { if (r.sec >= 0) r.flow.append(el('s')); r.sec = sec; r.cell = null; }
      if (r.cell && r.cell._l === l && r.cell._x === x && 'HIlM'.includes(l)) { r.cell._n += n; r.cell.lastChild.textContent = r.cell._n; }
      else { const c = el('span', {class: 'l l-' + l, title: `${clock(t)} ${S.hello.words.letters[l] || ''}: ${op} ${out}${why ? ', ' + why : ''}${us ? ', ' + flat(dur(us)) : ''}`}, l, el('sub', {}, n > 1 ? String(n) : '')); c._l = l; c._x = x; c._n = n; r.flow.append(c); if (x) r.flow.append(el('span', {class: 'l l-' + x, title: `why: ${S.hello.words.letters[x]} (${why})`}, x)); r.cell = c; }
    }
    r.q = []; while (r.flow.childElementCount > 130) r.flow.firstChild.remove(); const end = S.tick ? Math.max(S.tick.t, r.seen) : r.seen; r.at = r.at.filter(x => end - x[0] < 5000);
    text(r.rate, `${flat(rate(r.at.reduce((a, x) => a + x[1], 0) / 5))}, ${r.clients.size} client${r.clients.size > 1 ? 's' : ''}`);
  }
  text($('tracewhat'), tsaid || (traces.size ? `${count(tseen)} events, ${tdrop ? count(tdrop) + ' dropped' : 'none dropped'}${others.size ? `, ${count(others.size)}${others.size < 10000 ? '' : ' or more'} keys more than fit here` : ''}` : 'No matching requests yet.'));
}};
function follow(text) {
  traces.clear(); others.clear(); $('rows').replaceChildren(); tseen = tdrop = 0; const patterns = text.trim().split(/\s+/).filter(x => x);
  tsaid = patterns.length ? '' : 'Type a pattern: home:* traces the keys with this prefix, and their locks.'; BE.trace(patterns, traceIn, why => { tsaid = why; mark('trace'); }); mark('trace');
}
$('follow').addEventListener('submit', e => { e.preventDefault(); follow($('pattern').value); });
$('tstop').onclick = () => { BE.trace([]); tsaid = 'Stopped.'; mark('trace'); };

parts.about = {draw() { text($('about'), `Ringside ${S.hello.version}, ${S.hello.loops} loop${S.hello.loops > 1 ? 's' : ''}, since ${clock(S.hello.started)} UTC`); }};

// ---- themes, keys, sizes
const dark = matchMedia('(prefers-color-scheme: dark)'); let theme = query.get('theme') || (() => { try { return localStorage.getItem('theme'); } catch { return null; } })() || 'auto';
function dress() { root.dataset.theme = theme === 'auto' ? dark.matches ? 'dark' : 'light' : theme; text($('theme'), {auto: 'Auto', light: 'Light', dark: 'Dark'}[theme]); colours = {}; S.ringPaint = null; mark('topo', 'ring', 'charts', 'figures', 'servers', 'slabs', 'hot', 'events'); }
$('theme').onclick = () => { theme = {auto: 'light', light: 'dark', dark: 'auto'}[theme]; try { localStorage.setItem('theme', theme); } catch { } dress(); }; dark.addEventListener('change', dress);
$('pause').onclick = () => { paused = !paused; $('pause').setAttribute('aria-pressed', paused); text($('pause'), paused ? 'Resume' : 'Pause'); if (!paused) mark(); };
$('again').onclick = () => BE.connect();
$('pool').onchange = () => { S.want = $('pool').value; S.topo = S.ring = S.ringPaint = S.look = null; $('key').value = ''; forget();  BE.connect(); };
$('show').onclick = () => { $('pool').value = S.tick.worst; $('pool').onchange(); };
addEventListener('keydown', e => { if (e.target.matches('input, select, textarea') || e.metaKey || e.ctrlKey || e.altKey) { if (e.key === 'Escape' && e.target.id === 'key') { look(''); e.target.blur(); } return; } const go = id => { $(id).scrollIntoView(); $(id).focus({preventScroll: true}); }; if (e.key === '/') { $('key').focus(); e.preventDefault(); } else if (e.key === 't') $('theme').click(); else if (e.key === ' ' && !e.target.matches('button, a')) { $('pause').click(); e.preventDefault(); } else if (e.key === 'f') { $('trace').scrollIntoView(); $('pattern').focus({preventScroll: true}); e.preventDefault(); } else if (/^[1-9]$/.test(e.key)) { const a = doc.querySelectorAll('nav a:not([hidden])')[e.key - 1]; if (a) go(a.hash.slice(1)); } });
let sized; addEventListener('resize', () => { clearTimeout(sized); sized = setTimeout(() => { S.ringPaint = null; mark('ring', 'charts', 'figures', 'servers', 'slabs'); }, 60); });
for (const id of ['figures', 'ring', 'servers', 'traffic', 'memory', 'keys', 'why', 'guards', 'trace', 'ringsides']) watcher.observe($(id));
addEventListener('beforeprint', () => { for (const p of Object.values(parts)) p.draw(); });
dress(); mark('health', 'look', 'events'); BE.connect(); if (query.has('key')) look(query.get('key'));
setInterval(() => {
  if (Date.now() - Math.max(S.heard, S.tried) > S.silence) { S.silence = Math.min(2 * S.silence, 4 * SILENT); link('lost', '', true); BE.connect(); } // on a slow network the first events take longer
  if (S.link === 'lost') mark('health');
}, 1000);

// ---- Ringside itself
function backend() {
  let token = '', es, again, following;
  const at = (p, more = {}) => { const q = new URLSearchParams(more), pool = S.topo ? S.topo.pool : S.want; if (pool) q.set('pool', pool); return `${p}?${q}`; };
  const get = async p => { const r = await fetch(p); if (!r.ok) throw Error((await r.json()).error); return r; };
  const post = async (p, body) => { const r = await fetch(p, {method: 'POST', headers: {'Ringside-Control': token, ...(body ? {'Content-Type': 'application/json'} : {})}, body: body && JSON.stringify(body)}); if (!r.ok) throw Error((await r.json()).error); };
  return {
    connect() {
      clearTimeout(again); if (es) es.close(); const mine = es = new EventSource(at('api/stream')); S.tried = Date.now();
      es.onerror = () => { if (mine !== es) return; S.tried = Date.now(); link('lost', S.lostWhy); if (es.readyState !== EventSource.CLOSED) return; again = setTimeout(BE.connect, 2000); fetch(at('api/route', {key: 'a'})).then(r => r.ok ? null : r.json()).then(a => { if (a && S.link === 'lost') link('lost', a.error + '.'); }).catch(() => {}); };
      const take = (type, d) => on[type] && on[type](d);
      for (const t of ['hello', 'topo', 'history', 'tick', 'late', 'mem', 'slabs', 'hot', 'why', 'routes', 'roll', 'event']) es.addEventListener(t, e => {
        if (mine !== es) return; S.heard = Date.now(); if (S.link !== 'live') link('live'); const d = JSON.parse(e.data); if (t === 'hello') token = d.token;
        if (t !== 'history') return take(t, d); batching = true; for (const [k, v] of d.list) take(k, v); batching = false; mark('events', 'charts');
      });
    },
    ring: async gen => {
      const b = await (await get(at('api/ring', {gen}))).arrayBuffer(), n = new DataView(b).getUint32(0, true), r = JSON.parse(new TextDecoder().decode(new Uint8Array(b, 4, n))), points = r.kind === 'points' ? r.n : 0;
      r.points = new Uint32Array(b, 4 + n, points); r.owners = new Int32Array(b, 4 + n + 4 * points, r.n);
      if (r.before) r.owners = r.owners.map((_, i, all) => all[(i + r.n - 1) % r.n]); // drawn as what ends at a point
      return r;
    },
    route: async key => {
      const u8 = enc(key), L = await (await get(at('api/route', {key64: btoa(String.fromCharCode(...u8))}))).json();
      return Object.assign(L, {typed: key, hit: S.ring && S.ring.before ? L.points.map(i => (i + 1) % S.ring.n) : L.points});
    },
    trace: (patterns, take, ended) => { // a stream of its own, so that following begins and ends without the picture
      if (following) following.close(); following = null; if (!patterns.length) return;
      const q = 'api/trace?' + patterns.map(p => 'pattern=' + encodeURIComponent(p)).join('&'), mine = following = new EventSource(q);
      mine.addEventListener('trace', e => { if (mine === following) take(JSON.parse(e.data)); });
      mine.onerror = () => { if (mine !== following) return; mine.close(); following = null; fetch(q + '&for=0s').then(r => r.json()).then(a => ended(/^for=/.test(a.error) ? 'The trace has ended. Press Follow to start again.' : a.error + '.')).catch(() => ended('The connection is lost. Press Follow to start again.')); };
    },
    order: (server, what) => what === 'hang' ? post('control/faults', {server, pool: S.topo.pool, kind: 'hang', for: '10s'}) : post(at(`control/servers/${encodeURIComponent(server)}/${what}`)),
  };
}
})();
