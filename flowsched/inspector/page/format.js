// Numbers, amounts and names as people read them, and a way to make elements in which no name can become markup.

/** Amounts of cost below this come from rounding to whole solver units, or from the way ties are broken. */
const TINY = 1e-6;
/** A relative gap of this or more proves nothing, as in flowsched/cluster/decision.py. */
const NO_BOUND = 0.995;
const WHOLE = d3.format(",");

/** A cost or another number: three digits that matter. */
function number(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size < TINY) return "≈ 0";
  if (size >= 1e6 || size < 1e-4) return minus(d3.format(".2~e")(value));
  if (size >= 1000) return minus(d3.format(",.0f")(value));
  if (size >= 100) return minus(d3.format(".1~f")(value));
  if (size >= 1) return minus(d3.format(".2f")(value));
  return minus(d3.format(".3~g")(Number(value.toPrecision(3))));
}

function minus(text) {
  return text.replace("-", "−");
}

function signed(value) {
  if (value === null || value === undefined) return "–";
  return value >= TINY ? `+${number(value)}` : number(value);
}

function whole(value) {
  return value === null || value === undefined ? "–" : minus(WHOLE(value));
}

/** A count that may be a fraction: a flow may split a task. */
function amount(value) {
  if (Number.isInteger(value)) return whole(value);
  const size = Math.abs(value);
  return minus(d3.format(size >= 100 ? ",.0f" : size >= 10 ? ",.1~f" : ",.2~f")(value));
}

function counted(count, one, many) {
  return `${amount(count)} ${count === 1 ? one : many || `${one}s`}`;
}

function cores(milli) {
  if (milli === null || milli === undefined) return "–";
  return counted(milli / 1000, "core");
}

/** GPUs, from thousandths of them. */
function gpuAmount(milli) {
  return `${d3.format(",.2~f")(milli / 1000)} GPU${milli === 1000 ? "" : "s"}`;
}

function seconds(value) {
  if (value === null || value === undefined) return "–";
  return `${d3.format(",.1~f")(value)} s`;
}

/** A length of time: seconds, and from two minutes on the two largest units of it. */
function duration(value) {
  if (value === null || value === undefined) return "–";
  const whole = Math.round(value);
  if (Math.abs(value) < 120) return seconds(value);
  const units = [
    ["d", 86400],
    ["h", 3600],
    ["min", 60],
    ["s", 1],
  ];
  const first = units.findIndex(([, size]) => Math.abs(whole) >= size);
  const [name, size] = units[first];
  const [small, smallSize] = units[first + 1];
  const rest = Math.floor((whole % size) / smallSize);
  return `${d3.format(",")(Math.floor(whole / size))} ${name}${rest ? ` ${rest} ${small}` : ""}`;
}

/** A time to come, seen from the round: in 2 min 44 s (03:36:04 UTC); short: without the clock's time. */
function until(value, now, short = false) {
  if (value === null || value === undefined) return "–";
  if (now === null || now === undefined) return `at ${moment(value)}`;
  const left = value - now;
  const at = value > EPOCH && left < 43200 ? `${moment(value).slice(11)}` : moment(value);
  return left > 0 ? `in ${duration(left)}${short ? "" : ` (${at})`}` : `since ${at}`;
}

/** Times within a sentence of a round that counts seconds from 1970, and long waits, as people say them. */
function spoken(text, now) {
  if (!(now > EPOCH)) return text;
  return text.replace(/(\bat )?\b(\d{4,}(?:\.\d+)?) s\b/g, (_, before = "", digits) => {
    const value = Number(digits);
    return value > EPOCH ? until(value, now) : `${before}${value < LONG ? `${digits} s` : duration(value)}`;
  });
}

/** Seconds above this count from 1970. */
const EPOCH = 1e9;
/** A wait so long that seconds do not read well. */
const LONG = 7200;

/** Time of a round: seconds of a simulation, or a date where they count from 1970. */
function moment(value) {
  if (value === null || value === undefined) return "–";
  return value > EPOCH ? `${new Date(value * 1000).toISOString().slice(0, 19).replace("T", " ")} UTC` : seconds(value);
}

function percent(value) {
  return value === null || value === undefined ? "–" : `${d3.format(".3~g")(Number((100 * value).toPrecision(3)))} %`;
}

function milliseconds(value) {
  return value >= 1000 ? `${d3.format(".2f")(value / 1000)} s` : `${d3.format(value >= 10 ? ".0f" : ".2~f")(value)} ms`;
}

/** Bytes and cores of a resource, by its name. */
function resource(name, value) {
  if (name === "cpu") return cores(value);
  if (/memory|storage/.test(name))
    return value >= 2 ** 30
      ? `${d3.format(",.1~f")(value / 2 ** 30)} GiB`
      : `${d3.format(",.0f")(value / 2 ** 20)} MiB`;
  return whole(value);
}

/** A latency such as 1000.0us in milliseconds; as it is where it is anything else. */
function latency(text) {
  const found = /^([\d.]+)us$/.exec(String(text));
  return found ? `${d3.format(".3~g")(Number(found[1]) / 1000)} ms` : String(text);
}

/** Numbers of cores as ranges: 0–3, 6. */
function coreList(list) {
  const parts = [];
  for (const core of list) {
    const last = parts[parts.length - 1];
    if (last && core === last[1] + 1) last[1] = core;
    else parts.push([core, core]);
  }
  return parts.map(([a, b]) => (a === b ? `${a}` : `${a}–${b}`)).join(", ");
}

const INK = document.createElement("canvas").getContext("2d");
const WIDTHS = new Map();

/** Width of a text in pixels. */
function textWidth(text, size, weight) {
  const key = `${weight || 400} ${size}|${text}`;
  let width = WIDTHS.get(key);
  if (width === undefined) {
    INK.font = `${weight || 400} ${size}px ${FONT}`;
    width = INK.measureText(text).width;
    if (WIDTHS.size > 20000) WIDTHS.clear();
    WIDTHS.set(key, width);
  }
  return width;
}

const FONT = '-apple-system, "Segoe UI", "Helvetica Neue", Arial, sans-serif';

/** A text that fits, shortened in the middle: names differ at their ends. */
function fitted(text, room, size, weight) {
  if (textWidth(text, size, weight) <= room) return text;
  let low = 0;
  let high = text.length;
  while (low < high) {
    const kept = Math.ceil((low + high) / 2);
    if (textWidth(shortened(text, kept), size, weight) <= room) low = kept;
    else high = kept - 1;
  }
  return shortened(text, low);
}

function shortened(text, kept) {
  const head = Math.ceil(kept / 2);
  return kept >= text.length ? text : `${text.slice(0, head)}…${text.slice(text.length - (kept - head))}`;
}

/** An HTML element. Strings among its children become text, never markup. */
function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

function button(text, act, attributes) {
  return element("button", { type: "button", onclick: act, ...attributes }, text);
}
