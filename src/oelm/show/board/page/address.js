// The state of a view is its address: what is here survives a reload, and can be bookmarked or sent to somebody.

export function query() { return new URLSearchParams(location.search); }

export function get(name, otherwise = "") { return query().get(name) ?? otherwise; }

export function all(name) { return query().getAll(name); }

// Change some entries in place; null or an empty list leaves one out.
export function change(entries) {
  const found = query();
  for (const [name, value] of Object.entries(entries)) {
    found.delete(name);
    for (const each of Array.isArray(value) ? value : [value]) {
      if (each !== null && each !== undefined && each !== "" && each !== false) found.append(name, each === true ? "1" : each);
    }
  }
  history.replaceState(null, "", `?${found}`);
}

// The address of another view, in the same language and colours.
export function to(entries) {
  const found = new URLSearchParams();
  for (const [name, value] of Object.entries(entries)) {
    for (const each of Array.isArray(value) ? value : [value]) found.append(name, each);
  }
  for (const name of ["lang", "theme"]) if (get(name)) found.set(name, get(name));
  return `?${found}`;
}

let leaving = new AbortController();

// Another view is shown now: nothing that was asked for before is answered any more.
export function leave() {
  leaving.abort();
  leaving = new AbortController();
}

export async function fetched(path, entries = {}) {
  const { signal } = leaving;
  try {
    return await asked(path, entries, signal);
  } catch (error) {
    return signal.aborted ? new Promise(() => {}) : Promise.reject(error);
  }
}

async function asked(path, entries, signal) {
  const found = new URLSearchParams();
  for (const [name, value] of Object.entries(entries)) {
    for (const each of Array.isArray(value) ? value : [value]) found.append(name, each);
  }
  if (get("lang")) found.set("lang", get("lang"));
  const answer = await fetch(`${path}?${found}`, { signal });
  if (answer.status === 404) return null;
  if (!answer.ok) throw new Error(`${answer.status} ${answer.statusText}`);
  return answer.json();
}
