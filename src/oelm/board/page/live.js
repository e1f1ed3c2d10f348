// The stream of changes. It opens before a view asks for its data, so that nothing falls between the two: what comes
// meanwhile waits, and what the data contains already is left out.

export class Live {
  constructor(path, { onChange, onAgain, onState }) {
    this.waiting = [];
    this.versions = null;
    this.wasLost = false;
    this.on = { onChange, onAgain, onState };
    this.source = new EventSource(path);
    this.source.addEventListener("hello", (event) => {
      onState(JSON.parse(event.data).is_still ? "still" : "live");
      if (this.wasLost) this.again();
      this.wasLost = false;
    });
    for (const kind of ["change", "study", "runs"]) {
      this.source.addEventListener(kind, (event) => this.take(kind, JSON.parse(event.data)));
    }
    this.source.addEventListener("again", () => this.again());
    this.source.onerror = () => { this.wasLost = true; onState("lost"); };
  }

  // The data of the view is here, as of these versions of studies.
  begin(versions) {
    this.versions = versions;
    const waiting = this.waiting;
    this.waiting = [];
    for (const [kind, event] of waiting) this.take(kind, event);
  }

  // The data is asked for anew, perhaps of a server that counts versions from the start: what comes until then waits.
  again() {
    this.versions = null;
    this.waiting = [];
    this.on.onAgain();
  }

  take(kind, event) {
    if (this.versions === null) { this.waiting.push([kind, event]); return; }
    if (kind === "change" && event.version <= (this.versions[event.study] ?? 0)) return;
    this.on.onChange(kind, event);
  }

  close() { this.source.close(); }
}
