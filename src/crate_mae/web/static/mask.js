// The mask: a grid of patches over the picture, painted by pointer or by keyboard.

export class MaskGrid {
  #root; #onPaint; #onStroke; #cells = []; #rows = 0; #columns = 0; #current = 0; #brush = null;

  /** `onPaint` is called at every change by hand, `onStroke` at the end of a stroke. */
  constructor(root, onPaint, onStroke) {
    this.#root = root;
    this.#onPaint = onPaint;
    this.#onStroke = onStroke;
    root.addEventListener("keydown", (event) => this.#key(event));
    root.addEventListener("focusin", (event) => {
      const index = this.#cells.indexOf(event.target);
      if (index >= 0) this.#move(index, false);
    });
    root.addEventListener("pointerdown", (event) => this.#press(event));
    root.addEventListener("pointermove", (event) => this.#drag(event));
    root.addEventListener("pointerup", (event) => this.#lift(event));
    root.addEventListener("pointercancel", () => this.#cancel());
  }

  /** A new grid, nothing masked. */
  shape(rows, columns) {
    this.#rows = rows;
    this.#columns = columns;
    this.#current = 0;
    this.#root.style.setProperty("--rows", rows);
    this.#root.style.setProperty("--columns", columns);
    this.#root.setAttribute("aria-rowcount", rows);
    this.#root.setAttribute("aria-colcount", columns);
    const cell = (row, column) => {
      const made = document.createElement("div");
      made.setAttribute("role", "gridcell");
      made.tabIndex = row + column ? -1 : 0;
      made.style.setProperty("--x", `${(100 * column) / Math.max(columns - 1, 1)}%`);
      made.style.setProperty("--y", `${(100 * row) / Math.max(rows - 1, 1)}%`);
      return made;
    };
    const lines = Array.from({ length: rows }, (_, row) => {
      const line = document.createElement("div");
      line.setAttribute("role", "row");
      line.append(...Array.from({ length: columns }, (_, column) => cell(row, column)));
      return line;
    });
    this.#root.replaceChildren(...lines);
    this.#cells = lines.flatMap((line) => [...line.children]);
    this.value = "0".repeat(rows * columns);
  }

  get value() {
    return this.#cells.map((cell) => (cell.ariaSelected === "true" ? "1" : "0")).join("");
  }

  set value(mask) {
    this.#cells.forEach((_, index) => this.#set(index, mask[index] === "1"));
  }

  #set(index, masked) {
    const [row, column] = [Math.floor(index / this.#columns), index % this.#columns];
    const cell = this.#cells[index];
    cell.setAttribute("aria-selected", masked);
    cell.setAttribute("aria-label", `row ${row + 1}, column ${column + 1}, ${masked ? "masked" : "visible"}`);
  }

  #paint(index, masked) {
    if ((this.#cells[index].ariaSelected === "true") === masked) return;
    this.#set(index, masked);
    this.#onPaint();
  }

  #move(index, focus = true) {
    this.#cells[this.#current].tabIndex = -1;
    this.#current = index;
    this.#cells[index].tabIndex = 0;
    if (focus) this.#cells[index].focus();
  }

  #key(event) {
    if (event.altKey || event.metaKey || (event.ctrlKey && event.key.length === 1)) return;
    const [row, column] = [Math.floor(this.#current / this.#columns), this.#current % this.#columns];
    const [down, right] = [this.#rows - 1, this.#columns - 1];
    const masked = this.#cells[this.#current].ariaSelected === "true";
    const places = {
      ArrowUp: [Math.max(row - 1, 0), column],
      ArrowDown: [Math.min(row + 1, down), column],
      ArrowLeft: [row, Math.max(column - 1, 0)],
      ArrowRight: [row, Math.min(column + 1, right)],
      Home: event.ctrlKey ? [0, 0] : [row, 0],
      End: event.ctrlKey ? [down, right] : [row, right],
    };
    if (event.key === " " || event.key === "Enter") {
      this.#paint(this.#current, !masked);
      this.#onStroke();
    } else if (event.key in places) {
      const [y, x] = places[event.key];
      this.#move(y * this.#columns + x);
      if (event.shiftKey && event.key.startsWith("Arrow")) {
        this.#paint(this.#current, masked);
        this.#onStroke();
      }
    } else {
      return;
    }
    event.preventDefault();
  }

  /** The patch below the pointer; the nearest where a captured pointer has left the grid. */
  #below(event) {
    const box = this.#root.getBoundingClientRect();
    const at = (share, count) => Math.min(Math.max(Math.floor(share * count), 0), count - 1);
    const row = at((event.clientY - box.top) / box.height, this.#rows);
    return row * this.#columns + at((event.clientX - box.left) / box.width, this.#columns);
  }

  /**
   * A finger paints only once it has moved sideways, or as a tap: up and down belongs to the browser, which scrolls
   * (touch-action: pan-y) and then cancels the pointer.
   */
  #press(event) {
    if (event.button !== 0 || !this.#cells.length || !event.isPrimary) return;
    const touch = event.pointerType === "touch";
    if (!touch) event.preventDefault();
    this.#root.setPointerCapture(event.pointerId);
    const index = this.#below(event);
    this.#brush = { masked: this.#cells[index].ariaSelected !== "true", last: index, before: this.value, touch };
    if (touch) return;
    this.#move(index);
    this.#paint(index, this.#brush.masked);
  }

  #lift(event) {
    if (!this.#brush) return;
    this.#paint(this.#brush.last, this.#brush.masked);  // a tap; of a stroke it is painted already
    if (this.#brush.touch) this.#move(this.#below(event));
    this.#brush = null;
    this.#onStroke();
  }

  /** The browser scrolls: what was painted on the way there was not meant. */
  #cancel() {
    if (this.#brush && this.#brush.before !== this.value) {
      this.value = this.#brush.before;
      this.#onPaint();
    }
    this.#brush = null;
  }

  /** Paint every patch on the line from the last one: a quick stroke leaves no gaps. */
  #drag(event) {
    if (!this.#brush) return;
    const index = this.#below(event);
    if (this.#brush.touch && index === this.#brush.last) return;
    this.#paint(this.#brush.last, this.#brush.masked);
    const from = [Math.floor(this.#brush.last / this.#columns), this.#brush.last % this.#columns];
    const to = [Math.floor(index / this.#columns), index % this.#columns];
    const steps = Math.max(Math.abs(to[0] - from[0]), Math.abs(to[1] - from[1]), 1);
    for (let step = 1; step <= steps; step++) {
      const [row, column] = [0, 1].map((axis) => Math.round(from[axis] + ((to[axis] - from[axis]) * step) / steps));
      this.#paint(row * this.#columns + column, this.#brush.masked);
    }
    this.#brush.last = index;
  }
}
