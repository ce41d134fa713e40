'use strict';
// Finds sections of the site's pages. The index is a script, and not JSON, so that the search also works
// in pages that are opened from a disk. It is loaded when the field gets the focus.

var searchIndex; // search-index.js sets it: pages are [path, title], sections are [page, anchor, heading, text]

// find returns the sections that contain all words of the query, the best first. Words match at their
// beginning, so that the first letters suffice.
function find(index, query, limit) {
  const words = query.toLowerCase().split(/[^\p{L}\p{N}_.:-]+/u).filter(Boolean);
  const starts = words.map((w) => new RegExp('(?<![\\p{L}\\p{N}])' + w.replace(/[.*+?^${}()|[\]\\-]/g, '\\$&'), 'giu'));
  const found = [];
  if (!words.length) return found;
  index.sections.forEach(([page, anchor, heading, text]) => {
    const [path, title] = index.pages[page];
    let score = 0;
    for (const start of starts) {
      const inText = Math.min((text.match(start) || []).length, 5);
      const inHeading = (heading.match(start) || []).length ? 12 : 0;
      const inTitle = (title.match(start) || []).length ? 6 : 0;
      if (!inText && !inHeading && !inTitle) return;
      score += inText + inHeading + inTitle;
    }
    if (!path.startsWith('docs/') || /\.\w+\.html$/.test(path)) score /= 2; // pages for users first
    found.push({ path, title, anchor, heading, text, score, starts });
  });
  return found.sort((a, b) => b.score - a.score).slice(0, limit);
}

if (typeof document !== 'undefined') {
  const top = document.currentScript.dataset.top, field = document.getElementById('search'), list = document.getElementById('found');

  // excerpt returns an element with the text around the first match.
  const excerpt = (f) => {
    const small = document.createElement('small');
    const at = Math.max(0, ...f.starts.map((s) => f.text.search(s)).filter((i) => i >= 0).slice(0, 1));
    const from = Math.max(0, at - 60), part = (from ? '… ' : '') + f.text.slice(from, from + 200);
    const marks = new RegExp(f.starts.map((s) => s.source).join('|'), 'giu');
    let done = 0;
    for (const m of part.matchAll(marks)) {
      const mark = document.createElement('mark');
      mark.textContent = m[0];
      small.append(part.slice(done, m.index), mark);
      done = m.index + m[0].length;
    }
    small.append(part.slice(done));
    return small;
  };

  const show = () => {
    list.hidden = !field.value.trim();
    if (list.hidden || !searchIndex) return;
    const found = find(searchIndex, field.value, 12);
    list.replaceChildren(...found.map((f) => {
      const item = document.createElement('li'), link = document.createElement('a');
      link.href = top + f.path + (f.anchor ? '#' + f.anchor : '');
      link.append(f.heading === f.title ? f.title : f.title + ' › ' + f.heading, excerpt(f));
      link.onclick = () => { list.hidden = true; };
      item.append(link);
      return item;
    }));
    if (!found.length) list.append(Object.assign(document.createElement('p'), { textContent: 'No page has all these words.' }));
  };

  field.addEventListener('focus', () => {
    if (searchIndex || document.getElementById('index')) return;
    document.head.append(Object.assign(document.createElement('script'), { id: 'index', src: top + 'search-index.js', onload: show }));
  });
  field.addEventListener('input', show);
  field.form.addEventListener('submit', (e) => { e.preventDefault(); list.querySelector('a')?.click(); });
  document.addEventListener('keydown', (e) => {
    if (e.key === '/' && document.activeElement !== field) { e.preventDefault(); field.focus(); }
    if (e.key === 'Escape') { list.hidden = true; field.blur(); }
  });
  document.addEventListener('click', (e) => { if (!field.form.contains(e.target)) list.hidden = true; });
} else {
  module.exports = find;
}
