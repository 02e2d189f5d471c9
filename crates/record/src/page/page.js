'use strict';
// Connects the parts of the page: the data, sortable tables, light and dark mode.
(async () => {
  const find = selector => document.querySelector(selector);
  sortable();
  const data = await unpacked();
  let timeline = null, flame = null;
  if (data && data.start.length && find('#lanes')) {
    timeline = new Timeline(find('#lanes'), data, at => describe(at));
    tools();
  }
  if (data && find('#flames')) flame = new Flame(find('#flames'), data, text => { find('#flame-detail').textContent = text; });
  themes();
  window.addEventListener('resize', () => { if (timeline) timeline.draw(); if (flame) flame.draw(); });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', repaint);
  // Set after the first frame: the time since the page was requested, in milliseconds.
  requestAnimationFrame(() => requestAnimationFrame(() => {
    document.documentElement.dataset.ready = Math.round(performance.now());
    window.larder = { timeline, flame, data };
  }));

  function repaint() {
    if (timeline) timeline.recolour();
    if (flame) flame.draw();
  }

  async function unpacked() {
    const text = find('#data').textContent.trim();
    if (!text) return null;
    try {
      const packed = atob(text), bytes = new Uint8Array(packed.length);
      for (let at = 0; at < packed.length; at++) bytes[at] = packed.charCodeAt(at);
      const plain = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'));
      return JSON.parse(await new Response(plain).text());
    } catch (error) {
      const place = find('#detail');
      if (place) place.textContent = 'This browser cannot unpack the data (' + error + '); the tables are complete.';
      return null;
    }
  }

  function describe(at) {
    const place = find('#detail');
    place.replaceChildren();
    if (at < 0) { place.textContent = 'Choose a process to see its details.'; return; }
    const { texts } = data, line = (...parts) => {
      const p = document.createElement('p');
      p.append(...parts);
      place.append(p);
    };
    const code = text => { const c = document.createElement('code'); c.textContent = text; return c; };
    const name = document.createElement('strong');
    name.textContent = texts[data.label[at]];
    if (NAMES[data.outcome[at]] === 'tool') {
      line(name, ` · from ${(data.start[at] / 1e6).toFixed(3)} s for ${duration(data.took[at])}`);
      if (texts[data.command[at]]) line(code(texts[data.command[at]]));
      line('reported by ', code(texts[data.cwd[at]]));
      return;
    }
    const ended = data.code[at] < 0 ? 'its end was not recorded' : 'exit code ' + data.code[at];
    line(name, ` · process ${data.pid[at]} · ${NAMES[data.outcome[at]] === 'none' ? 'no action' : NAMES[data.outcome[at]]} · ${ended}`);
    line(`from ${(data.start[at] / 1e6).toFixed(3)} s for ${duration(data.took[at])} · CPU ${duration(data.cpu[at])}, in the kernel ` +
      `${duration(data.kernel[at])} · peak ${(data.memory[at] / 1024).toFixed(1)} MiB · ${data.faults[at]} page faults`);
    line(code(texts[data.command[at]]));
    if (texts[data.cwd[at]]) line('in ', code(texts[data.cwd[at]]));
    const action = data.action.find(([process]) => process === at);
    if (action) line(texts[action[1]]);
    if (data.parent[at] >= 0) {
      const button = document.createElement('button');
      button.type = 'button';
      button.textContent = 'Its parent: ' + texts[data.label[data.parent[at]]];
      button.addEventListener('click', () => timeline.choose(data.parent[at], true));
      line(button);
    }
  }

  function tools() {
    const acts = { in: () => timeline.zoom(0.6), out: () => timeline.zoom(1 / 0.6), all: () => timeline.all() };
    for (const button of document.querySelectorAll('[data-do]')) button.addEventListener('click', acts[button.dataset.do]);
    let later = 0;
    find('#search').addEventListener('input', event => {
      clearTimeout(later);
      later = setTimeout(() => {
        const count = timeline.search(event.target.value);
        find('#found').textContent = count === null ? '' : `${count} of ${timeline.count}`;
      }, 120);
    });
    find('#search').addEventListener('keydown', event => {
      if (event.key === 'Enter') { event.preventDefault(); timeline.choose(-1, false); timeline.step(1); find('#lanes').focus(); }
    });
    find('#critical').addEventListener('change', event => { timeline.critical = event.target.checked; timeline.draw(); });
    for (const box of document.querySelectorAll('[data-outcome]')) {
      box.addEventListener('change', () => { timeline.shown[Number(box.dataset.outcome)] = box.checked; timeline.draw(); });
    }
    for (const radio of document.querySelectorAll('[name="flames"]')) {
      radio.addEventListener('change', () => flame.show(radio.value));
    }
    for (const row of document.querySelectorAll('tr[data-process]')) {
      row.tabIndex = 0;
      const go = () => {
        const at = Number(row.dataset.process);
        timeline.choose(at, true);
        timeline.zoomTo(at);
        find('#timeline').scrollIntoView();
      };
      row.addEventListener('click', go);
      row.addEventListener('keydown', event => { if (event.key === 'Enter') go(); });
    }
    document.addEventListener('keydown', event => {
      if (event.key === '/' && !/^(INPUT|TEXTAREA)$/.test(document.activeElement.tagName)) { event.preventDefault(); find('#search').focus(); }
    });
  }

  function themes() {
    const button = find('#theme'), root = document.documentElement;
    const isDark = () => root.dataset.theme ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
    const show = () => { button.setAttribute('aria-pressed', isDark()); button.textContent = isDark() ? 'Light' : 'Dark'; };
    button.addEventListener('click', () => { root.dataset.theme = isDark() ? 'light' : 'dark'; show(); repaint(); });
    show();
  }

  function sortable() {
    for (const table of document.querySelectorAll('table.sortable')) {
      table.querySelectorAll('thead th').forEach((head, column) => {
        const button = document.createElement('button');
        button.type = 'button';
        button.textContent = head.textContent;
        head.replaceChildren(button);
        button.addEventListener('click', () => sort(table, head, column));
      });
    }
  }

  function sort(table, head, column) {
    const falls = head.getAttribute('aria-sort') !== 'descending';
    for (const other of table.querySelectorAll('thead th')) other.removeAttribute('aria-sort');
    head.setAttribute('aria-sort', falls ? 'descending' : 'ascending');
    const value = row => row.cells[column] ? row.cells[column].textContent.trim() : '';
    const order = (a, b) => {
      const [x, y] = [value(a), value(b)], [n, m] = [parseFloat(x), parseFloat(y)];
      const by = Number.isNaN(n) || Number.isNaN(m) ? x.localeCompare(y) : n - m;
      return falls ? -by : by;
    };
    const body = table.tBodies[0];
    body.append(...[...body.rows].sort(order));
  }
})();
