// Undo and redo.

/** A list of states with a place in it; a new state drops what was undone. One equal to the current one is not kept. */
export class History {
  #states = []; #place = -1; #onMove;

  /** `onMove` is called with whether there is something to undo and to redo. */
  constructor(onMove) { this.#onMove = onMove; }

  push(state) {
    const plain = ({ mask, drawn }) => JSON.stringify(drawn ?? mask);
    if (this.current && plain(state) === plain(this.current)) return;
    this.#states = [...this.#states.slice(0, this.#place + 1), state].slice(-200);
    this.#move(this.#states.length - 1);
  }

  get current() { return this.#states[this.#place]; }

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
