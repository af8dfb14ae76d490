// The marks of drawings that are SVG: their titles become the tip, and arrow keys step through them.

{
  const tip = new Tip(document.getElementById("tip"));
  const details = new WeakMap();
  let active = null;

  function show(mark, x, y) {
    tip.show(details.get(mark), x, y);
  }

  function leave() {
    if (active) active.classList.remove("active");
    active = null;
    tip.hide();
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
      else tip.hide();
    });
    drawing.addEventListener("pointerleave", leave);
    drawing.addEventListener("blur", leave);
    drawing.addEventListener("keydown", (event) => {
      if (event.key === "Escape") leave();
      else if (step(marks, event.key)) event.preventDefault();
    });
  }
}
