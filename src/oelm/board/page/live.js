// The stream of changes. It opens before a view asks for its data, so that nothing falls between the two: what comes
// meanwhile waits, and what the data contains already is left out. A stream that ended is opened again, and goes on
// from what is here if the server is the same. A page that nobody sees has none: browsers open six to one server, for
// all their pages together.

const PAUSE = 3000; // milliseconds before a lost server is asked again

export class Live {
  // studies: their names; none: the overview
  constructor(studies, { onChange, onAgain, onState }) {
    Object.assign(this, { studies, waiting: [], versions: null, server: null, source: null, timer: null, isBack: false });
    this.on = { onChange, onAgain, onState };
    this.onVisibility = () => (document.hidden ? this.rest() : this.open());
    document.addEventListener("visibilitychange", this.onVisibility);
    if (document.hidden) this.isBack = true;
    else this.open();
  }

  open() {
    this.rest();
    this.source = new EventSource(this.path());
    this.source.addEventListener("hello", (event) => {
      const hello = JSON.parse(event.data);
      this.on.onState(hello.is_still ? "still" : "live");
      this.server = hello.server;
      if (this.isBack && !hello.goes_on) this.on.onAgain();
      this.isBack = false;
    });
    for (const kind of ["change", "study", "runs", "gone"]) {
      this.source.addEventListener(kind, (event) => this.take(kind, JSON.parse(event.data)));
    }
    this.source.addEventListener("again", () => this.on.onAgain());
    this.source.onerror = () => {
      this.rest();
      this.on.onState("lost");
      this.timer = setTimeout(() => this.open(), PAUSE);
    };
  }

  path() {
    const entries = this.studies.length ? this.studies.map((study) => ["study", study]) : [["overview", "1"]];
    if (this.isBack && this.server && this.versions) {
      entries.push(["server", this.server], ...this.studies.map((study) => ["since", this.versions[study] ?? 0]));
    }
    return `events?${new URLSearchParams(entries)}`;
  }

  // Until it is opened again.
  rest() {
    clearTimeout(this.timer);
    if (this.source) this.isBack = true;
    this.source?.close();
    this.source = null;
  }

  // The data of the view is here, as of these versions of studies.
  begin(versions) {
    this.versions = versions;
    const waiting = this.waiting;
    this.waiting = [];
    for (const [kind, event] of waiting) this.take(kind, event);
  }

  take(kind, event) {
    if (this.versions === null) { this.waiting.push([kind, event]); return; }
    if (kind === "change") {
      if (event.version <= (this.versions[event.study] ?? 0)) return;
      this.versions[event.study] = event.version;
    }
    this.on.onChange(kind, event);
  }

  close() {
    this.rest();
    document.removeEventListener("visibilitychange", this.onVisibility);
  }
}
