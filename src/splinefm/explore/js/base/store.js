/** The state of the page: kept in the address, with undo and redo. */

const MAX_STEPS = 200;

export class Store {
  /**
   * @param {object} start the state of a fresh page; the address holds what differs from it
   * @param {(found: object) => object} usable keeps what can be used of an address
   */
  constructor(start, usable) {
    [this.start, this.usable] = [start, usable];
    this.state = { ...start, ...this.fromAddress() };
    this.past = [];
    this.future = [];
    this.listeners = [];
    this.before = null;
    window.addEventListener("hashchange", () => {
      const next = { ...this.start, ...this.fromAddress() };
      if (JSON.stringify(next) !== JSON.stringify(this.state)) this.commit(next);
    });
  }

  /** Call a function with the state and whether a gesture is going on, after each change. */
  listen(listener) {
    this.listeners.push(listener);
  }

  /** Change the state as part of a gesture, such as a drag: one step of undo from its begin to its `commit`. */
  move(change) {
    this.before ??= this.state;
    this.state = { ...this.state, ...change };
    this.tell(true);
  }

  /** Change the state for good. */
  commit(change = {}) {
    const before = this.before ?? this.state;
    this.before = null;
    this.state = { ...this.state, ...change };
    if (JSON.stringify(before) !== JSON.stringify(this.state)) {
      this.past.push(before);
      this.past.splice(0, this.past.length - MAX_STEPS);
      this.future = [];
    }
    this.tell(false);
  }

  /** Give up a gesture. */
  cancel() {
    if (this.before === null) return;
    this.state = this.before;
    this.before = null;
    this.tell(false);
  }

  undo() {
    this.step(this.past, this.future);
  }

  redo() {
    this.step(this.future, this.past);
  }

  step(from, to) {
    if (!from.length) return;
    to.push(this.state);
    this.state = from.pop();
    this.tell(false);
  }

  tell(moving) {
    if (!moving) history.replaceState(null, "", this.address());
    for (const listener of this.listeners) listener(this.state, moving);
  }

  /** The part of the address after #: the view, then what differs from a fresh page. */
  address() {
    const { view, ...rest } = this.state;
    const changed = Object.entries(rest).filter(
      ([name, value]) => JSON.stringify(value) !== JSON.stringify(this.start[name]),
    );
    const parts = changed.map(
      ([name, value]) => `${name}=${encodeURIComponent(JSON.stringify(this.packed(name, value)))}`,
    );
    return `#/${view}${parts.length ? `?${parts.join("&")}` : ""}`;
  }

  packed(name, value) {
    if (name !== "row") return value;
    return Object.fromEntries(
      Object.entries(value).filter(([key, one]) => JSON.stringify(one) !== JSON.stringify(this.start.row[key])),
    );
  }

  /** What the address says, as far as it can be used. */
  fromAddress() {
    const [, view, query] = /^#\/([a-z]+)\??(.*)$/.exec(location.hash) ?? [];
    if (view === undefined) return {};
    const found = { view };
    for (const part of query.split("&").filter(Boolean)) {
      const [name, text] = part.split("=");
      try {
        const value = JSON.parse(decodeURIComponent(text));
        found[name] = value;
      } catch {
        // A truncated address: what can be read is used.
      }
    }
    return this.usable(found);
  }
}
