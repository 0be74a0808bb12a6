import { useEffect, useState } from "preact/hooks";
import { clock, duration, zone } from "./format";
import { hasToken, nowMs, useLive, useToken } from "./live";
import { linkTo, type Route, useRoute } from "./route";
import type { PageFleet } from "./messages";
import { setSettings, useSettings } from "./settings";
import { FleetView } from "./views/fleet";
import { OpenRecording, useRecordings } from "./parts/drop";
import { JobView } from "./views/job";
import { NetworkView } from "./views/network";

const STALE_MS = 15_000;

// Ages grow while nothing is told.
function useTick(everyMs: number): void {
  const [, again] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => again((n) => n + 1), everyMs);
    return () => clearInterval(timer);
  }, [everyMs]);
}

function TokenForm({ shown }: { shown: boolean }) {
  const [token, setToken] = useState("");
  return (
    <form
      class="notice"
      onSubmit={(event) => {
        event.preventDefault();
        useToken(token);
        location.reload();
      }}
    >
      <label for="token">{shown ? "The token that was shown does not count (any more): what stands below is old. Another" : "This server wants to know who looks. A"} token for a reader (c4 pki token --role reader):</label>
      <input id="token" type="password" autoComplete="off" value={token} onInput={(event) => setToken(event.currentTarget.value)} />
      <button type="submit">look</button>
    </form>
  );
}

function Notices() {
  const live = useLive();
  const silentMs = live.heardMs ? Date.now() - live.heardMs : 0;
  return (
    <div aria-live="polite">
      {live.needsToken && <TokenForm shown={live.heardMs > 0 || hasToken()} />}
      {live.needsToken && live.heardMs > 0 && <p class="notice bad">What is shown is of {duration(silentMs)} ago; the page does not ask again until it has a token.</p>}
      {live.trouble && !live.needsToken && <p class="notice bad">{live.trouble}. What is shown is of {live.heardMs ? `${duration(silentMs)} ago` : "no time yet"}; the page tries again by itself.</p>}
      {!live.trouble && silentMs > STALE_MS && <p class="notice bad">Nothing was heard for {duration(silentMs)}: what is shown is old.</p>}
      {Math.abs(live.offsetMs) > 30_000 && (
        <p class="notice">
          The clock of this browser is {duration(Math.abs(live.offsetMs))} {live.offsetMs > 0 ? "behind" : "ahead of"} the server's; ages are told by the server's.
        </p>
      )}
      {live.fleet?.notes?.map((note) => (
        <p class="notice" key={note}>
          <bdi>{note}</bdi>
        </p>
      ))}
    </div>
  );
}

function isTyping(event: KeyboardEvent): boolean {
  const target = event.target as HTMLElement | null;
  return !!target && /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName);
}

// Where nothing is asked for: a master's own page begins with what that master knows.
function startOf(route: Route, fleet: PageFleet | null): Route {
  if (route.view !== "") return route;
  if (fleet?.server === "PAGE_SERVER_JOB_MASTER") return { ...route, view: "job", id: fleet.jobs?.[0]?.id ?? "" };
  return { ...route, view: fleet?.server === "PAGE_SERVER_PATH_MASTER" ? "network" : "fleet" };
}

export function App() {
  useTick(1000);
  const asked = useRoute();
  const live = useLive();
  const recordings = useRecordings();
  const { theme, utc } = useSettings();
  const [help, setHelp] = useState(false);
  const server = live.fleet?.server;
  const route = startOf(asked, live.fleet);

  useEffect(() => {
    let before = "";
    const press = (event: KeyboardEvent) => {
      if (isTyping(event) || event.ctrlKey || event.metaKey || event.altKey) return;
      if (before === "g" && event.key === "f") location.hash = linkTo("fleet");
      if (before === "g" && event.key === "n") location.hash = linkTo("network");
      if (event.key === "u") setSettings({ utc: !utc });
      if (event.key === "t") setSettings({ theme: document.documentElement.dataset.theme === "dark" ? "light" : "dark" });
      if (event.key === "?") setHelp((shown) => !shown);
      if (event.key === "Escape") setHelp(false);
      if (/^[1-9]$/.test(event.key)) document.querySelectorAll<HTMLAnchorElement>(".tabs a")[Number(event.key) - 1]?.click();
      before = event.key;
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, [utc]);

  useEffect(() => {
    const open = live.fleet?.jobs?.reduce((sum, job) => sum + (job.confirmed ?? 0), 0) ?? 0;
    document.title = `${open > 0 ? `(${open}) ` : ""}${route.view === "job" ? `${route.id} · ` : ""}C4`;
  }, [live.fleet, route.view, route.id]);

  const job = live.fleet?.jobs?.find((item) => item.id === route.id);
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => { event.preventDefault(); document.getElementById("main")?.focus(); }}>
        to the content
      </a>
      <header class="top">
        <a class="brand" href={linkTo("fleet")}>C4</a>
        <nav aria-label="views">
          {server !== "PAGE_SERVER_PATH_MASTER" && <a href={linkTo("fleet")} aria-current={route.view === "fleet" ? "page" : undefined}>Fleet</a>}
          {route.view === "job" && (
            <a class="named" href={linkTo("job", route.id)} aria-current="page">
              <bdi class="name cut">{job?.job ?? route.id}</bdi>
            </a>
          )}
          {server !== "PAGE_SERVER_JOB_MASTER" && <a href={linkTo("network")} aria-current={route.view === "network" ? "page" : undefined}>Network</a>}
        </nav>
        <OpenRecording open={recordings.open} />
        <span class="clock" title="the server's time">
          {clock(nowMs(), utc)} {utc ? "UTC" : zone(nowMs())}
        </span>
        <button type="button" class="quiet" onClick={() => setSettings({ utc: !utc })} aria-pressed={utc}>UTC</button>
        <button
          type="button"
          class="quiet"
          onClick={() => setSettings({ theme: theme === "auto" ? "dark" : theme === "dark" ? "light" : "auto" })}
        >
          theme: {theme}
        </button>
        <button type="button" class="quiet" aria-expanded={help} onClick={() => setHelp(!help)} aria-label="keys">?</button>
      </header>
      {help && (
        <p class="notice">
          Keys: <kbd>g</kbd> <kbd>f</kbd> fleet, <kbd>g</kbd> <kbd>n</kbd> network, <kbd>1</kbd> to <kbd>5</kbd> the parts of a job, <kbd>u</kbd> UTC,{" "}
          <kbd>t</kbd> dark or light, arrow keys move in a matrix, with shift they mark a region, <kbd>?</kbd> this.
        </p>
      )}
      <Notices />
      <div role="status">{recordings.word && <p class={recordings.word.bad ? "notice bad" : "notice"}><bdi>{recordings.word.text}</bdi></p>}</div>
      {recordings.over && <p class="dropping" aria-hidden="true">drop the recording (.c4rec) to look at it</p>}
      <main id="main" tabIndex={-1}>
        {route.view === "job" ? <JobView route={route} /> : route.view === "network" ? <NetworkView route={route} /> : <FleetView />}
      </main>
      <footer class="dim">C4 {live.fleet?.version ?? ""}</footer>
    </>
  );
}
