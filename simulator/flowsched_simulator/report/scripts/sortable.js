// Tables whose headings sort them.

function compareOrders(left, right, direction) {
  if (left === right) return 0;
  if (left === "") return 1;
  if (right === "") return -1;
  const [a, b] = [Number(left), Number(right)];
  const numeric = !Number.isNaN(a) && !Number.isNaN(b);
  return direction * (numeric ? a - b : left < right ? -1 : 1);
}

function sortTable(table, header) {
  const rising = header.getAttribute("aria-sort") !== "ascending";
  for (const other of table.querySelectorAll("[aria-sort]")) other.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", rising ? "ascending" : "descending");
  const order = (row) => row.cells[Number(header.dataset.column)].dataset.order;
  const rows = [...table.tBodies[0].rows];
  rows.sort((left, right) => compareOrders(order(left), order(right), rising ? 1 : -1));
  table.tBodies[0].append(...rows);
}

for (const table of document.querySelectorAll("[data-sortable]")) {
  for (const header of table.querySelectorAll("[data-column]")) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = header.textContent;
    button.title = "Sort by this column";
    header.replaceChildren(button);
    button.addEventListener("click", () => sortTable(table, header));
  }
}
