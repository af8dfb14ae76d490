// The box beside the pointer that tells what is under it.

class Tip {
  constructor(box) {
    this.box = box;
  }

  show(text, x, y) {
    if (this.box.textContent !== text) this.box.textContent = text;
    this.box.hidden = false;
    const room = 12;
    const { offsetWidth, offsetHeight } = this.box;
    const left = Math.min(x + room, window.innerWidth - offsetWidth - room);
    const below = y + room + offsetHeight < window.innerHeight;
    this.box.style.left = `${Math.max(left, room)}px`;
    this.box.style.top = `${below ? y + room : Math.max(y - room - offsetHeight, room)}px`;
  }

  hide() {
    this.box.hidden = true;
  }
}
