// The stream of versions. It opens before a view asks for its data, so that nothing falls between the two: a version that
// comes meanwhile waits, and one that the data has already is left out. A stream that ended is opened again, and says the
// versions of then. A page that nobody sees has none: browsers open six to one server, for all their pages together.

const PAUSE = 3000; // milliseconds before a lost server is asked again

export class Live {
  // studies: their names; none: the overview
  constructor(studies, { onChange, onAgain, onState }) {
    Object.assign(this, { studies, waiting: [], versions: null, server: null, source: null, timer: null });
    this.on = { onChange, onAgain, onState };
    this.onVisibility = () => (document.hidden ? this.rest() : this.open());
    document.addEventListener("visibilitychange", this.onVisibility);
    if (!document.hidden) this.open();
  }

  open() {
    this.rest();
    const entries = this.studies.length ? this.studies.map((study) => ["study", study]) : [["overview", "1"]];
    this.source = new EventSource(`events?${new URLSearchParams(entries)}`);
    this.source.addEventListener("hello", (event) => {
      const hello = JSON.parse(event.data);
      this.on.onState(hello.is_still ? "still" : "live");
      const isOther = this.server !== null && this.server !== hello.server; // which counts versions anew
      this.server = hello.server;
      if (isOther || (this.wasClosed && !this.studies.length)) this.on.onAgain();
    });
    for (const kind of ["change", "study", "runs", "gone"]) {
      this.source.addEventListener(kind, (event) => this.take(kind, JSON.parse(event.data)));
    }
    this.source.onerror = () => {
      this.rest();
      this.on.onState("lost");
      this.timer = setTimeout(() => this.open(), PAUSE);
    };
  }

  // Until it is opened again.
  rest() {
    clearTimeout(this.timer);
    if (this.source) this.wasClosed = true;
    this.source?.close();
    this.source = null;
  }

  // The data of the view is here, as of these versions of studies.
  begin(versions) {
    this.versions = { ...this.versions, ...versions };
    const waiting = this.waiting;
    this.waiting = [];
    for (const [kind, event] of waiting) this.take(kind, event);
  }

  take(kind, event) {
    if (this.versions === null) this.waiting.push([kind, event]);
    else if (kind !== "change" || event.version > (this.versions[event.study] ?? 0)) this.on.onChange(kind, event);
  }

  close() {
    this.rest();
    document.removeEventListener("visibilitychange", this.onVisibility);
  }
}
