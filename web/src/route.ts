// What is looked at stands in the address, behind '#': a view, a job, and settings. A link shows the same to others.
import { useEffect, useState } from "preact/hooks";

export interface Route {
  view: string; // fleet, job, network; empty: none is asked for
  id: string; // of the job
  set: URLSearchParams;
}

export function parseRoute(hash: string): Route {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const [view = "", id = ""] = path.split("/", 2);
  let name = id;
  try {
    name = decodeURIComponent(id);
  } catch {
    // Not made by us: shown as it is.
  }
  return { view, id: name, set: new URLSearchParams(query) };
}

export function linkTo(view: string, id = "", set: Record<string, string> = {}): string {
  const kept = new URLSearchParams(Object.entries(set).filter(([, value]) => value !== ""));
  const query = kept.toString();
  return `#/${view}${id ? `/${encodeURIComponent(id)}` : ""}${query ? `?${query}` : ""}`;
}

export function useRoute(): Route {
  const [hash, setHash] = useState(location.hash);
  useEffect(() => {
    const changed = () => setHash(location.hash);
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return parseRoute(hash);
}

// Changes settings of the present view; those of '' are taken out.
export function changeSet(route: Route, change: Record<string, string>, keepHistory = true): void {
  const set = Object.fromEntries(route.set.entries());
  const hash = linkTo(route.view, route.id, { ...set, ...change });
  if (keepHistory) {
    location.hash = hash;
  } else {
    history.replaceState(null, "", hash);
    dispatchEvent(new HashChangeEvent("hashchange"));
  }
}
