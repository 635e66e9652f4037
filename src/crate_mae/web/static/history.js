// Undo and redo.

/** A list of states with a place in it; a new state drops what was undone. */
export class History {
  #states = []; #place = -1; #onMove;

  /** `onMove` is called with whether there is something to undo and to redo. */
  constructor(onMove) { this.#onMove = onMove; }

  push(state) {
    if (JSON.stringify(state) === JSON.stringify(this.#states[this.#place])) return;
    this.#states = [...this.#states.slice(0, this.#place + 1), state].slice(-200);
    this.#move(this.#states.length - 1);
  }

  /** The state before (-1) or after (1); null where there is none. */
  go(step) {
    const place = this.#place + step;
    if (!(place in this.#states)) return null;
    this.#move(place);
    return this.#states[place];
  }

  #move(place) {
    this.#place = place;
    this.#onMove(place > 0, place < this.#states.length - 1);
  }
}
