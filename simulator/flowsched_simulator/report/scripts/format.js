// Numbers and elements: how values are written everywhere on the page.

const NOTHING = "–";
const THIN = "\u2009";

/** `value` with so many decimals; "<0.01" for what would look like zero and is not. */
function fixed(value, decimals) {
  if (value === null || value === undefined || Number.isNaN(value)) return NOTHING;
  const text = Math.abs(value).toFixed(decimals);
  if (value !== 0 && Number(text) === 0) return value > 0 ? `<${(10 ** -decimals).toFixed(decimals)}` : text;
  const [whole, rest] = text.split(".");
  const grouped = whole.replace(/\B(?=(\d{3})+$)/g, THIN);
  return `${value < 0 ? "−" : ""}${grouped}${rest === undefined ? "" : `.${rest}`}`;
}

/** At most so many decimals, and no trailing zeros. */
function compact(value, decimals = 2) {
  const text = fixed(value, decimals);
  return text.includes(".") && !text.startsWith("<") ? text.replace(/\.?0+$/, "") : text;
}

const percent = (share) => `${share ? fixed(100 * share, share < 0.1 ? 1 : 0) : 0} %`;

const counted = (count, noun) => `${fixed(count, 0)} ${noun}${count === 1 ? "" : "s"}`;

/** A time in seconds, in the units that `step` between two of them asks for. */
function moment(time_s, step) {
  if (time_s === 0) return "0 s";
  if (step < 60 && time_s < 600) return `${compact(time_s, step < 1 ? 3 : 0)} s`;
  const sign = time_s < 0 ? "−" : "";
  let left = Math.abs(time_s);
  const words = [];
  for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "min"]]) {
    const count = Math.floor(left / size + 1e-9);
    if (count) words.push(`${count} ${unit}`);
    left -= count * size;
  }
  if (left > 1e-6 && step < 60) words.push(`${compact(left, step < 1 ? 3 : 0)} s`);
  return sign + (words.join(" ") || "0 s");
}

function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === false || value === null || value === undefined) continue;
    if (name === "class") made.className = value;
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}
