"use strict";

// Without this script the report is whole: details appear as the drawings' own titles, and tables keep their order.
(() => {
  const tip = document.getElementById("tip");
  const details = new WeakMap();
  let active = null;

  function place(x, y) {
    const room = 12;
    const left = Math.min(x + room, window.innerWidth - tip.offsetWidth - room);
    const below = y + room + tip.offsetHeight < window.innerHeight;
    tip.style.left = `${Math.max(left, room)}px`;
    tip.style.top = `${below ? y + room : Math.max(y - room - tip.offsetHeight, room)}px`;
  }

  function show(mark, x, y) {
    if (tip.textContent !== details.get(mark)) tip.textContent = details.get(mark);
    tip.hidden = false;
    place(x, y);
  }

  function leave() {
    if (active) active.classList.remove("active");
    active = null;
    tip.hidden = true;
  }

  function enter(mark) {
    leave();
    active = mark;
    mark.classList.add("active");
    mark.scrollIntoView({ block: "nearest" });
    const box = mark.getBoundingClientRect();
    show(mark, box.left + box.width / 2, box.top + Math.min(box.height, 40) / 2);
  }

  function step(marks, key) {
    const last = marks.length - 1;
    const at = marks.indexOf(active);
    const next = {
      ArrowRight: at < last ? at + 1 : 0,
      ArrowDown: at < last ? at + 1 : 0,
      ArrowLeft: at > 0 ? at - 1 : last,
      ArrowUp: at > 0 ? at - 1 : last,
      Home: 0,
      End: last,
    }[key];
    if (next === undefined || last < 0) return false;
    enter(marks[next]);
    return true;
  }

  for (const drawing of document.querySelectorAll("[data-marks]")) {
    const marks = [...drawing.querySelectorAll(".mark")];
    for (const mark of marks) {
      const title = mark.querySelector("title");
      details.set(mark, title.textContent);
      title.remove();
    }
    for (const svg of drawing.querySelectorAll("svg")) {
      const title = svg.querySelector(":scope > title");
      svg.setAttribute("aria-label", title.textContent);
      svg.removeAttribute("aria-labelledby");
      title.remove();
    }
    drawing.addEventListener("pointermove", (event) => {
      const mark = event.target.closest(".mark");
      if (active) leave();
      if (mark) show(mark, event.clientX, event.clientY);
      else tip.hidden = true;
    });
    drawing.addEventListener("pointerleave", leave);
    drawing.addEventListener("blur", leave);
    drawing.addEventListener("keydown", (event) => {
      if (event.key === "Escape") leave();
      else if (step(marks, event.key)) event.preventDefault();
    });
  }

  function compare(left, right, direction) {
    if (left === right) return 0;
    if (left === "") return 1;
    if (right === "") return -1;
    const [a, b] = [Number(left), Number(right)];
    const numeric = !Number.isNaN(a) && !Number.isNaN(b);
    return direction * (numeric ? a - b : left < right ? -1 : 1);
  }

  function sort(table, header) {
    const rising = header.getAttribute("aria-sort") !== "ascending";
    for (const other of table.querySelectorAll("[aria-sort]")) other.removeAttribute("aria-sort");
    header.setAttribute("aria-sort", rising ? "ascending" : "descending");
    const order = (row) => row.cells[Number(header.dataset.column)].dataset.order;
    const rows = [...table.tBodies[0].rows];
    rows.sort((left, right) => compare(order(left), order(right), rising ? 1 : -1));
    table.tBodies[0].append(...rows);
  }

  for (const table of document.querySelectorAll("[data-sortable]")) {
    for (const header of table.querySelectorAll("[data-column]")) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = header.textContent;
      button.title = "Sort by this column";
      header.replaceChildren(button);
      button.addEventListener("click", () => sort(table, header));
    }
  }
})();
