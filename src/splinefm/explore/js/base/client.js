/** The model in its worker: calls that return promises, and calls of which only the newest matters. */

export class Client {
  /** @param {string} source the worker's script  @param {object} payload  @param {object} buffers typed arrays by name */
  constructor(source, payload, buffers) {
    this.waiting = new Map();
    this.slots = new Map();
    this.last = 0;
    this.worker = new Worker(URL.createObjectURL(new Blob([source], { type: "text/javascript" })));
    this.worker.addEventListener("message", (event) => this.answered(event.data));
    this.worker.addEventListener("error", (event) => this.failed(event.message));
    this.ready = this.call("load", { payload, buffers });
  }

  /** Call a method of the model. */
  call(method, ...args) {
    this.last += 1;
    const id = this.last;
    return new Promise((resolve, reject) => {
      this.waiting.set(id, { resolve, reject });
      this.worker.postMessage({ id, method, args });
    });
  }

  /** Call a method; while an answer under the same key is on its way, only the newest call waits, older ones are dropped. */
  latest(key, method, args, then) {
    const slot = this.slots.get(key) ?? { busy: false, next: null };
    this.slots.set(key, slot);
    if (slot.busy) {
      slot.next = { method, args, then };
      return;
    }
    slot.busy = true;
    this.call(method, ...args)
      .then(then)
      .catch((error) => this.report(error))
      .finally(() => {
        slot.busy = false;
        const next = slot.next;
        slot.next = null;
        if (next) this.latest(key, next.method, next.args, next.then);
      });
  }

  answered({ id, result, error }) {
    const { resolve, reject } = this.waiting.get(id) ?? {};
    this.waiting.delete(id);
    if (error === undefined) resolve?.(result);
    else reject?.(new Error(error));
  }

  failed(message) {
    for (const { reject } of this.waiting.values()) reject(new Error(message));
    this.waiting.clear();
  }

  report(error) {
    this.onError?.(error);
  }
}
