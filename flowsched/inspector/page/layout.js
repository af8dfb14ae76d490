// Places for boxes and lines: fixed columns, few crossings, little slant. There is no chance in it.

const MOST_HEIGHT = 330;
const MOST_LINE = 26;
const MOST_OF_A_CORE = 9;
const LEAST_LINE = 1.6;
/** Boxes have one line where a column has more of them than this, or where two lines each would not fit. */
const DENSE = 15;
const TWO_LINES = 52;
const FEW_LINES = 30;
const HEADING = 44;
/** How much a drawing may be scaled to fit. */
const SMALLEST = 0.75;
const LARGEST = 1.35;

/** Give every box x, y, w, h and every line its path, as wide as there is room. */
function layOut(scene, width, height) {
  arrange(scene, width, height);
  // What will be made smaller to fit the height may be wider, and what leaves height is drawn larger and less wide.
  const scale = Math.max(SMALLEST, Math.min(LARGEST, (height - 8) / scene.height));
  if (Math.abs(scale - 1) > 0.03) arrange(scene, width / scale, height);
}

function arrange(scene, room, height) {
  const boxes = [...scene.boxes.values()];
  const tops = boxes.filter((box) => !box.parent);
  const columns = d3.range(4).map((c) => tops.filter((box) => box.column === c));
  const lane = tops.filter((box) => box.column < 0);
  const links = [...scene.links.values()].filter((link) => link.drawn);
  const most = d3.max(columns, (column) => column.length);
  const dense = most > DENSE || HEADING + most * TWO_LINES > 1.2 * height;
  scene.dense = dense;
  scaleLines(scene, columns, links);
  sizeBoxes(tops, links, dense);
  const ends = endsOf(scene, links);
  order(columns, ends);
  const widths = columns.map((column) => d3.max(column, (box) => box.w) || 0);
  const used = d3.range(4).filter((c) => widths[c]);
  const gaps = Math.max(1, used.length - 1);
  const gap = Math.max(scene.narrow ? 40 : 96, Math.min(420, (room - d3.sum(widths) - 24) / gaps));
  scene.gap = gap;
  let x = 12;
  for (const c of used) {
    scene.columns[c].x = x;
    scene.columns[c].w = widths[c];
    for (const box of columns[c]) box.x = x;
    x += widths[c] + gap;
  }
  relax(columns, ends, dense ? 6 : 12, dense ? 0.5 : 1);
  const bottom = d3.max(columns.flat(), (box) => box.y + box.h) || HEADING;
  placeLane(scene, lane, links, used, bottom);
  for (const box of boxes) {
    if (!box.parent) continue;
    const frame = scene.boxes.get(box.parent);
    box.x = frame.x + box.dx;
    box.y = frame.y + box.dy;
  }
  route(scene, links);
  scene.width = d3.max(boxes, (box) => box.x + box.w) + 12;
  scene.height = (d3.max(boxes, (box) => box.y + box.h) || HEADING) + 16;
  label(scene, links);
}

/** Thickness by flow: the busiest column fills the height, no line is a slab. */
function scaleLines(scene, columns, links) {
  const total = d3.max(columns, (column) => {
    const ids = new Set(column.map((box) => box.id));
    const root = (id) => scene.boxes.get(id).parent || id;
    return d3.max([
      d3.sum(links, (l) => (ids.has(root(l.source)) && !l.upright ? l.flow : 0)),
      d3.sum(links, (l) => (ids.has(root(l.target)) && !l.upright ? l.flow : 0)),
    ]);
  });
  const widest = d3.max(links, (link) => link.flow) || 1;
  const scale = Math.min(
    MOST_HEIGHT / (total || 1),
    MOST_LINE / widest,
    scene.what === "round" ? MOST_OF_A_CORE : Infinity,
  );
  for (const link of links) {
    link.thick = link.flow ? Math.max(LEAST_LINE, link.flow * scale) : 1.2;
    link.room = link.flow ? link.thick : 4;
    if (link.upright) link.thick = Math.min(link.thick, 14);
  }
}

function sizeBoxes(tops, links, dense) {
  const sides = new Map();
  for (const link of links) {
    listed(sides, `out ${link.source}`, link);
    listed(sides, `in ${link.target}`, link);
  }
  const widths = new Map();
  for (const box of tops) {
    if (box.framed) continue;
    const label = textWidth(box.label, FONT_SIZE, 600);
    const note = textWidth(box.note || "", NOTE_SIZE);
    const wide = dense ? label + (note ? note + 14 : 0) : Math.max(label, note);
    const widest = box.kind === "bundle" ? 420 : dense ? 340 : 300;
    box.w = Math.ceil(Math.max(72, Math.min(widest, wide + 24 + (box.expandable ? 18 : 0))));
    const flow = (side) => d3.sum(sides.get(`${side} ${box.id}`) || [], (link) => (link.flow ? link.room : 0));
    box.h = Math.ceil(Math.max(dense ? 22 : 40, flow("in") + 8, flow("out") + 8));
    widths.set(box.column, Math.max(widths.get(box.column) || 0, box.w));
  }
  for (const box of tops) if (!box.framed) box.w = widths.get(box.column);
}

/** Neighbours by box, frames for what is in them. */
function endsOf(scene, links) {
  const root = (id) => scene.boxes.get(scene.boxes.get(id).parent || id);
  const ends = new Map();
  for (const link of links) {
    const a = root(link.source);
    const b = root(link.target);
    if (a === b || a.column < 0 || b.column < 0) continue;
    // What shows only for what is chosen moves nothing.
    if (!link.flow && !scene.zero) continue;
    const weight = link.flow ? link.thick : 0.05;
    const at = (id, box) =>
      scene.boxes.get(id).dy !== undefined ? scene.boxes.get(id).dy + scene.boxes.get(id).h / 2 : box.h / 2;
    listed(ends, a.id, { box: b, weight, own: at(link.source, a), far: at(link.target, b) });
    listed(ends, b.id, { box: a, weight, own: at(link.target, b), far: at(link.source, a) });
  }
  return ends;
}

function order(columns, ends) {
  for (const column of columns) column.forEach((box, i) => (box.rank = i));
  const sweep = (column, sideOf) => {
    for (const box of column) {
      const near = (ends.get(box.id) || []).filter((end) => sideOf(end.box));
      const total = d3.sum(near, (end) => end.weight);
      const position = (end) => end.box.rank / Math.max(1, columns[end.box.column].length - 1) + end.far / 1e5;
      box.pull = total
        ? d3.sum(near, (end) => end.weight * position(end)) / total
        : box.rank / Math.max(1, column.length - 1);
    }
    // What is gathered stays below what it was gathered from.
    column.sort((a, b) => (a.kind === "bundle") - (b.kind === "bundle") || a.pull - b.pull || a.rank - b.rank);
    column.forEach((box, i) => (box.rank = i));
  };
  for (let round = 0; round < 10; round += 1) {
    for (let c = 1; c < columns.length; c += 1) sweep(columns[c], (box) => box.column < c);
    for (let c = columns.length - 2; c >= 0; c -= 1) sweep(columns[c], (box) => box.column > c);
  }
}

/** Heights: every box as near to its neighbours as the others let it. */
function relax(columns, ends, gap, pull) {
  for (const column of columns) {
    let y = 0;
    for (const box of column) {
      box.y = y;
      y += box.h + gap;
    }
  }
  const tallest = d3.max(columns, (column) => d3.sum(column, (box) => box.h + gap)) || 0;
  for (const column of columns) {
    const spare = (tallest - d3.sum(column, (box) => box.h + gap)) / 2;
    // Where there are many, they are spread evenly, too.
    const share = pull < 1 ? (2 * spare) / Math.max(1, column.length) : 0;
    column.forEach((box, i) => (box.y += share ? share * (i + 0.5) : spare));
    for (const box of column) box.even = box.y;
  }
  const settle = (column) => {
    for (let i = 1; i < column.length; i += 1)
      column[i].y = Math.max(column[i].y, column[i - 1].y + column[i - 1].h + gap);
    const end = column.length - 1;
    if (end < 0) return;
    column[end].y = Math.min(column[end].y, Math.max(tallest, 0) - column[end].h);
    for (let i = end - 1; i >= 0; i -= 1) column[i].y = Math.min(column[i].y, column[i + 1].y - column[i].h - gap);
    if (column[0].y < 0) {
      column[0].y = 0;
      for (let i = 1; i <= end; i += 1) column[i].y = Math.max(column[i].y, column[i - 1].y + column[i - 1].h + gap);
    }
  };
  for (let round = 0; round < 12; round += 1) {
    const strength = 0.9 ** round;
    const forth = round % 2 === 0 ? columns : [...columns].reverse();
    for (const column of forth) {
      for (const box of column) {
        const near = ends.get(box.id) || [];
        const total = d3.sum(near, (end) => end.weight);
        if (!total) continue;
        const wanted = d3.sum(near, (end) => end.weight * (end.box.y + end.far - end.own)) / total;
        box.y += (pull * wanted + (1 - pull) * box.even - box.y) * strength;
      }
      settle(column);
    }
  }
  const top = d3.min(columns.flat(), (box) => box.y) || 0;
  for (const box of columns.flat()) box.y = Math.round(box.y - top + HEADING);
}

/** Those who wait: a lane below everything else. */
function placeLane(scene, lane, links, used, bottom) {
  if (!lane.length) {
    scene.laneTop = null;
    return;
  }
  const at = scene.columns[used.includes(2) ? 2 : used[used.length - 1]];
  lane.sort((a, b) => b.flow - a.flow || (a.kind === "bundle") - (b.kind === "bundle"));
  scene.laneTop = bottom + 20;
  scene.laneRoom = at.x;
  let y = scene.laneTop + 8;
  for (const box of lane) {
    box.x = at.x;
    box.y = y;
    y += box.h + 6;
  }
}

/** Ends of lines side by side on the edge of a box, in the order in which they go. */
function route(scene, links) {
  const box = (id) => scene.boxes.get(id);
  const centre = (one) => one.y + one.h / 2;
  const spread = (ends, key, other) => {
    for (const [id, list] of ends) {
      const one = box(id);
      list.sort((a, b) => centre(box(other(a))) - centre(box(other(b))) || box(other(a)).x - box(other(b)).x);
      const height = one.framed && one.kind === "card" ? Math.min(HEAD, one.h) : one.h;
      const total = d3.sum(list, (link) => link.room);
      const shrink = Math.min(1, (height - 6) / total);
      let y = one.y + height / 2 - (total * shrink) / 2;
      for (const link of list) {
        link[key] = y + (link.room * shrink) / 2;
        y += link.room * shrink;
      }
    }
  };
  const out = new Map();
  const into = new Map();
  for (const link of links) {
    if (link.upright) continue;
    listed(out, link.source, link);
    listed(into, link.target, link);
  }
  spread(out, "y0", (link) => link.target);
  spread(into, "y1", (link) => link.source);
  for (const link of links) {
    const a = box(link.source);
    const b = box(link.target);
    if (link.upright) {
      const x = a.x + 16 + link.thick / 2;
      link.begin = x;
      link.end = x;
      link.points = [
        [x, a.y + a.h],
        [x, a.y + a.h],
        [x, b.y],
        [x, b.y],
      ];
    } else {
      // First to the edge of the column: beside a box that is unfolded, and below what else is in one.
      const column = scene.columns[a.column];
      link.begin = a.x + a.w;
      const x0 = column ? column.x + column.w : link.begin;
      // Down to the lane in the space beside its own column, then along the lane.
      const x1 = b.column < 0 ? Math.min(b.x, x0 + scene.gap) : b.x;
      const bend = Math.max(36, (x1 - x0) / 2);
      link.points = [
        [x0, link.y0],
        [x0 + bend, link.y0],
        [x1 - bend, link.y1],
        [x1, link.y1],
      ];
      link.end = b.x;
    }
    const [p, q, r, s] = link.points;
    const start = `M${[round1(link.begin), round1(p[1])]}H${round1(p[0])}`;
    const end = link.end > s[0] ? `H${round1(link.end)}` : "";
    link.path = `${start}C${[q, r, s].map((point) => point.map(round1))}${end}`;
  }
}

function round1(value) {
  return Math.round(value * 10) / 10;
}

function pointAt([p, q, r, s], t) {
  const u = 1 - t;
  return [0, 1].map((i) => u * u * u * p[i] + 3 * u * u * t * q[i] + 3 * u * t * t * r[i] + t * t * t * s[i]);
}

/** Labels where there is room for them: none over another, none over a box. */
function label(scene, links) {
  const taken = [...scene.boxes.values()]
    .filter((box) => !box.parent)
    .map((box) => [box.x - 2, box.y - 2, box.x + box.w + 2, box.y + box.h + 2]);
  const free = (rect) =>
    !taken.some((other) => rect[0] < other[2] && rect[2] > other[0] && rect[1] < other[3] && rect[3] > other[1]);
  const few = links.length <= FEW_LINES;
  const ranked = [...links].sort((a, b) => b.thick - a.thick);
  for (const link of ranked) {
    link.at = null;
    if (!link.label || !(few || link.lit || link.thick > 8)) continue;
    const width = textWidth(link.label, NOTE_SIZE) + 6;
    for (const t of [0.5, 0.4, 0.6, 0.3, 0.7, 0.2, 0.8, 0.12, 0.88]) {
      const [x, y] = pointAt(link.points, t);
      const rect = [x - width / 2, y - 7, x + width / 2, y + 7];
      if (!free(rect)) continue;
      taken.push(rect);
      link.at = [x, y];
      break;
    }
  }
}
