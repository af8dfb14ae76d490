// What two rounds decided differently, task by task.

const KINDS = [
  "moved",
  "starts",
  "now waits",
  "other width",
  "planned elsewhere",
  "new",
  "runs now",
  "gone",
  "cost",
  "same",
];

/** Rows for every task of either round, what changed most first. */
function differences(before, after) {
  const a = stands(before);
  const b = stands(after);
  const running = new Set();
  for (const part of after.parts)
    for (const run of part.machine_facts.running || []) running.add(after.title(run.task));
  const rows = [];
  for (const title of new Set([...a.keys(), ...b.keys()])) {
    const was = a.get(title);
    const is = b.get(title);
    const delta = was && is && was.cost !== null && is.cost !== null ? is.cost - was.cost : null;
    rows.push({ title, was, is, delta, kind: changeOf(was, is, running.has(title), delta) });
  }
  const rank = new Map(KINDS.map((kind, i) => [kind, i]));
  return rows.sort(
    (x, y) =>
      rank.get(x.kind) - rank.get(y.kind) ||
      Math.abs(y.delta || 0) - Math.abs(x.delta || 0) ||
      d3.ascending(x.title, y.title),
  );
}

function changeOf(was, is, runs, delta) {
  if (!was) return "new";
  if (!is) return runs ? "runs now" : "gone";
  if (was.state === "placed" && is.state === "placed") {
    if (machineName(was) !== machineName(is)) return "moved";
    if (was.width !== is.width) return "other width";
  } else if (is.state === "placed") return "starts";
  else if (was.state === "placed") return "now waits";
  else if (machineName(was) !== machineName(is) || was.slot !== is.slot) return "planned elsewhere";
  return delta !== null && Math.abs(delta) > 1e-9 ? "cost" : "same";
}

function machineName(stand) {
  return stand.machine >= 0 ? stand.part.machines[stand.machine] : "";
}

/** Where a task stands, in a few words. */
function standText(stand) {
  if (!stand) return "not pending";
  if (stand.state === "placed") return machineName(stand);
  if (stand.state === "planned") return `later on ${machineName(stand)}`;
  return "waits";
}

/** Whether a kind of change is one of what was decided, rather than of the cost or of what has come and gone. */
function isMove(kind) {
  return !["same", "cost", "runs now", "gone"].includes(kind);
}
