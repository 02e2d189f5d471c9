'use strict';
// The timeline: a chart of busy processors, then one bar per process in lanes. A frame draws only
// what is in view.
// Spans that a build tool reported follow the processes, with the outcome 'tool'.
const NAMES = ['none', 'hit', 'miss', 'bypass', 'fallback', 'tool'];
const STRIP = 64, AXIS = 22, GAP = 8;
// Narrower bars have no edge and no name. PALE is the opacity of processes that are not selected.
const NARROW = 3, PALE = 0.16;

// Returns the current colours of the style sheet.
function colours() {
  const style = getComputedStyle(document.documentElement);
  const of = name => style.getPropertyValue('--' + name).trim();
  return { outcomes: NAMES.map(of), ink: of('ink'), soft: of('soft'), line: of('line'), idle: of('idle'), on: of('on'), accent: of('accent'), paper: of('paper') };
}

// Sizes a canvas to the screen's pixels. Returns its context, and its width in CSS pixels.
function fit(canvas, height) {
  const scale = window.devicePixelRatio || 1;
  const width = canvas.parentElement.clientWidth;
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    canvas.style.height = height + 'px';
  }
  const pen = canvas.getContext('2d');
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  return [pen, width];
}

function duration(us) {
  if (us >= 1e6) return (us / 1e6).toFixed(us >= 1e7 ? 1 : 2) + ' s';
  return us >= 1e3 ? (us / 1e3).toFixed(us >= 1e4 ? 0 : 1) + ' ms' : us + ' µs';
}

class Timeline {
  constructor(canvas, data, say) {
    Object.assign(this, { canvas, data, say, from: 0, to: Math.max(data.wall, 1), chosen: -1, critical: true });
    this.count = data.start.length;
    this.shown = NAMES.map(() => true);
    this.matches = null;
    this.byLane = Array.from({ length: data.lanes }, () => []);
    for (let at = 0; at < this.count; at++) this.byLane[data.lane[at]].push(at);
    this.row = data.lanes <= 48 ? 16 : data.lanes <= 120 ? 10 : 6;
    this.height = STRIP + AXIS + GAP + data.lanes * this.row + 4;
    this.waiting = false;
    this.frames = [];
    this.listen();
    this.recolour();
  }

  recolour() {
    this.colour = colours();
    // Colours as 32-bit pixels, with red in the lowest byte: first opaque, then pale.
    const word = (colour, alpha) => {
      const [red, green, blue] = [1, 3, 5].map(at => parseInt(colour.slice(at, at + 2), 16));
      return (Math.round(alpha * 255) << 24 | blue << 16 | green << 8 | red) >>> 0;
    };
    this.words = [1, PALE].flatMap(alpha => this.colour.outcomes.map(colour => word(colour, alpha)));
    this.draw();
  }

  // Schedules one repaint before the next frame, no matter how often it is called.
  draw() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => { this.waiting = false; this.paint(); });
  }

  x(us) { return (us - this.from) / (this.to - this.from) * this.width; }

  paint() {
    const began = performance.now();
    const [pen, width] = fit(this.canvas, this.height);
    this.width = width;
    pen.fillStyle = this.colour.paper;
    pen.fillRect(0, 0, width, this.height);
    this.paintStrip(pen);
    this.paintAxis(pen);
    pen.font = Math.min(12, this.row - 3) + 'px system-ui, sans-serif';
    pen.textBaseline = 'middle';
    this.paintLanes(pen);
    if (this.critical) this.paintCritical(pen);
    if (this.chosen >= 0) this.paintChosen(pen);
    this.frames.push(performance.now() - began);
    if (this.frames.length > 120) this.frames.shift();
  }

  paintStrip(pen) {
    const { busy, wall, processors } = this.data;
    const tall = STRIP - 14, most = Math.max(processors, 1) * 100, slice = wall / busy.length;
    pen.fillStyle = this.colour.idle;
    pen.fillRect(this.x(0), 14, this.x(wall) - this.x(0), tall);
    pen.fillStyle = this.colour.outcomes[0];
    const first = Math.max(0, Math.floor(this.from / slice)), last = Math.min(busy.length, Math.ceil(this.to / slice));
    for (let at = first; at < last; at++) {
      const high = Math.min(busy[at] / most, 1) * tall;
      if (high > 0) pen.fillRect(this.x(at * slice), 14 + tall - high, this.x((at + 1) * slice) - this.x(at * slice) + 0.5, high);
    }
    pen.fillStyle = this.colour.soft;
    pen.font = '11px system-ui, sans-serif';
    pen.textBaseline = 'alphabetic';
    pen.textAlign = 'left';
    pen.fillText('busy processors, 0 to ' + processors + ' (pale: idle)', 4, 11);
  }

  paintAxis(pen) {
    const span = this.to - this.from, rough = span / Math.max(2, this.width / 110);
    const power = Math.pow(10, Math.floor(Math.log10(rough)));
    const step = [1, 2, 5, 10].map(n => n * power).find(n => n >= rough) || power * 10;
    pen.strokeStyle = this.colour.line;
    pen.fillStyle = this.colour.soft;
    pen.font = '11px system-ui, sans-serif';
    pen.textAlign = 'left';
    pen.beginPath();
    for (let us = Math.ceil(this.from / step) * step; us <= this.to; us += step) {
      const x = Math.round(this.x(us)) + 0.5;
      pen.moveTo(x, STRIP);
      pen.lineTo(x, this.height);
      const digits = Math.max(0, Math.min(6, -Math.floor(Math.log10(step / 1e6))));
      pen.fillText((us / 1e6).toFixed(digits) + ' s', x + 3, STRIP + 14);
    }
    pen.stroke();
  }

  isShown(at) { return this.shown[this.data.outcome[at]] && (!this.matches || this.matches[at]); }

  // Returns the index of the first bar in a lane that ends after `us`. Bars of a lane do not
  // overlap.
  firstAfter(line, us) {
    const { start, took } = this.data;
    let low = 0, high = line.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (start[line[middle]] + took[line[middle]] < us) low = middle + 1; else high = middle;
    }
    return low;
  }

  // Bars narrower than NARROW become pixels of one image with one row per lane, which is then
  // stretched. So the cost does not depend on their number.
  paintLanes(pen) {
    const scale = window.devicePixelRatio || 1, dots = Math.max(1, Math.round(this.width * scale));
    if (!this.small || this.small.width !== dots) {
      this.small = document.createElement('canvas');
      this.small.width = dots;
      this.small.height = Math.max(1, this.data.lanes);
    }
    const small = this.small.getContext('2d'), picture = small.createImageData(dots, this.small.height);
    const words = new Uint32Array(picture.data.buffer), wide = [];
    for (let lane = 0; lane < this.byLane.length; lane++) this.dots(lane, words, dots, scale, wide);
    small.putImageData(picture, 0, 0);
    pen.imageSmoothingEnabled = false;
    for (let lane = 0; lane < this.byLane.length; lane++) {
      pen.drawImage(this.small, 0, lane, dots, 1, 0, this.top(lane), this.width, this.row - 2);
    }
    for (const at of wide) this.paintBar(pen, at);
    pen.globalAlpha = 1;
  }

  // Draws the narrow bars of a lane into the image, and collects the others in `wide`.
  dots(lane, words, dots, scale, wide) {
    const { start, took, outcome } = this.data, line = this.byLane[lane], row = lane * dots;
    const perUs = this.width / (this.to - this.from);
    for (let k = this.firstAfter(line, this.from); k < line.length; k++) {
      const at = line[k];
      if (start[at] > this.to) break;
      if (took[at] * perUs >= NARROW) { wide.push(at); continue; }
      const word = this.words[outcome[at] + (this.isShown(at) ? 0 : NAMES.length)];
      const first = Math.max(0, Math.floor((start[at] - this.from) * perUs * scale));
      const last = Math.min(dots - 1, Math.floor((start[at] + took[at] - this.from) * perUs * scale));
      for (let x = first; x <= last; x++) words[row + x] = word;
    }
  }

  paintBar(pen, at) {
    const { start, took, outcome, label, texts, lane } = this.data, y = this.top(lane[at]), tall = this.row - 2;
    const x0 = Math.max(this.x(start[at]), -2), x1 = Math.min(this.x(start[at] + took[at]), this.width + 2);
    const shown = this.isShown(at);
    pen.globalAlpha = shown ? 1 : PALE;
    pen.fillStyle = this.colour.outcomes[outcome[at]];
    pen.fillRect(x0, y, Math.max(x1 - x0 - 0.6, 1), tall);
    if (this.row < 10 || x1 - x0 <= 34) return;
    pen.fillStyle = shown ? this.colour.on : this.colour.soft;
    const left = Math.max(x0, 0), text = texts[label[at]], fits = Math.floor((x1 - left - 6) / 6.2);
    if (fits > 2) pen.fillText(text.length > fits ? text.slice(0, fits - 1) + '…' : text, left + 4, y + tall / 2 + 0.5);
  }

  top(lane) { return STRIP + AXIS + GAP + lane * this.row; }

  paintCritical(pen) {
    pen.fillStyle = this.colour.ink;
    const tall = this.row - 2, drawn = new Float64Array(this.data.lanes).fill(-1);
    for (const [at, from, to] of this.data.critical) {
      if (to < this.from || from > this.to) continue;
      const lane = this.data.lane[at], x = this.x(from), end = Math.max(this.x(to), x + 0.8);
      // Skip what is already drawn, because the path can have as many stretches as there are
      // processes.
      if (end <= drawn[lane] + 0.4) continue;
      pen.fillRect(x, this.top(lane) + tall - 2, end - x, 2.5);
      drawn[lane] = end;
    }
  }

  paintChosen(pen) {
    const { start, took, lane } = this.data, at = this.chosen, x = this.x(start[at]);
    pen.strokeStyle = this.colour.accent;
    pen.lineWidth = 2;
    pen.strokeRect(x - 1, this.top(lane[at]) - 1.5, Math.max(this.x(start[at] + took[at]) - x, 2) + 2, this.row + 1);
    pen.lineWidth = 1;
  }

  view(from, to) {
    const wall = Math.max(this.data.wall, 1), span = Math.min(Math.max(to - from, 20), wall * 1.02);
    this.from = Math.max(-wall * 0.01, Math.min(from, wall * 1.01 - span));
    this.to = this.from + span;
    this.draw();
  }

  zoom(factor, around) {
    const centre = around === undefined ? (this.from + this.to) / 2 : around;
    this.view(centre - (centre - this.from) * factor, centre + (this.to - centre) * factor);
  }

  all() { this.view(0, Math.max(this.data.wall, 1)); }

  choose(at, bring) {
    this.chosen = at;
    this.say(at);
    if (at >= 0 && bring) {
      const { start, took, lane } = this.data, span = this.to - this.from;
      if (start[at] + took[at] < this.from || start[at] > this.to) this.view(start[at] - span / 3, start[at] + span * 2 / 3);
      const box = this.canvas.parentElement, y = this.top(lane[at]);
      if (y < box.scrollTop || y > box.scrollTop + box.clientHeight - 20) box.scrollTop = y - box.clientHeight / 2;
    }
    this.draw();
  }

  zoomTo(at) {
    const { start, took } = this.data, room = Math.max(took[at] * 0.15, 50);
    this.view(start[at] - room, start[at] + took[at] + room);
  }

  at(event) {
    const box = this.canvas.getBoundingClientRect();
    const us = this.from + (event.clientX - box.left) / this.width * (this.to - this.from);
    const lane = Math.floor((event.clientY - box.top - this.top(0)) / this.row);
    const line = this.byLane[lane];
    if (!line) return [-1, us];
    const slack = (this.to - this.from) / this.width * 2, at = line[this.firstAfter(line, us - slack)];
    return [at !== undefined && this.data.start[at] <= us + slack ? at : -1, us];
  }

  // Chooses the next selected process, in the order in which they began.
  step(by) {
    for (let at = this.chosen + by; at >= 0 && at < this.count; at += by) {
      if (this.isShown(at)) return this.choose(at, true);
    }
  }

  search(words) {
    const wanted = words.trim().toLowerCase();
    if (!wanted) { this.matches = null; this.draw(); return null; }
    const { texts, label, command } = this.data;
    const hits = texts.map(text => text.toLowerCase().includes(wanted));
    this.matches = new Uint8Array(this.count);
    let count = 0;
    for (let at = 0; at < this.count; at++) {
      if (hits[label[at]] || hits[command[at]]) { this.matches[at] = 1; count++; }
    }
    this.draw();
    return count;
  }

  key(event) {
    const span = this.to - this.from;
    const act = {
      ArrowLeft: () => this.view(this.from - span / 8, this.to - span / 8),
      ArrowRight: () => this.view(this.from + span / 8, this.to + span / 8),
      ArrowDown: () => this.step(1),
      ArrowUp: () => this.step(-1),
      '+': () => this.zoom(0.6), '=': () => this.zoom(0.6), '-': () => this.zoom(1 / 0.6), '0': () => this.all(),
      Home: () => this.view(0, span), End: () => this.view(this.data.wall - span, this.data.wall),
      Enter: () => { if (this.chosen >= 0) this.zoomTo(this.chosen); },
      n: () => this.step(1), p: () => this.step(-1),
    }[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act();
  }

  listen() {
    const canvas = this.canvas;
    let held = null;
    canvas.addEventListener('keydown', event => this.key(event));
    canvas.addEventListener('wheel', event => {
      if (event.ctrlKey || event.metaKey) {
        event.preventDefault();
        this.zoom(Math.exp(event.deltaY / 300), this.at(event)[1]);
      } else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
        event.preventDefault();
        const by = event.deltaX / this.width * (this.to - this.from);
        this.view(this.from + by, this.to + by);
      }
    }, { passive: false });
    canvas.addEventListener('pointerdown', event => {
      held = { x: event.clientX, from: this.from, to: this.to, moved: false };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener('pointermove', event => {
      if (!held) { canvas.style.cursor = this.at(event)[0] >= 0 ? 'pointer' : 'grab'; return; }
      const by = (held.x - event.clientX) / this.width * (held.to - held.from);
      if (Math.abs(held.x - event.clientX) > 3) held.moved = true;
      if (held.moved) this.view(held.from + by, held.to + by);
    });
    canvas.addEventListener('pointerup', event => {
      if (held && !held.moved) this.choose(this.at(event)[0], false);
      held = null;
    });
    canvas.addEventListener('pointercancel', () => { held = null; });
    canvas.addEventListener('dblclick', event => { const [at] = this.at(event); if (at >= 0) this.zoomTo(at); });
  }
}
