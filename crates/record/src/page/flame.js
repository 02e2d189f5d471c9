'use strict';
// The flame graph: the CPU time of each program, below the program that started it; or sampled
// stacks.
const FLAME_ROW = 20;

// Builds a tree of program names with the time that each used itself. Parents come before children
// in the data.
function treeOfProcesses(data) {
  const root = { name: 'all', own: 0, children: new Map(), unit: 'µs' }, of = new Array(data.start.length);
  for (let at = 0; at < data.start.length; at++) {
    if (NAMES[data.outcome[at]] === 'tool') break;
    const above = data.parent[at] >= 0 ? of[data.parent[at]] : root, name = data.texts[data.label[at]];
    // A process with its parent's name, such as a subshell, is merged into the parent.
    of[at] = above.name === name ? above : below(above, name);
    of[at].own += data.cpu[at];
  }
  return root;
}

function treeOfStacks(stacks) {
  const root = { name: 'all', own: 0, children: new Map(), unit: 'samples' };
  for (const line of stacks.split('\n')) {
    const end = line.lastIndexOf(' ');
    if (end < 0) continue;
    let node = root;
    for (const frame of line.slice(0, end).split(';')) node = below(node, frame);
    node.own += Number(line.slice(end + 1));
  }
  return root;
}

function below(node, name) {
  let child = node.children.get(name);
  if (!child) {
    child = { name, own: 0, children: new Map(), parent: node };
    node.children.set(name, child);
  }
  return child;
}

class Flame {
  constructor(canvas, data, say) {
    Object.assign(this, { canvas, data, say });
    this.show('processes');
    canvas.addEventListener('click', event => this.click(event));
    canvas.addEventListener('keydown', event => this.key(event));
    canvas.addEventListener('pointermove', event => { canvas.style.cursor = this.under(event) ? 'pointer' : ''; });
  }

  show(what) {
    this.root = what === 'stacks' ? treeOfStacks(this.data.stacks) : treeOfProcesses(this.data);
    this.depth = 0;
    this.sum(this.root);
    this.top = this.chosen = this.root;
    this.draw();
  }

  // Computes the total of each node and sorts children by it. It is not recursive, because stacks
  // can be deep.
  sum(root) {
    const order = [[root, 0]];
    for (let k = 0; k < order.length; k++) {
      const [node, depth] = order[k];
      node.depth = depth;
      this.depth = Math.max(this.depth, depth);
      for (const child of node.children.values()) order.push([child, depth + 1]);
    }
    for (let k = order.length - 1; k >= 0; k--) {
      const node = order[k][0];
      node.sorted = [...node.children.values()].sort((a, b) => b.total - a.total);
      node.total = node.sorted.reduce((sum, child) => sum + child.total, node.own);
    }
  }

  draw() { requestAnimationFrame(() => this.paint()); }

  paint() {
    const [pen, width] = fit(this.canvas, (this.depth + 1) * FLAME_ROW + 6);
    this.colour = colours();
    pen.fillStyle = this.colour.paper;
    pen.fillRect(0, 0, width, (this.depth + 1) * FLAME_ROW + 6);
    pen.font = '12px system-ui, sans-serif';
    pen.textBaseline = 'middle';
    pen.textAlign = 'left';
    this.boxes = [];
    const above = [];
    for (let node = this.top.parent; node; node = node.parent) above.push(node);
    for (const node of above) this.box(pen, node, 0, width, true);
    const left = [[this.top, 0, width]];
    while (left.length) {
      const [node, x, wide] = left.pop();
      this.box(pen, node, x, wide, false);
      let at = x;
      for (const child of node.sorted) {
        const its = node.total ? child.total / node.total * wide : 0;
        if (its >= 0.5) left.push([child, at, its]);
        at += its;
      }
    }
  }

  box(pen, node, x, wide, isAbove) {
    const y = node.depth * FLAME_ROW + 3;
    // The colour is a hue derived from the program's name, pale enough for text.
    let hash = 0;
    for (let k = 0; k < node.name.length; k++) hash = (hash * 31 + node.name.charCodeAt(k)) >>> 0;
    pen.globalAlpha = isAbove ? 0.45 : 1;
    pen.fillStyle = `hsl(${18 + hash % 42} ${58 + hash % 20}% ${60 + hash % 12}%)`;
    pen.fillRect(x, y, Math.max(wide - 0.7, 0.5), FLAME_ROW - 2);
    pen.globalAlpha = 1;
    if (wide > 30) {
      pen.fillStyle = '#1b1206';
      const fits = Math.floor((wide - 8) / 6.4);
      pen.fillText(node.name.length > fits ? node.name.slice(0, Math.max(fits - 1, 1)) + '…' : node.name, x + 4, y + FLAME_ROW / 2 - 0.5);
    }
    if (node === this.chosen) {
      pen.strokeStyle = this.colour.accent;
      pen.lineWidth = 2;
      pen.strokeRect(x + 1, y, Math.max(wide - 2, 2), FLAME_ROW - 2);
    }
    this.boxes.push([x, y, wide, node]);
  }

  under(event) {
    const frame = this.canvas.getBoundingClientRect(), x = event.clientX - frame.left, y = event.clientY - frame.top;
    const found = this.boxes && this.boxes.find(([left, top, wide]) => x >= left && x < left + wide && y >= top && y < top + FLAME_ROW);
    return found && found[3];
  }

  click(event) {
    const node = this.under(event);
    if (node) { this.top = node; this.choose(node); }
  }

  choose(node) {
    this.chosen = node;
    const all = this.root.total || 1, unit = this.root.unit;
    const text = n => unit === 'µs' ? duration(n) : n + ' ' + unit;
    this.say(`${node.name}: ${text(node.total)} with all below it (${(node.total / all * 100).toFixed(1)} %), ${text(node.own)} itself`);
    this.draw();
  }

  key(event) {
    const { chosen } = this, siblings = chosen.parent ? chosen.parent.sorted : [chosen], at = siblings.indexOf(chosen);
    const act = {
      ArrowDown: () => chosen.sorted[0] && this.choose(chosen.sorted[0]),
      ArrowUp: () => chosen.parent && this.choose(chosen.parent),
      ArrowRight: () => siblings[at + 1] && this.choose(siblings[at + 1]),
      ArrowLeft: () => siblings[at - 1] && this.choose(siblings[at - 1]),
      Enter: () => { this.top = chosen; this.draw(); },
      Escape: () => { this.top = this.root; this.choose(this.root); },
    }[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }
}
